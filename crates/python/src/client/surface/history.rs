//! A tensor's gradient state: whether it requires a gradient, the operation that made it, and the
//! tensors that share its value.

use super::generated_help::help;
use super::tensor::Tensor;
use crate::client::backward;
use crate::client::backward::grad_fn::{self, GradFn};
use crate::client::session::errors;
use gt_protocol::rules::ErrorClass;
use pyo3::exceptions::{PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use std::ffi::CStr;

/// `PyTorch`'s warning, given at the line that reads the gradient of a tensor for which no pass
/// keeps one.
const GRAD_OF_NO_LEAF: &CStr = c"The .grad attribute of a Tensor that is not a leaf Tensor is being \
    accessed. Its .grad attribute \
    won't be populated during autograd.backward(). If you indeed want the .grad field to be populated \
    for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor \
    by mistake, make sure you access the leaf Tensor instead. See github.com/pytorch/pytorch/pull/30531 \
    for more information.";

#[allow(clippy::doc_markdown, reason = "help() shows plain text")]
#[pymethods]
impl Tensor {
    /// True if operations on this tensor are recorded for a gradient; may be set on a leaf.
    #[doc = help!(requires_grad)]
    #[getter]
    fn requires_grad(&self, py: Python<'_>) -> bool {
        self.var.requires_grad(py)
    }

    #[setter]
    fn set_requires_grad(slf: &Bound<'_, Self>, requires: bool) -> PyResult<()> {
        let py = slf.py();
        if requires && !slf.get().var.meta(py).dtype.is_differentiable() {
            let text = "only Tensors of floating point and complex dtype can require gradients";
            return Err(errors::mistake(py, ErrorClass::Runtime, text));
        }
        Self::require_grad(slf, requires)
    }

    /// Sets whether operations on this leaf are recorded for a gradient; returns the tensor itself.
    #[doc = help!(requires_grad_)]
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(
        slf: &Bound<'py, Self>,
        requires_grad: bool,
    ) -> PyResult<Bound<'py, Self>> {
        Self::require_grad(slf, requires_grad)?;
        Ok(slf.clone())
    }

    /// True if no recorded operation made this tensor, so that `backward` may add to its `grad`.
    #[doc = help!(is_leaf)]
    #[getter]
    fn is_leaf(&self, py: Python<'_>) -> PyResult<bool> {
        self.var.is_leaf(py)
    }

    /// The node of the recorded operation that made this tensor; None for a leaf.
    #[doc = help!(grad_fn)]
    #[getter]
    fn grad_fn<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, GradFn>>> {
        grad_fn::grad_fn(py, &self.var)
    }

    /// The gradient that backward passes have accumulated; None before the first pass.
    #[doc = help!(grad)]
    #[getter]
    fn grad<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Self>>> {
        let (grad, retains) = match self.var.look(py).cold() {
            Some(cold) => (cold.grad.as_ref().map(|grad| grad.bind(py).clone()), cold.retains),
            None => (None, false),
        };
        if grad.is_none() && !retains && !self.var.is_leaf(py)? {
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), GRAD_OF_NO_LEAF, 1)?;
        }
        Ok(grad)
    }

    #[setter]
    fn set_grad(&self, py: Python<'_>, grad: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let grad = grad.map(|grad| self.accepted_grad(&grad)).transpose()?;
        let old =
            std::mem::replace(&mut self.var.state(py).cold_mut().grad, grad.map(Bound::unbind));
        drop(old);
        Ok(())
    }

    #[deleter]
    fn delete_grad(&self, py: Python<'_>) {
        let old = self.var.state(py).cold_mut().grad.take();
        drop(old);
    }

    /// Keeps the gradient of this tensor, which is not a leaf, in `grad` too.
    #[doc = help!(retain_grad)]
    fn retain_grad(&self, py: Python<'_>) -> PyResult<()> {
        self.var.retain_grad(py)
    }

    /// True if the gradient of this tensor, which is not a leaf, is kept in `grad`.
    #[doc = help!(retains_grad)]
    #[getter]
    fn retains_grad(&self, py: Python<'_>) -> bool {
        self.var.look(py).cold().is_some_and(|cold| cold.retains)
    }

    /// A tensor with the same values and without gradient history; writes show in both.
    #[doc = help!(detach)]
    fn detach<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        Self::wrap(py, self.var.detached(py, false)?)
    }

    /// A tensor with the same values and without gradient history; assigning to it replaces the
    /// values, unrecorded.
    #[doc = help!(data)]
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        Self::wrap(py, self.var.detached(py, true)?)
    }

    #[setter]
    fn set_data(&self, py: Python<'_>, data: &Bound<'_, Self>) -> PyResult<()> {
        self.var.rename(py, &data.get().var)
    }

    #[getter]
    fn _version(&self, py: Python<'_>) -> u32 {
        self.var.version(py)
    }

    /// Returns true if this tensor is a view of another one's storage.
    fn _is_view(&self, py: Python<'_>) -> bool {
        self.var.is_view(py)
    }

    /// The tensor that this one is a view of; None if this is no view.
    #[getter]
    fn _base<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Self>>> {
        let root = {
            let state = self.var.look(py);
            state.alias().and_then(|alias| alias.view.as_ref()).map(|view| view.root(py))
        };
        root.map(|root| Self::wrap(py, root)).transpose()
    }

    /// Adds the gradient of this tensor, weighted with `gradient`, to `grad` of every leaf that it was computed from,
    /// or of `inputs` alone, a tensor or several.
    #[doc = help!(backward)]
    #[pyo3(signature = (gradient=None, retain_graph=None, create_graph=false, inputs=None))]
    fn backward(
        slf: &Bound<'_, Self>,
        gradient: Option<Bound<'_, PyAny>>,
        retain_graph: Option<bool>,
        create_graph: bool,
        inputs: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let keep = retain_graph.unwrap_or(create_graph);
        let gradient = gradient.map(|given| backward::seeds::seed(slf, &given)).transpose()?;
        let inputs = inputs.map(|inputs| one_or_several(&inputs)).transpose()?;
        if inputs.as_ref().is_some_and(Vec::is_empty) {
            let text = "`inputs` argument to `backward()` cannot be empty.";
            return Err(errors::mistake(slf.py(), ErrorClass::Runtime, text));
        }
        let inputs = inputs.unwrap_or_default();
        let seed = gradient.map(|gradient| gradient.get().var.clone());
        backward::run(slf.py(), &[(slf.get().var.clone(), seed)], &inputs, keep, create_graph)
    }
}

