//! Printing and parsing of lines, and the round trip of every operator.

use super::*;
use crate::instruction::Id;
use crate::operator::Op;
use crate::tests::arbitrary::{for_every_op, number, slot};
use crate::wire;
use proptest::prelude::*;

/// A table of two signals.
struct Scopes;

impl Names for Scopes {
    fn signal_name(&self, id: u16) -> Option<&str> {
        match id {
            1 => Some("layer1"),
            2 => Some("my \"layer\" #2"),
            _ => None,
        }
    }

    fn signal_id(&mut self, name: &str) -> Option<u16> {
        (1..=2).find(|&id| self.signal_name(id) == Some(name))
    }
}

/// The printed form of `line` after parsing it.
fn printed(line: &str, payload: PayloadText) -> String {
    let mut bytes = Vec::new();
    let instruction = parse(line, &mut Scopes, &mut bytes).unwrap().unwrap();
    format(&instruction, &Scopes, payload)
}

/// Checks a line that is printed as it was written.
fn check(line: &str) {
    assert_eq!(printed(line, PayloadText::Full), line);
}

/// Checks a line that is printed in another form.
fn check_other(line: &str, expected: &str) {
    assert_eq!(printed(line, PayloadText::Full), expected);
}

#[test]
fn lines() {
    check("%3 = matmul %1! %2 @layer1 ~12");
    check("%4 = add %1 2.5");
    check("%4 = add 2 %1.3!");
    check("%4 = mul true %1 @\"my \\\"layer\\\" \\u{23}2\"");
    check("%7.0 %7.1 = max_dim %3 dim=0 keepdim=false @77");
    check("%7.0 %8.0 = max_dim %3 dim=-1 keepdim=true");
    check("%5 = clamp %4 _ 1e-05");
    check("%5 = clamp %4 -inf nan:0x7ff8000000000001");
    check("%5 = sum %4 dim=[0,-1] keepdim=false dtype=f32");
    check("%5 = sum %4 keepdim=false");
    check("%5 = sum %4 dim=[] keepdim=false");
    check("%5 = gelu %4 approximate=tanh");
    check("%5 = index %4 _ %2! %3");
    check("free");
    check("free %1! %2!");
    check("signal id=1 name=\"a \\u{23} \\\"b\\\" \\\\ \\n\\t\\u{d}é\" ~4294967295");
    check("%1 = upload size=[3] dtype=u8 payload=0x01ff00");
    check("%72057594037927935 = full size=[] value=-0.0 dtype=f64");
    check("%1 = full size=[2] value=1e+16 dtype=f64");
    check("%1 = full size=[2] value=-1.5e-300 dtype=f64");
}

#[test]
fn other_forms() {
    check_other("TENSOR[3] := ADD TENSOR[0] TENSOR[2]", "%3 = add %0 %2");
    check_other("TENSOR[4] := RELU TENSOR[3]", "%4 = relu %3");
    check_other(
        "TENSOR[7.0] TENSOR[7.1] := MAX_DIM TENSOR[3] keepdim=true dim=0",
        "%7.0 %7.1 = max_dim %3 dim=0 keepdim=true",
    );
    check_other("  %3=add %1\t%2   # f32[2] 12:03:07 @layer1 %4", "%3 = add %1 %2");
    check_other("%5 = clamp %4", "%5 = clamp %4 _ _");
    check_other(
        "%5 = leaky_relu ~3 negative_slope=1 @1 %4",
        "%5 = leaky_relu %4 negative_slope=1.0 @layer1 ~3",
    );
    check_other("%7.0 = relu %3.0#", "%7 = relu %3");
}

#[test]
fn nothing_and_comments() {
    for line in ["", "  ", "# %3 = add %1 %2", "  # \n"] {
        assert_eq!(parse(line, &mut NoNames, &mut Vec::new()).unwrap(), None);
    }
}

