//! Writes into tensors.

use super::tensor::Tensor;
use crate::client::emission::convert::OperandArg;
use crate::client::emission::emit::{Arg, cast};
use crate::client::value::variable::Var;
use crate::client::views;
use crate::client::views::in_place::{assign, before_write, fill};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(assign_, module)?)?;
    module.add_function(wrap_pyfunction!(fill_, module)?)?;
    module.add_function(wrap_pyfunction!(check_writable, module)?)?;
    module.add_function(wrap_pyfunction!(value_before, module)?)?;
    module.add_function(wrap_pyfunction!(view_source, module)?)?;
    module.add_function(wrap_pyfunction!(change_shape, module)?)?;
    module.add_function(wrap_pyfunction!(become_view, module)?)?;
    module.add_function(wrap_pyfunction!(consecutive_slices, module)?)?;
    module.add_function(wrap_pyfunction!(entries, module)?)?;
    Ok(())
}

/// Writes `value` (broadcast and cast) into `target`, with PyTorch's rules of aliasing, versions and leaves.
#[pyfunction]
#[pyo3(signature = (target, value, computed=false))]
fn assign_<'py>(
    py: Python<'py>,
    target: &Bound<'py, Tensor>,
    value: &Bound<'py, Tensor>,
    computed: bool,
) -> PyResult<Bound<'py, Tensor>> {
    let (var, value): (&Var, &Var) = (&target.get().var, &value.get().var);
    var.check_writable(py, value.requires_grad(py))?;
    let wanted = var.meta(py);
    let mut new = value.clone();
    if new.meta(py).dims != wanted.dims {
        new = views::expand(py, &new, wanted.dims)?;
    }
    if !var.is_same_data(py, value) {
        var.check_overlap(py, &[Arg::Var(value)])?;
    }
    if new.meta(py).dtype != wanted.dtype {
        new = cast(py, &new, wanted.dtype)?;
    }
    assign(py, var, new, computed)?;
    Ok(target.clone())
}

/// Raises what a write in place of `target` raises before its value is computed from `operands` of any type.
#[pyfunction]
#[pyo3(signature = (target, *operands))]
fn check_writable(target: &Bound<'_, Tensor>, operands: &Bound<'_, PyTuple>) -> PyResult<()> {
    let (py, var) = (target.py(), &target.get().var);
    let tensors: Vec<Bound<'_, Tensor>> =
        operands.iter().filter_map(|operand| operand.cast_into::<Tensor>().ok()).collect();
    var.check_writable(py, tensors.iter().any(|tensor| tensor.get().var.requires_grad(py)))?;
    let others: Vec<Arg<'_>> = tensors.iter().map(|tensor| Arg::Var(&tensor.get().var)).collect();
    var.check_overlap(py, &others)
}

/// The value of `target` under a name of its own where the tape may save it: a write that follows is no change of that.
#[pyfunction]
fn value_before<'py>(target: &Bound<'py, Tensor>) -> PyResult<Bound<'py, Tensor>> {
    let (py, var) = (target.py(), &target.get().var);
    match before_write(py, var, false)? {
        Some(before) => Tensor::wrap(py, before),
        None => Ok(target.clone()),
    }
}

/// A tensor of the same memory, of which `target` may become a view by `change_shape`.
#[pyfunction]
fn view_source<'py>(target: &Bound<'py, Tensor>) -> PyResult<Bound<'py, Tensor>> {
    let py = target.py();
    Tensor::wrap(py, target.get().var.view_source(py)?)
}

/// `target` becomes `view`, which was taken of its `view_source`.
#[pyfunction]
fn change_shape(target: &Bound<'_, Tensor>, view: &Bound<'_, Tensor>) -> PyResult<()> {
    target.get().var.change_shape(target.py(), &view.get().var)
}

/// `target` becomes `view`, which was taken of it or of `value_before(target)`.
#[pyfunction]
fn become_view(target: &Bound<'_, Tensor>, view: &Bound<'_, Tensor>) -> PyResult<()> {
    target.get().var.become_view(target.py(), &view.get().var)
}

/// Every element of `target` becomes `value`, a number or a 0-d tensor.
#[pyfunction]
fn fill_<'py>(
    py: Python<'py>,
    target: &Bound<'py, Tensor>,
    value: OperandArg<'py>,
) -> PyResult<Bound<'py, Tensor>> {
    fill(py, &target.get().var, &value)?;
    Ok(target.clone())
}

/// Slices of these lengths along `dim`, one after the other, as the results of one function: of `split_with_sizes`
/// where the user said the lengths.
#[pyfunction]
#[pyo3(signature = (tensor, dim, lengths, with_sizes=false))]
fn consecutive_slices<'py>(
    tensor: &Bound<'py, Tensor>,
    dim: i64,
    lengths: Vec<i64>,
    with_sizes: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let (py, var) = (tensor.py(), &tensor.get().var);
    let mut end = 0;
    let function = if with_sizes { "SplitWithSizes" } else { "Split" };
    several(py, function, lengths.into_iter(), |length| {
        end += length;
        views::slice(py, var, (dim, end - length, end, 1))
    })
}

/// What a tensor has along `dim`, which disappears, as the results of one function.
#[pyfunction]
fn entries<'py>(
    tensor: &Bound<'py, Tensor>,
    dim: i64,
    count: i64,
) -> PyResult<Bound<'py, PyTuple>> {
    let (py, var) = (tensor.py(), &tensor.get().var);
    several(py, "Unbind", 0..count, |index| views::select(py, var, dim, index))
}

/// Views that are the results of one function.
fn several<'py>(
    py: Python<'py>,
    function: &'static str,
    which: impl Iterator<Item = i64>,
    mut take: impl FnMut(i64) -> PyResult<Var>,
) -> PyResult<Bound<'py, PyTuple>> {
    let view = |(place, item)| {
        let var = take(item)?;
        var.mark_multiple(py, place, function);
        Tensor::wrap(py, var)
    };
    PyTuple::new(py, (0..=u16::MAX).cycle().zip(which).map(view).collect::<PyResult<Vec<_>>>()?)
}
