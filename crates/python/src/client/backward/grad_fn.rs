//! Nodes of the tape as Python sees them.

use crate::client::gil_cell::GilCell;
use crate::client::session::{errors, site};
use crate::client::tape::{Edge, SharedNode, saved};
use crate::client::value::Tensor;
use crate::client::value::variable::{ColdNode, Input, NodeKind, UserFunction, Var};
use gt_protocol::rules::ErrorClass;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

/// `tensor.grad_fn`: the node that computes the gradients of operands from that of the result. Each operator has a class
/// of its own with PyTorch's name of the function (`AddBackward0`): programs that draw graphs read the class's name.
#[pyclass(frozen, weakref, subclass, module = "gt", name = "GradFn")]
pub(crate) struct GradFn(To);

/// The classes by name; as many as there are operators.
static CLASSES: GilCell<Option<Py<PyDict>>> = GilCell::new(None);

#[derive(Clone)]
enum To {
    Node(SharedNode),
    /// A leaf, whose gradient accumulates.
    Leaf(Var),
}

impl GradFn {
    pub(super) fn of(node: &SharedNode) -> Self {
        Self(To::Node(node.clone()))
    }

    fn class_name(&self) -> String {
        match &self.0 {
            To::Node(node) => node.name(),
            To::Leaf(_) => "AccumulateGrad".to_owned(),
        }
    }

    /// Makes the Python object, of the class with the node's name.
    pub(super) fn object(self, py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        let name = self.class_name();
        let classes =
            CLASSES.get_mut(py).get_or_insert_with(|| PyDict::new(py).unbind()).clone_ref(py);
        let class = if let Some(class) = classes.bind(py).get_item(&name)? {
            class
        } else {
            let class = class_named(py, &name)?;
            classes.bind(py).set_item(&name, &class)?;
            class
        };
        Ok(class.call1((Bound::new(py, self)?,))?.cast_into::<Self>()?)
    }

    /// The operands that are tensors, by their places.
    pub(super) fn operands(node: &SharedNode) -> impl Iterator<Item = (usize, &Input)> {
        node.inputs.iter().enumerate().filter(|(_, input)| input.meta.is_some())
    }

    /// The dictionary that the node keeps, made at first use.
    fn kept<'py>(
        &self,
        py: Python<'py>,
        place: impl FnOnce(&mut ColdNode) -> &mut Option<Py<PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let To::Node(node) = &self.0 else {
            return Err(PyAttributeError::new_err(
                "AccumulateGrad takes no hooks; use Tensor.register_hook or register_post_accumulate_grad_hook",
            ));
        };
        let fresh = PyDict::new(py).unbind();
        let mut cold = node.cold.get_mut(py);
        let kept = place(cold.get_or_insert_default()).get_or_insert(fresh);
        Ok(kept.bind(py).clone())
    }
}

/// A class that adds nothing to `GradFn` but its name.
fn class_named<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let members = PyDict::new(py);
    members.set_item("__slots__", PyTuple::empty(py))?;
    members.set_item("__module__", "gt.autograd.graph")?;
    py.get_type::<PyType>().call1((name, (py.get_type::<GradFn>(),), members))
}

#[pymethods]
impl GradFn {
    /// Makes another object for the same node: called by the classes of `object`.
    #[new]
    fn new(node: &Bound<'_, Self>) -> Self {
        Self(node.get().0.clone())
    }

    /// PyTorch's name of the node: `MulBackward0`.
    fn name(&self) -> String {
        match &self.0 {
            To::Node(node) => node.name(),
            To::Leaf(_) => "torch::autograd::AccumulateGrad".to_owned(),
        }
    }

    fn __repr__(&self) -> String {
        format!("<{} object at {:#x}>", self.class_name(), self.__hash__())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let Ok(other) = other.cast::<Self>() else { return false };
        match (&self.0, &other.get().0) {
            (To::Node(mine), To::Node(its)) => mine.is(its),
            (To::Leaf(mine), To::Leaf(its)) => mine.is(its),
            (To::Node(_), To::Leaf(_)) | (To::Leaf(_), To::Node(_)) => false,
        }
    }

    fn __hash__(&self) -> usize {
        match &self.0 {
            To::Node(node) => node.address(),
            To::Leaf(leaf) => leaf.address(),
        }
    }

