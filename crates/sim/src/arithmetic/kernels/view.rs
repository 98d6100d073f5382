//! Kernels that reorder or reshape elements, and that join tensors.

use super::{KernelError, promoted, sizes_of, wrap};
use crate::arithmetic::kernels::KernelArg;
use crate::arithmetic::tensor::{ToyTensor, narrow, residue, wide};

pub fn reshape(operand: &ToyTensor, sizes: &[i64]) -> Result<ToyTensor, KernelError> {
    let known: i64 = sizes.iter().filter(|&&size| size != -1).product();
    let count = wide(operand.data.len());
    if known == 0 && sizes.contains(&-1) {
        return Err(KernelError::Form("a size that any number would be"));
    }
    let missing = count.checked_div(known).unwrap_or(0);
    let sizes: Vec<i64> =
        sizes.iter().map(|&size| if size == -1 { missing } else { size }).collect();
    if sizes.iter().product::<i64>() != count {
        return Err(KernelError::Form("a shape of another number of elements"));
    }
    Ok(ToyTensor { dims: sizes_of(&sizes)?, ..operand.clone() })
}

pub fn permute(operand: &ToyTensor, dims: &[i64]) -> Result<ToyTensor, KernelError> {
    let dims: Vec<usize> =
        dims.iter().map(|&dim| wrap(dim, operand.rank())).collect::<Result<_, _>>()?;
    let mut sorted = dims.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..operand.rank()) {
        return Err(KernelError::Form("not an order of the dimensions"));
    }
    let sizes: Vec<usize> = dims.iter().map(|&dim| operand.dims[dim]).collect();
    Ok(ToyTensor::from_fn(&sizes, operand.dtype, |index| {
        let mut source = vec![0; index.len()];
        for (&dim, &place) in dims.iter().zip(index) {
            source[dim] = place;
        }
        operand.at(&source)
    }))
}

pub fn expand(operand: &ToyTensor, sizes: &[i64]) -> Result<ToyTensor, KernelError> {
    let Some(leading) = sizes.len().checked_sub(operand.rank()) else {
        return Err(KernelError::Form("too few sizes"));
    };
    let mut sizes = sizes.to_vec();
    for (size, &own) in sizes[leading..].iter_mut().zip(&operand.dims) {
        if *size == -1 {
            *size = wide(own);
        } else if own != 1 && wide(own) != *size {
            return Err(KernelError::Form("only a size of 1 is broadcast"));
        }
    }
    let dims = sizes_of(&sizes)?;
    Ok(ToyTensor::from_fn(&dims, operand.dtype, |index| operand.at(index)))
}

/// Start of a slice, its number of elements, and its step.
struct Steps {
    dim: usize,
    start: usize,
    count: usize,
    step: usize,
}

fn steps(operand: &ToyTensor, [dim, start, end, step]: [i64; 4]) -> Result<Steps, KernelError> {
    if operand.rank() == 0 || step < 1 {
        return Err(KernelError::Form("no slice"));
    }
    let dim = wrap(dim, operand.rank())?;
    let size = wide(operand.dims[dim]);
    let bound = |bound: i64| if bound < 0 { bound + size } else { bound };
    let start = bound(start).clamp(0, size);
    let end = bound(end).clamp(start, size);
    let count = narrow((end - start + step - 1) / step);
    Ok(Steps { dim, start: narrow(start), count, step: narrow(step) })
}

pub fn slice(operand: &ToyTensor, attrs: [i64; 4]) -> Result<ToyTensor, KernelError> {
    let Steps { dim, start, count, step } = steps(operand, attrs)?;
    let mut dims = operand.dims.clone();
    dims[dim] = count;
    Ok(ToyTensor::from_fn(&dims, operand.dtype, |index| {
        let mut source = index.to_vec();
        source[dim] = start + source[dim] * step;
        operand.at(&source)
    }))
}

