//! Arithmetic of shapes that the families share, with `PyTorch`'s messages.

use super::error::RuleError;
use crate::meta::DIMS_MAX;
use crate::{Dims, Dtype, Scalar};

/// A set of dimensions of one tensor.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DimSet(u8);

impl DimSet {
    pub const ALL: Self = Self(u8::MAX);

    pub fn contains(self, dim: usize) -> bool {
        dim < DIMS_MAX && self.0 >> dim & 1 == 1
    }

    /// Adds a dimension; returns false if it was in the set.
    pub fn insert(&mut self, dim: usize) -> bool {
        let fresh = dim < DIMS_MAX && !self.contains(dim);
        if fresh {
            self.0 |= 1 << dim;
        }
        fresh
    }

    /// The dimensions of a `rank`-dimensional tensor in a list.
    pub fn of(list: &[i64], rank: usize) -> Result<Self, RuleError> {
        for &dim in list {
            wrap_dim(dim, rank)?;
        }
        let mut set = Self::default();
        for &dim in list {
            let dim = wrap_dim(dim, rank)?;
            if !set.insert(dim) {
                return Err(RuleError::shape(format!(
                    "dim {dim} appears multiple times in the list of dims"
                )));
            }
        }
        Ok(set)
    }
}

/// A dimension counted from the front. A scalar counts as having one dimension.
pub(super) fn wrap_dim(dim: i64, rank: usize) -> Result<usize, RuleError> {
    let range = length(rank).max(1);
    let wrapped = if dim < 0 { dim.saturating_add(range) } else { dim };
    match usize::try_from(wrapped) {
        Ok(position) if wrapped < range => Ok(position),
        Ok(_) | Err(_) => Err(RuleError::index(format!(
            "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
            -range,
            range - 1
        ))),
    }
}

/// Converts a length to a size.
pub(super) fn length(length: usize) -> i64 {
    match i64::try_from(length) {
        Ok(length) => length,
        Err(_) => unreachable!("nothing in memory has {length} elements"),
    }
}

/// Makes a shape of a part of a shape.
pub(super) fn part(sizes: &[i64]) -> Dims {
    match Dims::new(sizes) {
        Some(dims) => dims,
        None => unreachable!("{sizes:?} is no part of a shape"),
    }
}

/// A shape from its sizes.
pub(super) fn dims(sizes: impl IntoIterator<Item = i64>) -> Result<Dims, RuleError> {
    let mut dims = Dims::EMPTY;
    for size in sizes {
        if !dims.push(size) {
            return Err(too_many_dims());
        }
    }
    Ok(dims)
}

#[cold]
pub(super) fn too_many_dims() -> RuleError {
    RuleError::shape(format!("a tensor has at most {DIMS_MAX} dimensions"))
}

/// The size along `dim`; a scalar has size 1.
pub(super) fn size(dims: &Dims, dim: usize) -> i64 {
    dims.get(dim).copied().unwrap_or(1)
}

/// The shape with another size along `dim`.
pub(super) fn with_size(dims: &Dims, dim: usize, size: i64) -> Dims {
    let mut changed = *dims;
    if let Some(place) = changed.as_mut_slice().get_mut(dim) {
        *place = size;
    }
    changed
}

/// The shape without `dim`.
pub(super) fn without(sizes: &Dims, dim: usize) -> Result<Dims, RuleError> {
    let kept = sizes.iter().enumerate().filter(|(position, _)| *position != dim);
    dims(kept.map(|(_, &size)| size))
}

/// Product of sizes, at most `i64::MAX`.
pub(super) fn product(sizes: &[i64]) -> i64 {
    Dims::new(sizes).and_then(|dims| dims.elements()).unwrap_or(i64::MAX)
}

/// The shape that both broadcast to.
pub(super) fn broadcast(a: &Dims, b: &Dims) -> Result<Dims, RuleError> {
    let mut result = *a;
    broadcast_into(&mut result, b)?;
    Ok(result)
}

/// Widens `result` to the broadcast shape of both.
#[inline]
pub(super) fn broadcast_into(result: &mut Dims, other: &Dims) -> Result<(), RuleError> {
    // Not `==`, which the compiler turns into a call of memcmp for a few words.
    let equal = result.len() == other.len() && result.iter().zip(other.iter()).all(|(a, b)| a == b);
    if equal { Ok(()) } else { broadcast_unequal(result, other) }
}

