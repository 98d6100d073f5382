//! Losses and their gradients.

use super::call::Call;
use super::error::RuleError;
use super::index::{check_shard, is_shard};
use super::normalize::check_dim;
use super::outputs::{Inferred, one, promote, several};
use super::shape;
use super::shape::{product, size};
use crate::{Dims, Dtype, Meta};

/// Returns true if the attribute `reduction`, the first one, is `none`.
fn unreduced(call: &Call<'_>) -> Result<bool, RuleError> {
    Ok(call.choice(0)? == 0)
}

pub(super) fn nll_loss(call: &Call<'_>) -> Inferred {
    let [scores, target] = call.tensors()?;
    check_classes(scores, target, call.optional_tensor(2)?)?;
    check_shard(call, classes(scores))?;
    let each = if scores.dims.len() > 1 { target.dims } else { Dims::EMPTY };
    let dims = if unreduced(call)? { each } else { Dims::EMPTY };
    several(&[Meta::new(scores.dtype, dims), Meta::new(scores.dtype, Dims::EMPTY)])
}

/// Number of classes of the scores.
fn classes(scores: &Meta) -> i64 {
    size(&scores.dims, usize::from(scores.dims.len() > 1))
}

pub(super) fn cross_entropy(call: &Call<'_>) -> Inferred {
    let [scores, target] = call.tensors()?;
    check_dim(i64::from(scores.dims.len() != 1), &scores.dims, scores.dtype, "log_softmax")?;
    check_classes(scores, target, call.optional_tensor(2)?)?;
    let each = if scores.dims.len() > 1 { target.dims } else { Dims::EMPTY };
    let dims = if unreduced(call)? { each } else { Dims::EMPTY };
    several(&[Meta::new(scores.dtype, dims), *scores, Meta::new(scores.dtype, Dims::EMPTY)])
}

/// Checks that `target` has a class for each row of `scores`: (c) and (), (n, c) and (n), (n, c,
/// d1, ...) and (n, d1, ...).
fn check_classes(scores: &Meta, target: &Meta, weight: Option<&Meta>) -> Result<(), RuleError> {
    let classes = match scores.dims.as_slice() {
        [] => return Err(RuleError::value("Expected 1 or more dimensions (got 0)")),
        [classes] => {
            check_target_dtype(target)?;
            check_single_target(&target.dims)?;
            *classes
        }
        [batch, classes, inner @ ..] => {
            check_targets(&scores.dims, *batch, inner, &target.dims)?;
            check_target_dtype(target)?;
            *classes
        }
    };
    let spatial = scores.dims.len() > 2;
    if let Some(weight) = weight
        && weight.dims.as_slice() != [classes]
    {
        let which = if spatial {
            "all or no classes".to_owned()
        } else {
            let shape = &weight.dims;
            format!("all {classes} classes or no classes but got weight tensor of shape: {shape}")
        };
        return Err(RuleError::shape(format!(
            "weight tensor should be defined either for {which}"
        )));
    }
    if !scores.dtype.is_float() {
        let kernel = if spatial { "nll_loss2d_forward_out_frame" } else { "nll_loss_out_frame" };
        return Err(RuleError::kernel(kernel, scores.dtype));
    }
    if spatial && target.dtype != Dtype::I64 {
        return Err(RuleError::mixed(Dtype::I64, target.dtype));
    }
    match weight {
        Some(weight) if weight.dtype != scores.dtype => {
            Err(RuleError::mixed(scores.dtype, weight.dtype))
        }
        Some(_) | None => Ok(()),
    }
}

fn check_target_dtype(target: &Meta) -> Result<(), RuleError> {
    if target.dtype == Dtype::I64 || target.dtype == Dtype::U8 {
        return Ok(());
    }
    Err(RuleError::dtype(format!(
        "expected target dtype to be Long or Byte, but got {}",
        target.dtype.scalar_type_name()
    )))
}

