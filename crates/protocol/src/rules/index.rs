//! Reads by index tensors, triangles and sorting. Writes by index tensors are in `scatter`.

use super::call::Call;
use super::error::RuleError;
use super::outputs::{Inferred, RuleArg, one, several};
use super::shape;
use super::shape::{size, with_size, wrap_dim};
use crate::{Attr, Dims, Dtype, Meta};

/// Returns true for an index tensor's dtype: int32 or int64.
pub(super) fn is_index(dtype: Dtype) -> bool {
    dtype == Dtype::I64 || dtype == Dtype::I32
}

/// Checks the attributes `start` and `total`, the last ones, which come together: the operand of
/// `size` is the shard of a dimension of size `total` that begins at `start`.
pub(super) fn check_shard(call: &Call<'_>, size: i64) -> Result<(), RuleError> {
    let place = call.info.attrs.len().saturating_sub(2);
    match (call.attr(place), call.attr(place.saturating_add(1))) {
        (Attr::Absent, Attr::Absent) => Ok(()),
        (Attr::Int(start), Attr::Int(total)) => {
            let end = start.checked_add(size);
            if *start >= 0 && end.is_some_and(|end| end <= *total) {
                return Ok(());
            }
            Err(RuleError::shape(format!(
                "a shard of size {size} from {start} on is outside of a dimension of size {total}"
            )))
        }
        _ => Err(RuleError::runtime("start and total are given together or not at all")),
    }
}

/// Returns true if the operand is a shard.
pub(super) fn is_shard(call: &Call<'_>) -> bool {
    matches!(call.attrs.last(), Some(Attr::Int(_)))
}

fn check_embedding_indices(indices: &Meta, argument: u8, function: &str) -> Result<(), RuleError> {
    if is_index(indices.dtype) {
        return Ok(());
    }
    Err(RuleError::dtype(format!(
        "Expected tensor for argument #{argument} 'indices' to have one of the following scalar types: Long, Int; but \
         got torch.{}Tensor instead (while checking arguments for {function})",
        indices.dtype.scalar_type_name()
    )))
}

pub(super) fn embedding(call: &Call<'_>) -> Inferred {
    let [weight, indices] = call.tensors()?;
    let [rows, width] = *weight.dims.as_slice() else {
        return Err(RuleError::shape("'weight' must be 2-D"));
    };
    check_shard(call, rows)?;
    check_embedding_indices(indices, 1, "embedding")?;
    let dims = shape::dims(indices.dims.iter().copied().chain([width]))?;
    one(Meta::new(weight.dtype, dims))
}

pub(super) fn embedding_backward(call: &Call<'_>) -> Inferred {
    let [grad, indices] = call.tensors()?;
    let rows = call.integer(0)?;
    check_embedding_indices(indices, 2, "embedding_backward")?;
    let Some(&width) = grad.dims.last() else {
        return Err(RuleError::index("Dimension specified as -1 but tensor has no dimensions"));
    };
    let (count, elements) = (indices.elements(), grad.elements());
    if count.checked_mul(width) != Some(elements) {
        return Err(RuleError::shape(format!(
            "shape '[{count}, {width}]' is invalid for input of size {elements}"
        )));
    }
    if rows < 0 {
        return Err(RuleError::shape("zeros: Dimension size must be non-negative."));
    }
    check_shard(call, rows)?;
    one(Meta::new(grad.dtype, shape::dims([rows, width])?))
}

pub(super) fn gather(call: &Call<'_>) -> Inferred {
    let [operand, index] = call.tensors()?;
    let rank = operand.dims.len();
    let dim = wrap_dim(call.integer(0)?, rank)?;
    check_shard(call, size(&operand.dims, dim))?;
    let output = one(Meta::new(operand.dtype, index.dims));
    if index.dims.contains(&0) {
        return output;
    }
    if !is_index(index.dtype) {
        return Err(RuleError::dtype("gather(): Expected dtype int32/int64 for index"));
    }
    if index.dims.len().max(1) != rank.max(1) {
        return Err(RuleError::shape(
            "Index tensor must have the same number of dimensions as input tensor",
        ));
    }
    let larger =
        |other: &usize| *other != dim && size(&index.dims, *other) > size(&operand.dims, *other);
    if let Some(other) = (0..rank).find(larger) {
        return Err(RuleError::shape(format!(
            "Size does not match at dimension {other} expected index {} to be no larger than self {} apart from \
             dimension {dim}",
            index.dims, operand.dims
        )));
    }
    output
}

pub(super) fn index_select(call: &Call<'_>) -> Inferred {
    let [operand, index] = call.tensors()?;
    let dim = wrap_dim(call.integer(0)?, operand.dims.len())?;
    check_shard(call, size(&operand.dims, dim))?;
    if index.dims.len() > 1 {
        return Err(RuleError::index("index_select(): Index is supposed to be a vector"));
    }
    let count = size(&index.dims, 0);
    if operand.dims.is_empty() && count != 1 {
        return Err(RuleError::shape(format!(
            "index_select(): Index to scalar can have only 1 value, got {count} value(s)"
        )));
    }
    if !is_index(index.dtype) {
        return Err(RuleError::dtype("index_select(): Expected dtype int32 or int64 for index"));
    }
    if size(&operand.dims, dim) == 0 && count > 0 && !is_shard(call) {
        return Err(RuleError::shape("index_select(): self indexing axis dim should be positive"));
    }
    one(Meta::new(operand.dtype, with_size(&operand.dims, dim, count)))
}

