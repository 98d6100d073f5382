//! Reductions over dimensions.

use super::functions::{exponential, logarithm};
use super::{KernelError, is_float, wrap};
use crate::arithmetic::tensor::{HALF, LEAST, PRIME, ToyTensor, inverse, larger, smaller, wide};
use crate::exact::exact;
use gt_protocol::Dtype;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reducer {
    Sum,
    Mean,
    Amax,
    Amin,
    Prod,
    Any,
    All,
}

pub fn reduce(
    operand: &ToyTensor,
    reduction: Reducer,
    dims: Option<&[i64]>,
    keepdim: bool,
) -> Result<ToyTensor, KernelError> {
    let reduced = reduced(operand, dims)?;
    let dtype = match reduction {
        Reducer::Sum | Reducer::Prod if !is_float(operand.dtype) => Dtype::I64,
        Reducer::Mean if !is_float(operand.dtype) => {
            return Err(KernelError::Form("the mean of whole numbers"));
        }
        Reducer::Any | Reducer::All => Dtype::Bool,
        Reducer::Sum | Reducer::Mean | Reducer::Prod | Reducer::Amax | Reducer::Amin => {
            operand.dtype
        }
    };
    let extremum = reduction == Reducer::Amax || reduction == Reducer::Amin;
    let empty = |dim: usize| operand.dims.get(dim) == Some(&0);
    let nothing = reduced.iter().any(|&dim| empty(dim));
    // Without a list, an empty dimension would have to be named.
    if extremum && (nothing || dims.is_none_or(<[i64]>::is_empty) && operand.dims.contains(&0)) {
        return Err(KernelError::Form("the extremum of nothing"));
    }
    let count: usize = reduced.iter().filter_map(|&dim| operand.dims.get(dim)).product();
    let scale = if reduction == Reducer::Mean { inverse(exact::<_, u64>(count)) } else { 1 };
    let start = match reduction {
        Reducer::Sum | Reducer::Mean | Reducer::Any => 0,
        Reducer::Amax => LEAST,
        Reducer::Prod | Reducer::All => 1,
        Reducer::Amin => HALF,
    };
    let result = reduced_over(operand, &reduced, |inner| {
        inner.fold(start, |before, element| match reduction {
            Reducer::Sum | Reducer::Mean => (before + element) % PRIME,
            Reducer::Amax => larger(before, element),
            Reducer::Amin => smaller(before, element),
            Reducer::Prod => before * element % PRIME,
            Reducer::Any => before.max(u64::from(element != 0)),
            Reducer::All => before.min(u64::from(element != 0)),
        }) * scale
    });
    Ok(shaped(result, dtype, &reduced, keepdim))
}

/// The largest (or smallest) element along `dim` and the index of the first one.
pub fn extremum(
    operand: &ToyTensor,
    dim: i64,
    keepdim: bool,
    most: bool,
) -> Result<Vec<ToyTensor>, KernelError> {
    let dim = wrap(dim, operand.rank())?;
    if operand.dims.get(dim) == Some(&0) {
        return Err(KernelError::Form("the extremum of nothing"));
    }
    let values = reduced_over(operand, &[dim], |inner| first_extremum(inner, most).0);
    let places = reduced_over(operand, &[dim], |inner| first_extremum(inner, most).1);
    Ok(vec![
        shaped(values, operand.dtype, &[dim], keepdim),
        shaped(places, Dtype::I64, &[dim], keepdim),
    ])
}

/// The index of the first largest (or smallest) element: along `dim`, or among all elements.
pub fn place(
    operand: &ToyTensor,
    dim: Option<i64>,
    keepdim: bool,
    most: bool,
) -> Result<ToyTensor, KernelError> {
    let dims = match dim {
        Some(dim) => vec![wrap(dim, operand.rank())?],
        None => (0..operand.rank()).collect(),
    };
    let empty = |&dim: &usize| operand.dims.get(dim) == Some(&0);
    if dims.iter().any(empty) || operand.dtype == Dtype::Bool {
        return Err(KernelError::Form("the extremum of nothing"));
    }
    let places = reduced_over(operand, &dims, |inner| first_extremum(inner, most).1);
    Ok(shaped(places, Dtype::I64, &dims, keepdim))
}

fn first_extremum(inner: &mut dyn Iterator<Item = u64>, most: bool) -> (u64, u64) {
    let mut first = (0, 0);
    for (place, element) in (0..).zip(inner) {
        let is_next =
            if most { larger(first.0, element) } else { smaller(first.0, element) } != first.0;
        if place == 0 || is_next {
            first = (element, place);
        }
    }
    first
}

