//! Round trips of every operator, and words from a malicious peer.

use super::*;
use crate::instruction::{Attr, Id, Instruction, Operand};
use crate::operator::Op;
use crate::tests::arbitrary::{any_instruction, any_row, changes, for_every_op, mutate, slot};
use crate::value::{Dims, Scalar};
use proptest::prelude::*;

fn words(instruction: &Instruction<'_>) -> Vec<u32> {
    let mut out = Vec::new();
    encode(instruction, &mut out).unwrap();
    out
}

#[test]
fn every_operator_comes_back() {
    for_every_op(slot, |owned| {
        let instruction = owned.instruction();
        let mut words = words(&instruction);
        let length = words.len();
        // A word of the next frame.
        words.push(u32::MAX);
        let (decoded, used) = decode(&words).unwrap();
        prop_assert_eq!(used, length);
        // Compares words, not instructions: a NaN is not equal to itself, but its words are.
        prop_assert_eq!(self::words(&decoded), &words[..length]);
        prop_assert_eq!(decoded.payload, instruction.payload);
        Ok(())
    });
}

#[test]
fn add_is_six_words() {
    let mut add = Instruction { tag: 12, signal: 5, consumes: 1, ..Instruction::new(Op::Add) };
    add.outputs.push(Id::slot(3));
    add.operands.extend([Operand::Value(Id::slot(1)), Operand::Value(Id::slot(2))]);
    assert_eq!(words(&add), [0x0006_0324, 12, 0x0005_0001, 3, 1, 2]);
    add.consumes = 0;
    add.operands[1] = Operand::Scalar(Scalar::Float(2.5));
    let expected = [0x0009_0324, 12, 0x0005_0000, 3, 1, IMMEDIATE, 2, 0, 0x4004_0000];
    assert_eq!(words(&add), expected);
}

#[test]
fn a_list_a_text_and_a_payload() {
    let mut free = Instruction::new(Op::Free);
    free.operands.push(Operand::Value(Id::slot(9)));
    assert_eq!(words(&free), [0x0005_0b01, 0, 0, 1, 9]);
    let mut signal = Instruction::new(Op::Signal);
    signal.attrs.extend([Attr::Int(-1), Attr::Text("layer".into())]);
    let expected = [0x0008_0b05, 0, 0, u32::MAX, u32::MAX, 5, 0x6579_616c, 0x72];
    assert_eq!(words(&signal), expected);
    let mut upload = Instruction { payload: &[1, 2, 3], ..Instruction::new(Op::Upload) };
    upload.outputs.push(Id::slot(1));
    upload.attrs.push(Attr::Ints(Dims::new(&[3]).unwrap()));
    upload.attrs.push(Attr::Dtype(crate::value::Dtype::U8));
    assert_eq!(words(&upload), [0x000a_0105, 0, 0, 1, 1, 3, 0, 1, 3, 0x0003_0201]);
}

#[test]
fn appended_attributes_end_the_frame() {
    let words = |global: Attr, start: Attr| {
        let mut dropout = Instruction::new(Op::Dropout);
        dropout.outputs.extend([Id::slot(1), Id::slot(2)]);
        dropout.operands.push(Operand::Value(Id::slot(3)));
        dropout.attrs.extend([Attr::Float(0.5), Attr::Int(7), Attr::Int(8), global, start]);
        words(&dropout)
    };
    let ints = |size| Attr::Ints(Dims::new(&[size]).unwrap());
    let released = words(Attr::Absent, Attr::Absent);
    assert_eq!(released, [0x000c_0205, 0, 0, 1, 2, 3, 0, 0x3fe0_0000, 7, 0, 8, 0]);
    let longer =
        |length: u32, more: &[u32]| [&[length << 16 | 0x0205], &released[1..], more].concat();
    assert_eq!(words(ints(9), ints(6)), longer(20, &[1, 1, 9, 0, 1, 1, 6, 0]));
    assert_eq!(words(Attr::Absent, ints(6)), longer(17, &[0, 1, 1, 6, 0]));
    assert_eq!(words(ints(9), Attr::Absent), longer(16, &[1, 1, 9, 0]));
    let said = "word 12: 0x0 is no attribute at the end";
    assert_eq!(refusal(&longer(13, &[0])), said);
    assert_eq!(refusal(&longer(14, &[0, 0])), said.replace("12", "13"));
}