#[test]
fn mistakes_name_the_column() {
    let check = |line: &str, expected: &str| {
        let error = parse(line, &mut Scopes, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), expected, "{line}");
    };
    check("%3 = addd %1 %2", "column 6: expected an operator of ops.toml, found `addd`");
    check("%3 add", "column 4: expected `=` or another result, found `add`");
    check("add %1 %2", "column 1: expected 1 result before add, found `add`");
    check("%1 = free %2", "column 6: expected 0 results before free, found `free`");
    check("%3 = add %1", "column 12: expected the operand other of add, found the end of the line");
    check("%3 = add %1 %2 %4", "column 16: expected at most 2 operands, found `%4`");
    check("%3 = add %1 _", "column 13: expected an operand that is not absent, found `_`");
    check(
        "%3 = add %1 2!",
        "column 13: expected `!` behind a value, one of the first 16 operands, found `2!`",
    );
    check("%3 = add %1 x", "column 13: expected an operand, `name=value`, `@` or `~`, found `x`");
    check(
        "%3 = add %1 %2 é=1",
        "column 16: expected an operand, `name=value`, `@` or `~`, found `é=1`",
    );
    check(
        "%3 = add %1 %2 dim=1",
        "column 16: expected an attribute of add: no attribute, found `dim=1`",
    );
    check(
        "%3 = add %1 %99999999999999999999",
        "column 14: expected a value's number below 2^56, and an output's below 256, found `99999999999999999999`",
    );
    check("%3 = sum %1 keepdim=yes", "column 21: expected true or false, found `yes`");
    check(
        "%3 = sum %1",
        "column 12: expected the attribute keepdim of sum, found the end of the line",
    );
    check(
        "%3 = sum %1 keepdim=true keepdim=true",
        "column 26: expected keepdim once, found `keepdim=true`",
    );
    check(
        "%3 = sum %1 dim=[0,x]",
        "column 17: expected a list of at most 8 integers: [0,1], found `[0,x]`",
    );
    check(
        "%3 = all_reduce %1 group=[0,x] reduce=sum tag=1",
        "column 26: expected a list of at most 4096 integers: [0,1], found `[0,x]`",
    );
    check(
        &format!("%3 = all_reduce %1 group=[{}0] reduce=sum tag=1", "0,".repeat(4096)),
        "column 26: expected a list of at most 4096 integers: [0,1], found \
         `[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0`",
    );
    check("%3 = add %1 %2 @no", "column 16: expected a signal that is known, found `@no`");
    check("%3 = add %1 %2 @0", "column 16: expected a signal that is known, found `@0`");
    check("%3 = add %1 %2 ~1 ~2", "column 19: expected one source position, found `~2`");
    check("%3 = add %1%2", "column 12: expected a blank, found `%2`");
    check("signal id=1 name=\"é", "column 20: expected a closing quote, found the end of the line");
    check(
        "%1 = upload size=[1] dtype=u8 payload=@00:1",
        "column 31: expected the payload's bytes (0x…), not a reference, found `payload=@00:1`",
    );
    check(
        "%1 = upload size=[1] dtype=u8 payload=0x0",
        "column 31: expected whole bytes, at most 32768, found `payload=0x0`",
    );
}

#[test]
fn a_long_payload_is_named_by_its_hash_in_a_log() {
    let line = format!("%1 = upload size=[65] dtype=u8 payload=0x{}", "00".repeat(65));
    check(&line);
    let reference = printed(&line, PayloadText::Reference);
    let (_, hash) = reference.split_once("payload=@").unwrap();
    assert_eq!(hash, std::format!("{:032x}:65", fnv128(&[0; 65])));
    let short = "%1 = upload size=[1] dtype=u8 payload=0x2a";
    assert_eq!(printed(short, PayloadText::Reference), short);
}

