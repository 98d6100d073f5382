//! Writes into tensors.

use super::tensor::Tensor;
use crate::client::emission::convert::{DimsArg, OperandArg};
use crate::client::emission::emit::{Arg, cast};
use crate::client::tape::saved;
use crate::client::value::variable::Var;
use crate::client::views;
use crate::client::views::in_place::{assign, before_write, fill};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(assign_, module)?)?;
    module.add_function(wrap_pyfunction!(fill_, module)?)?;
    module.add_function(wrap_pyfunction!(check_writable, module)?)?;
    module.add_function(wrap_pyfunction!(value_before, module)?)?;
    module.add_function(wrap_pyfunction!(view_source, module)?)?;
    module.add_function(wrap_pyfunction!(change_shape, module)?)?;
    module.add_function(wrap_pyfunction!(become_view, module)?)?;
    module.add_function(wrap_pyfunction!(as_strided, module)?)?;
    module.add_function(wrap_pyfunction!(unwatched, module)?)?;
    module.add_function(wrap_pyfunction!(keep, module)?)?;
    module.add_function(wrap_pyfunction!(memory, module)?)?;
    module.add_function(wrap_pyfunction!(memory_address, module)?)?;
    module.add_function(wrap_pyfunction!(take_memory, module)?)?;
    module.add_function(wrap_pyfunction!(memory_copy, module)?)?;
    module.add_function(wrap_pyfunction!(check_mask, module)?)?;
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
    var.check_copied(py, value)?;
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

/// Raises the error that an in-place write of `target` raises before its value is computed;
/// `operands` may have any type.
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

/// A separate variable with the value of `target`, where the tape may save it: a later write to
/// `target` does not count as a change of it.
#[pyfunction]
fn value_before<'py>(target: &Bound<'py, Tensor>) -> PyResult<Bound<'py, Tensor>> {
    let (py, var) = (target.py(), &target.get().var);
    match before_write(py, var, false)? {
        Some(before) => Tensor::wrap(py, before),
        None => Ok(target.clone()),
    }
}

/// A tensor of the same memory; `change_shape` may turn `target` into a view of it.
#[pyfunction]
fn view_source<'py>(target: &Bound<'py, Tensor>) -> PyResult<Bound<'py, Tensor>> {
    let py = target.py();
    Tensor::wrap(py, target.get().var.view_source(py)?)
}

/// Turns `target` into `view`, which was taken of its `view_source`.
#[pyfunction]
fn change_shape(target: &Bound<'_, Tensor>, view: &Bound<'_, Tensor>) -> PyResult<()> {
    target.get().var.change_shape(target.py(), &view.get().var)
}

/// Turns `target` into `view`, which was taken of it or of `value_before(target)`.
#[pyfunction]
fn become_view(target: &Bound<'_, Tensor>, view: &Bound<'_, Tensor>) -> PyResult<()> {
    target.get().var.become_view(target.py(), &view.get().var)
}

/// Number of elements of the memory that `tensor` is a part of; None where the rest of that memory
/// is unknown.
#[pyfunction]
fn as_strided<'py>(
    tensor: &Bound<'py, Tensor>,
    size: DimsArg,
    stride: DimsArg,
    storage_offset: i64,
) -> PyResult<Option<Bound<'py, Tensor>>> {
    let py = tensor.py();
    let view = views::as_strided(py, &tensor.get().var, (size.0, stride.0, storage_offset))?;
    view.map(|var| Tensor::wrap(py, var)).transpose()
}

/// Makes backward passes through `result` refuse if one of `tensors` was written since: `PyTorch`'s
/// operator saves them, while GT composes it of several operators, of which `result` is the last.
#[pyfunction]
#[pyo3(signature = (result, *tensors))]
fn keep(result: &Bound<'_, Tensor>, tensors: &Bound<'_, PyTuple>) -> PyResult<()> {
    let tensors: Vec<Bound<'_, Tensor>> =
        tensors.iter().map(Bound::cast_into).collect::<Result<_, _>>()?;
    let kept: Vec<Var> = tensors.iter().map(|tensor| tensor.get().var.clone()).collect();
    saved::keep(result.py(), &result.get().var, &kept)
}

