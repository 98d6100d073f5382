//! Look-ups by elements, which may point outside, and the loss that looks up its classes.

use super::{Arg, Refusal, is_float, wrap};
use crate::arithmetic::tensor::{PRIME, Tensor, inverse, residue};
use gt_protocol::Dtype;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    None,
    Mean,
    Sum,
}

/// The elements as places below `limit`.
pub fn places(indices: &Tensor, limit: usize) -> Result<Vec<usize>, Refusal> {
    let place = |&element: &u64| match usize::try_from(element) {
        Ok(place) if place < limit => Ok(place),
        Ok(_) | Err(_) => {
            Err(Refusal::Data(format!("index {element} is out of bounds for {limit}")))
        }
    };
    indices.data.iter().map(place).collect()
}

pub fn check_indices(indices: &Tensor) -> Result<(), Refusal> {
    if indices.dtype == Dtype::I64 || indices.dtype == Dtype::I32 {
        return Ok(());
    }
    Err(Refusal::Form("indices are whole numbers"))
}

pub fn embedding(weight: &Tensor, indices: &Tensor) -> Result<Tensor, Refusal> {
    let [rows, width] = *weight.dims.as_slice() else {
        return Err(Refusal::Form("a table of rows"));
    };
    check_indices(indices)?;
    let places = places(indices, rows)?;
    let dims = [indices.dims.as_slice(), &[width]].concat();
    let mut data = Vec::with_capacity(places.len() * width);
    for place in places {
        data.extend_from_slice(&weight.data[place * width..(place + 1) * width]);
    }
    Ok(Tensor { dims, dtype: weight.dtype, data })
}

pub fn embedding_backward(grad: &Tensor, indices: &Tensor, rows: usize) -> Result<Tensor, Refusal> {
    let Some((&width, lead)) = grad.dims.split_last() else {
        return Err(Refusal::Form("a gradient of rows"));
    };
    check_indices(indices)?;
    if lead.iter().product::<usize>() != indices.data.len() {
        return Err(Refusal::Form("a gradient row for each index"));
    }
    let places = places(indices, rows)?;
    let mut table = Tensor::from_fn(&[rows, width], grad.dtype, |_| 0);
    for (position, place) in places.into_iter().enumerate() {
        for column in 0..width {
            let sum = &mut table.data[place * width + column];
            *sum = (*sum + grad.data[position * width + column]) % PRIME;
        }
    }
    Ok(table)
}

pub fn index_select(operand: &Tensor, indices: &Tensor, dim: i64) -> Result<Tensor, Refusal> {
    let dim = wrap(dim, operand.rank())?;
    check_indices(indices)?;
    if operand.rank() == 0 || indices.rank() != 1 {
        return Err(Refusal::Form("a vector of indices"));
    }
    if operand.dims[dim] == 0 && !indices.data.is_empty() {
        return Err(Refusal::Form("nothing to index"));
    }
    let places = places(indices, operand.dims[dim])?;
    let mut dims = operand.dims.clone();
    dims[dim] = places.len();
    Ok(Tensor::from_fn(&dims, operand.dtype, |index| {
        let mut source = index.to_vec();
        source[dim] = places[index[dim]];
        operand.at(&source)
    }))
}

struct Classes<'a> {
    scores: &'a Tensor,
    places: Vec<usize>,
    weights: Vec<u64>,
}

/// Rows of scores, one class each, and what each row weighs.
fn classes<'a>(scores: Arg<'a>, target: Arg<'_>, weight: Arg<'_>) -> Result<Classes<'a>, Refusal> {
    let (scores, target) = (scores.tensor()?, target.tensor()?);
    let [batch, count] = *scores.dims.as_slice() else {
        return Err(Refusal::Form("rows of scores"));
    };
    if target.dims != [batch] || target.dtype != Dtype::I64 || !is_float(scores.dtype) {
        return Err(Refusal::Form("a class for each row"));
    }
    let weight = weight.optional();
    if weight.is_some_and(|weight| weight.dims != [count] || weight.dtype != scores.dtype) {
        return Err(Refusal::Form("a weight for each class"));
    }
    let places = places(target, count)?;
    let weigh = |&place: &usize| weight.map_or(1, |weight| weight.data[place]);
    let weights = places.iter().map(weigh).collect();
    Ok(Classes { scores, places, weights })
}

pub fn nll_loss(args: &[Arg<'_>], reduction: Reduction) -> Result<Vec<Tensor>, Refusal> {
    let Classes { scores, places, weights } = classes(args[0], args[1], args[2])?;
    let rows = places.len();
    let each = Tensor::from_fn(&[rows], scores.dtype, |index| {
        let score = scores.at(&[index[0], places[index[0]]]);
        (PRIME - score) * weights[index[0]]
    });
    let total = weights.iter().fold(0, |sum, weight| (sum + weight) % PRIME);
    let sum = each.data.iter().fold(0, |sum, loss| (sum + loss) % PRIME);
    let point = |element: u64| Tensor::from_fn(&[], scores.dtype, |_| element);
    let loss = match reduction {
        // As torch: losses that are not reduced have no weight together.
        Reduction::None => return Ok(vec![each, point(0)]),
        Reduction::Sum => point(sum),
        Reduction::Mean => point(sum * inverse(total)),
    };
    Ok(vec![loss, point(total)])
}

pub fn nll_loss_backward(args: &[Arg<'_>], reduction: Reduction) -> Result<Tensor, Refusal> {
    let Classes { scores, places, weights } = classes(args[1], args[2], args[3])?;
    let (grad, total) = (args[0].tensor()?, args[4].tensor()?);
    let fits = match reduction {
        Reduction::None => grad.dims == [places.len()],
        Reduction::Mean | Reduction::Sum => grad.data.len() == 1,
    };
    if !fits || total.data.len() != 1 {
        return Err(Refusal::Form("a gradient of another shape"));
    }
    let scale = match reduction {
        Reduction::None | Reduction::Sum => residue(-1),
        Reduction::Mean => residue(-1) * inverse(total.data[0]) % PRIME,
    };
    Ok(Tensor::from_fn(&scores.dims, scores.dtype, |index| {
        if places[index[0]] != index[1] {
            return 0;
        }
        let grad = if reduction == Reduction::None { grad.at(&index[..1]) } else { grad.data[0] };
        weights[index[0]] * grad % PRIME * scale
    }))
}
