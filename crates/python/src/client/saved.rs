//! What a gradient rule sees of the recorded instruction: saved operands and outputs, attributes, shapes.

use super::alias::Var;
use super::convert::{attr_object, scalar_object};
use super::dtype::{self, PyDtype};
use super::errors;
use super::gil_cell::GilCell;
use super::tape::{self, Edge, Node, Place};
use super::tensor::{Tensor, size_object};
use gt_protocol::OperandKind;
use gt_protocol::rules::ErrorClass;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;

/// The second argument of a gradient rule.
#[pyclass(frozen, module = "gt")]
pub(crate) struct Saved {
    node: Arc<Node>,
    /// What one instruction has made for the rules of several operands.
    shared: GilCell<Option<Py<PyAny>>>,
}

impl Saved {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, shared: GilCell::new(None) }
    }

    fn position(&self, name: &str) -> PyResult<usize> {
        self.node.op.info().operands.iter().position(|operand| operand.name == name).ok_or_else(
            || {
                PyAttributeError::new_err(format!(
                    "{} has no operand {name:?}",
                    self.node.op.info().name
                ))
            },
        )
    }

    fn at<'py>(&self, py: Python<'py>, place: Place) -> PyResult<Option<Bound<'py, Tensor>>> {
        let (value, modification) = {
            let saved = self.node.saved.get(py);
            let Some(kept) = saved.iter().flatten().find(|kept| kept.place == place) else {
                return Ok(None);
            };
            (Arc::clone(&kept.value), kept.watched.modified(py))
        };
        if let Some((then, now)) = modification {
            return Err(modified(py, &self.node, place, &value.meta, now, then));
        }
        let edge = match place {
            Place::Operand(position) => {
                self.node.inputs.get(position).and_then(|input| input.edge.clone())
            }
            Place::Output(output) => {
                value.meta.dtype.is_float().then(|| Edge::Node(Arc::clone(&self.node), output))
            }
        };
        Tensor::wrap(py, Var::new(value, edge)).map(Some)
    }

    /// Raises where an output was written since: `PyTorch` looks at those whether or not the gradient is used.
    pub(crate) fn check_outputs(&self, py: Python<'_>) -> PyResult<()> {
        for output in 0..self.node.outputs.len() {
            self.at(py, Place::Output(output))?;
        }
        Ok(())
    }

    fn operand<'py>(&self, py: Python<'py>, position: usize) -> PyResult<Bound<'py, PyAny>> {
        let info = self.node.op.info();
        if info.operands.get(position).is_some_and(|operand| operand.kind == OperandKind::List) {
            let mut items = Vec::new();
            for place in position..self.node.inputs.len() {
                items.push(self.single(py, place)?);
            }
            return Ok(PyTuple::new(py, items)?.into_any());
        }
        self.single(py, position)
    }

    fn single<'py>(&self, py: Python<'py>, position: usize) -> PyResult<Bound<'py, PyAny>> {
        if let Some(tensor) = self.at(py, Place::Operand(position))? {
            return Ok(tensor.into_any());
        }
        let input = self.node.inputs.get(position);
        if let Some(scalar) = input.and_then(|input| input.scalar) {
            return scalar_object(py, scalar);
        }
        if input.is_some_and(|input| input.meta.is_some()) {
            let info = self.node.op.info();
            return Err(PyAttributeError::new_err(format!(
                "{}: operand {position} is not among the row's saves",
                info.name
            )));
        }
        Ok(py.None().into_bound(py))
    }
}

fn modified(
    py: Python<'_>,
    node: &Node,
    place: Place,
    meta: &gt_protocol::Meta,
    now: u32,
    version: u32,
) -> PyErr {
    let maker = match place {
        Place::Operand(position) => {
            match node.inputs.get(position).and_then(|input| input.edge.as_ref()) {
                Some(Edge::Node(maker, output)) => Some((tape::function_name(maker.op), *output)),
                Some(Edge::Leaf(_) | Edge::Nowhere) | None => None,
            }
        }
        Place::Output(output) => Some((tape::function_name(node.op), output)),
    };
    let which = maker
        .map_or(String::new(), |(name, output)| format!(", which is output {output} of {name},"));
    errors::mistake(
        py,
        ErrorClass::Runtime,
        format!(
            "one of the variables needed for gradient computation has been modified by an inplace operation: \
             [torch.{}Tensor {}]{which} is at version {now}; expected version {version} instead.",
            meta.dtype.scalar_type_name(),
            meta.dims
        ),
    )
}

#[pymethods]
impl Saved {
    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let info = self.node.op.info();
        if let Some(position) = info.operands.iter().position(|operand| operand.name == name) {
            return self.operand(py, position);
        }
        if let Some(position) = info.attr_index(name)
            && let (Some(attr), Some(row)) =
                (self.node.attrs.get(position), info.attrs.get(position))
        {
            return attr_object(py, attr, row.kind);
        }
        let output = match name {
            "out" => Some(0),
            _ => name.strip_prefix("out").and_then(|digits| digits.parse().ok()),
        };
        if let Some(output) = output
            && let Some(tensor) = self.at(py, Place::Output(output))?
        {
            return Ok(tensor.into_any());
        }
        Err(PyAttributeError::new_err(format!("{}: nothing is saved under {name:?}", info.name)))
    }

    /// `make()` at the first call, its result at all others: one instruction for the gradients of several operands.
    fn once<'py>(&self, make: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = make.py();
        let made = self.shared.get(py).as_ref().map(|made| made.bind(py).clone());
        if let Some(made) = made {
            return Ok(made);
        }
        let made = make.call0()?;
        *self.shared.get_mut(py) = Some(made.clone().unbind());
        Ok(made)
    }

    /// Shape of an operand; of item `k` for a list.
    #[pyo3(signature = (name, k=0))]
    fn shape_of<'py>(&self, py: Python<'py>, name: &str, k: usize) -> PyResult<Bound<'py, PyAny>> {
        let position = self.position(name)? + k;
        match self.node.inputs.get(position).and_then(|input| input.meta) {
            Some(meta) => size_object(py, &meta.dims),
            None => Ok(PyTuple::empty(py).into_any()),
        }
    }

    /// Dtype of an operand, None for a number or an absent one.
    #[pyo3(signature = (name, k=0))]
    fn dtype_of(&self, py: Python<'_>, name: &str, k: usize) -> PyResult<Option<Py<PyDtype>>> {
        let position = self.position(name)? + k;
        let meta = self.node.inputs.get(position).and_then(|input| input.meta);
        meta.map(|meta| dtype::object(py, meta.dtype)).transpose()
    }

    /// Whether an operand needs a gradient.
    #[pyo3(signature = (name, k=0))]
    fn needs(&self, name: &str, k: usize) -> PyResult<bool> {
        let position = self.position(name)? + k;
        Ok(self.node.inputs.get(position).is_some_and(|input| input.edge.is_some()))
    }

    /// How many items a list operand has.
    fn count_of(&self, name: &str) -> PyResult<usize> {
        Ok(self.node.inputs.len() - self.position(name)?)
    }

    /// Shape of an output.
    #[pyo3(signature = (output=0))]
    fn shape_of_out<'py>(&self, py: Python<'py>, output: usize) -> PyResult<Bound<'py, PyAny>> {
        match self.node.outputs.get(output) {
            Some(meta) => size_object(py, &meta.dims),
            None => Ok(PyTuple::empty(py).into_any()),
        }
    }

    /// The operator's name.
    #[getter]
    fn op(&self) -> &'static str {
        self.node.op.info().name
    }
}
