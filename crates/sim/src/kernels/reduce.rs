//! Folds over dimensions.

use super::{Refusal, is_float, wrap};
use crate::tensor::{PRIME, Tensor, inverse};
use gt_protocol::Dtype;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    Sum,
    Mean,
    Amax,
    Amin,
}

pub fn reduce(
    operand: &Tensor,
    fold: Fold,
    dims: Option<&[i64]>,
    keepdim: bool,
) -> Result<Tensor, Refusal> {
    let reduced = reduced(operand, dims)?;
    let dtype = match fold {
        Fold::Sum if !is_float(operand.dtype) => Dtype::I64,
        Fold::Mean if !is_float(operand.dtype) => {
            return Err(Refusal::Form("the mean of whole numbers"));
        }
        Fold::Sum | Fold::Mean | Fold::Amax | Fold::Amin => operand.dtype,
    };
    let extremum = fold == Fold::Amax || fold == Fold::Amin;
    let empty = |dim: usize| operand.dims.get(dim) == Some(&0);
    let nothing = reduced.iter().any(|&dim| empty(dim));
    // Without a list even a dimension that is not there would have to be named.
    if extremum && (nothing || dims.is_none_or(<[i64]>::is_empty) && operand.dims.contains(&0)) {
        return Err(Refusal::Form("the extremum of nothing"));
    }
    let count: usize = reduced.iter().filter_map(|&dim| operand.dims.get(dim)).product();
    let scale = if fold == Fold::Mean { inverse(u64::try_from(count).unwrap_or(0)) } else { 1 };
    let start = if fold == Fold::Amin { PRIME } else { 0 };
    let kept = folded(operand, &reduced, |inner| {
        inner.fold(start, |before, element| match fold {
            Fold::Sum | Fold::Mean => (before + element) % PRIME,
            Fold::Amax => before.max(element),
            Fold::Amin => before.min(element),
        }) * scale
    });
    Ok(shaped(kept, dtype, &reduced, keepdim))
}

/// The maximum along `dim` and the place of the first one.
pub fn max_dim(operand: &Tensor, dim: i64, keepdim: bool) -> Result<Vec<Tensor>, Refusal> {
    let dim = wrap(dim, operand.rank())?;
    if operand.dims.get(dim) == Some(&0) {
        return Err(Refusal::Form("the maximum of nothing"));
    }
    let values = folded(operand, &[dim], |inner| inner.max().unwrap_or(0));
    let places = folded(operand, &[dim], |inner| {
        let first = inner.zip(0..).max_by_key(|&(element, place)| (element, u64::MAX - place));
        first.map_or(0, |(_, place)| place)
    });
    Ok(vec![
        shaped(values, operand.dtype, &[dim], keepdim),
        shaped(places, Dtype::I64, &[dim], keepdim),
    ])
}

pub fn cumsum(operand: &Tensor, dim: i64) -> Result<Tensor, Refusal> {
    let dim = wrap(dim, operand.rank())?;
    let dtype = if is_float(operand.dtype) { operand.dtype } else { Dtype::I64 };
    Ok(Tensor::from_fn(&operand.dims, dtype, |index| {
        let mut index = index.to_vec();
        let Some(&last) = index.get(dim) else { return operand.at(&index) };
        (0..=last).fold(0, |sum, place| {
            index[dim] = place;
            (sum + operand.at(&index)) % PRIME
        })
    }))
}

fn reduced(operand: &Tensor, dims: Option<&[i64]>) -> Result<Vec<usize>, Refusal> {
    match dims {
        None | Some([]) => Ok((0..operand.rank()).collect()),
        Some(dims) => dims.iter().map(|&dim| wrap(dim, operand.rank())).collect(),
    }
}

/// Folded with the reduced dimensions kept at size 1. The elements of one fold come in row-major order.
pub fn folded(
    operand: &Tensor,
    reduced: &[usize],
    fold: impl Fn(&mut dyn Iterator<Item = u64>) -> u64,
) -> Tensor {
    let inner: Vec<usize> =
        reduced.iter().filter_map(|&dim| operand.dims.get(dim)).copied().collect();
    let count: usize = inner.iter().product();
    let mut dims = operand.dims.clone();
    for &dim in reduced {
        if let Some(size) = dims.get_mut(dim) {
            *size = 1;
        }
    }
    Tensor::from_fn(&dims, operand.dtype, |index| {
        let mut index = index.to_vec();
        fold(&mut (0..count).map(|step| {
            let mut rest = step;
            for (&dim, &size) in reduced.iter().zip(&inner).rev() {
                index[dim] = rest % size;
                rest /= size;
            }
            operand.at(&index)
        }))
    })
}

fn shaped(mut kept: Tensor, dtype: Dtype, reduced: &[usize], keepdim: bool) -> Tensor {
    kept.dtype = dtype;
    if !keepdim {
        let mut dim = 0;
        kept.dims.retain(|_| {
            dim += 1;
            !reduced.contains(&(dim - 1))
        });
    }
    kept
}
