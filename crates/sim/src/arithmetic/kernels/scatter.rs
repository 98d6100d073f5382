//! Kernels with index tables, and triangles.

use super::index::{check_indices, places};
use super::{KernelArg, KernelError, wrap};
use crate::arithmetic::tensor::{PRIME, ToyTensor, wide};

/// Result of writing several elements to one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The last element.
    Last,
    /// The sum of all, with the element that was there.
    Sum,
}

/// `operand[.., index[..], ..]` along `dim`.
pub fn gather(operand: &ToyTensor, index: &ToyTensor, dim: i64) -> Result<ToyTensor, KernelError> {
    let dim = wrap(dim, operand.rank())?;
    let places = fitting(operand, index, dim)?;
    Ok(ToyTensor::from_fn(&index.dims, operand.dtype, |at| {
        let mut source = at.to_vec();
        source[dim] = places[flat(index, at)];
        operand.at(&source)
    }))
}

/// Operands: target, index, source.
pub fn scatter(args: &[KernelArg<'_>], dim: i64, write: Write) -> Result<ToyTensor, KernelError> {
    let [target, index, source] = [args[0].tensor()?, args[1].tensor()?, args[2].tensor()?];
    let dim = wrap(dim, target.rank())?;
    let places = fitting(target, index, dim)?;
    if source.dims != index.dims || source.dtype != target.dtype {
        return Err(KernelError::Form("a source of another shape"));
    }
    let mut written = target.clone();
    for (number, &place) in places.iter().enumerate() {
        let mut at = unflat(index, number);
        at[dim] = place;
        let position = flat(target, &at);
        let before = if write == Write::Sum { written.data[position] } else { 0 };
        written.data[position] = (before + source.data[number]) % PRIME;
    }
    Ok(written)
}

/// Operands: target, a vector of indices along `dim`, a slice for each.
pub fn index_add(args: &[KernelArg<'_>], dim: i64) -> Result<ToyTensor, KernelError> {
    let [target, index, source] = [args[0].tensor()?, args[1].tensor()?, args[2].tensor()?];
    let dim = wrap(dim, target.rank())?;
    check_indices(index)?;
    let mut expected = target.dims.clone();
    if target.rank() == 0 || index.rank() != 1 {
        return Err(KernelError::Form("a vector of indices"));
    }
    expected[dim] = index.data.len();
    if source.dims != expected || source.dtype != target.dtype {
        return Err(KernelError::Form("a slice for each index"));
    }
    let places = places(index, target.dims[dim])?;
    let mut sums = target.clone();
    for (number, element) in source.data.iter().enumerate() {
        let mut at = unflat(source, number);
        at[dim] = places[at[dim]];
        let position = flat(target, &at);
        sums.data[position] = (sums.data[position] + element) % PRIME;
    }
    Ok(sums)
}

/// Elements not above (`lower`) or not below the diagonal; zeros elsewhere.
pub fn triangle(operand: &ToyTensor, diagonal: i64, lower: bool) -> Result<ToyTensor, KernelError> {
    if operand.rank() < 2 {
        return Err(KernelError::Form("a triangle of a vector"));
    }
    Ok(ToyTensor::from_fn(&operand.dims, operand.dtype, |index| {
        let [.., row, column] = index else { return 0 };
        let right = wide(*column) - wide(*row);
        let stays = if lower { right <= diagonal } else { right >= diagonal };
        if stays { operand.at(index) } else { 0 }
    }))
}

/// The indices in `index`, which is as large as the operand except along `dim`.
fn fitting(operand: &ToyTensor, index: &ToyTensor, dim: usize) -> Result<Vec<usize>, KernelError> {
    check_indices(index)?;
    let mut expected = operand.dims.clone();
    if let (Some(size), Some(&own)) = (expected.get_mut(dim), index.dims.get(dim)) {
        *size = own;
    }
    if operand.rank() == 0 || index.dims != expected {
        return Err(KernelError::Form("a table of another shape"));
    }
    places(index, operand.dims[dim])
}

fn flat(tensor: &ToyTensor, at: &[usize]) -> usize {
    tensor.dims.iter().zip(at).fold(0, |flat, (size, place)| flat * size + place)
}

fn unflat(tensor: &ToyTensor, mut number: usize) -> Vec<usize> {
    let mut at = vec![0; tensor.rank()];
    for (place, &size) in at.iter_mut().zip(&tensor.dims).rev() {
        *place = number % size.max(1);
        number /= size.max(1);
    }
    at
}
