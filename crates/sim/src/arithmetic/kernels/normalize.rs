//! Softmax, layer norm and RMS norm by their formulas, over the field's stand-ins for exponentials
//! and roots.

use super::functions::{exponential, inverse_root, logarithm};
use super::reduce::reduced_over;
use super::{KernelArg, KernelError, is_float, wrap};
use crate::arithmetic::tensor::{PRIME, ToyTensor, element_of, inverse, larger};
use crate::exact::exact;
use gt_protocol::Scalar;

/// `exp(x - most) / sum`, or with `log` its logarithm: `x - most - log(sum)`.
pub fn softmax(operand: &ToyTensor, dim: i64, log: bool) -> Result<ToyTensor, KernelError> {
    let dim = wrap(dim, operand.rank())?;
    if !is_float(operand.dtype) {
        return Err(KernelError::Form("a softmax of whole numbers"));
    }
    let most = reduced_over(operand, &[dim], |inner| inner.reduce(larger).unwrap_or(0));
    let away = each(operand, |index| operand.at(index) + PRIME - most.at(index));
    let powers = each(operand, |index| exponential(away.at(index)));
    let sums = sum_over(&powers, &[dim]);
    Ok(if log {
        each(operand, |index| away.at(index) + PRIME - logarithm(sums.at(index)))
    } else {
        each(operand, |index| powers.at(index) * inverse(sums.at(index)))
    })
}

/// `out * (grad - sum(grad * out))`, or with `log` `grad - exp(out) * sum(grad)`.
pub fn softmax_backward(
    grad: &ToyTensor,
    out: &ToyTensor,
    dim: i64,
    log: bool,
) -> Result<ToyTensor, KernelError> {
    let dim = wrap(dim, out.rank())?;
    if grad.dims != out.dims || grad.dtype != out.dtype || !is_float(out.dtype) {
        return Err(KernelError::Form("a gradient of another shape"));
    }
    if log {
        let sums = sum_over(grad, &[dim]);
        return Ok(each(out, |index| {
            grad.at(index) + PRIME - exponential(out.at(index)) * sums.at(index) % PRIME
        }));
    }
    let products = each(out, |index| grad.at(index) * out.at(index));
    let sums = sum_over(&products, &[dim]);
    Ok(each(out, |index| {
        let away = grad.at(index) + PRIME - sums.at(index);
        away % PRIME * out.at(index)
    }))
}

