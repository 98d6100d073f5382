//! Which elementwise operators leave metadata as it is: a client that knows need not ask the rule at every instruction.

use super::infer::infer;
use super::outputs::Arg;
use crate::operator::{Family, OpInfo};
use crate::{Dims, Dtype, Meta, Op};
use std::sync::OnceLock;

/// Whether the result of `op` has its operands' metadata wherever all of them are values of one float dtype and shape.
/// The rule itself is asked, once and of samples: elementwise rules look at dtypes and whether shapes fit, no further.
#[inline]
pub fn keeps_metadata(op: Op) -> bool {
    static KEEPS: OnceLock<Vec<bool>> = OnceLock::new();
    let keeps = KEEPS.get_or_init(by_code);
    keeps.get(usize::from(op.info().code)).copied().unwrap_or(false)
}

fn by_code() -> Vec<bool> {
    let mut keeps = Vec::new();
    for info in Op::table() {
        let place = usize::from(info.code);
        if keeps.len() <= place {
            keeps.resize(place + 1, false);
        }
        if let Some(entry) = keeps.get_mut(place) {
            *entry = asked(info);
        }
    }
    keeps
}

fn asked(info: &OpInfo) -> bool {
    if info.family != Family::Elementwise || !info.attrs.is_empty() || info.has_list() {
        return false;
    }
    let shapes = [Dims::new(&[]), Dims::new(&[3]), Dims::new(&[2, 1, 0])];
    let floats = || Dtype::ALL.into_iter().filter(|dtype| dtype.is_float());
    shapes.into_iter().flatten().all(|dims| {
        floats().all(|dtype| {
            let meta = Meta::new(dtype, dims);
            let operands = vec![Arg::Value(&meta); info.operands.len()];
            infer(info.op, &operands, &[]).is_ok_and(|results| *results == [meta])
        })
    })
}
