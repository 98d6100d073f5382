//! Rows that take complex numbers: those with the column `complex`.

use super::outputs::RuleArg;
use crate::operator::{Family, Kind};
use crate::{Attr, Dtype, Op};

/// Returns true if a row that is for real numbers only gets complex ones, as operands or as the
/// dtype of an attribute. Complex with half precision counts too: `PyTorch` promotes them to a
/// dtype that GT does not have.
#[cold]
pub fn is_real_only(op: Op, operands: &[RuleArg<'_>], attrs: &[Attr]) -> bool {
    let info = op.info();
    let has = |test: fn(Dtype) -> bool| {
        operands.iter().any(|operand| matches!(operand, RuleArg::Value(meta) if test(meta.dtype)))
    };
    let named = attrs.iter().any(|attr| matches!(attr, Attr::Dtype(dtype) if dtype.is_complex()));
    if info.kind() != Kind::Compute || !(named || has(Dtype::is_complex)) {
        return false;
    }
    !info.complex
        || (info.family != Family::Generic && has(Dtype::is_half) && has(Dtype::is_complex))
}
