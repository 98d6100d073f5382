//! Optimizer steps: one instruction returns the new parameter and its new state, all with the
//! parameter's metadata.

use super::call::Call;
use super::error::RuleError;
use super::outputs::{Inferred, Outputs, check_refused, several};
use crate::operator::Op;

/// The operands that the results of an update replace, in the results' order.
#[allow(clippy::wildcard_enum_match_arm, reason = "operators of other families replace nothing")]
pub fn replaced_operands(op: Op) -> &'static [usize] {
    match op {
        Op::Sgd => &[0, 2],
        Op::Adamw => &[0, 2, 3, 4],
        _ => &[],
    }
}

pub(super) fn infer(call: &Call<'_>) -> Inferred {
    let param = call.tensor(0)?;
    for position in 1..call.operands.len() {
        let Some(state) = call.optional_tensor(position)? else { continue };
        if state.dims != param.dims {
            let name = call.info.operands.get(position).map_or("", |info| info.name);
            let what = if name == "grad" { "gradient" } else { name };
            return Err(RuleError::shape(format!(
                "attempting to assign a {what} of size '{}' to a tensor of size '{}'. Please ensure that the {what} \
                 and the tensor are the same size",
                state.dims, param.dims
            )));
        }
        if state.dtype != param.dtype {
            return Err(RuleError::mixed(param.dtype, state.dtype));
        }
    }
    check_refused(call.info, param.dtype)?;
    let results: Outputs = (0..call.info.outputs).map(|_| *param).collect();
    several(&results)
}
