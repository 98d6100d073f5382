//! Inference by the rule of an operator: the one entry point of all rules.

use super::call::Call;
use super::error::RuleError;
use super::outputs::{Inferred, Outputs, RuleArg};
use super::{complex, generated_rules, random};
use crate::operator::Family;
use crate::{Attr, Op};

/// Infers the metadata of the results of `op`. Operands are in the row's order (a list's values
/// after the fixed ones), and so are the attributes. An error's text ends with the operator and its
/// operands: `...; matmul f32[2,3] f32[4,5]`.
pub fn infer(op: Op, operands: &[RuleArg<'_>], attrs: &[Attr]) -> Result<Outputs, RuleError> {
    let call = Call::new(op, operands, attrs);
    // Results are large: they are built in place, not copied from rule to rule.
    let mut inferred = infer_call(&call);
    if let Err(error) = &mut inferred {
        call.explain(error);
    }
    inferred
}

fn infer_call(call: &Call<'_>) -> Inferred {
    call.check_form()?;
    if complex::is_real_only(call.op, call.operands, call.attrs) {
        return Err(RuleError::unsupported_dtype(format!(
            "{}: not implemented for complex numbers",
            call.info.name
        )));
    }
    let rule = generated_rules::TABLE.get(call.op.place()).ok_or_else(|| call.no_rule())?;
    let outputs = rule(call)?;
    if call.info.family == Family::Random {
        random::check_box(call, &outputs)?;
    }
    Ok(outputs)
}
