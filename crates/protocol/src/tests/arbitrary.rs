//! Any valid instruction of a row, for property tests.

use crate::instruction::{Attr, Id, Instruction, Operand};
use crate::operator::{AttrKind, OpInfo, OperandKind};
use crate::value::{Dims, Dtype, Scalar};
use crate::{text, wire};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use smallvec::SmallVec;

/// An instruction and the bytes that it carries.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    instruction: Instruction<'static>,
    payload: Vec<u8>,
}

impl Owned {
    pub(crate) fn instruction(&self) -> Instruction<'_> {
        Instruction { payload: &self.payload, ..self.instruction.clone() }
    }
}

/// Runs a property for every operator of the table.
pub(crate) fn for_every_op(
    id: impl Fn() -> BoxedStrategy<Id>,
    property: impl Fn(Owned) -> Result<(), TestCaseError>,
) {
    let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    for row in crate::operator::Op::table() {
        if let Err(error) = runner.run(&instruction(row, &id()), &property) {
            panic!("{}: {error}", row.name);
        }
    }
}

/// Next value of a strategy.
pub(crate) fn sample<S: Strategy>(runner: &mut TestRunner, strategy: S) -> S::Value {
    strategy.new_tree(runner).unwrap().current()
}

/// One instruction of every operator, with a line of at most so many characters.
pub(crate) fn every_op_once(runner: &mut TestRunner, line_max: usize) -> Vec<Owned> {
    let one = |row: &'static OpInfo| {
        // The loop ends, because nearly every instruction is short.
        loop {
            let owned = sample(runner, instruction(row, &slot()));
            let line = text::format(&owned.instruction(), &text::NoNames, text::PayloadText::Full);
            if line.len() <= line_max {
                return owned;
            }
        }
    };
    crate::operator::Op::table().iter().map(one).collect()
}

/// An instruction of any operator.
pub(crate) fn any_instruction() -> impl Strategy<Value = Owned> {
    any_row().prop_flat_map(|row| instruction(row, &slot()))
}

pub(crate) fn any_row() -> impl Strategy<Value = &'static OpInfo> {
    (0..crate::operator::Op::table().len()).prop_map(|index| &crate::operator::Op::table()[index])
}

pub(crate) fn slot() -> BoxedStrategy<Id> {
    prop_oneof![0..100_u32, 0..wire::SLOT_LIMIT, Just(wire::SLOT_LIMIT - 1)]
        .prop_map(Id::slot)
        .boxed()
}

/// Id as in a trace.
pub(crate) fn number() -> BoxedStrategy<Id> {
    (0..1_u64 << 56, 0..4_u8).prop_map(|(number, output)| Id::number(number, output)).boxed()
}

fn instruction(row: &OpInfo, id: &BoxedStrategy<Id>) -> BoxedStrategy<Owned> {
    let op = row.op;
    let fixed = usize::from(row.outputs);
    let count = if row.output_list { 1..=5 } else { fixed..=fixed };
    let outputs = prop::collection::vec(id.clone(), count);
    let attrs: Vec<_> = row
        .attrs
        .iter()
        .map(|row| {
            let present = attr(row.kind);
            if row.optional { prop_oneof![Just(Attr::Absent), present].boxed() } else { present }
        })
        .collect();
    let payload = if wire::has_payload(op) {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..100),
            Just(vec![7; wire::PAYLOAD_BYTES_MAX]),
        ]
        .boxed()
    } else {
        Just(Vec::new()).boxed()
    };
    let head = (any::<u32>(), any::<u16>(), any::<u16>());
    (head, outputs, operands(row, id), attrs, payload)
        .prop_map(move |((tag, signal, consumes), outputs, operands, attrs, payload)| {
            let values = operands.iter().map(|operand| matches!(operand, Operand::Value(_)));
            let consumes = consumes & wire::consumable(values);
            let instruction = Instruction {
                tag,
                signal,
                consumes,
                outputs: SmallVec::from_vec(outputs),
                operands: SmallVec::from_vec(operands),
                attrs: SmallVec::from_vec(attrs),
                ..Instruction::new(op)
            };
            Owned { instruction, payload }
        })
        .boxed()
}

