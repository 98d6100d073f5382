//! Properties that hold for every operator and any input.

use crate::operator::OperandKind;
use crate::placement::{Placement, ShardRanges};
use crate::rules::spread::{InputSpec, OpSpec, strategies};
use crate::rules::{RuleArg, infer, keeps_metadata, promote};
use crate::{Attr, AttrInfo, AttrKind, Dims, Dtype, Meta, Op, Scalar};
use proptest::prelude::*;

fn any_size() -> impl Strategy<Value = i64> {
    prop_oneof![8 => -2_i64..6, 1 => any::<i64>(), 1 => Just(i64::MAX), 1 => Just(i64::MIN)]
}

fn any_dims() -> impl Strategy<Value = Dims> {
    prop::collection::vec(any_size(), 0..=8)
        .prop_filter_map("at most eight", |sizes| Dims::new(&sizes))
}

fn any_dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(Dtype::ALL.to_vec())
}

fn any_scalar() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        any::<bool>().prop_map(Scalar::Bool),
        any_size().prop_map(Scalar::Int),
        any::<f64>().prop_map(Scalar::Float),
    ]
}

fn any_list() -> impl Strategy<Value = Box<[i64]>> {
    prop::collection::vec(any_size(), 0..12).prop_map(Into::into)
}

fn any_attr() -> impl Strategy<Value = Attr> {
    prop_oneof![
        Just(Attr::Absent),
        any::<bool>().prop_map(Attr::Bool),
        any_size().prop_map(Attr::Int),
        any::<f64>().prop_map(Attr::Float),
        any_scalar().prop_map(Attr::Scalar),
        any_dtype().prop_map(Attr::Dtype),
        any_dims().prop_map(Attr::Ints),
        any_list().prop_map(Attr::List),
        (0_u8..4).prop_map(Attr::Choice),
        Just(Attr::Text("".into())),
    ]
}

/// An attribute of the right kind, so that rules get past the check of the form.
fn fitting_attr(info: AttrInfo) -> BoxedStrategy<Attr> {
    let present = match info.kind {
        AttrKind::Bool => any::<bool>().prop_map(Attr::Bool).boxed(),
        AttrKind::Int => any_size().prop_map(Attr::Int).boxed(),
        AttrKind::Float => any::<f64>().prop_map(Attr::Float).boxed(),
        AttrKind::Scalar => any_scalar().prop_map(Attr::Scalar).boxed(),
        AttrKind::Dtype => any_dtype().prop_map(Attr::Dtype).boxed(),
        AttrKind::Ints => any_dims().prop_map(Attr::Ints).boxed(),
        AttrKind::List => any_list().prop_map(Attr::List).boxed(),
        AttrKind::Text => Just(Attr::Text("".into())).boxed(),
        AttrKind::Choice(words) => {
            let count = u8::try_from(words.len()).expect("few words");
            (0..count).prop_map(Attr::Choice).boxed()
        }
    };
    if info.optional { prop_oneof![Just(Attr::Absent), present].boxed() } else { present }
}

/// An operand without its lifetime.
#[derive(Clone, Debug)]
enum Held {
    Absent,
    Value(Meta),
    Scalar(Scalar),
}

impl Held {
    fn arg(&self) -> RuleArg<'_> {
        match self {
            Self::Absent => RuleArg::Absent,
            Self::Value(meta) => RuleArg::Value(meta),
            Self::Scalar(scalar) => RuleArg::Scalar(*scalar),
        }
    }
}

