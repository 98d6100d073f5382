//! Input of a rule: an operator with its operands and attributes, read by position with their kinds
//! checked.

use super::error::RuleError;
use super::outputs::{Inferred, RuleArg};
use crate::operator::{OpInfo, OperandKind};
use crate::{Attr, Dims, Dtype, Meta, Op, Scalar};
use std::fmt::Write;

/// Function that checks the operands of an operator and infers its results; the row names it.
pub(super) type Rule = fn(&Call<'_>) -> Inferred;

pub(super) struct Call<'a> {
    pub op: Op,
    pub info: &'static OpInfo,
    pub operands: &'a [RuleArg<'a>],
    pub attrs: &'a [Attr],
}

impl<'a> Call<'a> {
    pub fn new(op: Op, operands: &'a [RuleArg<'a>], attrs: &'a [Attr]) -> Self {
        Self { op, info: op.info(), operands, attrs }
    }

    /// Checks the numbers and kinds of operands and attributes against the row.
    pub fn check_form(&self) -> Result<(), RuleError> {
        let fixed = self.info.fixed_operands();
        let extra = self.operands.len().checked_sub(fixed);
        if extra.is_none() || (extra != Some(0) && !self.info.has_list()) {
            let got = self.operands.len();
            return Err(self.malformed(&format!("takes {fixed} operands, got {got}")));
        }
        for (info, operand) in self.info.operands.iter().zip(self.operands) {
            if info.kind == OperandKind::Required && *operand == RuleArg::Absent {
                return Err(self.malformed(&format!("operand '{}' is absent", info.name)));
            }
        }
        if self.attrs.len() != self.info.attrs.len() {
            let (expected, got) = (self.info.attrs.len(), self.attrs.len());
            return Err(self.malformed(&format!("takes {expected} attributes, got {got}")));
        }
        for (info, attr) in self.info.attrs.iter().zip(self.attrs) {
            if !attr.fits(info) {
                return Err(self.malformed(&format!("attribute '{}' is {attr:?}", info.name)));
            }
        }
        Ok(())
    }

    /// The error where the row names no rule: a bug of ours, which a client may see too.
    #[cold]
    pub fn no_rule(&self) -> RuleError {
        RuleError::runtime(format!("{}: no rule", self.info.name))
    }

    #[cold]
    fn malformed(&self, reason: &str) -> RuleError {
        RuleError::runtime(format!("{}: {reason}", self.info.name))
    }

    /// Appends the operator and its operands to `PyTorch`'s text.
    #[cold]
    pub fn explain(&self, error: &mut RuleError) {
        error.text.push_str("; ");
        error.text.push_str(&describe(self.op, self.operands));
    }

    /// The operand at `position`, which must be a tensor.
    pub fn tensor(&self, position: usize) -> Result<&'a Meta, RuleError> {
        let found = match self.operands.get(position) {
            Some(RuleArg::Value(meta)) => return Ok(meta),
            Some(RuleArg::Scalar(scalar)) => scalar.python_type(),
            Some(RuleArg::Absent) | None => "NoneType",
        };
        let last = self.info.operands.last();
        let name = self.info.operands.get(position).or(last).map_or("", |operand| operand.name);
        Err(RuleError::kind(format!(
            "{}(): argument '{name}' (position {}) must be Tensor, not {found}",
            self.info.name,
            position.saturating_add(1),
        )))
    }

    /// The first operands, which must be tensors.
    pub fn tensors<const N: usize>(&self) -> Result<[&'a Meta; N], RuleError> {
        let mut tensors = [self.tensor(0)?; N];
        for (position, tensor) in tensors.iter_mut().enumerate() {
            *tensor = self.tensor(position)?;
        }
        Ok(tensors)
    }

    /// The operand at `position`, a tensor if it is there.
    pub fn optional_tensor(&self, position: usize) -> Result<Option<&'a Meta>, RuleError> {
        match self.operands.get(position) {
            Some(RuleArg::Absent) | None => Ok(None),
            Some(RuleArg::Value(_) | RuleArg::Scalar(_)) => self.tensor(position).map(Some),
        }
    }

    /// The operands from `position` on.
    pub fn operands_from(&self, position: usize) -> &'a [RuleArg<'a>] {
        self.operands.get(position..).unwrap_or_default()
    }

    pub fn attr(&self, position: usize) -> &'a Attr {
        self.attrs.get(position).unwrap_or(&Attr::Absent)
    }

    /// `N` integer attributes from the first one on.
    pub fn integers<const N: usize>(&self) -> Result<[i64; N], RuleError> {
        let mut integers = [0; N];
        for (position, integer) in integers.iter_mut().enumerate() {
            *integer = self.integer(position)?;
        }
        Ok(integers)
    }

    pub fn integer(&self, position: usize) -> Result<i64, RuleError> {
        if let Attr::Int(value) = self.attr(position) { Ok(*value) } else { self.wrong(position) }
    }

    pub fn boolean(&self, position: usize) -> Result<bool, RuleError> {
        if let Attr::Bool(value) = self.attr(position) { Ok(*value) } else { self.wrong(position) }
    }

    pub fn float(&self, position: usize) -> Result<f64, RuleError> {
        if let Attr::Float(value) = self.attr(position) { Ok(*value) } else { self.wrong(position) }
    }

    pub fn scalar(&self, position: usize) -> Result<Scalar, RuleError> {
        if let Attr::Scalar(value) = self.attr(position) {
            Ok(*value)
        } else {
            self.wrong(position)
        }
    }

    pub fn dims(&self, position: usize) -> Result<&'a Dims, RuleError> {
        if let Attr::Ints(values) = self.attr(position) { Ok(values) } else { self.wrong(position) }
    }

    pub fn list(&self, position: usize) -> Result<&'a [i64], RuleError> {
        if let Attr::List(values) = self.attr(position) { Ok(values) } else { self.wrong(position) }
    }

    pub fn dtype(&self, position: usize) -> Result<Dtype, RuleError> {
        match self.optional_dtype(position) {
            Some(dtype) => Ok(dtype),
            None => self.wrong(position),
        }
    }

    pub fn optional_dtype(&self, position: usize) -> Option<Dtype> {
        if let Attr::Dtype(dtype) = self.attr(position) { Some(*dtype) } else { None }
    }

    /// Index of a choice's word in its list.
    pub fn choice(&self, position: usize) -> Result<u8, RuleError> {
        if let Attr::Choice(index) = self.attr(position) {
            Ok(*index)
        } else {
            self.wrong(position)
        }
    }

    #[cold]
    fn wrong<T>(&self, position: usize) -> Result<T, RuleError> {
        let name = self.info.attrs.get(position).map_or("", |attr| attr.name);
        Err(self.malformed(&format!("attribute '{name}' is {:?}", self.attr(position))))
    }
}

/// Maximum number of operands that an error's text names; of further ones it gives the count.
const DESCRIBED_MAX: usize = 16;

/// An operator and its operands, as at the end of every error's text: `matmul f32[2,3] f32[4,5]`.
#[cold]
pub fn describe(op: Op, operands: &[RuleArg<'_>]) -> String {
    let mut text = op.info().name.to_owned();
    for operand in operands.iter().take(DESCRIBED_MAX) {
        // Writing to a string cannot fail.
        let _ = match operand {
            RuleArg::Absent => write!(text, " _"),
            RuleArg::Value(meta) => write!(text, " {meta}"),
            RuleArg::Scalar(Scalar::Bool(value)) => write!(text, " {value}"),
            RuleArg::Scalar(Scalar::Int(value)) => write!(text, " {value}"),
            RuleArg::Scalar(Scalar::Float(value)) => write!(text, " {value:?}"),
        };
    }
    if let Some(more) = operands.len().checked_sub(DESCRIBED_MAX).filter(|&more| more > 0) {
        let _ = write!(text, " and {more} more");
    }
    text
}