/// The operand with `source` where `slice` reads.
pub fn slice_scatter(
    operand: &ToyTensor,
    source: &ToyTensor,
    attrs: [i64; 4],
) -> Result<ToyTensor, KernelError> {
    let Steps { dim, start, count, step } = steps(operand, attrs)?;
    let mut dims = operand.dims.clone();
    dims[dim] = count;
    if source.dims != dims || source.dtype != operand.dtype {
        return Err(KernelError::Form("a source of another shape"));
    }
    Ok(ToyTensor::from_fn(&operand.dims, operand.dtype, |index| {
        let away = index[dim].checked_sub(start).filter(|away| away % step == 0);
        match away.map(|away| away / step).filter(|&place| place < count) {
            Some(place) => {
                let mut index = index.to_vec();
                index[dim] = place;
                source.at(&index)
            }
            None => operand.at(index),
        }
    }))
}

/// The operand with `source` where `select` reads.
pub fn select_scatter(
    operand: &ToyTensor,
    source: &ToyTensor,
    dim: i64,
    index: i64,
) -> Result<ToyTensor, KernelError> {
    let read = select(operand, dim, index)?;
    if source.dims != read.dims || source.dtype != operand.dtype {
        return Err(KernelError::Form("a source of another shape"));
    }
    let dim = wrap(dim, operand.rank())?;
    let place = narrow(if index < 0 { index + wide(operand.dims[dim]) } else { index });
    Ok(ToyTensor::from_fn(&operand.dims, operand.dtype, |index| {
        if index[dim] != place {
            return operand.at(index);
        }
        let mut index = index.to_vec();
        index.remove(dim);
        source.at(&index)
    }))
}

/// The diagonal of two dimensions, as the last one.
pub fn diagonal(
    operand: &ToyTensor,
    offset: i64,
    dims: [i64; 2],
) -> Result<ToyTensor, KernelError> {
    let [row, column] = [wrap(dims[0], operand.rank())?, wrap(dims[1], operand.rank())?];
    if row == column {
        return Err(KernelError::Form("the diagonal of one dimension"));
    }
    let down = narrow((-offset).max(0));
    let right = narrow(offset.max(0));
    let rows = operand.dims[row].saturating_sub(down);
    let columns = operand.dims[column].saturating_sub(right);
    let others: Vec<usize> =
        (0..operand.rank()).filter(|&dim| dim != row && dim != column).collect();
    let mut sizes: Vec<usize> = others.iter().map(|&dim| operand.dims[dim]).collect();
    sizes.push(rows.min(columns));
    Ok(ToyTensor::from_fn(&sizes, operand.dtype, |index| {
        let mut source = vec![0; operand.rank()];
        for (&dim, &place) in others.iter().zip(index) {
            source[dim] = place;
        }
        let step = index[others.len()];
        (source[row], source[column]) = (down + step, right + step);
        operand.at(&source)
    }))
}

/// Pads the operand. Pairs of amounts before and behind start at the last dimension; negative ones
/// cut off.
pub fn pad(operand: &ToyTensor, pairs: &[i64], value: i64) -> Result<ToyTensor, KernelError> {
    let rank = operand.rank();
    if pairs.len() % 2 == 1 || pairs.len() / 2 > rank {
        return Err(KernelError::Form("no padding"));
    }
    let mut dims = operand.dims.clone();
    let mut before = vec![0; rank];
    for (number, pair) in pairs.chunks(2).enumerate() {
        let dim = rank - 1 - number;
        let size = wide(dims[dim]) + pair[0] + pair[1];
        before[dim] = pair[0];
        dims[dim] =
            usize::try_from(size).map_err(|_| KernelError::Form("more cut off than there is"))?;
    }
    Ok(ToyTensor::from_fn(&dims, operand.dtype, |index| {
        let places = index.iter().zip(&before).zip(&operand.dims);
        let inside = places.map(|((&place, &before), &size)| {
            usize::try_from(wide(place) - before).ok().filter(|&place| place < size)
        });
        let source: Option<Vec<usize>> = inside.collect();
        source.map_or_else(|| residue(value), |source| operand.at(&source))
    }))
}

