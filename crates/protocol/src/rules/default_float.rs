//! Which operands would become floats by nothing but the default dtype. The rules, as the wire, know float32 only: a
//! client with another default casts these operands itself, so that an instruction means the same to everybody.

use super::outputs::RuleArg;
use crate::operator::Family;
use crate::{DtypeRule, Op, Scalar};

/// The operands of `op`, bit by bit, that a client whose default is not float32 has to make floats of that default
/// first: integers and bools that `PyTorch` computes with as floats because a number or the operator makes them so.
/// Where there are only numbers, those with a point; 0 where a tensor of floats decides, or where nothing is a float.
pub fn floats_by_default(op: Op, operands: &[RuleArg<'_>]) -> u16 {
    let info = op.info();
    // What only selects has no say in the dtype.
    let first = info.first_selected();
    let made = match (info.family, info.dtype) {
        (Family::Elementwise, DtypeRule::Float) => true,
        (Family::Elementwise, DtypeRule::Promote | DtypeRule::Bool) => {
            operands.iter().skip(first).any(is_float)
        }
        (Family::Reduce, rule) => rule == DtypeRule::Float,
        (_, _) => false,
    };
    let tensor_decides = |operand: &RuleArg<'_>| matches!(operand, RuleArg::Value(meta) if meta.dtype.is_differentiable());
    if !made || operands.iter().skip(first).any(tensor_decides) {
        return 0;
    }
    let tensors = bits(operands, first, |operand| matches!(operand, RuleArg::Value(_)));
    if tensors == 0 { bits(operands, first, is_float) } else { tensors }
}

fn is_float(operand: &RuleArg<'_>) -> bool {
    matches!(operand, RuleArg::Scalar(Scalar::Float(_)))
}

fn bits(operands: &[RuleArg<'_>], first: usize, wanted: fn(&RuleArg<'_>) -> bool) -> u16 {
    let found = operands.iter().take(16).enumerate().skip(first);
    found.filter(|(_, operand)| wanted(operand)).fold(0, |bits, (place, _)| bits | (1 << place))
}
