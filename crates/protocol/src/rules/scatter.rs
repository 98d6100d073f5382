//! Writes by index tensors: part of the index family, whose other rules are in `index`.

use super::call::Call;
use super::error::RuleError;
use super::index::{check_shard, indexed, is_index};
use super::outputs::{Inferred, RuleArg, one};
use super::shape;
use super::shape::{size, wrap_dim};
use crate::{Dims, Meta};

/// `scatter` and `scatter_add`; only the former takes a number as its source.
pub(super) fn scatter(call: &Call<'_>) -> Inferred {
    let [target, index] = call.tensors()?;
    let dim = wrap_dim(call.integer(0)?, target.dims.len())?;
    check_shard(call, size(&target.dims, dim))?;
    let empty = index.dims.contains(&0);
    if !empty && !is_index(index.dtype) {
        return Err(RuleError::dtype("scatter(): Expected dtype int32/int64 for index"));
    }
    let source = match call.operands.get(2) {
        Some(RuleArg::Scalar(value)) if call.info.linear.is_empty() => {
            shape::check_stored(*value, target.dtype)?;
            None
        }
        Some(RuleArg::Value(_) | RuleArg::Scalar(_) | RuleArg::Absent) | None => {
            let source = call.tensor(2)?;
            if source.dtype != target.dtype {
                return Err(RuleError::dtype(
                    "scatter(): Expected self.dtype to be equal to src.dtype",
                ));
            }
            Some(&source.dims)
        }
    };
    if !empty {
        check_scatter(&target.dims, &index.dims, source, dim)?;
    }
    one(*target)
}

/// All three operands have one dtype; `PyTorch`'s texts call the function `scatter`.
pub(super) fn scatter_reduce(call: &Call<'_>) -> Inferred {
    let [target, index, source] = call.tensors()?;
    let dim = wrap_dim(call.integer(0)?, target.dims.len())?;
    let empty = index.dims.contains(&0);
    if !empty && !is_index(index.dtype) {
        return Err(RuleError::dtype("scatter(): Expected dtype int32/int64 for index"));
    }
    if source.dtype != target.dtype {
        return Err(RuleError::dtype("scatter(): Expected self.dtype to be equal to src.dtype"));
    }
    if !empty {
        check_scatter(&target.dims, &index.dims, Some(&source.dims), dim)?;
    }
    one(*target)
}

fn check_scatter(
    target: &Dims,
    index: &Dims,
    source: Option<&Dims>,
    dim: usize,
) -> Result<(), RuleError> {
    let rank = target.len().max(1);
    if rank != index.len().max(1) {
        return Err(RuleError::shape(
            "Index tensor must have the same number of dimensions as self tensor",
        ));
    }
    let larger = |other: &Dims, dim: usize| size(index, dim) > size(other, dim);
    let mut wrong = (0..rank).any(|other| other != dim && larger(target, other));
    if let Some(source) = source {
        if !wrong && !source.is_empty() {
            for other in 0..rank {
                if larger(source, wrap_dim(shape::length(other), source.len())?) {
                    wrong = true;
                    break;
                }
            }
        }
        if source.len().max(1) != index.len().max(1) {
            return Err(RuleError::shape(
                "Index tensor must have the same number of dimensions as src tensor",
            ));
        }
        wrong = wrong || (source.is_empty() && (0..rank).any(|other| larger(source, other)));
    }
    if !wrong {
        return Ok(());
    }
    let of_source = source
        .map(|source| format!(" and to be no larger size than src {source}"))
        .unwrap_or_default();
    Err(RuleError::shape(format!(
        "Expected index {index} to be no larger than self {target} apart from dimension {dim}{of_source}"
    )))
}

pub(super) fn index_add(call: &Call<'_>) -> Inferred {
    let [target, index, source] = call.tensors()?;
    let dim = wrap_dim(call.integer(0)?, target.dims.len())?;
    check_shard(call, size(&target.dims, dim))?;
    if index.dims.len() > 1 {
        return Err(RuleError::index(format!(
            "index_add_(): Index is supposed to be a vector, but got dim: {} with type: {} and size: {}",
            index.dims.len(),
            index.dtype.scalar_type_name(),
            index.dims
        )));
    }
    if !is_index(index.dtype) {
        return Err(RuleError::dtype(format!(
            "index_add_(): Expected dtype int32/int64 for index but got: {}",
            index.dtype.scalar_type_name()
        )));
    }
    if target.dtype != source.dtype {
        return Err(RuleError::dtype(format!(
            "index_add_(): self ({}) and source ({}) must have the same scalar type",
            target.dtype.scalar_type_name(),
            source.dtype.scalar_type_name()
        )));
    }
    check_slices(target, index, source, dim)?;
    one(*target)
}

/// Checks that `source` has one slice for each index, and slices of the target's shape.
fn check_slices(target: &Meta, index: &Meta, source: &Meta, dim: usize) -> Result<(), RuleError> {
    let (indices, slices) = (size(&index.dims, 0), size(&source.dims, dim));
    if indices != slices && source.dims.is_empty() {
        return Err(RuleError::index(format!(
            "Dimension specified as {dim} but tensor has no dimensions"
        )));
    }
    if dim > 0 && dim >= source.dims.len() {
        return Err(RuleError::shape(format!(
            "index_add_(): Indexing dim {dim} is out of bounds of the source tensor with dim {}",
            source.dims.len()
        )));
    }
    if indices != slices {
        return Err(RuleError::shape(format!(
            "index_add_(): Number of indices ({indices}) should be equal to source.size(dim): ({slices}), for dim: {dim}"
        )));
    }
    let same =
        |other: usize| other == dim || size(&source.dims, other) == size(&target.dims, other);
    if source.dims.len() == target.dims.len() && (0..target.dims.len()).all(same) {
        return Ok(());
    }
    Err(RuleError::shape(format!(
        "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = {} \
         source.shape = {}",
        target.dims, source.dims
    )))
}

pub(super) fn index_put(call: &Call<'_>) -> Inferred {
    let [target, values] = call.tensors()?;
    let part = indexed(call, &target.dims, call.operands_from(2))?;
    if !shape::expands_to(&values.dims, &part) {
        return Err(RuleError::shape(format!(
            "shape mismatch: value tensor of shape {} cannot be broadcast to indexing result of shape {part}",
            values.dims
        )));
    }
    if values.dtype != target.dtype {
        return Err(RuleError::dtype(format!(
            "Index put requires the source and destination dtypes match, got {} for the destination and {} for the \
             source.",
            target.dtype.scalar_type_name(),
            values.dtype.scalar_type_name()
        )));
    }
    one(*target)
}