fn broadcast_unequal(result: &mut Dims, other: &Dims) -> Result<(), RuleError> {
    let rank = result.len().max(other.len());
    let mut dims = if result.len() == rank { *result } else { *other };
    // Goes from the last dimension backwards: PyTorch reports the first mismatch in that order.
    for (from_end, place) in dims.as_mut_slice().iter_mut().rev().enumerate() {
        let (a, b) = (size_from_end(result, from_end), size_from_end(other, from_end));
        *place = match (a, b) {
            (a, b) if a == b => a,
            (1, b) => b,
            (a, 1) => a,
            (a, b) => {
                let dim = rank.saturating_sub(from_end.saturating_add(1));
                return Err(RuleError::shape(format!(
                    "The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {dim}"
                )));
            }
        };
    }
    *result = dims;
    Ok(())
}

fn size_from_end(dims: &Dims, from_end: usize) -> i64 {
    dims.iter().rev().nth(from_end).copied().unwrap_or(1)
}

/// Returns true if `sizes` broadcasts to exactly `target`.
pub(super) fn expands_to(sizes: &Dims, target: &Dims) -> bool {
    sizes.len() <= target.len()
        && sizes
            .iter()
            .rev()
            .zip(target.iter().rev())
            .all(|(&size, &goal)| size == 1 || size == goal)
}

/// The error where `sizes` does not broadcast to `resolved`, which the user wrote as `target`.
#[cold]
pub(super) fn cannot_expand(
    sizes: &Dims,
    dtype: Dtype,
    resolved: &Dims,
    target: &Dims,
) -> RuleError {
    let Some(leading) = target.len().checked_sub(sizes.len()) else {
        return RuleError::shape(format!(
            "expand(torch.{}Tensor{{{sizes}}}, size={target}): the number of sizes provided ({}) must be greater or \
             equal to the number of dimensions in the tensor ({})",
            dtype.scalar_type_name(),
            target.len(),
            sizes.len()
        ));
    };
    let mut pairs = sizes.iter().zip(resolved.iter().skip(leading)).enumerate();
    // PyTorch reports the first mismatch from the last dimension backwards.
    let wrong = pairs.rfind(|(_, (size, goal))| **size != 1 && size != goal);
    let (dim, size, goal) = wrong.map_or((0, 1, 1), |(position, (&size, &goal))| {
        (leading.saturating_add(position), size, goal)
    });
    RuleError::shape(format!(
        "The expanded size of the tensor ({goal}) must match the existing size ({size}) at non-singleton dimension \
         {dim}.  Target sizes: {target}.  Tensor sizes: {sizes}"
    ))
}

/// Checks that the shape is possible: no negative size, and no overflow of bytes and strides.
#[inline]
pub(super) fn check_size(dims: &Dims) -> Result<(), RuleError> {
    // Eight bytes for each element, whatever the dtype, so that a cast cannot overflow.
    let mut bytes: i64 = 8;
    for &size in dims.iter() {
        match bytes.checked_mul(size.max(1)) {
            Some(product) if size >= 0 => bytes = product,
            Some(_) | None => return Err(impossible_size(dims)),
        }
    }
    Ok(())
}

#[cold]
fn impossible_size(dims: &Dims) -> RuleError {
    if let Some(size) = dims.iter().find(|size| **size < 0) {
        return RuleError::shape(format!(
            "Trying to create tensor with negative dimension {size}: {dims}"
        ));
    }
    if dims.contains(&0) {
        return RuleError::shape("Stride calculation overflowed");
    }
    RuleError::shape(format!("Storage size calculation overflowed with sizes={dims}"))
}

/// The C++ type in `PyTorch`'s error for a number that does not fit.
pub fn stored_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::U8 => "uint8_t",
        Dtype::I8 => "int8_t",
        Dtype::I16 => "int16_t",
        Dtype::I64 => "int64_t",
        Dtype::Bool
        | Dtype::I32
        | Dtype::F16
        | Dtype::Bf16
        | Dtype::F32
        | Dtype::F64
        | Dtype::C64
        | Dtype::C128 => dtype.cpp_name(),
    }
}

/// Checks that a number that is stored in a tensor, not computed with, fits its dtype.
pub(super) fn check_stored(scalar: Scalar, dtype: Dtype) -> Result<(), RuleError> {
    if scalar.fits(dtype) {
        return Ok(());
    }
    let name = stored_name(dtype);
    Err(RuleError::runtime(format!("value cannot be converted to type {name} without overflow")))
}