#[test]
fn every_operator_comes_back() {
    for_every_op(slot, |owned| {
        let instruction = owned.instruction();
        let line = super::format(&instruction, &NoNames, PayloadText::Full);
        prop_assert!(!line.contains(['\n', '\r', '#']), "{}", line);
        let mut bytes = Vec::new();
        let parsed = parse(&line, &mut NoNames, &mut bytes).unwrap().unwrap();
        let (mut expected, mut words) = (Vec::new(), Vec::new());
        wire::encode(&instruction, &mut expected).unwrap();
        wire::encode(&parsed, &mut words).unwrap();
        prop_assert_eq!(words, expected, "{}", line);
        Ok(())
    });
}

#[test]
fn every_operator_comes_back_from_a_trace() {
    for_every_op(number, |owned| {
        let instruction = owned.instruction();
        let line = super::format(&instruction, &NoNames, PayloadText::Full);
        let mut bytes = Vec::new();
        let parsed = parse(&line, &mut NoNames, &mut bytes).unwrap().unwrap();
        prop_assert_eq!(&parsed.outputs, &instruction.outputs);
        prop_assert_eq!(super::format(&parsed, &NoNames, PayloadText::Full), line);
        Ok(())
    });
}

#[test]
fn an_id_of_a_trace_keeps_its_output() {
    let mut bytes = Vec::new();
    let parsed = parse("%8 = relu %7.1", &mut NoNames, &mut bytes).unwrap().unwrap();
    assert_eq!(parsed.op, Op::Relu);
    assert_eq!(parsed.outputs[0], Id::number(8, 0));
    assert_eq!(parsed.values().next(), Some(Id::number(7, 1)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn random_lines_never_panic(
        line in any::<String>(),
        ranges in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..12),
    ) {
        let mut bytes = Vec::new();
        let _ = parse(&line, &mut NoNames, &mut bytes);
        let line = ranges.concat();
        if let Ok(Some(instruction)) = parse(&line, &mut Scopes, &mut bytes) {
            let line = super::format(&instruction, &Scopes, PayloadText::Full);
            prop_assert_eq!(printed(&line, PayloadText::Full), line);
        }
    }
}

const FRAGMENTS: &[&str] = &[
    "%1",
    "%",
    "TENSOR[",
    "]",
    " ",
    " ",
    " ",
    "= ",
    ":=",
    "add",
    "ADD",
    "free",
    "signal",
    "id=1",
    "name=",
    "\"",
    "\\u{",
    "}",
    "\\",
    "é",
    "_",
    "!",
    "2.5",
    "-",
    "nan:0x",
    "1e",
    "@",
    "layer1",
    "~",
    "payload=",
    "0x",
    "upload",
    "size=[",
    ",",
    "dtype=",
    "f32",
    "#",
    ".",
    "%2 = relu %1",
    "%1 = sum ",
    "keepdim=true",
];

/// `docs/wire.md` promises bytes: its examples must parse, and must equal the encoder's output.
#[test]
fn the_page_on_the_wire_tells_the_truth() {
    let page = include_str!("../../../../docs/wire.md");
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with('%')).collect();
    assert!(lines.len() >= 6, "{lines:?}");
    for line in lines {
        check(line.split('#').next().unwrap_or_default().trim_end());
    }
    let capitals = "TENSOR[3] := ADD TENSOR[0] TENSOR[2]";
    assert!(page.contains(capitals));
    check_other(capitals, "%3 = add %0 %2");
    for line in ["%3 = add %1! %2 @5 ~12", "%3 = add %1 2.5"] {
        let (mut bytes, mut words) = (Vec::new(), Vec::new());
        let instruction = parse(line, &mut NoNames, &mut bytes).unwrap().unwrap();
        wire::encode(&instruction, &mut words).unwrap();
        let hex: Vec<String> = words.iter().map(|word| std::format!("{word:08x}")).collect();
        assert!(page.contains(&hex.join(" ")), "{}", hex.join(" "));
    }
}
