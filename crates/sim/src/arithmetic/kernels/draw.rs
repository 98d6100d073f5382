//! Numbers that depend only on their position in the whole tensor.

use super::{KernelError, is_float};
use crate::arithmetic::tensor::{PRIME, ToyTensor};
use crate::exact::exact;
use crate::random::Random;
use gt_protocol::Dtype;

/// The part of a larger tensor that is drawn.
pub struct DrawnBox {
    pub dims: Vec<usize>,
    /// The larger tensor's shape, and the start of the part in it.
    pub whole: Vec<usize>,
    pub start: Vec<usize>,
}

pub fn drawn(drawn_box: &DrawnBox, dtype: Dtype, draw: i64) -> Result<ToyTensor, KernelError> {
    if !is_float(dtype) {
        return Err(KernelError::Form("uniform whole numbers"));
    }
    Ok(ToyTensor::from_fn(&drawn_box.dims, dtype, |index| number(drawn_box, index, draw)))
}

/// Twice the elements that stay, with zeros for the others; and the mask of those that stay.
pub fn dropout(
    operand: &ToyTensor,
    drawn_box: &DrawnBox,
    draw: i64,
) -> Result<Vec<ToyTensor>, KernelError> {
    if !is_float(operand.dtype) {
        return Err(KernelError::Form("whole numbers dropped out"));
    }
    let mask =
        ToyTensor::from_fn(&operand.dims, Dtype::Bool, |index| number(drawn_box, index, draw) & 1);
    let result = ToyTensor::from_fn(&operand.dims, operand.dtype, |index| {
        2 * operand.at(index) * mask.at(index)
    });
    Ok(vec![result, mask])
}

fn number(drawn_box: &DrawnBox, index: &[usize], draw: i64) -> u64 {
    let places = index.iter().zip(&drawn_box.start).zip(&drawn_box.whole);
    let flat = places.fold(0, |flat, ((place, start), whole)| flat * whole + start + place);
    let flat = exact::<_, u64>(flat);
    Random::new(draw.cast_unsigned() << 32 ^ flat).next() % PRIME
}
