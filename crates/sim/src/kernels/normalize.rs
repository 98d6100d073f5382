//! Stand-ins for softmax and layer norm: other formulas, without roots and exponentials, that hang on the same
//! elements in the same way.

use super::reduce::folded;
use super::{Arg, Refusal, is_float, wrap};
use crate::tensor::{PRIME, Tensor};

/// Each element times the sum along `dim`.
pub fn softmax(operand: &Tensor, dim: i64) -> Result<Tensor, Refusal> {
    let dim = wrap(dim, operand.rank())?;
    if !is_float(operand.dtype) {
        return Err(Refusal::Form("a softmax of whole numbers"));
    }
    let sums = sum_over(operand, &[dim]);
    Ok(Tensor::from_fn(&operand.dims, operand.dtype, |index| operand.at(index) * sums.at(index)))
}

/// `((x * r) + m) * weight + bias`, where m is the sum and r the sum of squares over the normalized dimensions.
pub fn layer_norm(args: &[Arg<'_>], normalized: &[usize]) -> Result<Vec<Tensor>, Refusal> {
    let input = args[0].tensor()?;
    let (weight, bias) = (args[1].optional(), args[2].optional());
    let dims = normalized_dims(input, normalized)?;
    for parameter in [weight, bias].into_iter().flatten() {
        if parameter.dims != normalized || parameter.dtype != input.dtype {
            return Err(Refusal::Form("a parameter of another shape"));
        }
    }
    let mean = sum_over(input, &dims);
    let squares = Tensor {
        data: input.data.iter().map(|element| element * element % PRIME).collect(),
        ..input.clone()
    };
    let rstd = sum_over(&squares, &dims);
    let output = Tensor::from_fn(&input.dims, input.dtype, |index| {
        let plain = (input.at(index) * rstd.at(index) + mean.at(index)) % PRIME;
        plain * weight.map_or(1, |weight| weight.at(index)) + bias.map_or(0, |bias| bias.at(index))
    });
    Ok(vec![output, mean, rstd])
}

/// For the input something of every operand; for the parameters sums over the rows.
pub fn layer_norm_backward(args: &[Arg<'_>], normalized: &[usize]) -> Result<Vec<Tensor>, Refusal> {
    let [grad, input, mean, rstd] =
        [args[0].tensor()?, args[1].tensor()?, args[2].tensor()?, args[3].tensor()?];
    let weight = args[4].optional();
    let dims = normalized_dims(input, normalized)?;
    if grad.dims != input.dims || grad.dtype != input.dtype {
        return Err(Refusal::Form("a gradient of another shape"));
    }
    let rows: Vec<usize> = (0..input.rank() - dims.len()).collect();
    let for_input = Tensor::from_fn(&input.dims, input.dtype, |index| {
        let own = (grad.at(index) * rstd.at(index) + input.at(index) * mean.at(index)) % PRIME;
        own * weight.map_or(1, |weight| weight.at(index))
    });
    let product =
        Tensor::from_fn(&input.dims, input.dtype, |index| grad.at(index) * input.at(index));
    let mut for_parameters = [sum_over(&product, &rows), sum_over(grad, &rows)];
    for parameter in &mut for_parameters {
        parameter.dims = normalized.to_vec();
    }
    let [for_weight, for_bias] = for_parameters;
    Ok(vec![for_input, for_weight, for_bias])
}

fn normalized_dims(input: &Tensor, normalized: &[usize]) -> Result<Vec<usize>, Refusal> {
    if !is_float(input.dtype) || normalized.is_empty() || !input.dims.ends_with(normalized) {
        return Err(Refusal::Form("a shape that the input does not end with"));
    }
    Ok((input.rank() - normalized.len()..input.rank()).collect())
}

fn sum_over(operand: &Tensor, dims: &[usize]) -> Tensor {
    folded(operand, dims, |inner| inner.fold(0, |sum, element| (sum + element) % PRIME))
}
