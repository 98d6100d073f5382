//! Rules of operators that reorder or reshape elements, take parts, or join tensors.

use super::call::Call;
use super::error::RuleError;
use super::outputs::{Inferred, one, promote};
use super::shape;
use super::shape::{DimSet, length, size, with_size, without, wrap_dim};
use crate::{Attr, Dims, Dtype, Meta, Scalar};

/// Rule from the columns `strided.*`.
pub(super) fn strided(call: &Call<'_>) -> Inferred {
    let operand = call.tensor(0)?;
    let Some(strided) = &call.info.strided else { return Err(call.no_rule()) };
    for (place, attr) in call.attrs.iter().enumerate() {
        let listed: &[i64] = match (attr, strided.dims >> place & 1 != 0) {
            (Attr::Int(dim), true) => std::slice::from_ref(dim),
            (Attr::Ints(dims), true) => dims,
            (_, _) => continue,
        };
        DimSet::of(listed, operand.dims.len())?;
    }
    let sizes = strided.check(call.attrs, &operand.dims).map_err(RuleError::shape)?;
    one(Meta::new(operand.dtype, sizes.ok_or_else(shape::too_many_dims)?))
}

/// PyTorch's `view` with a dtype: the last dimension keeps its number of bytes.
pub(super) fn bitcast(call: &Call<'_>) -> Inferred {
    let (operand, dtype) = (call.tensor(0)?, call.dtype(0)?);
    let (before, after) = (length_of(operand.dtype), length_of(dtype));
    if before == after {
        return one(Meta::new(dtype, operand.dims));
    }
    let views = format!(
        "to view {} as {} (different element sizes)",
        operand.dtype.scalar_type_name(),
        dtype.scalar_type_name()
    );
    let Some(last) = operand.dims.len().checked_sub(1) else {
        return Err(RuleError::shape(format!("self.dim() cannot be 0 {views}")));
    };
    let elements = size(&operand.dims, last);
    if before < after && elements % (after / before) != 0 {
        return Err(RuleError::shape(format!(
            "self.size(-1) must be divisible by {} {views}, but got {elements}",
            after / before
        )));
    }
    one(Meta::new(dtype, with_size(&operand.dims, last, elements.saturating_mul(before) / after)))
}

/// Checks that the selected elements are all in the operand's memory.
pub(super) fn as_strided(call: &Call<'_>) -> Inferred {
    let operand = call.tensor(0)?;
    let (dims, strides, offset) = (*call.dims(0)?, *call.dims(1)?, call.integer(2)?);
    if dims.len() != strides.len() {
        return Err(RuleError::shape("mismatch in length of strides and shape"));
    }
    if strides.iter().any(|&stride| stride < 0) {
        return Err(RuleError::shape(format!(
            "as_strided: Negative strides are not supported at the moment, got strides: {strides}"
        )));
    }
    if offset < 0 {
        return Err(RuleError::shape(format!("Tensor: invalid storage offset {offset}")));
    }
    shape::check_size(&dims)?;
    let last = |end: i64, (&size, &stride): (&i64, &i64)| {
        end.saturating_add(stride.saturating_mul(size - 1))
    };
    let end = dims.iter().zip(strides.iter()).fold(offset, last).saturating_add(1);
    let bytes = length_of(operand.dtype);
    let (needed, held) = (end.saturating_mul(bytes), operand.dims.elements().map(|n| n * bytes));
    if !dims.contains(&0) && held.is_none_or(|held| needed > held) {
        return Err(RuleError::shape(format!(
            "setStorage: sizes {dims}, strides {strides}, storage offset {offset}, and itemsize {bytes} requiring a \
             storage size of {needed} are out of bounds for storage of size {}",
            held.unwrap_or_default()
        )));
    }
    one(Meta::new(operand.dtype, dims))
}

/// Bytes of an element.
fn length_of(dtype: Dtype) -> i64 {
    dtype.size().cast_signed()
}