pub fn repeat(operand: &ToyTensor, repeats: &[usize]) -> Result<ToyTensor, KernelError> {
    let Some(leading) = repeats.len().checked_sub(operand.rank()) else {
        return Err(KernelError::Form("too few repeats"));
    };
    let mut dims = repeats.to_vec();
    for (size, own) in dims[leading..].iter_mut().zip(&operand.dims) {
        *size *= own;
    }
    Ok(ToyTensor::from_fn(&dims, operand.dtype, |index| {
        let places = index[leading..].iter().zip(&operand.dims);
        let source: Vec<usize> = places.map(|(&place, &size)| place % size).collect();
        operand.at(&source)
    }))
}

pub fn select(operand: &ToyTensor, dim: i64, index: i64) -> Result<ToyTensor, KernelError> {
    if operand.rank() == 0 {
        return Err(KernelError::Form("nothing to select from"));
    }
    let dim = wrap(dim, operand.rank())?;
    let size = wide(operand.dims[dim]);
    if index >= size || index < -size {
        return Err(KernelError::Form("no such index"));
    }
    let place = narrow(if index < 0 { index + size } else { index });
    let mut dims = operand.dims.clone();
    dims.remove(dim);
    Ok(ToyTensor::from_fn(&dims, operand.dtype, |index| {
        let mut source = index.to_vec();
        source.insert(dim, place);
        operand.at(&source)
    }))
}

pub fn flip(operand: &ToyTensor, dims: &[i64]) -> Result<ToyTensor, KernelError> {
    let dims: Vec<usize> =
        dims.iter().map(|&dim| wrap(dim, operand.rank())).collect::<Result<_, _>>()?;
    Ok(ToyTensor::from_fn(&operand.dims, operand.dtype, |index| {
        let mut source = index.to_vec();
        for &dim in &dims {
            if let Some(place) = source.get_mut(dim) {
                *place = operand.dims[dim] - 1 - *place;
            }
        }
        operand.at(&source)
    }))
}

/// Joins operands of one rank; empty vectors, which join anything, are not used.
pub fn cat(args: &[KernelArg<'_>], dim: i64) -> Result<ToyTensor, KernelError> {
    let parts: Vec<&ToyTensor> = args.iter().map(|arg| arg.tensor()).collect::<Result<_, _>>()?;
    let [first, ..] = parts.as_slice() else { return Err(KernelError::Form("nothing to join")) };
    if parts.iter().any(|part| part.rank() == 0 || part.rank() != first.rank()) {
        return Err(KernelError::Form("parts of another rank"));
    }
    let dim = wrap(dim, first.rank())?;
    for part in &parts {
        let mut sizes = part.dims.clone();
        sizes[dim] = first.dims[dim];
        if sizes != first.dims {
            return Err(KernelError::Form("parts of other sizes"));
        }
    }
    let mut dims = first.dims.clone();
    dims[dim] = parts.iter().map(|part| part.dims[dim]).sum();
    Ok(ToyTensor::from_fn(&dims, promoted(args), |index| {
        let mut source = index.to_vec();
        for part in &parts {
            match source[dim].checked_sub(part.dims[dim]) {
                None => return part.at(&source),
                Some(rest) => source[dim] = rest,
            }
        }
        0
    }))
}

pub fn stack(args: &[KernelArg<'_>], dim: i64) -> Result<ToyTensor, KernelError> {
    let parts: Vec<&ToyTensor> = args.iter().map(|arg| arg.tensor()).collect::<Result<_, _>>()?;
    let [first, ..] = parts.as_slice() else { return Err(KernelError::Form("nothing to join")) };
    if parts.iter().any(|part| part.dims != first.dims) {
        return Err(KernelError::Form("parts of other sizes"));
    }
    let dim = wrap(dim, first.rank() + 1)?;
    let mut dims = first.dims.clone();
    dims.insert(dim, parts.len());
    Ok(ToyTensor::from_fn(&dims, promoted(args), |index| {
        let mut source = index.to_vec();
        let part = source.remove(dim);
        parts[part].at(&source)
    }))
}
