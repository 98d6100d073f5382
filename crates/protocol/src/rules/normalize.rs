//! Softmax, layer norm and RMS norm with their gradients: results of the operand's shape, and
//! statistics.

use super::call::Call;
use super::error::RuleError;
use super::outputs::{Inferred, one, several};
use super::shape;
use super::shape::wrap_dim;
use crate::{Dims, Dtype, Meta};

pub(super) fn softmax(call: &Call<'_>) -> Inferred {
    let name = call.info.name;
    let operand = call.tensor(0)?;
    let dtype = call.optional_dtype(1).unwrap_or(operand.dtype);
    check_dim(call.integer(0)?, &operand.dims, dtype, name)?;
    one(Meta::new(dtype, operand.dims))
}

/// Checks that the dimension exists and that the dtype has a kernel.
pub(super) fn check_dim(dim: i64, dims: &Dims, dtype: Dtype, name: &str) -> Result<(), RuleError> {
    let dim = wrap_dim(dim, dims.len())?;
    // PyTorch runs no kernel for an empty operand.
    if dtype.is_float() || dims.contains(&0) {
        return Ok(());
    }
    let last = dim.saturating_add(1) >= dims.len();
    let variant = if last { "lastdim_kernel_impl" } else { "kernel_impl" };
    Err(RuleError::kernel(&format!("{name}_{variant}"), dtype))
}

pub(super) fn softmax_backward(call: &Call<'_>) -> Inferred {
    let name = call.info.name;
    let [grad, out] = call.tensors()?;
    wrap_dim(call.integer(0)?, grad.dims.len())?;
    if grad.dims != out.dims {
        return Err(RuleError::shape(format!(
            "Expected tensor for argument #1 'grad' to have same size as tensor for argument #2 'output'; but {} does \
             not equal {} (while checking arguments for {name})",
            grad.dims, out.dims
        )));
    }
    if grad.dtype != out.dtype {
        return Err(RuleError::mixed(grad.dtype, out.dtype));
    }
    check_dim(call.integer(0)?, &grad.dims, grad.dtype, name)?;
    one(*grad)
}

pub(super) fn layer_norm(call: &Call<'_>) -> Inferred {
    let input = call.tensor(0)?;
    let [weight, bias] = [call.optional_tensor(1)?, call.optional_tensor(2)?];
    let normalized = call.dims(0)?;
    let statistics = parameter_dtype(input.dtype, weight, bias)?;
    for (name, parameter) in [("weight", weight), ("bias", bias)] {
        check_parameter(name, parameter, normalized)?;
    }
    let kept = check_normalized(&input.dims, normalized, "*, ")?;
    if let Some(bias) = bias
        && bias.dtype != statistics
    {
        return Err(RuleError::mixed(statistics, bias.dtype));
    }
    if !input.dtype.is_float() {
        return Err(RuleError::kernel("LayerNormKernelImpl", input.dtype));
    }
    let statistics = Meta::new(statistics, of_rows(&input.dims, kept)?);
    several(&[*input, statistics, statistics])
}

/// The shape of one number for each normalized row.
fn of_rows(input: &Dims, kept: usize) -> Result<Dims, RuleError> {
    let sizes = input.iter().enumerate();
    shape::dims(sizes.map(|(dim, &size)| if dim < kept { size } else { 1 }))
}

