//! Products summed over an index.

use super::{KernelArg, KernelError, broadcast};
use crate::arithmetic::tensor::{PRIME, ToyTensor};
use gt_protocol::Dtype;

/// `a @ b` over the last two dimensions; a vector gets a dimension that is removed again.
pub fn matmul(a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor, KernelError> {
    if a.rank() == 0 || b.rank() == 0 {
        return Err(KernelError::Form("a product with a scalar"));
    }
    if a.dtype != b.dtype || a.dtype == Dtype::Bool {
        return Err(KernelError::Form("a product of unlike dtypes"));
    }
    let row = if a.rank() == 1 { [&[1], a.dims.as_slice()].concat() } else { a.dims.clone() };
    let column = if b.rank() == 1 { [b.dims.as_slice(), &[1]].concat() } else { b.dims.clone() };
    let (leading_a, leading_b) = (row.len() - 2, column.len() - 2);
    let summed = row[leading_a + 1];
    if column[leading_b] != summed {
        return Err(KernelError::Form("the sizes of the summed index differ"));
    }
    let batch = broadcast(&[&row[..leading_a], &column[..leading_b]])?;
    let dims = [batch.as_slice(), &[row[leading_a], column[leading_b + 1]]].concat();
    let whole_a = ToyTensor { dims: row, ..a.clone() };
    let whole_b = ToyTensor { dims: column, ..b.clone() };
    let mut product = ToyTensor::from_fn(&dims, a.dtype, |index| {
        let (mut left, mut right) = (index.to_vec(), index.to_vec());
        let last = index.len() - 1;
        (0..summed).fold(0, |sum, place| {
            left[last] = place;
            right[last - 1] = place;
            (sum + whole_a.at(&left) * whole_b.at(&right)) % PRIME
        })
    });
    if b.rank() == 1 {
        product.dims.pop();
    }
    if a.rank() == 1 {
        product.dims.remove(product.dims.len() - usize::from(b.rank() > 1) - 1);
    }
    Ok(product)
}

/// `input @ weight.T + bias`
pub fn linear(args: &[KernelArg<'_>]) -> Result<ToyTensor, KernelError> {
    let (input, weight, bias) = (args[0].tensor()?, args[1].tensor()?, args[2].optional());
    let [n, k] = *weight.dims.as_slice() else {
        return Err(KernelError::Form("a weight of two dimensions"));
    };
    let turned =
        ToyTensor::from_fn(&[k, n], weight.dtype, |index| weight.at(&[index[1], index[0]]));
    let product = matmul(input, &turned)?;
    let Some(bias) = bias else { return Ok(product) };
    if bias.dims != [n] || bias.dtype != input.dtype {
        return Err(KernelError::Form("a bias of another shape"));
    }
    Ok(ToyTensor::from_fn(&product.dims, product.dtype, |index| product.at(index) + bias.at(index)))
}