/// Error text of `decode`.
fn refusal(words: &[u32]) -> String {
    decode(words).unwrap_err().to_string()
}

#[test]
fn refusals_name_the_word() {
    let add = [0x0006_0324, 0, 0, 3, 1, 2];
    assert!(decode(&add).is_ok());
    let changed = |place: usize, word: u32| {
        let mut words = add;
        words[place] = word;
        refusal(&words)
    };
    assert_eq!(refusal(&[]), "word 0: the words end inside a frame");
    assert_eq!(refusal(&add[..5]), "word 5: the words end inside a frame");
    assert_eq!(changed(0, 0x0005_0324), "word 5: the words end inside a frame");
    assert_eq!(changed(0, 0x0000_0324), "word 0: the words end inside a frame");
    assert_eq!(
        refusal(&[0x0007_0324, 0, 0, 3, 1, 2, 0]),
        "word 6: the declared length holds 1 words too many"
    );
    assert_eq!(changed(0, 0x0006_ffff), "word 0: unknown code 0xffff");
    assert_eq!(changed(2, 4), "word 2: consumes 0x0004 names an operand that is not a value");
    assert_eq!(changed(3, NONE), "word 3: 0xffffffff is not a slot");
    assert_eq!(changed(4, SLOT_LIMIT), "word 4: 0xffff0000 is not a slot");
    assert_eq!(changed(5, NONE), "word 5: a required operand is absent");
    assert_eq!(changed(5, IMMEDIATE), "word 6: the words end inside a frame");
    let free = [0x0004_0b01, 0, 0, u32::MAX];
    assert_eq!(refusal(&free), "word 4: the words end inside a frame");
    let signal = [0x0007_0b05, 0, 0, 0, 0, 1, 0x0161];
    assert_eq!(refusal(&signal), "word 6: padding is not zero");
    let signal = [0x0007_0b05, 0, 0, 0, 0, 1, 0xff];
    assert_eq!(refusal(&signal), "word 6: text is not UTF-8");
    let signal = [0x0006_0b05, 0, 0, 0, 0, 4097];
    assert_eq!(refusal(&signal), "word 5: byte length of 4097 is over the limit");
    let gather = |count: u32| refusal(&[0x0007_0c02, 0, 0, 1, 2, count, 0]);
    assert_eq!(gather(4097), "word 5: length of a list of 4097 is over the limit");
    assert_eq!(gather(4096), "word 7: the words end inside a frame");
}