/// Reads one tensor, or all of an iterable.
fn one_or_several<'py>(tensors: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, Tensor>>> {
    if let Ok(tensor) = tensors.cast::<Tensor>() {
        return Ok(vec![tensor.clone()]);
    }
    tensors.try_iter()?.map(|item| Ok(item?.cast::<Tensor>()?.clone())).collect()
}

impl Tensor {
    /// Checks a value that is assigned to `grad`: a tensor of this one's shape and dtype.
    fn accepted_grad<'py>(&self, grad: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = grad.py();
        let Ok(tensor) = grad.cast::<Self>() else {
            let given = grad.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "assigned grad expected to be a Tensor or None but got grad of type {given}"
            )));
        };
        let (mine, its) = (self.var.meta(py), tensor.get().var.meta(py));
        if self.var.is(&tensor.get().var) {
            let text = "can't assign Variable as its own grad";
            return Err(errors::mistake(py, ErrorClass::Runtime, text));
        }
        if mine.dims != its.dims {
            let text = format!(
                "attempting to assign a gradient of size '{}' to a tensor of size '{}'. Please ensure that the \
                 gradient and the tensor are the same size",
                its.dims, mine.dims
            );
            return Err(errors::mistake(py, ErrorClass::Shape, text));
        }
        if mine.dtype != its.dtype {
            let text = format!(
                "attempting to assign a gradient with dtype '{}' to a tensor with grad_dtype '{}'. The gradient \
                 must match the tensor's",
                its.dtype.cpp_name(),
                mine.dtype.scalar_type_name()
            );
            return Err(errors::mistake(py, ErrorClass::Dtype, text));
        }
        Ok(tensor.clone())
    }
}
