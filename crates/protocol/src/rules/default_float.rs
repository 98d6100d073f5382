//! Operands that become floats only because of the default dtype. The rules and the wire know
//! float32 only: a client with another default casts these operands itself, so that an instruction
//! means the same to every reader.

use super::outputs::RuleArg;
use crate::operator::Family;
use crate::{DtypeRule, Op, Scalar};

/// Bit mask of the operands of `op` that a client whose default is not float32 has to cast to that
/// default first: integers and bools with which `PyTorch` computes as floats because of a number or
/// the operator. Among numbers only, it has the floats; 0 where a float tensor determines the
/// dtype, or where nothing is a float.
pub fn floats_by_default(op: Op, operands: &[RuleArg<'_>]) -> u16 {
    let info = op.info();
    // Operands that only select do not affect the dtype.
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