/// The sum of squared deviations from the mean over the count minus `correction`.
pub fn variance(
    operand: &ToyTensor,
    dims: Option<&[i64]>,
    correction: i64,
    keepdim: bool,
) -> Result<ToyTensor, KernelError> {
    if !is_float(operand.dtype) {
        return Err(KernelError::Form("the variance of whole numbers"));
    }
    let reduced = reduced(operand, dims)?;
    let count: usize = reduced.iter().filter_map(|&dim| operand.dims.get(dim)).product();
    let divisor = (wide(count) - correction).max(0);
    let mean = reduced_over(operand, &reduced, sum);
    let share = inverse(exact::<_, u64>(count));
    let squares = ToyTensor::from_fn(&operand.dims, operand.dtype, |index| {
        let away = (operand.at(index) + PRIME - mean.at(index) * share % PRIME) % PRIME;
        away * away
    });
    let scale = inverse(divisor.cast_unsigned());
    let result = reduced_over(&squares, &reduced, |inner| sum(inner) * scale);
    Ok(shaped(result, operand.dtype, &reduced, keepdim))
}

/// `log(sum(exp(x - most))) + most`
pub fn log_sum_exp(
    operand: &ToyTensor,
    dims: &[i64],
    keepdim: bool,
) -> Result<ToyTensor, KernelError> {
    let reduced = reduced(operand, Some(dims))?;
    if !is_float(operand.dtype) {
        return Err(KernelError::Form("no sum of exponentials"));
    }
    let most = reduced_over(operand, &reduced, |inner| inner.reduce(larger).unwrap_or(0));
    let powers = ToyTensor::from_fn(&operand.dims, operand.dtype, |index| {
        exponential(operand.at(index) + PRIME - most.at(index))
    });
    let sums = reduced_over(&powers, &reduced, sum);
    let result = ToyTensor::from_fn(&sums.dims, operand.dtype, |index| {
        logarithm(sums.at(index)) + most.at(index)
    });
    Ok(shaped(result, operand.dtype, &reduced, keepdim))
}

fn sum(inner: &mut dyn Iterator<Item = u64>) -> u64 {
    inner.fold(0, |sum, element| (sum + element) % PRIME)
}

pub fn cumsum(operand: &ToyTensor, dim: i64) -> Result<ToyTensor, KernelError> {
    let dim = wrap(dim, operand.rank())?;
    let dtype = if is_float(operand.dtype) { operand.dtype } else { Dtype::I64 };
    Ok(ToyTensor::from_fn(&operand.dims, dtype, |index| {
        let mut index = index.to_vec();
        let Some(&last) = index.get(dim) else { return operand.at(&index) };
        (0..=last).fold(0, |sum, place| {
            index[dim] = place;
            (sum + operand.at(&index)) % PRIME
        })
    }))
}

fn reduced(operand: &ToyTensor, dims: Option<&[i64]>) -> Result<Vec<usize>, KernelError> {
    match dims {
        None | Some([]) => Ok((0..operand.rank()).collect()),
        Some(dims) => dims.iter().map(|&dim| wrap(dim, operand.rank())).collect(),
    }
}

/// Reduces, keeping the reduced dimensions at size 1. The elements of one reduction come in
/// row-major order.
pub fn reduced_over(
    operand: &ToyTensor,
    reduced: &[usize],
    reduce: impl Fn(&mut dyn Iterator<Item = u64>) -> u64,
) -> ToyTensor {
    let inner: Vec<usize> =
        reduced.iter().filter_map(|&dim| operand.dims.get(dim)).copied().collect();
    let count: usize = inner.iter().product();
    let mut dims = operand.dims.clone();
    for &dim in reduced {
        if let Some(size) = dims.get_mut(dim) {
            *size = 1;
        }
    }
    ToyTensor::from_fn(&dims, operand.dtype, |index| {
        let mut index = index.to_vec();
        reduce(&mut (0..count).map(|step| {
            let mut rest = step;
            for (&dim, &size) in reduced.iter().zip(&inner).rev() {
                index[dim] = rest % size;
                rest /= size;
            }
            operand.at(&index)
        }))
    })
}

fn shaped(mut result: ToyTensor, dtype: Dtype, reduced: &[usize], keepdim: bool) -> ToyTensor {
    result.dtype = dtype;
    if !keepdim {
        let mut dim = 0;
        result.dims.retain(|_| {
            dim += 1;
            !reduced.contains(&(dim - 1))
        });
    }
    result
}
