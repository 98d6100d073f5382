//! Look-ups by elements, which may be out of range, and the loss that looks up its classes.

use super::{KernelArg, KernelError, is_float, wrap};
use crate::arithmetic::tensor::{PRIME, ToyTensor, inverse, residue};
use gt_protocol::Dtype;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReduction {
    None,
    Mean,
    Sum,
}

/// The elements as indices below `limit`.
pub fn places(indices: &ToyTensor, limit: usize) -> Result<Vec<usize>, KernelError> {
    let place = |&element: &u64| match usize::try_from(element) {
        Ok(place) if place < limit => Ok(place),
        Ok(_) | Err(_) => {
            Err(KernelError::Data(format!("index {element} is out of bounds for {limit}")))
        }
    };
    indices.data.iter().map(place).collect()
}

pub fn check_indices(indices: &ToyTensor) -> Result<(), KernelError> {
    if indices.dtype == Dtype::I64 || indices.dtype == Dtype::I32 {
        return Ok(());
    }
    Err(KernelError::Form("indices are whole numbers"))
}

pub fn embedding(weight: &ToyTensor, indices: &ToyTensor) -> Result<ToyTensor, KernelError> {
    let [rows, width] = *weight.dims.as_slice() else {
        return Err(KernelError::Form("a table of rows"));
    };
    check_indices(indices)?;
    let places = places(indices, rows)?;
    let dims = [indices.dims.as_slice(), &[width]].concat();
    let mut data = Vec::with_capacity(places.len() * width);
    for place in places {
        data.extend_from_slice(&weight.data[place * width..(place + 1) * width]);
    }
    Ok(ToyTensor { dims, dtype: weight.dtype, data })
}

pub fn embedding_backward(
    grad: &ToyTensor,
    indices: &ToyTensor,
    rows: usize,
) -> Result<ToyTensor, KernelError> {
    let Some((&width, leading)) = grad.dims.split_last() else {
        return Err(KernelError::Form("a gradient of rows"));
    };
    check_indices(indices)?;
    if leading.iter().product::<usize>() != indices.data.len() {
        return Err(KernelError::Form("a gradient row for each index"));
    }
    let places = places(indices, rows)?;
    let mut table = ToyTensor::from_fn(&[rows, width], grad.dtype, |_| 0);
    for (position, place) in places.into_iter().enumerate() {
        for column in 0..width {
            let sum = &mut table.data[place * width + column];
            *sum = (*sum + grad.data[position * width + column]) % PRIME;
        }
    }
    Ok(table)
}

pub fn index_select(
    operand: &ToyTensor,
    indices: &ToyTensor,
    dim: i64,
) -> Result<ToyTensor, KernelError> {
    let dim = wrap(dim, operand.rank())?;
    check_indices(indices)?;
    if operand.rank() == 0 || indices.rank() != 1 {
        return Err(KernelError::Form("a vector of indices"));
    }
    if operand.dims[dim] == 0 && !indices.data.is_empty() {
        return Err(KernelError::Form("nothing to index"));
    }
    let places = places(indices, operand.dims[dim])?;
    let mut dims = operand.dims.clone();
    dims[dim] = places.len();
    Ok(ToyTensor::from_fn(&dims, operand.dtype, |index| {
        let mut source = index.to_vec();
        source[dim] = places[index[dim]];
        operand.at(&source)
    }))
}

struct Classes<'a> {
    scores: &'a ToyTensor,
    places: Vec<usize>,
    weights: Vec<u64>,
}

/// Rows of scores, with the class and the weight of each row.
fn classes<'a>(
    scores: KernelArg<'a>,
    target: KernelArg<'_>,
    weight: KernelArg<'_>,
) -> Result<Classes<'a>, KernelError> {
    let (scores, target) = (scores.tensor()?, target.tensor()?);
    let [batch, count] = *scores.dims.as_slice() else {
        return Err(KernelError::Form("rows of scores"));
    };
    if target.dims != [batch] || target.dtype != Dtype::I64 || !is_float(scores.dtype) {
        return Err(KernelError::Form("a class for each row"));
    }
    let weight = weight.optional();
    if weight.is_some_and(|weight| weight.dims != [count] || weight.dtype != scores.dtype) {
        return Err(KernelError::Form("a weight for each class"));
    }
    let places = places(target, count)?;
    let weigh = |&place: &usize| weight.map_or(1, |weight| weight.data[place]);
    let weights = places.iter().map(weigh).collect();
    Ok(Classes { scores, places, weights })
}

pub fn nll_loss(
    args: &[KernelArg<'_>],
    reduction: LossReduction,
) -> Result<Vec<ToyTensor>, KernelError> {
    let Classes { scores, places, weights } = classes(args[0], args[1], args[2])?;
    let rows = places.len();
    let each = ToyTensor::from_fn(&[rows], scores.dtype, |index| {
        let score = scores.at(&[index[0], places[index[0]]]);
        (PRIME - score) * weights[index[0]]
    });
    let total = weights.iter().fold(0, |sum, weight| (sum + weight) % PRIME);
    let sum = each.data.iter().fold(0, |sum, loss| (sum + loss) % PRIME);
    let point = |element: u64| ToyTensor::from_fn(&[], scores.dtype, |_| element);
    let loss = match reduction {
        // Losses without a reduction have no total weight, as in torch.
        LossReduction::None => return Ok(vec![each, point(0)]),
        LossReduction::Sum => point(sum),
        LossReduction::Mean => point(sum * inverse(total)),
    };
    Ok(vec![loss, point(total)])
}

pub fn nll_loss_backward(
    args: &[KernelArg<'_>],
    reduction: LossReduction,
) -> Result<ToyTensor, KernelError> {
    let Classes { scores, places, weights } = classes(args[1], args[2], args[3])?;
    let (grad, total) = (args[0].tensor()?, args[4].tensor()?);
    let fits = match reduction {
        LossReduction::None => grad.dims == [places.len()],
        LossReduction::Mean | LossReduction::Sum => grad.data.len() == 1,
    };
    if !fits || total.data.len() != 1 {
        return Err(KernelError::Form("a gradient of another shape"));
    }
    let scale = match reduction {
        LossReduction::None | LossReduction::Sum => residue(-1),
        LossReduction::Mean => residue(-1) * inverse(total.data[0]) % PRIME,
    };
    Ok(ToyTensor::from_fn(&scores.dims, scores.dtype, |index| {
        if places[index[0]] != index[1] {
            return 0;
        }
        let grad =
            if reduction == LossReduction::None { grad.at(&index[..1]) } else { grad.data[0] };
        weights[index[0]] * grad % PRIME * scale
    }))
}