pub(super) fn reshape(call: &Call<'_>) -> Inferred {
    let (operand, target) = (call.tensor(0)?, call.dims(0)?);
    one(Meta::new(operand.dtype, reshaped(operand, target)?))
}

fn reshaped(operand: &Meta, target: &Dims) -> Result<Dims, RuleError> {
    let mut inferred = None;
    let mut known: Option<i64> = Some(1);
    for (dim, &size) in target.iter().enumerate() {
        if size == -1 {
            if inferred.replace(dim).is_some() {
                return Err(RuleError::shape("only one dimension can be inferred"));
            }
        } else if size < 0 {
            return Err(RuleError::shape(format!(
                "invalid shape dimension {size} at index {dim} of shape {target}"
            )));
        } else {
            known = known.and_then(|known| known.checked_mul(size));
        }
    }
    let elements = operand.elements();
    let invalid =
        || RuleError::shape(format!("shape '{target}' is invalid for input of size {elements}"));
    let known = known.ok_or_else(invalid)?;
    let Some(dim) = inferred else {
        return if known == elements { Ok(*target) } else { Err(invalid()) };
    };
    if known == 0 && elements == 0 {
        return Err(RuleError::shape(format!(
            "cannot reshape tensor of 0 elements into shape {target} because the unspecified dimension size -1 can be \
             any value and is ambiguous"
        )));
    }
    match elements.checked_rem(known).zip(elements.checked_div(known)) {
        Some((0, size)) => Ok(with_size(target, dim, size)),
        Some(_) | None => Err(invalid()),
    }
}

pub(super) fn permute(call: &Call<'_>) -> Inferred {
    let (operand, order) = (call.tensor(0)?, call.dims(0)?);
    let rank = operand.dims.len();
    if order.len() != rank {
        return Err(RuleError::shape(format!(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired \
             ordering of dimensions i.e. input.dim() = {rank} is not equal to len(dims) = {}",
            order.len()
        )));
    }
    let mut seen = DimSet::default();
    let mut dims = Dims::EMPTY;
    for &dim in order.iter() {
        let dim = wrap_dim(dim, rank)?;
        if !seen.insert(dim) || !dims.push(size(&operand.dims, dim)) {
            return Err(RuleError::shape("permute(): duplicate dims are not allowed."));
        }
    }
    one(Meta::new(operand.dtype, dims))
}

pub(super) fn expand(call: &Call<'_>) -> Inferred {
    let (operand, target) = (call.tensor(0)?, call.dims(0)?);
    let mut dims = *target;
    let leading = target.len().saturating_sub(operand.dims.len());
    let kept = dims.as_mut_slice().iter_mut().enumerate().filter(|(_, size)| **size == -1);
    for (dim, place) in kept {
        let Some(own) = dim.checked_sub(leading) else {
            if operand.dims.is_empty() {
                return Err(RuleError::shape("numel: integer multiplication overflow"));
            }
            return Err(RuleError::shape(format!(
                "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {dim}"
            )));
        };
        *place = size(&operand.dims, own);
    }
    if !shape::expands_to(&operand.dims, &dims) {
        return Err(shape::cannot_expand(&operand.dims, operand.dtype, &dims, target));
    }
    one(Meta::new(operand.dtype, dims))
}

pub(super) fn slice(call: &Call<'_>) -> Inferred {
    let operand = call.tensor(0)?;
    one(Meta::new(operand.dtype, sliced(call, &operand.dims)?))
}

fn sliced(call: &Call<'_>, dims: &Dims) -> Result<Dims, RuleError> {
    let [dim, start, end, step] = call.integers()?;
    if dims.is_empty() {
        return Err(RuleError::index("slice() cannot be applied to a 0-dim tensor."));
    }
    let dim = wrap_dim(dim, dims.len())?;
    if step <= 0 {
        return Err(RuleError::shape("slice step must be positive"));
    }
    let size = size(dims, dim).max(0);
    let from_front = |bound: i64| if bound < 0 { bound.saturating_add(size) } else { bound };
    let start = from_front(start).clamp(0, size);
    let end = from_front(end).clamp(start, size);
    // Rounded up; `step` is positive.
    let (whole, rest) = ((end - start) / step, (end - start) % step);
    Ok(with_size(dims, dim, whole + i64::from(rest > 0)))
}