/// Number of elements of the memory that `tensor` is a part of, and number of tensors that share
/// it.
#[pyfunction]
fn memory(tensor: &Bound<'_, Tensor>) -> (i64, usize) {
    tensor.get().var.memory(tensor.py())
}

/// Stand-in for the address of the memory that `tensor` is a part of: elements of different
/// memories never have the same one.
#[pyfunction]
fn memory_address(tensor: &Bound<'_, Tensor>) -> u64 {
    tensor.get().var.memory_address(tensor.py())
}

/// Makes `target` name the memory of `source`; tensors that shared its earlier memory keep that.
#[pyfunction]
fn take_memory(target: &Bound<'_, Tensor>, source: &Bound<'_, Tensor>) -> PyResult<()> {
    target.get().var.take_memory(target.py(), &source.get().var)
}

/// A detached copy of `tensor`: copies made with one dict `memories` share memory where their
/// originals do. Conjugates share none, as in PyTorch. Autograd counts the copy as the first write.
#[pyfunction]
fn memory_copy<'py>(
    tensor: &Bound<'py, Tensor>,
    memories: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, Tensor>> {
    let (py, var) = (tensor.py(), &tensor.get().var);
    if var.is_conjugate(py) {
        return Tensor::wrap(py, Var::new(py, var.value(py)?, None));
    }
    let Some(storage) = var.storage(py) else {
        let copy = Var::new(py, var.value(py)?, None);
        copy.count(py);
        return Tensor::wrap(py, copy);
    };
    // The original is kept beside its copy, so that no other memory can get its address.
    let key = Arc::as_ptr(&storage).addr();
    let known =
        memories.get_item(key)?.map(|pair| pair.extract::<(Bound<'py, Tensor>, Py<PyAny>)>());
    let whole = if let Some((whole, _)) = known.transpose()? {
        whole
    } else {
        let whole = Tensor::wrap(py, Var::new(py, storage.value(py), None))?;
        memories.set_item(key, (&whole, tensor))?;
        whole
    };
    Tensor::wrap(py, whole.get().var.shown_as(py, var)?)
}

/// A tensor that shares the memory of `view` but is no view to autograd: writes to one are not
/// recorded for the other.
#[pyfunction]
fn unwatched<'py>(view: &Bound<'py, Tensor>) -> PyResult<Bound<'py, Tensor>> {
    let py = view.py();
    Tensor::wrap(py, view.get().var.unwatched(py)?)
}

/// Raises an error where a mask's sizes differ from those of the dimensions of `tensor` from `dim`
/// on.
#[pyfunction]
fn check_mask(tensor: &Bound<'_, Tensor>, dim: usize, mask: &Bound<'_, Tensor>) -> PyResult<()> {
    let py = tensor.py();
    let (dims, sizes) = (tensor.get().var.meta(py).dims, mask.get().var.meta(py).dims);
    views::picking::check_mask(py, &dims, dim, &sizes)
}

/// Fills `target` with `value`, a number or a 0-d tensor.
#[pyfunction]
fn fill_<'py>(
    py: Python<'py>,
    target: &Bound<'py, Tensor>,
    value: OperandArg<'py>,
) -> PyResult<Bound<'py, Tensor>> {
    fill(py, &target.get().var, &value)?;
    Ok(target.clone())
}

/// Consecutive slices of these lengths along `dim`, as the results of one function: of
/// `split_with_sizes` where the user gave the lengths.
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

/// Slices of size 1 along `dim`, which is removed, as the results of one function.
#[pyfunction]
fn entries<'py>(
    tensor: &Bound<'py, Tensor>,
    dim: i64,
    count: i64,
) -> PyResult<Bound<'py, PyTuple>> {
    let (py, var) = (tensor.py(), &tensor.get().var);
    several(py, "Unbind", 0..count, |index| views::select(py, var, dim, index))
}

/// Marks views as the results of one function.
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
