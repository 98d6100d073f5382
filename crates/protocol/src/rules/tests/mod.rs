//! Rows of text: an instruction's operands and attributes, and the results or `PyTorch`'s error. The texts were
//! compared with `PyTorch` 2.15 on the CPU.

mod contract;
mod create;
mod elementwise;
mod index;
mod properties;
mod reduce;
mod train;
mod view;

use super::{ErrorClass, RuleArg, RuleError, infer};
use crate::operator::OperandKind;
use crate::{Attr, AttrInfo, AttrKind, Dims, Dtype, Meta, Op, Scalar};

/// Checks that `line` gives `expected`: metadata of the results, or `ClassError: text`.
///
/// A line is `op operands... name=value...`. An operand is `f32[2,3]`, a number, `true`, or `_`
/// where it is absent. Attributes that are not given are absent, else zero, false or the first
/// word.
fn check(line: &str, expected: &str) {
    let got = match outcome(line) {
        Ok(outputs) => outputs.iter().map(Meta::to_string).collect::<Vec<_>>().join(" "),
        Err(error) => {
            // The suffix names the call, so rows need not repeat it.
            let (text, suffix) = error.text.rsplit_once("; ").expect("a suffix");
            let name = line.split(' ').next().expect("an operator");
            assert!(suffix.starts_with(name), "{line}: {}", error.text);
            format!("{}: {text}", error.class.python())
        }
    };
    assert_eq!(got, expected, "{line}");
}

fn check_all(rows: &[(&str, &str)]) {
    for (line, expected) in rows {
        check(line, expected);
    }
}

fn outcome(line: &str) -> Result<super::Outputs, RuleError> {
    let mut words = line.split(' ');
    let name = words.next().expect("an operator");
    let op = Op::from_name(name).unwrap_or_else(|| panic!("no operator {name}"));
    let words: Vec<&str> = words.collect();
    let (attrs, operands): (Vec<&str>, Vec<&str>) =
        words.into_iter().partition(|word| word.contains('='));
    let metas: Vec<Option<Meta>> = operands.iter().map(|word| meta(word)).collect();
    let mut args: Vec<RuleArg<'_>> = Vec::new();
    for (word, meta) in operands.iter().zip(&metas) {
        args.push(match meta {
            Some(meta) => RuleArg::Value(meta),
            None if *word == "_" => RuleArg::Absent,
            None => RuleArg::Scalar(scalar(word)),
        });
    }
    // Optional operands at the end may be left out of a row.
    for info in op.info().operands.iter().skip(args.len()) {
        if info.kind == OperandKind::Optional {
            args.push(RuleArg::Absent);
        }
    }
    let attrs: Vec<Attr> = op.info().attrs.iter().map(|info| attr(info, &attrs)).collect();
    infer(op, &args, &attrs)
}

fn meta(word: &str) -> Option<Meta> {
    let (dtype, sizes) = word.strip_suffix(']')?.split_once('[')?;
    Some(Meta::new(Dtype::from_short(dtype)?, dims(sizes)))
}

fn dims(list: &str) -> Dims {
    let sizes: Vec<i64> = list
        .split(',')
        .filter(|size| !size.is_empty())
        .map(|size| size.parse().expect("a size"))
        .collect();
    Dims::new(&sizes).expect("at most eight")
}

fn scalar(word: &str) -> Scalar {
    if let Ok(value) = word.parse() {
        return Scalar::Bool(value);
    }
    if let Ok(value) = word.parse() {
        return Scalar::Int(value);
    }
    Scalar::Float(word.parse().unwrap_or_else(|_| panic!("no number: {word}")))
}

