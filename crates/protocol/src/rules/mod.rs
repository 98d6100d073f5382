//! Shape and dtype rules, one file a family. The client calls them at the user's line, the dispatcher on arrival.
//!
//! A rule sees metadata only and never panics: operands and attributes may come from a peer. How an operator is
//! executed or placed must not be in here.

mod call;
mod contract;
mod control;
mod create;
pub mod decomposition;
mod default_float;
mod elementwise;
mod equation;
mod generated_rules;
mod index;
mod loss;
mod normalize;
mod random;
mod reduce;
mod scatter;
mod shape;
pub mod spread;
#[cfg(test)]
mod tests;
mod unchanged;
mod update;
mod view;

use crate::dtype::Promotion;
pub use crate::error_class::ErrorClass;
use crate::operator::{Family, OpInfo, Refusal};
use crate::{Attr, Dtype, Meta, Op, Scalar};
use call::Call;
pub use call::describe;
pub use default_float::floats_by_default;
use smallvec::SmallVec;
pub use unchanged::keeps_metadata;

/// What a rule knows of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg<'a> {
    Absent,
    Value(&'a Meta),
    Scalar(Scalar),
}

/// A user's mistake: `PyTorch`'s class, and a text that begins with `PyTorch`'s.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct RuleError {
    pub class: ErrorClass,
    pub text: String,
}

/// Metadata of an instruction's results.
pub type Outputs = SmallVec<[Meta; 2]>;

type Inferred = Result<Outputs, RuleError>;

/// Metadata of the results of `op`. Operands stand in the row's order (a list's values after the fixed ones), so do
/// the attributes. A text of an error ends with the operator and its operands: `...; matmul f32[2,3] f32[4,5]`.
pub fn infer(op: Op, operands: &[Arg<'_>], attrs: &[Attr]) -> Result<Outputs, RuleError> {
    let call = Call::new(op, operands, attrs);
    // Results are large: they are built where they are returned, not copied from rule to rule.
    let mut inferred = infer_call(&call);
    if let Err(error) = &mut inferred {
        call.explain(error);
    }
    inferred
}

/// The dtype that `PyTorch` computes in for these operands.
pub fn promote(operands: &[Arg<'_>]) -> Dtype {
    let mut promotion = Promotion::default();
    for operand in operands {
        match operand {
            Arg::Absent => {}
            Arg::Value(meta) => promotion.tensor(meta.dtype, meta.dims.is_empty()),
            Arg::Scalar(scalar) => promotion.scalar(*scalar),
        }
    }
    promotion.dtype()
}

fn infer_call(call: &Call<'_>) -> Inferred {
    call.check_form()?;
    let rule = generated_rules::TABLE.get(call.op.place()).ok_or_else(|| no_rule(call))?;
    let outputs = rule(call)?;
    if call.info.family == Family::Random {
        random::check_box(call, &outputs)?;
    }
    Ok(outputs)
}

/// What checks the operands of an operator and infers its results; the row names it.
type Rule = fn(&Call<'_>) -> Inferred;

#[cold]
fn no_rule(call: &Call<'_>) -> RuleError {
    RuleError::runtime(format!("{}: no rule", call.info.name))
}

/// The dtypes that the row refuses, with `PyTorch`'s text.
fn check_refused(info: &OpInfo, dtype: Dtype) -> Result<(), RuleError> {
    match info.refuses {
        Some(Refusal { dtypes, text }) if dtypes.contains(&dtype.category()) => {
            Err(if text.contains(' ') {
                RuleError::unsupported_dtype(text)
            } else {
                RuleError::kernel(text, dtype)
            })
        }
        Some(_) | None => Ok(()),
    }
}

/// One result. Every rule ends here or in [`several`], so that no shape leaves unchecked.
#[inline]
fn one(output: Meta) -> Inferred {
    shape::check_size(&output.dims)?;
    let mut outputs = Outputs::new();
    outputs.push(output);
    Ok(outputs)
}

fn several(results: &[Meta]) -> Inferred {
    for result in results {
        shape::check_size(&result.dims)?;
    }
    Ok(Outputs::from_slice(results))
}

impl RuleError {
    #[cold]
    fn new(class: ErrorClass, text: impl Into<String>) -> Self {
        Self { class, text: text.into() }
    }

    fn runtime(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Runtime, text)
    }

    fn shape(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Shape, text)
    }

    fn dtype(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Dtype, text)
    }

    fn index(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Index, text)
    }

    fn value(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Value, text)
    }

    fn kind(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Type, text)
    }

    fn unsupported_dtype(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::UnsupportedDtype, text)
    }

    /// A kernel that has no version for a dtype.
    fn kernel(kernel: &str, dtype: Dtype) -> Self {
        Self::unsupported_dtype(format!(
            "\"{kernel}\" not implemented for '{}'",
            dtype.scalar_type_name()
        ))
    }

    fn mixed(expected: Dtype, found: Dtype) -> Self {
        Self::dtype(format!(
            "expected scalar type {} but found {}",
            expected.scalar_type_name(),
            found.scalar_type_name()
        ))
    }
}