/// `(x - mean) * rstd * weight + bias`; mean and rstd are results too.
pub fn layer_norm(
    args: &[KernelArg<'_>],
    normalized: &[usize],
    eps: f64,
) -> Result<Vec<ToyTensor>, KernelError> {
    let input = args[0].tensor()?;
    let (weight, bias) = (args[1].optional(), args[2].optional());
    let dims = normalized_dims(input, normalized)?;
    for parameter in [weight, bias].into_iter().flatten() {
        if parameter.dims != normalized || parameter.dtype != input.dtype {
            return Err(KernelError::Form("a parameter of another shape"));
        }
    }
    let mean = mean_over(input, &dims);
    let away = each(input, |index| input.at(index) + PRIME - mean.at(index));
    let variance = mean_over(&each(input, |index| away.at(index) * away.at(index)), &dims);
    let eps = element_of(Scalar::Float(eps));
    let rstd = each(&variance, |index| inverse_root(variance.at(index) + eps));
    let output = each(input, |index| {
        let plain = away.at(index) * rstd.at(index) % PRIME;
        plain * weight.map_or(1, |weight| weight.at(index)) + bias.map_or(0, |bias| bias.at(index))
    });
    Ok(vec![output, mean, rstd])
}

/// Gradients of the input and of both parameters; the latter are sums over the rows.
pub fn layer_norm_backward(
    args: &[KernelArg<'_>],
    normalized: &[usize],
) -> Result<Vec<ToyTensor>, KernelError> {
    let [grad, input, mean, rstd] =
        [args[0].tensor()?, args[1].tensor()?, args[2].tensor()?, args[3].tensor()?];
    let weight = args[4].optional();
    let dims = normalized_dims(input, normalized)?;
    if grad.dims != input.dims || grad.dtype != input.dtype {
        return Err(KernelError::Form("a gradient of another shape"));
    }
    let rows: Vec<usize> = (0..input.rank() - dims.len()).collect();
    let normal =
        each(input, |index| (input.at(index) + PRIME - mean.at(index)) % PRIME * rstd.at(index));
    let weighted =
        each(input, |index| grad.at(index) * weight.map_or(1, |weight| weight.at(index)));
    let level = mean_over(&weighted, &dims);
    let slope = mean_over(&each(input, |index| weighted.at(index) * normal.at(index)), &dims);
    let for_input = each(input, |index| {
        let tilt = normal.at(index) * slope.at(index) % PRIME;
        (weighted.at(index) + PRIME - level.at(index) + PRIME - tilt) % PRIME * rstd.at(index)
    });
    let products = each(input, |index| grad.at(index) * normal.at(index));
    let mut for_parameters = [sum_over(&products, &rows), sum_over(grad, &rows)];
    for parameter in &mut for_parameters {
        parameter.dims = normalized.to_vec();
    }
    let [for_weight, for_bias] = for_parameters;
    Ok(vec![for_input, for_weight, for_bias])
}

/// `x * rstd * weight`; rstd is a result too.
pub fn rms_norm(
    args: &[KernelArg<'_>],
    normalized: &[usize],
    eps: f64,
) -> Result<Vec<ToyTensor>, KernelError> {
    let input = args[0].tensor()?;
    let weight = args[1].optional();
    let dims = normalized_dims(input, normalized)?;
    if weight.is_some_and(|weight| weight.dims != normalized || weight.dtype != input.dtype) {
        return Err(KernelError::Form("a weight of another shape"));
    }
    let squares = mean_over(&each(input, |index| input.at(index) * input.at(index)), &dims);
    let eps = element_of(Scalar::Float(eps));
    let rstd = each(&squares, |index| inverse_root(squares.at(index) + eps));
    let output = each(input, |index| {
        let plain = input.at(index) * rstd.at(index) % PRIME;
        plain * weight.map_or(1, |weight| weight.at(index))
    });
    Ok(vec![output, rstd])
}

/// Gradients of the input and of the weight, a sum over the rows.
pub fn rms_norm_backward(
    args: &[KernelArg<'_>],
    normalized: &[usize],
) -> Result<Vec<ToyTensor>, KernelError> {
    let [grad, input, rstd] = [args[0].tensor()?, args[1].tensor()?, args[2].tensor()?];
    let weight = args[3].optional();
    let dims = normalized_dims(input, normalized)?;
    if grad.dims != input.dims || grad.dtype != input.dtype {
        return Err(KernelError::Form("a gradient of another shape"));
    }
    let rows: Vec<usize> = (0..input.rank() - dims.len()).collect();
    let normal = each(input, |index| input.at(index) * rstd.at(index));
    let weighted =
        each(input, |index| grad.at(index) * weight.map_or(1, |weight| weight.at(index)));
    let slope = mean_over(&each(input, |index| weighted.at(index) * normal.at(index)), &dims);
    let for_input = each(input, |index| {
        let tilt = normal.at(index) * slope.at(index) % PRIME;
        (weighted.at(index) + PRIME - tilt) % PRIME * rstd.at(index)
    });
    let products = each(input, |index| grad.at(index) * normal.at(index));
    let mut for_weight = sum_over(&products, &rows);
    for_weight.dims = normalized.to_vec();
    Ok(vec![for_input, for_weight])
}

fn normalized_dims(input: &ToyTensor, normalized: &[usize]) -> Result<Vec<usize>, KernelError> {
    if !is_float(input.dtype) || normalized.is_empty() || !input.dims.ends_with(normalized) {
        return Err(KernelError::Form("a shape that the input does not end with"));
    }
    Ok((input.rank() - normalized.len()..input.rank()).collect())
}

fn sum_over(operand: &ToyTensor, dims: &[usize]) -> ToyTensor {
    reduced_over(operand, dims, |inner| inner.fold(0, |sum, element| (sum + element) % PRIME))
}

fn mean_over(operand: &ToyTensor, dims: &[usize]) -> ToyTensor {
    let count: usize = dims.iter().filter_map(|&dim| operand.dims.get(dim)).product();
    let share = inverse(exact::<_, u64>(count));
    let sums = sum_over(operand, dims);
    each(&sums, |index| sums.at(index) * share)
}

/// A tensor like `operand`, with each element computed from its index.
fn each(operand: &ToyTensor, element: impl FnMut(&[usize]) -> u64) -> ToyTensor {
    ToyTensor::from_fn(&operand.dims, operand.dtype, element)
}
