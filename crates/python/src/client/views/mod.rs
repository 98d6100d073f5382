//! View operators: the instruction, and PyTorch's strides for what shares its storage.

pub(crate) mod in_place;
pub(crate) mod indexing;
pub(crate) mod sharing;
pub(crate) mod write;

use crate::client::session::errors;
use crate::client::value::steps::wrapped;
use crate::client::value::variable::{Var, contiguous};
use gt_protocol::rules::{Arg as RuleArg, ErrorClass, infer};
use gt_protocol::{Attr, Dims, Meta, Op};
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};

/// Whether results of this operator may share their operand's storage.
pub(crate) fn is_view(op: Op) -> bool {
    op.info().view.is_some()
}

/// A view operator on a variable. `reshape` of what no view can show is a copy.
pub(crate) fn take(py: Python<'_>, var: &Var, op: Op, attrs: SmallVec<[Attr; 2]>) -> PyResult<Var> {
    let meta = var.meta(py);
    let result = infer(op, &[RuleArg::Value(&meta)], &attrs)
        .map_err(|error| errors::of_rule(py, &error))?
        .first()
        .copied()
        .unwrap_or(meta);
    let lies = strides_of(op, &meta, &var.strides(py), &attrs, &result)
        .map(|strides| (strides, offset_of(op, &meta, &var.strides(py), &attrs)));
    // A resolved size, so that taking the view again needs no guess.
    let attrs = if matches!(op, Op::Reshape | Op::Expand) {
        smallvec![Attr::Ints(result.dims)]
    } else {
        attrs
    };
    var.view(py, op, attrs, lies)
}

pub(crate) fn reshape(py: Python<'_>, var: &Var, dims: Dims) -> PyResult<Var> {
    take(py, var, Op::Reshape, smallvec![Attr::Ints(dims)])
}

/// `x.view(size)`: like reshape, but an error where it cannot share storage.
pub(crate) fn view(py: Python<'_>, var: &Var, dims: Dims) -> PyResult<Var> {
    let meta = var.meta(py);
    let result = infer(Op::Reshape, &[RuleArg::Value(&meta)], &[Attr::Ints(dims)])
        .map_err(|error| errors::of_rule(py, &error))?
        .first()
        .copied()
        .unwrap_or(meta);
    let Some(strides) = regrouped(&meta.dims, &var.strides(py), &result.dims) else {
        return Err(errors::mistake(
            py,
            ErrorClass::Shape,
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across \
             two contiguous subspaces). Use .reshape(...) instead.",
        ));
    };
    var.view(py, Op::Reshape, smallvec![Attr::Ints(result.dims)], Some((strides, 0)))
}

pub(crate) fn select(py: Python<'_>, var: &Var, dim: i64, index: i64) -> PyResult<Var> {
    take(py, var, Op::Select, smallvec![Attr::Int(dim), Attr::Int(index)])
}

pub(crate) fn slice(
    py: Python<'_>,
    var: &Var,
    (dim, start, end, step): (i64, i64, i64, i64),
) -> PyResult<Var> {
    take(py, var, Op::Slice, [dim, start, end, step].into_iter().map(Attr::Int).collect())
}

pub(crate) fn permute(py: Python<'_>, var: &Var, dims: Dims) -> PyResult<Var> {
    take(py, var, Op::Permute, smallvec![Attr::Ints(dims)])
}

/// Two dimensions swapped.
pub(crate) fn transpose(py: Python<'_>, var: &Var, first: i64, second: i64) -> PyResult<Var> {
    let rank = var.meta(py).dims.len();
    let (first, second) = (dim_of(py, first, rank)?, dim_of(py, second, rank)?);
    if rank == 0 {
        return permute(py, var, Dims::EMPTY);
    }
    let mut order: SmallVec<[i64; 8]> =
        (0..rank).map(|dim| i64::try_from(dim).unwrap_or(0)).collect();
    order.swap(first, second);
    permute(py, var, Dims::new(&order).unwrap_or(Dims::EMPTY))
}

