//! A program's bytes as steps that Python runs. They come from a client: nothing here panics, and
//! what is allocated is bounded by their length.

use super::attributes::{object, scalar};
use gt_protocol::wire::{self, PROGRAM_MAGIC};
use gt_protocol::{Instruction, Kind, Op, Operand};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Row, operands (an index of a value, a 1-tuple of a number, or None), operands of its list,
/// attributes, and indices of its results.
type StepOfPython =
    (&'static str, Vec<Py<PyAny>>, Option<Vec<Py<PyAny>>>, Vec<Py<PyAny>>, Vec<u32>);

/// The steps of a program.
///
/// Args:
///     program: Its bytes, as docs/wire.md describes them.
///     dtypes: Dtypes by their number on the wire.
///
/// Returns:
///     Number of its operands, indices of its results, its steps.
///
/// Raises:
///     `ValueError`: The bytes are no program.
#[pyfunction]
pub fn program_steps(
    py: Python<'_>,
    program: &[u8],
    dtypes: Vec<Py<PyAny>>,
) -> PyResult<(u32, Vec<u32>, Vec<StepOfPython>)> {
    let words: Vec<u32> = program
        .chunks_exact(4)
        .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    let wrong = |text: &str| PyValueError::new_err(format!("no program: {text}"));
    let [PROGRAM_MAGIC, count, results, rest @ ..] = &*words else {
        return Err(wrong("its first words"));
    };
    let results = usize::try_from(*results).map_err(|_| wrong("its results"))?;
    let (results, mut rest) =
        rest.split_at_checked(results).ok_or_else(|| wrong("its results are cut off"))?;
    let mut known = *count;
    let mut steps = Vec::new();
    // Each turn takes a frame of at least three words.
    while !rest.is_empty() {
        let (instruction, length) =
            wire::decode(rest).map_err(|error| wrong(&error.to_string()))?;
        let is_known = |slot: u32| slot < known;
        let named = instruction.values().map(gt_protocol::Id::as_slot);
        if !named.flatten().all(is_known) || instruction.op.info().kind() != Kind::Compute {
            return Err(wrong("a step that it cannot have"));
        }
        for id in &instruction.outputs {
            if id.as_slot() != Some(known) {
                return Err(wrong("results out of order"));
            }
            known += 1;
        }
        steps.push(step(py, &instruction, &dtypes)?);
        rest = &rest[length..];
    }
    if results.iter().any(|&result| result >= known) {
        return Err(wrong("a result that no step has"));
    }
    Ok((*count, results.to_vec(), steps))
}

fn step(
    py: Python<'_>,
    instruction: &Instruction<'_>,
    dtypes: &[Py<PyAny>],
) -> PyResult<StepOfPython> {
    let info = instruction.op.info();
    let operands = instruction.operands.iter().map(|operand| operand_object(py, operand));
    let mut operands = operands.collect::<PyResult<Vec<_>>>()?;
    let listed =
        info.has_list().then(|| operands.split_off(info.fixed_operands().min(operands.len())));
    let rows = info.attrs.iter().zip(&instruction.attrs);
    let attributes = rows.map(|(row, attr)| object(py, row.kind, attr, dtypes));
    let outputs = instruction.outputs.iter().filter_map(|id| id.as_slot()).collect();
    Ok((info.name, operands, listed, attributes.collect::<PyResult<_>>()?, outputs))
}

fn operand_object(py: Python<'_>, operand: &Operand) -> PyResult<Py<PyAny>> {
    Ok(match operand {
        Operand::Absent => py.None(),
        Operand::Value(id) => {
            id.as_slot().unwrap_or(u32::MAX).into_pyobject(py)?.into_any().unbind()
        }
        Operand::Scalar(value) => PyTuple::new(py, [scalar(py, *value)])?.into_any().unbind(),
    })
}

/// Rows whose result may be memory of an operand.
#[pyfunction]
pub fn view_rows() -> Vec<&'static str> {
    Op::table().iter().filter(|info| info.view.is_some()).map(|info| info.name).collect()
}
