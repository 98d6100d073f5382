//! View operators: the instruction, and PyTorch's strides of views, which share storage.

pub(crate) mod in_place;
mod index_numbers;
pub(crate) mod indexing;
pub(crate) mod picking;
pub(crate) mod sharing;
pub(crate) mod write;

use crate::client::emission::emit::{self, Arg};
use crate::client::session::errors;
use crate::client::value::steps;
use crate::client::value::variable::Var;
use gt_protocol::rules::strided::{ViewCall, regrouped};
use gt_protocol::rules::{ErrorClass, RuleArg, infer};
use gt_protocol::{Attr, Dims, Dtype, Op};
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};

/// Returns true if results of this operator may share their operand's storage.
pub(crate) fn is_view(op: Op) -> bool {
    op.info().view.is_some()
}

/// A view operator on a variable. `reshape` copies where no view is possible.
pub(crate) fn take(py: Python<'_>, var: &Var, op: Op, attrs: SmallVec<[Attr; 2]>) -> PyResult<Var> {
    let meta = var.meta(py);
    let result = infer(op, &[RuleArg::Value(&meta)], &attrs)
        .map_err(|error| errors::of_rule(py, &error))?
        .first()
        .copied()
        .expect("a view operator has one result");
    let strided = steps::strided(op);
    let strides = var.strides(py);
    let call =
        ViewCall { attrs: &attrs, sizes: &meta.dims, strides: &strides, result: &result.dims };
    let place = strided.place(&call);
    // The resolved size, so that taking the view again needs no inference.
    let attrs = if strided.sized { smallvec![Attr::Ints(result.dims)] } else { attrs };
    var.view(py, op, attrs, place)
}

pub(crate) fn reshape(py: Python<'_>, var: &Var, dims: Dims) -> PyResult<Var> {
    take(py, var, Op::Reshape, smallvec![Attr::Ints(dims)])
}

pub(crate) fn expand(py: Python<'_>, var: &Var, dims: Dims) -> PyResult<Var> {
    take(py, var, Op::Expand, smallvec![Attr::Ints(dims)])
}

/// `x.view(size)`: like reshape, but an error where it cannot share storage.
pub(crate) fn view(py: Python<'_>, var: &Var, dims: Dims) -> PyResult<Var> {
    let meta = var.meta(py);
    let result = infer(Op::Reshape, &[RuleArg::Value(&meta)], &[Attr::Ints(dims)])
        .map_err(|error| errors::of_rule(py, &error))?
        .first()
        .copied()
        .expect("a view operator has one result");
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

/// `x.view(dtype)`: the bits as another dtype, as a value of its own. PyTorch's strides decide
/// which tensors can be read so.
pub(crate) fn bitcast(py: Python<'_>, var: &Var, dtype: Dtype) -> PyResult<Var> {
    let own = var.meta(py).dtype;
    if own == dtype {
        return alias(py, var);
    }
    if own.size() != dtype.size() {
        check_dense(py, var, dtype)?;
    }
    emit::only(emit::emit(py, Op::Bitcast, &[Arg::Var(var)], smallvec![Attr::Dtype(dtype)])?)
}

/// Checks that elements of another size can be read: those of the last dimension are adjacent, and
/// wider elements are aligned.
fn check_dense(py: Python<'_>, var: &Var, dtype: Dtype) -> PyResult<()> {
    let (meta, strides) = (var.meta(py), var.strides(py));
    infer(Op::Bitcast, &[RuleArg::Value(&meta)], &[Attr::Dtype(dtype)])
        .map_err(|error| errors::of_rule(py, &error))?;
    let wrong = |what: String, found: i64| {
        let (own, dtype) = (meta.dtype.scalar_type_name(), dtype.scalar_type_name());
        let text =
            format!("{what} to view {own} as {dtype} (different element sizes), but got {found}");
        Err(errors::mistake(py, ErrorClass::Shape, text))
    };
    let ratio = (dtype.size() / meta.dtype.size()).cast_signed();
    if ratio > 1 && var.offset(py) % ratio != 0 {
        return wrong(
            format!("self.storage_offset() must be divisible by {ratio}"),
            var.offset(py),
        );
    }
    let Some((&last, others)) = strides.split_last() else { return Ok(()) };
    if last != 1 {
        return wrong("self.stride(-1) must be 1".to_owned(), last);
    }
    for (place, &stride) in others.iter().enumerate().filter(|_| ratio > 1) {
        if stride % ratio != 0 {
            return wrong(format!("self.stride({place}) must be divisible by {ratio}"), stride);
        }
    }
    Ok(())
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

/// A view with two dimensions swapped.
pub(crate) fn transpose(py: Python<'_>, var: &Var, first: i64, second: i64) -> PyResult<Var> {
    let rank = var.meta(py).dims.len();
    let (first, second) = (dim_of(py, first, rank)?, dim_of(py, second, rank)?);
    if rank == 0 {
        return permute(py, var, Dims::EMPTY);
    }
    let mut order: SmallVec<[i64; 8]> =
        (0..rank).map(|dim| i64::try_from(dim).expect("a rank is small")).collect();
    order.swap(first, second);
    permute(py, var, Dims::new(&order).expect("as many dimensions as before"))
}

/// A view with a dimension of size 1 inserted before `dim`.
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

/// A view of elements of the memory of `var`, not only of its own elements. `None` where the whole
/// memory is unknown.
pub(crate) fn as_strided(
    py: Python<'_>,
    var: &Var,
    (dims, strides, offset): (Dims, Dims, i64),
) -> PyResult<Option<Var>> {
    let Some(whole) = var.whole(py) else { return Ok(None) };
    let attrs = smallvec![Attr::Ints(dims), Attr::Ints(strides), Attr::Int(offset)];
    let mut view = take(py, &whole, Op::AsStrided, attrs)?;
    if var.is_conjugate(py) {
        view = take(py, &view, Op::Conj, smallvec![])?;
    }
    view.take_origin(py, var);
    Ok(Some(view))
}

/// A view of all elements, with the same strides.
pub(crate) fn alias(py: Python<'_>, var: &Var) -> PyResult<Var> {
    sized(py, var, &var.meta(py).dims, &var.strides(py))
}

/// A view without the dimensions of size 1 for which `drop` is true.
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
    let rank = i64::try_from(rank).expect("a rank is small").max(1);
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