fn check_parameter(
    name: &str,
    parameter: Option<&Meta>,
    normalized: &Dims,
) -> Result<(), RuleError> {
    if normalized.is_empty() {
        return Err(RuleError::shape(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got \
             normalized_shape = []",
        ));
    }
    match parameter {
        Some(parameter) if parameter.dims != *normalized => Err(RuleError::shape(format!(
            "Expected {name} to be of same shape as normalized_shape, but got {name} of shape {} and normalized_shape \
             = {normalized}",
            parameter.dims
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Number of leading dimensions that are not normalized over; `rest` is part of the error's text.
fn check_normalized(input: &Dims, normalized: &Dims, rest: &str) -> Result<usize, RuleError> {
    if input.ends_with(normalized) {
        return Ok(input.len() - normalized.len());
    }
    let expected = normalized.to_string();
    let expected = expected.trim_matches(['[', ']']);
    Err(RuleError::shape(format!(
        "Given normalized_shape={normalized}, expected input with shape [{rest}{expected}], but got input of \
         size{input}"
    )))
}

/// The parameters' dtype, or the input's: half-precision inputs may have float32 parameters.
fn parameter_dtype(
    input: Dtype,
    weight: Option<&Meta>,
    bias: Option<&Meta>,
) -> Result<Dtype, RuleError> {
    let first = weight.or(bias).map_or(input, |parameter| parameter.dtype);
    let half = input == Dtype::F16 || input == Dtype::Bf16;
    if first == input || (half && first == Dtype::F32) {
        return Ok(first);
    }
    Err(RuleError::dtype(if first == Dtype::F32 {
        "mixed dtype (CPU): all inputs must share same datatype."
    } else {
        "mixed dtype (CPU): expect parameter to have scalar type of Float"
    }))
}

pub(super) fn layer_norm_backward(call: &Call<'_>) -> Inferred {
    let [grad, input, mean, rstd] = call.tensors()?;
    let weight = call.optional_tensor(4)?;
    let normalized = call.dims(0)?;
    check_parameter("weight", weight, normalized)?;
    let kept = check_normalized(&input.dims, normalized, "*, ")?;
    if grad.dtype != input.dtype {
        return Err(RuleError::mixed(input.dtype, grad.dtype));
    }
    let rows = shape::product(input.dims.split_at(kept).0);
    let counted = [mean, rstd].iter().all(|meta| shape::product(&meta.dims) == rows);
    if grad.dims != input.dims || !counted {
        return Err(RuleError::shape(format!(
            "layer_norm_backward: grad {grad}, mean {mean} and rstd {rstd} are not those of input {input}"
        )));
    }
    let parameter = Meta::new(weight.map_or(input.dtype, |weight| weight.dtype), *normalized);
    several(&[*input, parameter, parameter])
}

/// Half precision is computed in single precision, and the statistics have that dtype. A weight
/// must have the input's dtype: the client composes other cases of several operators.
pub(super) fn rms_norm(call: &Call<'_>) -> Inferred {
    let input = call.tensor(0)?;
    let weight = call.optional_tensor(1)?;
    let kept = rows_of_rms_norm(input, weight, call.dims(0)?)?;
    several(&[*input, Meta::new(wide(input.dtype), of_rows(&input.dims, kept)?)])
}

pub(super) fn rms_norm_backward(call: &Call<'_>) -> Inferred {
    let [grad, input, rstd] = call.tensors()?;
    let normalized = call.dims(0)?;
    let kept = rows_of_rms_norm(input, call.optional_tensor(3)?, normalized)?;
    for (expected, found) in [(input.dtype, grad.dtype), (wide(input.dtype), rstd.dtype)] {
        if expected != found {
            return Err(RuleError::mixed(expected, found));
        }
    }
    let rows = shape::product(input.dims.split_at(kept).0);
    if grad.dims != input.dims || shape::product(&rstd.dims) != rows {
        return Err(RuleError::shape(format!(
            "rms_norm_backward: grad {grad} and rstd {rstd} are not those of input {input}"
        )));
    }
    several(&[*input, Meta::new(input.dtype, *normalized)])
}

/// Number of leading dimensions that are not normalized over, after all checks in `PyTorch`'s
/// order.
fn rows_of_rms_norm(
    input: &Meta,
    weight: Option<&Meta>,
    normalized: &Dims,
) -> Result<usize, RuleError> {
    check_parameter("weight", weight, normalized)?;
    if input.dims.len() < normalized.len() {
        return Err(RuleError::value(format!(
            "Input tensor must have at least {} dimensions, but got {}",
            normalized.len(),
            input.dims.len()
        )));
    }
    let kept = check_normalized(&input.dims, normalized, "*")?;
    if !input.dtype.is_float() {
        return Err(RuleError::kernel("rms_norm", input.dtype));
    }
    match weight {
        Some(weight) if weight.dtype != input.dtype => {
            Err(RuleError::mixed(input.dtype, weight.dtype))
        }
        Some(_) | None => Ok(kept),
    }
}

fn wide(dtype: Dtype) -> Dtype {
    if matches!(dtype, Dtype::F16 | Dtype::Bf16) { Dtype::F32 } else { dtype }
}

pub(super) fn batch_norm(call: &Call<'_>) -> Inferred {
    let input = call.tensor(0)?;
    let [weight, bias] = [call.optional_tensor(1)?, call.optional_tensor(2)?];
    let statistics = channels(input, &[("weight", weight), ("bias", bias)])?;
    if !matches!(input.dtype, Dtype::F32 | Dtype::F64) {
        return Err(RuleError::kernel("batch_norm", input.dtype));
    }
    several(&[*input, statistics, statistics, statistics])
}

pub(super) fn batch_norm_backward(call: &Call<'_>) -> Inferred {
    let [grad, input, mean, rstd] = call.tensors()?;
    let weight = call.optional_tensor(4)?;
    let of_each = [("mean", Some(mean)), ("rstd", Some(rstd)), ("weight", weight)];
    let parameter = channels(input, &of_each)?;
    if grad != input {
        return Err(RuleError::shape(format!(
            "batch_norm_backward: grad {grad} is not that of input {input}"
        )));
    }
    several(&[*input, parameter, parameter])
}

/// The metadata of one number for each channel, after a check that all operands have it.
fn channels(input: &Meta, of_each: &[(&str, Option<&Meta>)]) -> Result<Meta, RuleError> {
    let Some(&count) = input.dims.get(1) else {
        return Err(RuleError::shape(format!(
            "Expected at least 2 dimensions for input tensor but received {}",
            input.dims.len()
        )));
    };
    let expected = Meta::new(input.dtype, shape::dims([count])?);
    for (name, given) in of_each {
        match given {
            Some(meta) if meta.dims != expected.dims => {
                return Err(RuleError::shape(format!(
                    "{name} should contain {count} elements not {}",
                    meta.elements()
                )));
            }
            Some(meta) if meta.dtype != expected.dtype => {
                return Err(RuleError::mixed(expected.dtype, meta.dtype));
            }
            Some(_) | None => {}
        }
    }
    Ok(expected)
}