/// A dimension of size 1 put in before `dim`.
pub(crate) fn unsqueeze(py: Python<'_>, var: &Var, dim: i64) -> PyResult<Var> {
    let meta = var.meta(py);
    let place = dim_of(py, dim, meta.dims.len() + 1)?;
    let old = var.strides(py);
    let mut dims: SmallVec<[i64; 8]> = meta.dims.iter().copied().collect();
    let mut strides: SmallVec<[i64; 8]> = old.iter().copied().collect();
    let stride = match (dims.get(place), strides.get(place)) {
        (Some(size), Some(stride)) => size * stride,
        _ => 1,
    };
    dims.insert(place, 1);
    strides.insert(place, stride);
    sized(py, var, &dims, &strides)
}

/// A view of everything, as it lies.
pub(crate) fn alias(py: Python<'_>, var: &Var) -> PyResult<Var> {
    sized(py, var, &var.meta(py).dims, &var.strides(py))
}

/// Without the dimensions `drop` says to drop, all of size 1.
pub(crate) fn squeeze(py: Python<'_>, var: &Var, drop: impl Fn(usize) -> bool) -> PyResult<Var> {
    let meta = var.meta(py);
    let old = var.strides(py);
    let mut dims: SmallVec<[i64; 8]> = SmallVec::new();
    let mut strides: SmallVec<[i64; 8]> = SmallVec::new();
    for (place, (&size, &stride)) in meta.dims.iter().zip(old.iter()).enumerate() {
        if size != 1 || !drop(place) {
            dims.push(size);
            strides.push(stride);
        }
    }
    sized(py, var, &dims, &strides)
}

/// A reshape whose strides are known.
fn sized(py: Python<'_>, var: &Var, dims: &[i64], strides: &[i64]) -> PyResult<Var> {
    let too_many = || {
        errors::mistake(
            py,
            ErrorClass::Shape,
            format!("gt's tensors have at most {} dimensions", gt_protocol::meta::DIMS_MAX),
        )
    };
    let dims = Dims::new(dims).ok_or_else(too_many)?;
    var.view(
        py,
        Op::Reshape,
        smallvec![Attr::Ints(dims)],
        Dims::new(strides).map(|strides| (strides, 0)),
    )
}

/// A dimension as an index, or PyTorch's error.
pub(crate) fn dim_of(py: Python<'_>, dim: i64, rank: usize) -> PyResult<usize> {
    let rank = i64::try_from(rank).unwrap_or(0).max(1);
    usize::try_from(if dim < 0 { dim + rank } else { dim }).ok().filter(|_| dim < rank).ok_or_else(
        || {
            errors::mistake(
                py,
                ErrorClass::Index,
                format!(
                    "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
                    -rank,
                    rank - 1
                ),
            )
        },
    )
}

fn strides_of(op: Op, meta: &Meta, strides: &Dims, attrs: &[Attr], result: &Meta) -> Option<Dims> {
    let rank = meta.dims.len();
    let int = |place: usize| match attrs.get(place) {
        Some(Attr::Int(value)) => Some(*value),
        _ => None,
    };
    let dim = |place: usize| {
        let dim = int(place)?;
        usize::try_from(if dim < 0 { dim + i64::try_from(rank).ok()? } else { dim }).ok()
    };
    let mut kept: SmallVec<[i64; 8]> = strides.iter().copied().collect();
    match op {
        Op::Reshape => return regrouped(&meta.dims, strides, &result.dims),
        Op::Permute => {
            let Some(Attr::Ints(order)) = attrs.first() else { return None };
            let signed = i64::try_from(rank).ok()?;
            kept = order
                .iter()
                .map(|&dim| {
                    let dim = usize::try_from(if dim < 0 { dim + signed } else { dim }).ok()?;
                    strides.get(dim).copied()
                })
                .collect::<Option<_>>()?;
        }
        Op::Expand => {
            kept = expanded(&meta.dims, strides, &result.dims)?;
        }
        Op::Slice => *kept.get_mut(dim(0)?)? *= int(3)?,
        Op::Select => {
            kept.remove(dim(0).filter(|&dim| dim < rank)?);
        }
        Op::Diagonal => {
            let (first, second) = (dim(1)?, dim(2)?);
            let step = strides.get(first)? + strides.get(second)?;
            kept = (0..rank)
                .filter(|&place| place != first && place != second)
                .filter_map(|place| strides.get(place).copied())
                .collect();
            kept.push(step);
        }
        _ => return None,
    }
    Dims::new(&kept)
}

