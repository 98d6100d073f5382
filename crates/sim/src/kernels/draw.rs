//! Numbers that hang on their place in the whole tensor, and on nothing else.

use super::{Refusal, is_float};
use crate::compute::Region;
use crate::random::Random;
use crate::tensor::{PRIME, Tensor};
use gt_protocol::Dtype;

pub fn drawn(region: &Region, dtype: Dtype, draw: i64) -> Result<Tensor, Refusal> {
    if !is_float(dtype) {
        return Err(Refusal::Form("uniform whole numbers"));
    }
    Ok(Tensor::from_fn(&region.dims, dtype, |index| number(region, index, draw)))
}

/// Twice the elements that stay, zeros for the others; and which ones stay.
pub fn dropout(operand: &Tensor, region: &Region, draw: i64) -> Result<Vec<Tensor>, Refusal> {
    if !is_float(operand.dtype) {
        return Err(Refusal::Form("whole numbers dropped out"));
    }
    let mask = Tensor::from_fn(&operand.dims, Dtype::Bool, |index| number(region, index, draw) & 1);
    let kept = Tensor::from_fn(&operand.dims, operand.dtype, |index| {
        2 * operand.at(index) * mask.at(index)
    });
    Ok(vec![kept, mask])
}

fn number(region: &Region, index: &[usize], draw: i64) -> u64 {
    let places = index.iter().zip(&region.start).zip(&region.whole);
    let flat = places.fold(0, |flat, ((place, start), whole)| flat * whole + start + place);
    let flat = u64::try_from(flat).unwrap_or(u64::MAX);
    Random::new(draw.cast_unsigned() << 32 ^ flat).next() % PRIME
}