#[test]
fn what_has_no_binary_form_leaves_no_words() {
    let check = |instruction: &Instruction<'_>, expected: &str| {
        let mut out = vec![7];
        assert_eq!(encode(instruction, &mut out).unwrap_err().to_string(), expected);
        assert_eq!(out, [7]);
    };
    let mut add = Instruction::new(Op::Add);
    check(&add, "add: 0 outputs, its row has 1");
    add.outputs.push(Id::number(7, 1));
    check(&add, "add: 0 operands, its row has 2");
    add.operands.extend([Operand::Absent, Operand::Absent]);
    check(&add, "add: %7.1 is not a slot");
    add.outputs[0] = Id::slot(SLOT_LIMIT);
    check(&add, "add: %4294901760.0 is not a slot");
    add.outputs[0] = Id::slot(1);
    check(&add, "add: operand 0 is absent but required");
    add.consumes = 1;
    check(&add, "add: consumes 0x0001 names an operand that is not a value");
    add.payload = &[1];
    check(&add, "add carries no payload");
    let mut free = Instruction::new(Op::Free);
    free.operands.resize(65_530, Operand::Value(Id::slot(0)));
    assert_eq!(words(&free).len(), 65_534);
    free.operands.resize(65_532, Operand::Value(Id::slot(0)));
    check(&free, "free: 65536 words, the limit is 65535");
    let mut signal = Instruction::new(Op::Signal);
    signal.attrs.extend([Attr::Int(1), Attr::Bool(true)]);
    check(&signal, "signal: name holds a value that does not fit");
    signal.attrs[1] = Attr::Text("x".repeat(4097).into());
    check(&signal, "signal: a text of 4097 bytes, the limit is 4096");
    let mut reduce = Instruction::new(Op::AllReduce);
    reduce.outputs.push(Id::slot(1));
    reduce.operands.push(Operand::Value(Id::slot(0)));
    reduce.attrs.extend([Attr::List(vec![0; 4096].into()), Attr::Choice(0), Attr::Int(1)]);
    assert_eq!(words(&reduce).len(), 3 + 2 + 1 + 2 * 4096 + 1 + 2);
    reduce.attrs[0] = Attr::List(vec![0; 4097].into());
    check(&reduce, "all_reduce: a list of 4097, the limit is 4096");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// The form is canonical: the decoder accepts only the encoder's output.
    #[test]
    fn mutated_frames_are_refused_or_canonical(owned in any_instruction(), changes in changes(), cut in any::<bool>()) {
        let mut words = words(&owned.instruction());
        mutate(&mut words, &changes, cut);
        if let Ok((decoded, used)) = decode(&words) {
            prop_assert_eq!(self::words(&decoded), &words[..used]);
        }
    }

    #[test]
    fn random_words_never_panic(
        mut words in prop::collection::vec(prop_oneof![any::<u32>(), 0..10_u32, u32::MAX - 2..], 0..40),
        row in any_row(),
    ) {
        let length = u32::try_from(words.len()).unwrap();
        if let Some(first) = words.first_mut() {
            *first = length << 16 | u32::from(row.code);
        }
        if let Ok((decoded, used)) = decode(&words) {
            prop_assert_eq!(self::words(&decoded), &words[..used]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn a_view_is_what_decode_builds(
        owned in any_instruction(),
        changes in changes(),
        cut in any::<bool>(),
        changed in any::<bool>(),
    ) {
        let mut words = words(&owned.instruction());
        if changed {
            mutate(&mut words, &changes, cut);
        }
        let decoded = decode(&words).ok().filter(|(_, used)| *used == words.len());
        if let Some(slots) = freed(&words) {
            let (instruction, _) = decoded.as_ref().unwrap();
            let expected: Vec<u32> = instruction.values().filter_map(Id::as_slot).collect();
            prop_assert_eq!((instruction.op, slots), (Op::Free, &expected[..]));
        }
        match InstructionView::new(&words) {
            Ok(Some(view)) => {
                let (instruction, _) = decoded.unwrap();
                let mut scalars = view.scalars.iter();
                let operands = view.operands.iter().map(|&word| match word {
                    IMMEDIATE => Operand::Scalar(*scalars.next().unwrap()),
                    slot => Operand::Value(Id::slot(slot)),
                });
                let mut again = Instruction::new(view.op);
                again.operands.extend(operands);
                again.outputs.extend(view.outputs.iter().map(|&slot| Id::slot(slot)));
                again.attrs.extend(view.attrs);
                let (tag, signal) = (instruction.tag, instruction.signal);
                let again = Instruction { tag, signal, consumes: instruction.consumes, ..again };
                prop_assert_eq!(self::words(&again), words);
            }
            Ok(None) => {}
            Err(_) => prop_assert!(decoded.is_none()),
        }
    }
}

#[test]
fn what_models_emit_has_a_view() {
    let mut sum = Instruction::new(Op::Add);
    sum.outputs.push(Id::slot(3));
    sum.operands.extend([Operand::Value(Id::slot(1)), Operand::Scalar(Scalar::Int(2))]);
    let words = words(&sum);
    let view = InstructionView::new(&words).unwrap().unwrap();
    assert_eq!((view.op, view.outputs, view.operands), (Op::Add, &[3][..], &[1, IMMEDIATE][..]));
    assert_eq!(view.scalars[..], [Scalar::Int(2)]);
    assert_eq!(freed(&[0x0006_0b01, 0, 0, 2, 9, 8]), Some(&[9, 8][..]));
    assert_eq!(freed(&[0x0006_0b01, 0, 1, 2, 9, 8]), None);
}