/// Checks that there is one class for each position of a batch.
fn check_targets(scores: &Dims, batch: i64, inner: &[i64], target: &Dims) -> Result<(), RuleError> {
    let targets = target.first().copied().unwrap_or(0);
    if targets != batch || target.is_empty() {
        return Err(RuleError::value(format!(
            "Expected input batch_size ({batch}) to match target batch_size ({targets})."
        )));
    }
    if target.get(1..) == Some(inner) {
        return Ok(());
    }
    Err(RuleError::shape(match inner.len() {
        0 => "0D or 1D target tensor expected, multi-target not supported".to_owned(),
        2 if target.len() != 3 => format!(
            "only batches of spatial targets supported (3D tensors) but got targets of dimension: {}",
            target.len()
        ),
        2 => format!("size mismatch (got input: {scores} , target: {target}"),
        _ => format!("Expected target size {}, got {target}", shape::without(scores, 1)?),
    }))
}

/// Checks the class of a single sample.
fn check_single_target(target: &Dims) -> Result<(), RuleError> {
    match target.as_slice() {
        [] | [1] => Ok(()),
        [count] => Err(RuleError::value(format!(
            "For 1D input, 1D target must have size 1, but got target size: {count}"
        ))),
        _ => Err(RuleError::shape("0D or 1D target tensor expected, multi-target not supported")),
    }
}

pub(super) fn nll_loss_backward(call: &Call<'_>) -> Inferred {
    let [grad, scores, target] = call.tensors()?;
    check_classes(scores, target, call.optional_tensor(3)?)?;
    check_shard(call, classes(scores))?;
    check_gradient(call, grad, scores, target)?;
    one(*scores)
}

pub(super) fn cross_entropy_backward(call: &Call<'_>) -> Inferred {
    let [grad, scores, target] = call.tensors()?;
    let weight = call.optional_tensor(3)?;
    check_classes(scores, target, if is_shard(call) { None } else { weight })?;
    check_shard(call, classes(scores))?;
    check_gradient(call, grad, scores, target)?;
    one(*scores)
}

/// Checks that the gradient of a loss is one number or one for each target, and that the total
/// weight is one number.
fn check_gradient(
    call: &Call<'_>,
    grad: &Meta,
    scores: &Meta,
    target: &Meta,
) -> Result<(), RuleError> {
    let total = call.tensor(4)?;
    if product(&total.dims) != 1 {
        return Err(RuleError::shape(format!(
            "expected total_weight to be a  single element tensor, got: {} ({} elements)",
            total.dims,
            product(&total.dims)
        )));
    }
    let each = scores.dims.len() > 1 && unreduced(call)?;
    if each && grad.dims != target.dims {
        let (rank, expected) = (target.dims.len(), size(&target.dims, 0));
        return Err(RuleError::shape(format!(
            "Expected a tensor of dimension {rank} and tensor.size[0] == {expected} but got: dimension {} and \
             tensor.size[0] = {}",
            grad.dims.len(),
            size(&grad.dims, 0)
        )));
    }
    if !each && product(&grad.dims) != 1 {
        return Err(RuleError::shape(format!(
            "Expected a single element grad_output tensor, but got: {}",
            grad.dims
        )));
    }
    Ok(())
}

pub(super) fn mse_loss(call: &Call<'_>) -> Inferred {
    of_differences(call, "mse_cpu")
}

pub(super) fn smooth_l1_loss(call: &Call<'_>) -> Inferred {
    of_differences(call, "smooth_l1_cpu")
}

/// A loss of the differences of two operands, which `kernel` computes in PyTorch.
fn of_differences(call: &Call<'_>, kernel: &'static str) -> Inferred {
    let [input, target] = call.tensors()?;
    let dims = shape::broadcast(&input.dims, &target.dims)?;
    let dtype = promote(call.operands);
    if !dtype.is_float() {
        return Err(RuleError::kernel(kernel, dtype));
    }
    one(Meta::new(dtype, if unreduced(call)? { dims } else { Dims::EMPTY }))
}

pub(super) fn mse_loss_backward(call: &Call<'_>) -> Inferred {
    let [grad, input, target] = call.tensors()?;
    let dims = shape::broadcast(&input.dims, &target.dims)?;
    let dims = shape::broadcast(&dims, &grad.dims)?;
    one(Meta::new(input.dtype, dims))
}
