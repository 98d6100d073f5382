//! Calls of operators of the instruction table by name.

use super::tensor::{Tensor, as_arg};
use crate::client::emission::convert::{OperandArg, attr_of};
use crate::client::emission::emit::{self, Arg};
use crate::client::tape::{Edge, Place, SharedNode, saved};
use crate::client::value::variable::Var;
use crate::client::views;
use crate::client::views::in_place::write_result;
use gt_protocol::{Attr, Op};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(call, module)?)?;
    module.add_function(wrap_pyfunction!(prepare, module)?)?;
    module.add_class::<PreparedCall>()?;
    module.add_function(wrap_pyfunction!(apply_in_place, module)?)?;
    module.add_function(wrap_pyfunction!(op_table, module)?)?;
    module.add_function(wrap_pyfunction!(read_only, module)?)?;
    module.add_function(wrap_pyfunction!(is_read_only, module)?)?;
    Ok(())
}

/// Emits any operator of the table by its name.
#[pyfunction]
#[pyo3(signature = (name, *operands, **attrs))]
fn call<'py>(
    py: Python<'py>,
    name: &str,
    operands: &Bound<'py, PyTuple>,
    attrs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let op = Op::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("{name} is not in the instruction table")))?;
    let info = op.info();
    let mut operand_args: SmallVec<[OperandArg<'py>; 4]> = SmallVec::new();
    for object in operands {
        operand_args.push(OperandArg::required(&object, name)?);
    }
    while operand_args.len() < info.fixed_operands() {
        operand_args.push(OperandArg::Absent);
    }
    let values = attributes(op, attrs)?;
    if views::is_view(op)
        && let Some(OperandArg::Tensor(tensor)) = operand_args.first()
    {
        let var = views::take(py, &tensor.get().var, op, values)?;
        return Ok(Tensor::wrap(py, var)?.into_any());
    }
    let args: SmallVec<[Arg<'_>; 4]> = operand_args.iter().map(as_arg).collect();
    results(py, emit::emit(py, op, &args, values)?)
}

/// The attributes of a row by their names.
fn attributes(op: Op, attrs: Option<&Bound<'_, PyDict>>) -> PyResult<SmallVec<[Attr; 2]>> {
    let name = op.info().name;
    let mut values: SmallVec<[Attr; 2]> = SmallVec::new();
    let mut used = 0;
    for row in op.info().attrs {
        let value = attrs.map(|attrs| attrs.get_item(row.name)).transpose()?.flatten();
        used += usize::from(value.is_some());
        let value = value.map_or(Ok(Attr::Absent), |value| attr_of(&value, row))?;
        if value == Attr::Absent && !row.optional {
            return Err(PyTypeError::new_err(format!(
                "{name}() needs the attribute {:?}",
                row.name
            )));
        }
        values.push(value);
    }
    if attrs.map_or(0, PyDictMethods::len) != used {
        return Err(PyTypeError::new_err(format!(
            "{name}() got an attribute that its row does not have"
        )));
    }
    Ok(values)
}

/// An operator with its attributes, which are parsed once; calls pass operands.
#[pyclass(frozen, module = "gt._core")]
struct PreparedCall {
    op: Op,
    attrs: SmallVec<[Attr; 2]>,
    /// Values that `PyTorch` saves for the gradients, where that is known.
    keeps: Option<Vec<Place>>,
}

#[pymethods]
impl PreparedCall {
    #[pyo3(signature = (*operands))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        operands: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut operand_args: SmallVec<[OperandArg<'py>; 4]> = SmallVec::new();
        for object in operands {
            operand_args.push(OperandArg::required(&object, self.op.info().name)?);
        }
        let args: SmallVec<[Arg<'_>; 4]> = operand_args.iter().map(as_arg).collect();
        let vars = emit::emit_again(py, self.op, &args, &self.attrs)?;
        if let Some(keeps) = &self.keeps
            && let Some(node) = node_of(py, &vars)?
        {
            let operands: SmallVec<[Option<Var>; 4]> = operand_args.iter().map(var_of).collect();
            saved::watch(py, &node, (&operands, &vars), keeps);
        }
        results(py, vars)
    }
}

fn var_of(operand: &OperandArg<'_>) -> Option<Var> {
    if let Arg::Var(var) = as_arg(operand) { Some(var.clone()) } else { None }
}

/// The node that a new instruction has been recorded as.
fn node_of(py: Python<'_>, vars: &[Var]) -> PyResult<Option<SharedNode>> {
    for var in vars {
        if let Some(Edge::Node(node, _)) = var.edge(py)? {
            return Ok(Some(node));
        }
    }
    Ok(None)
}

/// Makes an operator that takes a list of operands (or none) by its name, with its attributes.
/// `keeps` numbers the values that PyTorch saves: operands from 0 up, results from -1 down.
#[pyfunction]
#[pyo3(signature = (name, keeps = None, **attrs))]
fn prepare(
    name: &str,
    keeps: Option<Vec<i64>>,
    attrs: Option<&Bound<'_, PyDict>>,
) -> PyResult<PreparedCall> {
    match Op::from_name(name) {
        Some(op) if op.info().fixed_operands() == 0 && !views::is_view(op) => {
            let keeps = keeps.map(|keeps| keeps.into_iter().map(saved::place_of).collect());
            Ok(PreparedCall { op, attrs: attributes(op, attrs)?, keeps })
        }
        Some(_) | None => {
            Err(PyValueError::new_err(format!("{name} is no operator of a list of operands")))
        }
    }
}

/// One tensor, or a tuple of several.
pub(crate) fn results(py: Python<'_>, mut vars: emit::Vars) -> PyResult<Bound<'_, PyAny>> {
    if vars.len() == 1 {
        return Ok(Tensor::wrap(py, vars.remove(0))?.into_any());
    }
    let tensors: Vec<Bound<'_, Tensor>> =
        vars.into_iter().map(|var| Tensor::wrap(py, var)).collect::<PyResult<_>>()?;
    Ok(PyTuple::new(py, tensors)?.into_any())
}

/// `x.op_(…)`: emits the operator on x and writes the result into x; x's buffer may be used for it.
#[pyfunction]
#[pyo3(signature = (name, target, *operands, **attrs))]
fn apply_in_place<'py>(
    py: Python<'py>,
    name: &str,
    target: &Bound<'py, Tensor>,
    operands: &Bound<'py, PyTuple>,
    attrs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, Tensor>> {
    let op = Op::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("{name} is not in the instruction table")))?;
    let mut operand_args: SmallVec<[OperandArg<'py>; 4]> = SmallVec::new();
    for object in operands {
        operand_args.push(OperandArg::required(&object, name)?);
    }
    while operand_args.len() + 1 < op.info().fixed_operands() {
        operand_args.push(OperandArg::Absent);
    }
    let mut values: SmallVec<[Attr; 2]> = SmallVec::new();
    for row in op.info().attrs {
        let value = attrs.map(|attrs| attrs.get_item(row.name)).transpose()?.flatten();
        values.push(value.map_or(Ok(Attr::Absent), |value| attr_of(&value, row))?);
    }
    let args: SmallVec<[Arg<'_>; 4]> = operand_args.iter().map(as_arg).collect();
    write_result(target.get(), py, op, &args, values)?;
    Ok(target.clone())
}

/// `tensor`, made read-only: an error on a write says `why`.
#[pyfunction]
fn read_only<'py>(tensor: &Bound<'py, Tensor>, why: &str) -> Bound<'py, Tensor> {
    tensor.get().var.make_read_only(tensor.py(), why);
    tensor.clone()
}

/// Returns true if the tensor's memory is read-only.
#[pyfunction]
fn is_read_only(tensor: &Bound<'_, Tensor>) -> bool {
    let py = tensor.py();
    tensor.get().var.storage(py).is_some_and(|storage| storage.read_only(py).is_some())
}

/// A row as Python sees it.
type Row = (&'static str, String, Vec<&'static str>, Vec<&'static str>, u8);

/// The instruction table: (name, family, operands, attributes, outputs) of each row.
#[pyfunction]
fn op_table() -> Vec<Row> {
    Op::table()
        .iter()
        .map(|info| {
            (
                info.name,
                format!("{:?}", info.family).to_lowercase(),
                info.operands.iter().map(|operand| operand.name).collect(),
                info.attrs.iter().map(|attr| attr.name).collect(),
                info.outputs,
            )
        })
        .collect()
}