fn operands(row: &OpInfo, id: &BoxedStrategy<Id>) -> BoxedStrategy<Vec<Operand>> {
    let present = prop_oneof![
        4 => id.clone().prop_map(Operand::Value),
        1 => scalar().prop_map(Operand::Scalar),
    ];
    let optional = prop_oneof![Just(Operand::Absent), present.clone()];
    let fixed: Vec<_> = row
        .operands
        .iter()
        .filter(|operand| operand.kind != OperandKind::List)
        .map(|operand| match operand.kind {
            OperandKind::Required => present.clone().boxed(),
            OperandKind::Optional | OperandKind::List => optional.clone().boxed(),
        })
        .collect();
    let list_max = if row.has_list() { 20 } else { 0 };
    let list = prop::collection::vec(optional, 0..=list_max);
    (fixed, list).prop_map(|(fixed, list)| [fixed, list].concat()).boxed()
}

fn attr(kind: AttrKind) -> BoxedStrategy<Attr> {
    match kind {
        AttrKind::Bool => any::<bool>().prop_map(Attr::Bool).boxed(),
        AttrKind::Int => int().prop_map(Attr::Int).boxed(),
        AttrKind::Float => float().prop_map(Attr::Float).boxed(),
        AttrKind::Scalar => scalar().prop_map(Attr::Scalar).boxed(),
        AttrKind::Dtype => dtype().prop_map(Attr::Dtype).boxed(),
        AttrKind::Ints => prop::collection::vec(int(), 0..=crate::value::DIMS_MAX)
            .prop_map(|values| Attr::Ints(Dims::new(&values).unwrap()))
            .boxed(),
        AttrKind::List => list().prop_map(|values| Attr::List(values.into())).boxed(),
        AttrKind::Text => text().prop_map(|text| Attr::Text(text.into())).boxed(),
        AttrKind::Choice(words) => {
            (0..u8::try_from(words.len()).unwrap()).prop_map(Attr::Choice).boxed()
        }
    }
}

pub(crate) fn dtype() -> impl Strategy<Value = Dtype> + Clone {
    prop::sample::select(&Dtype::ALL[..])
}

pub(crate) fn text() -> impl Strategy<Value = String> + Clone {
    prop_oneof![
        any::<String>(),
        "[ #\"\\\\\n\r\t\u{0}\u{85}\u{2028}a-z]{0,20}",
        Just("x".repeat(wire::TEXT_BYTES_MAX)),
    ]
}

/// Lists: mostly short; some longer than a shape, some at the limit.
fn list() -> impl Strategy<Value = Vec<i64>> + Clone {
    prop_oneof![
        8 => prop::collection::vec(int(), 0..20),
        1 => Just((0..i64::try_from(wire::LIST_MAX).unwrap()).collect()),
    ]
}

fn int() -> impl Strategy<Value = i64> + Clone {
    prop_oneof![-3..100_i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
}

fn float() -> impl Strategy<Value = f64> + Clone {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        (-100..100_i32).prop_map(f64::from),
        prop::sample::select(vec![
            0.0,
            -0.0,
            1e-5,
            1e16,
            0.1,
            f64::MAX,
            f64::MIN_POSITIVE,
            5e-324,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            -f64::NAN,
            f64::from_bits(0x7ff0_0000_0000_0001),
        ]),
    ]
}

fn scalar() -> impl Strategy<Value = Scalar> + Clone {
    prop_oneof![
        any::<bool>().prop_map(Scalar::Bool),
        int().prop_map(Scalar::Int),
        float().prop_map(Scalar::Float),
    ]
}

/// Words as an attacker would change them: some overwritten, some cut off, some added.
pub(crate) fn mutate(words: &mut Vec<u32>, changes: &[(prop::sample::Index, u32)], cut: bool) {
    for (place, word) in changes {
        if !words.is_empty() {
            let place = place.index(words.len());
            words[place] = match word % 4 {
                0 => *word,
                1 => words[place] ^ 1 << (word >> 2 & 31),
                2 => words[place].wrapping_add(0x1_0000),
                _ => u32::MAX - (word >> 2 & 3),
            };
        }
    }
    if let (true, Some((place, _))) = (cut, changes.first()) {
        words.truncate(place.index(words.len() + 1));
    }
}

pub(crate) fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u32)>> {
    prop::collection::vec(any::<(prop::sample::Index, u32)>(), 1..4)
}