/// Strides after `expand`: repeated dimensions do not move, new ones of size 1 stand before the next.
fn expanded(old: &Dims, strides: &Dims, new: &Dims) -> Option<SmallVec<[i64; 8]>> {
    let added = new.len().checked_sub(old.len())?;
    let mut kept: SmallVec<[i64; 8]> = SmallVec::from_elem(0, new.len());
    for place in (0..new.len()).rev() {
        let size = *new.get(place)?;
        let stride = match place.checked_sub(added) {
            Some(before) if *old.get(before)? == size => *strides.get(before)?,
            None if size == 1 && !old.is_empty() => new.get(place + 1)? * kept.get(place + 1)?,
            Some(_) | None => 0,
        };
        *kept.get_mut(place)? = stride;
    }
    Some(kept)
}

/// How many elements of the storage lie before a view's first one, counted from its operand's first.
fn offset_of(op: Op, meta: &Meta, strides: &Dims, attrs: &[Attr]) -> i64 {
    let int = |place: usize| match attrs.get(place) {
        Some(Attr::Int(value)) => *value,
        _ => 0,
    };
    let at = |place: usize| {
        let dim = wrapped(int(place), meta.dims.len());
        dim.and_then(|dim| Some((*meta.dims.get(dim)?, *strides.get(dim)?))).unwrap_or((0, 0))
    };
    match op {
        Op::Slice => {
            let (size, stride) = at(0);
            let start = if int(1) < 0 { int(1) + size } else { int(1) };
            start.clamp(0, size) * stride
        }
        Op::Select => {
            let (size, stride) = at(0);
            (if int(1) < 0 { int(1) + size } else { int(1) }) * stride
        }
        Op::Diagonal if int(0) >= 0 => int(0) * at(2).1,
        Op::Diagonal => -int(0) * at(1).1,
        _ => 0,
    }
}

/// Strides of a view in other sizes, where the groups of dimensions that are merged are contiguous; `None` where a copy
/// is needed. (The rule of `at::detail::computeStride`: walk both shapes from the end, chunk by chunk.)
fn regrouped(old: &Dims, strides: &Dims, new: &Dims) -> Option<Dims> {
    if old.contains(&0) || new.contains(&0) {
        return Some(if old == new { *strides } else { contiguous(new) });
    }
    let mut result: SmallVec<[i64; 8]> = SmallVec::from_elem(0, new.len());
    let mut place = new.len();
    let mut chunk_stride = strides.last().copied().unwrap_or(1);
    let mut chunk_size = 1_i64;
    for dim in (0..old.len()).rev() {
        chunk_size *= old.get(dim)?;
        let ends = dim == 0
            || (*old.get(dim - 1)? != 1 && *strides.get(dim - 1)? != chunk_size * chunk_stride);
        if !ends {
            continue;
        }
        let mut viewed = 1_i64;
        while place > 0 && (viewed < chunk_size || *new.get(place - 1)? == 1) {
            place -= 1;
            *result.get_mut(place)? = viewed * chunk_stride;
            viewed *= new.get(place)?;
        }
        if viewed != chunk_size {
            return None;
        }
        if dim > 0 {
            chunk_stride = *strides.get(dim - 1)?;
            chunk_size = 1;
        }
    }
    // Only size-1 dimensions can be left, of a scalar.
    for entry in result.iter_mut().take(place) {
        *entry = 1;
    }
    Dims::new(&result)
}
