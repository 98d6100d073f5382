//! Which operands have a gradient, and what of an instruction their formulas need kept.

use super::generated_formulas;
use gt_protocol::Op;
use pyo3::Python;

/// What has to be saved of an instruction, as bits of operands and of outputs: what the formulas of those operands read
/// that need a gradient. `x * 2` saves no x.
pub(crate) fn saves(_py: Python<'_>, op: Op, needs: impl Iterator<Item = bool>) -> (u16, u16) {
    let formulas = generated_formulas::of(op);
    let (mut operands, mut outputs) = (0, 0);
    for (position, need) in needs.enumerate() {
        if need && let Some(formula) = formulas.at(position) {
            operands |= formula.operands;
            outputs |= formula.outputs;
        }
    }
    (operands, outputs)
}

/// Whether any operand that needs a gradient has a formula.
pub(crate) fn any_for(_py: Python<'_>, op: Op, needs: impl Iterator<Item = bool>) -> bool {
    let formulas = generated_formulas::of(op);
    needs.enumerate().any(|(position, need)| need && formulas.at(position).is_some())
}