fn attr(info: &AttrInfo, given: &[&str]) -> Attr {
    let value = given.iter().find_map(|word| word.strip_prefix(info.name)?.strip_prefix('='));
    let Some(value) = value else { return default(info) };
    match info.kind {
        AttrKind::Bool => Attr::Bool(value.parse().expect("a bool")),
        AttrKind::Int => Attr::Int(value.parse().expect("an integer")),
        AttrKind::Float => Attr::Float(value.parse().expect("a float")),
        AttrKind::Scalar => Attr::Scalar(scalar(value)),
        AttrKind::Dtype => Attr::Dtype(Dtype::from_short(value).expect("a dtype")),
        AttrKind::Ints => Attr::Ints(dims(value.trim_matches(['[', ']']))),
        AttrKind::List => Attr::List(dims(value.trim_matches(['[', ']'])).as_slice().into()),
        AttrKind::Text => Attr::Text(value.into()),
        AttrKind::Choice(choices) => {
            let index = choices.iter().position(|word| *word == value).expect("a choice");
            Attr::Choice(u8::try_from(index).expect("few choices"))
        }
    }
}

fn default(info: &AttrInfo) -> Attr {
    if info.optional {
        return Attr::Absent;
    }
    match info.kind {
        AttrKind::Bool => Attr::Bool(false),
        AttrKind::Int => Attr::Int(0),
        AttrKind::Float => Attr::Float(0.0),
        AttrKind::Scalar => Attr::Scalar(Scalar::Int(0)),
        AttrKind::Dtype => Attr::Dtype(Dtype::F32),
        AttrKind::Ints => Attr::Ints(Dims::EMPTY),
        AttrKind::List => Attr::List([].into()),
        AttrKind::Text => Attr::Text("".into()),
        AttrKind::Choice(_) => Attr::Choice(0),
    }
}

#[test]
fn the_suffix_names_operator_and_operands() {
    let error = outcome("matmul f32[2,3] f32[4,5]").expect_err("sizes differ");
    assert_eq!(error.class, ErrorClass::Shape);
    assert_eq!(
        error.text,
        "mm: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5); matmul f32[2,3] f32[4,5]"
    );
    let error = outcome("where bool[2] 1 f32[3]").expect_err("shapes differ");
    assert!(error.text.ends_with("; where bool[2] 1 f32[3]"), "{}", error.text);
}

#[test]
fn the_class_says_what_the_mistake_is_about() {
    for (line, class) in [
        ("add f32[2] f32[3]", ErrorClass::Shape),
        ("reshape f32[6] size=[4]", ErrorClass::Shape),
        ("matmul f32[2,2] f64[2,2]", ErrorClass::Dtype),
        ("matmul f32[1,2,2] f64[1,2,2]", ErrorClass::Dtype),
        ("gather f32[2,3] f32[2,3]", ErrorClass::Dtype),
        ("embedding f32[3,4] f32[2]", ErrorClass::Dtype),
        ("where f32[2] f32[2] f32[2]", ErrorClass::Dtype),
        ("mean i64[2]", ErrorClass::UnsupportedDtype),
        ("bitwise_and f32[2] f32[2]", ErrorClass::UnsupportedDtype),
        ("sum f32[2] dim=[3]", ErrorClass::Index),
        ("clamp f32[2]", ErrorClass::Runtime),
    ] {
        assert_eq!(outcome(line).expect_err(line).class, class, "{line}");
    }
}

#[test]
fn malformed_calls_are_refused() {
    let meta = Meta::new(Dtype::F32, Dims::EMPTY);
    let value = RuleArg::Value(&meta);
    let refused = |op, operands: &[RuleArg<'_>], attrs: &[Attr], text: &str| {
        let error = infer(op, operands, attrs).expect_err("malformed");
        assert!(error.text.starts_with(text), "{}", error.text);
        assert_eq!(error.class, ErrorClass::Runtime);
    };
    refused(Op::Add, &[value], &[], "add: takes 2 operands, got 1");
    refused(Op::Add, &[value; 3], &[], "add: takes 2 operands, got 3");
    refused(Op::Add, &[value, RuleArg::Absent], &[], "add: operand 'other' is absent");
    refused(Op::Add, &[value; 2], &[Attr::Int(1)], "add: takes 0 attributes, got 1");
    refused(Op::Flip, &[value], &[Attr::Int(1)], "flip: attribute 'dims' is Int(1)");
    refused(Op::Flip, &[value], &[Attr::Absent], "flip: attribute 'dims' is Absent");
    refused(Op::Gelu, &[value], &[Attr::Choice(2)], "gelu: attribute 'approximate' is Choice(2)");
}