pub(super) fn select(call: &Call<'_>) -> Inferred {
    let operand = call.tensor(0)?;
    one(Meta::new(operand.dtype, selected(call, &operand.dims)?))
}

fn selected(call: &Call<'_>, dims: &Dims) -> Result<Dims, RuleError> {
    let [dim, index] = call.integers()?;
    if dims.is_empty() {
        return Err(RuleError::index("select() cannot be applied to a 0-dim tensor."));
    }
    let dim = wrap_dim(dim, dims.len())?;
    let size = size(dims, dim);
    if index >= size || index < size.saturating_neg() {
        return Err(RuleError::index(format!(
            "select(): index {index} out of range for tensor of size {dims} at dimension {dim}"
        )));
    }
    without(dims, dim)
}

pub(super) fn diagonal(call: &Call<'_>) -> Inferred {
    let operand = call.tensor(0)?;
    one(Meta::new(operand.dtype, diagonal_of(call, &operand.dims)?))
}

fn diagonal_of(call: &Call<'_>, sizes: &Dims) -> Result<Dims, RuleError> {
    let [offset, dim1, dim2] = call.integers()?;
    let [first, second] = [wrap_dim(dim1, sizes.len())?, wrap_dim(dim2, sizes.len())?];
    if first == second {
        return Err(RuleError::shape(format!(
            "diagonal dimensions cannot be identical {dim1}, {dim2}"
        )));
    }
    let [rows, columns] = [size(sizes, first), size(sizes, second)];
    let length = if offset >= 0 {
        rows.min(columns.saturating_sub(offset))
    } else {
        rows.saturating_add(offset).min(columns)
    };
    let others = sizes.iter().enumerate().filter(|(dim, _)| *dim != first && *dim != second);
    shape::dims(others.map(|(_, &size)| size).chain([length.max(0)]))
}

pub(super) fn slice_scatter(call: &Call<'_>) -> Inferred {
    let target = call.tensor(0)?;
    written(call, sliced(call, &target.dims)?)
}

pub(super) fn select_scatter(call: &Call<'_>) -> Inferred {
    let target = call.tensor(0)?;
    written(call, selected(call, &target.dims)?)
}

pub(super) fn diagonal_scatter(call: &Call<'_>) -> Inferred {
    let target = call.tensor(0)?;
    written(call, diagonal_of(call, &target.dims)?)
}

/// The first operand's metadata, after a check that the second has the shape of the part that it
/// replaces.
fn written(call: &Call<'_>, part: Dims) -> Inferred {
    let [target, source] = call.tensors()?;
    if source.dims != part {
        return Err(RuleError::shape(format!(
            "expected src to have a size equal to the slice of self. src size = {}, slice size = {part}",
            source.dims
        )));
    }
    one(*target)
}

pub(super) fn flip(call: &Call<'_>) -> Inferred {
    let operand = call.tensor(0)?;
    DimSet::of(call.dims(0)?, operand.dims.len())?;
    one(*operand)
}

pub(super) fn pad(call: &Call<'_>) -> Inferred {
    let (operand, pad, value) = (call.tensor(0)?, call.dims(0)?, call.float(1)?);
    let rank = operand.dims.len();
    if pad.len() % 2 != 0 {
        return Err(RuleError::shape("Padding length must be divisible by 2"));
    }
    if pad.len() / 2 > rank {
        return Err(RuleError::shape(format!(
            "Padding length should be less than or equal to two times the input dimension but got padding length {} \
             and input of dimension {rank}",
            pad.len()
        )));
    }
    let mut dims = operand.dims;
    for (size, pair) in dims.as_mut_slice().iter_mut().rev().zip(pad.chunks(2)) {
        let cropped = pair.iter().fold(*size, |size, side| size.saturating_add(*side.min(&0)));
        if cropped < 0 {
            return Err(RuleError::shape("narrow(): length must be non-negative."));
        }
        *size = pair.iter().fold(cropped, |size, side| size.saturating_add(*side.max(&0)));
    }
    if pad.iter().any(|side| *side > 0) {
        shape::check_stored(Scalar::Float(value), operand.dtype)?;
    }
    one(Meta::new(operand.dtype, dims))
}

