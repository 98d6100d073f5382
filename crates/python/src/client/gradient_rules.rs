//! The gradient rules, as gt/gradients hands them over, and what of an instruction they need kept.

use super::gil_cell::GilCell;
use gt_protocol::Op;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// One callable (or None) an operand position, by op code.
static RULES: GilCell<Vec<Vec<Option<Py<PyAny>>>>> = GilCell::new(Vec::new());

pub(crate) fn set(rules: &Bound<'_, PyDict>) -> PyResult<()> {
    let py = rules.py();
    let mut table: Vec<Vec<Option<Py<PyAny>>>> = Vec::new();
    for (name, row) in rules {
        let name: String = name.extract()?;
        let op = Op::from_name(&name).ok_or_else(|| {
            pyo3::exceptions::PyValueError::new_err(format!(
                "gradient rule for unknown operator {name}"
            ))
        })?;
        let place = usize::from(op.info().code);
        if table.len() <= place {
            table.resize_with(place + 1, Vec::new);
        }
        let row = row.cast::<PyTuple>()?;
        if let Some(entry) = table.get_mut(place) {
            *entry = row.iter().map(|rule| (!rule.is_none()).then(|| rule.unbind())).collect();
        }
    }
    *RULES.get_mut(py) = table;
    Ok(())
}

/// Every saved operand and output, for a rule whose code does not tell what it uses.
const ALL: u32 = u32::MAX;
/// Outputs stand above the operands.
const OUTPUTS_AT: u32 = 16;

/// By op code and operand position: bits of the operands (and above them the outputs) that the rule uses.
static USED: GilCell<Vec<Option<Vec<u32>>>> = GilCell::new(Vec::new());

/// What has to be saved of an instruction, as bits of operands and of outputs: what the rules use of those operands
/// that need a gradient. `x * 2` saves no x.
pub(crate) fn saves(py: Python<'_>, op: Op, needs: impl Iterator<Item = bool>) -> (u16, u16) {
    let place = usize::from(op.info().code);
    let known = USED.get(py).get(place).is_some_and(Option::is_some);
    if !known {
        let found = used_by_rules(py, op);
        let mut used = USED.get_mut(py);
        if used.len() <= place {
            used.resize_with(place + 1, || None);
        }
        if let Some(entry) = used.get_mut(place) {
            *entry = Some(found);
        }
    }
    let used = USED.get(py);
    let row = used.get(place).and_then(Option::as_deref).unwrap_or_default();
    let mut bits = 0;
    for (position, need) in needs.enumerate() {
        if need {
            let last = row.len().saturating_sub(1);
            bits |= row.get(position.min(last)).copied().unwrap_or(ALL);
        }
    }
    let operands = u16::try_from(bits & u32::from(u16::MAX)).unwrap_or(u16::MAX);
    (operands, u16::try_from(bits >> OUTPUTS_AT).unwrap_or(u16::MAX))
}

/// Asks gt.gradients.rules which names each rule of a row uses; all where it cannot say.
fn used_by_rules(py: Python<'_>, op: Op) -> Vec<u32> {
    let info = op.info();
    let rules: Vec<Option<Py<PyAny>>> =
        (0..info.operands.len().max(1)).map(|position| of(py, op, position)).collect();
    let used = py.import("gt.gradients.rules").and_then(|module| module.getattr("used"));
    let bits_of = |rule: Option<Py<PyAny>>| -> PyResult<u32> {
        let Some(rule) = rule else { return Ok(0) };
        let names: Option<Vec<String>> =
            used.as_ref().map_err(|error| error.clone_ref(py))?.call1((rule,))?.extract()?;
        let Some(names) = names else { return Ok(ALL) };
        let mut bits = 0;
        for name in &names {
            if let Some(place) = info.operands.iter().position(|operand| operand.name == name) {
                bits |= 1_u32.checked_shl(u32::try_from(place).unwrap_or(0)).unwrap_or(ALL);
            } else if let Some(digits) = name.strip_prefix("out") {
                let output: u32 = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(0) };
                bits |= 1_u32.checked_shl(OUTPUTS_AT + output).unwrap_or(ALL);
            }
        }
        Ok(bits)
    };
    rules.into_iter().map(|rule| bits_of(rule).unwrap_or(ALL)).collect()
}

/// The rule of an operand position; a list's positions share the last one.
pub(crate) fn of(py: Python<'_>, op: Op, position: usize) -> Option<Py<PyAny>> {
    let rules = RULES.get(py);
    let row = rules.get(usize::from(op.info().code))?;
    row.get(position.min(row.len().checked_sub(1)?))?.as_ref().map(|rule| rule.clone_ref(py))
}

/// Whether any operand that needs a gradient has a rule.
pub(crate) fn any_for(py: Python<'_>, op: Op, mut needs: impl Iterator<Item = bool>) -> bool {
    let rules = RULES.get(py);
    let Some(row) = rules.get(usize::from(op.info().code)) else { return false };
    let Some(last) = row.len().checked_sub(1) else { return false };
    let mut position = 0;
    needs.any(|need| {
        let rule = row.get(position.min(last)).is_some_and(Option::is_some);
        position += 1;
        need && rule
    })
}
