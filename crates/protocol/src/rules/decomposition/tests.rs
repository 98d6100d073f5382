//! The definitions as text: all of them parse, and the steps of a call are compared as a trace.

use super::definition::definitions;
use super::{Source, decompose};
use crate::placement::{Placement, ShardRanges};
use crate::rules::spread::{InputSpec, OpSpec};
use crate::rules::{RuleArg, infer};
use crate::{Attr, Dims, Dtype, Meta, Op};

/// The operators of the steps of `line`, whose first operand is sharded in two along `dim`.
fn steps(op: Op, dims: &[i64], dim: usize, attrs: &[Attr]) -> Option<Vec<&'static str>> {
    let meta = Meta::new(Dtype::F32, Dims::new(dims)?);
    let outputs = infer(op, &[RuleArg::Value(&meta)], attrs).ok()?;
    let placement = Placement::Shard { dim, ranges: ShardRanges::even(*dims.get(dim)?, 2) };
    let args = [InputSpec { meta: Some(&meta), placement: &placement }];
    let call = OpSpec { op, args: &args, attrs, outputs: &outputs, members: 2 };
    let decomposition = decompose(&call)?;
    assert!(decomposition.results.iter().all(|result| !matches!(result, Source::Absent)));
    Some(decomposition.steps.iter().map(|step| step.op.info().name).collect())
}

#[test]
fn every_definition_parses() {
    let defined = Op::table().iter().filter(|info| !definitions(info.op).is_empty()).count();
    assert_eq!(defined, 30);
}

#[test]
fn a_cut_reduction_is_decomposed() {
    let softmax = [Attr::Int(-1), Attr::Absent];
    let expected = ["amax", "sub", "exp", "sum", "div"];
    assert_eq!(steps(Op::Softmax, &[4, 6], 1, &softmax), Some(expected.to_vec()));
    // Another dimension is sharded: one instruction suffices. An empty operand has no maximum.
    assert_eq!(steps(Op::Softmax, &[4, 6], 0, &softmax), None);
    assert_eq!(steps(Op::Softmax, &[4, 0], 1, &softmax), None);
}

#[test]
fn what_no_result_reads_is_left_out() {
    let var = |keepdim| [Attr::Ints(Dims::EMPTY), Attr::Float(1.0), Attr::Bool(keepdim)];
    let expected = ["sum", "div", "sub", "square", "sum", "div"];
    assert_eq!(steps(Op::Var, &[4, 6], 0, &var(false)), Some(expected.to_vec()));
    let root = ["sum", "div", "sub", "square", "sum", "div", "sqrt"];
    assert_eq!(steps(Op::Std, &[4, 6], 0, &var(false)), Some(root.to_vec()));
    let argmax = [Attr::Int(1), Attr::Bool(true)];
    let expected =
        ["amax", "reshape", "eq", "isnan", "logical_or", "arange", "reshape", "where", "amin"];
    assert_eq!(steps(Op::Argmax, &[4, 6], 1, &argmax), Some(expected.to_vec()));
    let argmax = [Attr::Absent, Attr::Bool(false)];
    assert_eq!(steps(Op::Argmax, &[4, 6], 1, &argmax), Some(vec!["reshape", "argmax"]));
}