pub(super) fn repeat(call: &Call<'_>) -> Inferred {
    let (operand, repeats) = (call.tensor(0)?, call.dims(0)?);
    let Some(leading) = repeats.len().checked_sub(operand.dims.len()) else {
        return Err(RuleError::shape(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
        ));
    };
    let mut dims = *repeats;
    for (repeat, &size) in dims.as_mut_slice().iter_mut().skip(leading).zip(operand.dims.iter()) {
        *repeat = repeat.saturating_mul(size);
    }
    one(Meta::new(operand.dtype, dims))
}

pub(super) fn cat(call: &Call<'_>) -> Inferred {
    let dim = call.integer(0)?;
    if call.operands.is_empty() {
        return Err(RuleError::value("torch.cat(): expected a non-empty list of Tensors"));
    }
    for position in 0..call.operands.len() {
        if call.tensor(position)?.dims.is_empty() {
            return Err(RuleError::shape(format!(
                "zero-dimensional tensor (at position {position}) cannot be concatenated"
            )));
        }
    }
    let mut result: Option<(usize, Dims)> = None;
    for position in 0..call.operands.len() {
        let part = &call.tensor(position)?.dims;
        // Empty vectors can be joined with anything: PyTorch once had no other empty tensors.
        if part.as_slice() == [0] {
            continue;
        }
        result = Some(match result {
            None => (wrap_dim(dim, part.len())?, *part),
            Some((dim, whole)) => (dim, joined(&whole, part, dim, position)?),
        });
    }
    let dims = match result {
        Some((_, dims)) => dims,
        None => call.tensor(0)?.dims,
    };
    one(Meta::new(promote(call.operands), dims))
}

fn joined(whole: &Dims, part: &Dims, dim: usize, position: usize) -> Result<Dims, RuleError> {
    if whole.len() != part.len() {
        return Err(RuleError::shape(format!(
            "Tensors must have same number of dimensions: got {} and {}",
            whole.len(),
            part.len()
        )));
    }
    let mut pairs = whole.iter().zip(part.iter()).enumerate();
    if let Some((_, (expected, got))) = pairs.find(|(other, (a, b))| *other != dim && a != b) {
        return Err(RuleError::shape(format!(
            "Sizes of tensors must match except in dimension {dim}. Expected size {expected} but got size {got} for \
             tensor number {position} in the list."
        )));
    }
    Ok(with_size(whole, dim, size(whole, dim).saturating_add(size(part, dim))))
}

pub(super) fn stack(call: &Call<'_>) -> Inferred {
    if call.operands.is_empty() {
        return Err(RuleError::shape("stack expects a non-empty TensorList"));
    }
    let first = &call.tensor(0)?.dims;
    let dim = wrap_dim(call.integer(0)?, first.len().saturating_add(1))?;
    for position in 1..call.operands.len() {
        let other = &call.tensor(position)?.dims;
        if other != first {
            return Err(RuleError::shape(format!(
                "stack expects each tensor to be equal size, but got {first} at entry 0 and {other} at entry {position}"
            )));
        }
    }
    let Some((before, after)) = first.split_at_checked(dim) else {
        unreachable!("dimension {dim} of {first} has been checked")
    };
    let count = length(call.operands.len());
    let dims = shape::dims(before.iter().copied().chain([count]).chain(after.iter().copied()))?;
    one(Meta::new(promote(call.operands), dims))
}