pub(super) fn index(call: &Call<'_>) -> Inferred {
    let operand = call.tensor(0)?;
    one(Meta::new(operand.dtype, indexed(call, &operand.dims, call.operands_from(1))?))
}

/// Dimension with an index of which the operand holds a shard: attribute `along`, which comes with
/// `start` and `total`.
fn shard_dim(
    call: &Call<'_>,
    dims: &Dims,
    indices: &[RuleArg<'_>],
) -> Result<Option<usize>, RuleError> {
    let Attr::Int(dim) = call.attr(call.info.attrs.len().saturating_sub(3)) else {
        if is_shard(call) {
            return Err(RuleError::runtime("start and total are given with along or not at all"));
        }
        return Ok(None);
    };
    let dim = wrap_dim(*dim, dims.len())?;
    if !is_shard(call) || !matches!(indices.get(dim), Some(RuleArg::Value(_))) {
        return Err(RuleError::runtime("along names a dimension with an index, start and total"));
    }
    check_shard(call, size(dims, dim))?;
    Ok(Some(dim))
}

/// The shape that index tensors select, one for each leading dimension; an absent one keeps its
/// dimension.
pub(super) fn indexed(
    call: &Call<'_>,
    dims: &Dims,
    indices: &[RuleArg<'_>],
) -> Result<Dims, RuleError> {
    let cut = shard_dim(call, dims, indices)?;
    let shared = shared_shape(dims, indices)?;
    let picked = |dim: usize| matches!(indices.get(dim), Some(RuleArg::Value(_)));
    let kept_before = (0..indices.len()).take_while(|dim| !picked(*dim)).count();
    let count = (0..indices.len()).filter(|dim| picked(*dim)).count();
    let adjacent = (kept_before..indices.len()).take(count).all(picked);
    let has_none = |dim| picked(dim) && size(dims, dim) == 0 && cut != Some(dim);
    if !shared.contains(&0) && (0..dims.len()).any(has_none) {
        return Err(RuleError::index("index is out of bounds for dimension with size 0"));
    }
    let kept = dims.iter().enumerate().filter(|(dim, _)| !picked(*dim)).map(|(_, &size)| size);
    // The indices' dimensions come first where the indexed dimensions are not adjacent.
    let leading = if adjacent { kept_before } else { 0 };
    let before = kept.clone().take(leading);
    shape::dims(before.chain(shared.iter().copied()).chain(kept.skip(leading)))
}

/// The broadcast shape of the index tensors.
fn shared_shape(dims: &Dims, indices: &[RuleArg<'_>]) -> Result<Dims, RuleError> {
    if indices.len() > dims.len() {
        return Err(RuleError::index(format!(
            "too many indices for tensor of dimension {} (got {})",
            dims.len(),
            indices.len()
        )));
    }
    let mut shared: Option<Dims> = None;
    let mut broadcasts = true;
    for index in indices {
        let RuleArg::Value(index) = index else { continue };
        if index.dtype == Dtype::Bool || index.dtype == Dtype::U8 {
            return Err(RuleError::shape(
                "the size of indexing with a mask is data-dependent; take the mask's indices first",
            ));
        }
        if !is_index(index.dtype) {
            return Err(RuleError::index(
                "tensors used as indices must be long, int, byte or bool tensors",
            ));
        }
        match shape::broadcast(&shared.unwrap_or(Dims::EMPTY), &index.dims) {
            Ok(dims) => shared = Some(dims),
            Err(_) => broadcasts = false,
        }
    }
    if !broadcasts {
        let shapes = indices.iter().filter_map(|index| match index {
            RuleArg::Value(index) => Some(index.dims.to_string()),
            RuleArg::Absent | RuleArg::Scalar(_) => None,
        });
        return Err(RuleError::index(format!(
            "shape mismatch: indexing tensors could not be broadcast together with shapes {}",
            shapes.collect::<Vec<_>>().join(", ")
        )));
    }
    shared.ok_or_else(|| RuleError::index("at least one index must be provided"))
}

pub(super) fn triangle(call: &Call<'_>) -> Inferred {
    let operand = call.tensor(0)?;
    if operand.dims.len() < 2 {
        return Err(RuleError::shape(format!(
            "{}: input tensor must have at least 2 dimensions",
            call.info.name
        )));
    }
    one(*operand)
}

pub(super) fn sort(call: &Call<'_>) -> Inferred {
    let operand = call.tensor(0)?;
    wrap_dim(call.integer(0)?, operand.dims.len())?;
    several(&[*operand, Meta::new(Dtype::I64, operand.dims)])
}

pub(super) fn topk(call: &Call<'_>) -> Inferred {
    let operand = call.tensor(0)?;
    let [count, dim] = call.integers()?;
    let dim = wrap_dim(dim, operand.dims.len())?;
    if !(0..=size(&operand.dims, dim)).contains(&count) {
        return Err(RuleError::shape("selected index k out of range"));
    }
    if operand.dtype == Dtype::Bool {
        return Err(RuleError::unsupported_dtype("topk does not support bool dtypes on CPU"));
    }
    let dims = with_size(&operand.dims, dim, count);
    several(&[Meta::new(operand.dtype, dims), Meta::new(Dtype::I64, dims)])
}
