//! Elementwise operators that leave metadata unchanged: for these a client need not call the rule
//! at every instruction.

use super::infer::infer;
use super::outputs::RuleArg;
use crate::operator::{Family, OpInfo};
use crate::{Dims, Dtype, Meta, Op};
use std::sync::OnceLock;

/// Returns true if the result of `op` has its operands' metadata wherever all of them are values of
/// one float dtype and shape. The rule itself decides, once and for samples: elementwise rules look
/// only at dtypes and at the compatibility of shapes.
#[inline]
pub fn keeps_metadata(op: Op) -> bool {
    static KEEPS: OnceLock<Vec<bool>> = OnceLock::new();
    let keeps = KEEPS.get_or_init(|| Op::table().iter().map(keeps_sample_metadata).collect());
    match keeps.get(op.place()) {
        Some(keeps) => *keeps,
        None => unreachable!("{op:?} is not in the table of {}", keeps.len()),
    }
}

fn keeps_sample_metadata(info: &OpInfo) -> bool {
    if info.family != Family::Elementwise || !info.attrs.is_empty() || info.has_list() {
        return false;
    }
    let shapes = [Dims::new(&[]), Dims::new(&[3]), Dims::new(&[2, 1, 0])];
    let floats = || Dtype::ALL.into_iter().filter(|dtype| dtype.is_float());
    shapes.into_iter().flatten().all(|dims| {
        floats().all(|dtype| {
            let meta = Meta::new(dtype, dims);
            let operands = vec![RuleArg::Value(&meta); info.operands.len()];
            infer(info.op, &operands, &[]).is_ok_and(|results| *results == [meta])
        })
    })
}