fn any_held() -> impl Strategy<Value = Held> {
    let small = prop::collection::vec(0_i64..4, 0..4)
        .prop_filter_map("at most eight", |sizes| Dims::new(&sizes));
    let meta =
        |dims| (any_dtype(), dims).prop_map(|(dtype, dims)| Held::Value(Meta::new(dtype, dims)));
    prop_oneof![
        6 => meta(small.boxed()),
        2 => meta(any_dims().boxed()),
        1 => Just(Held::Absent),
        1 => any_scalar().prop_map(Held::Scalar),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    prop::sample::select(Op::table().iter().map(|info| info.op).collect::<Vec<_>>())
}

fn any_call() -> impl Strategy<Value = (Op, Vec<Held>, Vec<Attr>)> {
    any_op().prop_flat_map(|op| {
        let info = op.info();
        let fixed = info.fixed_operands();
        let most = if info.has_list() { fixed + 4 } else { fixed };
        let attrs: Vec<_> = info.attrs.iter().map(|attr| fitting_attr(*attr)).collect();
        (Just(op), prop::collection::vec(any_held(), fixed..=most), attrs)
    })
}

fn check_never_panics(op: Op, held: &[Held], attrs: &[Attr]) -> Result<(), TestCaseError> {
    let args: Vec<RuleArg<'_>> = held.iter().map(Held::arg).collect();
    promote(&args);
    if let Ok(outputs) = infer(op, &args, attrs) {
        prop_assert!(op.info().fits_outputs(outputs.len()), "{} results", outputs.len());
        for output in &outputs {
            prop_assert!(output.dims.iter().all(|size| *size >= 0));
            prop_assert!(output.dims.elements().and_then(|count| count.checked_mul(8)).is_some());
        }
    }
    Ok(())
}

/// Checks that each sharding of each operand has strategies, with a placement for every operand and
/// result.
fn check_strategies(
    op: Op,
    held: &[Held],
    attrs: &[Attr],
    outputs: &[Meta],
) -> Result<(), TestCaseError> {
    let whole = Placement::Replicate;
    for (position, one) in held.iter().enumerate() {
        let Held::Value(meta) = one else { continue };
        for (dim, &size) in meta.dims.iter().enumerate() {
            let cut = Placement::Shard { dim, ranges: ShardRanges::even(size, 2) };
            let input = |(at, held): (usize, &Held)| {
                let meta = if let Held::Value(meta) = held { Some(*meta) } else { None };
                (meta, if at == position { &cut } else { &whole })
            };
            let inputs: Vec<_> = held.iter().enumerate().map(input).collect();
            let args: Vec<_> = inputs
                .iter()
                .map(|(meta, placement)| InputSpec { meta: meta.as_ref(), placement })
                .collect();
            let found = strategies(&OpSpec { op, args: &args, attrs, outputs, members: 2 });
            for strategy in found {
                prop_assert_eq!(strategy.input_specs.len(), held.len());
                prop_assert_eq!(strategy.output_specs.len(), outputs.len());
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_call_of_the_right_form_is_answered((op, held, attrs) in any_call()) {
        check_never_panics(op, &held, &attrs)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn any_call_at_all_is_answered(
        op in any_op(),
        held in prop::collection::vec(any_held(), 0..6),
        attrs in prop::collection::vec(any_attr(), 0..8),
    ) {
        check_never_panics(op, &held, &attrs)?;
    }

    /// A rule known from samples holds for every shape.
    #[test]
    fn what_keeps_metadata_keeps_it(
        dtype in any_dtype().prop_filter("a float", |dtype| dtype.is_float()),
        sizes in prop::collection::vec(0_i64..6, 0..=8),
    ) {
        let meta = Meta::new(dtype, Dims::new(&sizes).expect("at most eight"));
        for info in Op::table().iter().filter(|info| keeps_metadata(info.op)) {
            let results = infer(info.op, &vec![RuleArg::Value(&meta); info.operands.len()], &[]);
            prop_assert_eq!(results.as_deref(), Ok(&[meta][..]), "{}", info.name);
        }
    }

    #[test]
    fn promotion_is_commutative(a in any_dtype(), b in any_dtype()) {
        prop_assert_eq!(a.promote(b), b.promote(a));
    }
}

/// A new operator without a rule fails here.
#[test]
fn every_operator_has_a_rule() {
    let meta = Meta::new(Dtype::F32, Dims::EMPTY);
    for info in Op::table() {
        let operands: Vec<RuleArg<'_>> = info
            .operands
            .iter()
            .filter(|operand| operand.kind != OperandKind::List)
            .map(|_| RuleArg::Value(&meta))
            .collect();
        let attrs: Vec<Attr> = info.attrs.iter().map(super::default).collect();
        if let Err(error) = infer(info.op, &operands, &attrs) {
            assert!(!error.text.contains("no rule"), "{}", error.text);
        }
    }
}

/// Numbers of any size from a client neither delay a strategy nor overflow in it.
#[test]
fn huge_attributes_have_strategies() {
    for (op, sizes, attrs) in [
        (Op::Repeat, &[0][..], vec![Attr::Ints(Dims::new(&[i64::MAX]).expect("one"))]),
        (Op::Slice, &[4], [0, 1, 4, i64::MAX].map(Attr::Int).to_vec()),
        (Op::Diagonal, &[0, 0, 0], [i64::MIN, -2, 2].map(Attr::Int).to_vec()),
        (Op::Unfold, &[4], [0, 2, i64::MAX].map(Attr::Int).to_vec()),
    ] {
        let meta = Meta::new(Dtype::F32, Dims::new(sizes).expect("at most eight"));
        let outputs = infer(op, &[RuleArg::Value(&meta)], &attrs).expect("a result");
        check_strategies(op, &[Held::Value(meta)], &attrs, &outputs).expect("a strategy");
    }
}