    /// For each operand that is a tensor, where its gradient goes: a node and which output of it, or (None, 0).
    #[getter]
    fn next_functions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let To::Node(node) = &self.0 else { return Ok(PyTuple::empty(py)) };
        let next = |input: &Input| match &input.edge {
            Some(Edge::Node(from, output)) => Ok((Some(Self::of(from).object(py)?), *output)),
            Some(Edge::Leaf(leaf)) => Ok((Some(Self(To::Leaf(leaf.clone())).object(py)?), 0)),
            Some(Edge::Nowhere) | None => Ok((None, 0)),
        };
        let nexts = Self::operands(node).map(|(_, input)| next(input));
        PyTuple::new(py, nexts.collect::<PyResult<Vec<(Option<Bound<'py, Self>>, u32)>>>()?)
    }

    /// The leaf, of a node that accumulates into one.
    #[getter]
    fn variable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Tensor>> {
        match &self.0 {
            To::Leaf(leaf) => Tensor::of_leaf(py, leaf),
            To::Node(node) => Err(no_attribute(node, "variable")),
        }
    }

    /// Call site of the forward: `train.py:42`.
    #[getter]
    fn _site(&self, py: Python<'_>) -> Option<String> {
        match &self.0 {
            To::Node(node) => site::name(py, node.site),
            To::Leaf(_) => None,
        }
    }

    /// Functions that are called before this node computes gradients.
    #[getter]
    fn _before(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        self.kept(py, |cold| &mut cold.before).map(Bound::unbind)
    }

    /// Functions that are called after this node has computed gradients.
    #[getter]
    fn _after(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        self.kept(py, |cold| &mut cold.after).map(Bound::unbind)
    }

    /// Dictionary that the user may fill with data about this node.
    #[getter]
    fn metadata(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        self.kept(py, |cold| &mut cold.metadata).map(Bound::unbind)
    }

    /// Tensors that a user's function passed to `save_for_backward`.
    #[getter]
    fn saved_tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.0 {
            To::Node(node) => match &node.kind {
                NodeKind::Function(function) => saved_tensors(py, node, function),
                NodeKind::Op(_) => Err(no_attribute(node, "saved_tensors")),
            },
            To::Leaf(_) => Err(PyAttributeError::new_err(
                "'AccumulateGrad' object has no attribute 'saved_tensors'",
            )),
        }
    }

    /// Looks up an attribute of the `ctx` of a user's function.
    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        match &self.0 {
            To::Node(node) => match &node.kind {
                NodeKind::Function(function) => function.context.bind(py).getattr(name),
                NodeKind::Op(_) => Err(no_attribute(node, name)),
            },
            To::Leaf(_) => Err(PyAttributeError::new_err(format!(
                "'AccumulateGrad' object has no attribute '{name}'"
            ))),
        }
    }
}

fn no_attribute(node: &SharedNode, name: &str) -> PyErr {
    PyAttributeError::new_err(format!("'{}' object has no attribute '{name}'", node.name()))
}

pub(crate) fn grad_fn<'py>(py: Python<'py>, var: &Var) -> PyResult<Option<Bound<'py, GradFn>>> {
    match var.edge(py)? {
        Some(Edge::Node(node, _)) => GradFn::of(&node).object(py).map(Some),
        Some(Edge::Leaf(_) | Edge::Nowhere) | None => Ok(None),
    }
}

/// Tensors that were passed to `save_for_backward`.
fn saved_tensors<'py>(
    py: Python<'py>,
    node: &SharedNode,
    function: &UserFunction,
) -> PyResult<Bound<'py, PyTuple>> {
    if !function.saved.is_empty() && node.saved.get(py).is_none() {
        return Err(freed(py));
    }
    let tensors = function.saved.iter().map(|place| {
        let var = place.map(|place| saved::at(py, node, place)).transpose()?.flatten();
        var.map(|var| Tensor::wrap(py, var)).transpose()
    });
    PyTuple::new(py, tensors.collect::<PyResult<Vec<_>>>()?)
}

/// The error for a node whose saved values a pass has freed.
pub(super) fn freed(py: Python<'_>) -> PyErr {
    errors::mistake(
        py,
        ErrorClass::Runtime,
        "Trying to backward through the graph a second time (or directly access saved tensors after they \
         have already been freed). Saved intermediate values of the graph are freed when you call \
         .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the \
         graph a second time or if you need to access saved tensors after calling backward.",
    )
}
