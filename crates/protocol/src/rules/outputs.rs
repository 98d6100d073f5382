//! Common parts of all rules: operands, refused dtypes, the metadata of results.

use super::error::RuleError;
use super::shape;
use crate::dtype::Promotion;
use crate::operator::{OpInfo, UnsupportedDtypes};
use crate::{Dtype, Meta, Scalar};
use smallvec::SmallVec;

/// Properties of an operand that a rule sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RuleArg<'a> {
    Absent,
    Value(&'a Meta),
    Scalar(Scalar),
}

/// Metadata of an instruction's results.
pub type Outputs = SmallVec<[Meta; 2]>;

pub(super) type Inferred = Result<Outputs, RuleError>;

/// The dtype in which `PyTorch` computes for these operands.
pub fn promote(operands: &[RuleArg<'_>]) -> Dtype {
    let mut promotion = Promotion::default();
    for operand in operands {
        match operand {
            RuleArg::Absent => {}
            RuleArg::Value(meta) => promotion.tensor(meta.dtype, meta.dims.is_empty()),
            RuleArg::Scalar(scalar) => promotion.scalar(*scalar),
        }
    }
    promotion.dtype()
}

/// Refuses the dtypes that the row refuses, with `PyTorch`'s text.
pub(super) fn check_refused(info: &OpInfo, dtype: Dtype) -> Result<(), RuleError> {
    match info.refuses {
        Some(UnsupportedDtypes { dtypes, text }) if dtypes.contains(&dtype.category()) => {
            Err(if text.contains(' ') {
                RuleError::unsupported_dtype(text)
            } else {
                RuleError::kernel(text, dtype)
            })
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks and returns one result. Every rule ends here or in [`several`], so that no shape is left
/// unchecked.
#[inline]
pub(super) fn one(output: Meta) -> Inferred {
    shape::check_size(&output.dims)?;
    let mut outputs = Outputs::new();
    outputs.push(output);
    Ok(outputs)
}

pub(super) fn several(results: &[Meta]) -> Inferred {
    for result in results {
        shape::check_size(&result.dims)?;
    }
    Ok(Outputs::from_slice(results))
}
