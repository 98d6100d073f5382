//! Which rows have a meaning for complex numbers: their column `complex` says so.

use super::outputs::RuleArg;
use crate::operator::{Family, Kind};
use crate::{Attr, Dtype, Op};

/// Whether a row is asked for complex numbers, as operands or as the dtype that an attribute names, and is for real ones
/// only. Half precision beside them is, too: what `PyTorch` makes of both is a dtype that there is not.
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
