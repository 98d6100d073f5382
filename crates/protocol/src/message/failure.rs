//! The wire form of a failed instruction, and the exception that it becomes.

use super::append_text;
use crate::error_class::ErrorClass;
use crate::operator::Op;
use crate::wire::{EncodeError, TEXT_BYTES_MAX, WireError, WireReason, WordReader, push_u64};

/// A failed instruction, identified by session and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    pub session: u32,
    pub number: u64,
    pub class: FailureClass,
    /// The operator that failed, if one did.
    pub op: Option<Op>,
    /// The instruction's source position, as the client numbered it.
    pub tag: u32,
    pub text: &'a str,
}

/// Exception that the client raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    Runtime,
    Index,
    Value,
    Type,
    NotImplemented,
    /// The device has no memory left.
    OutOfMemory,
    /// The worker that held the value is gone.
    WorkerLost,
    /// A quota or a limit of the cluster is exceeded.
    Quota,
    /// The peer broke the protocol.
    Protocol,
    /// A bug of ours.
    Internal,
    /// Operands whose shapes do not match.
    Shape,
    /// Operands whose dtypes do not match.
    Dtype,
    /// A matrix without an inverse or a factorization, or whose iteration does not converge.
    LinearAlgebra,
    /// The user cancelled it before it ran.
    Cancelled,
}

/// Reason in the failure of an instruction that the user cancelled.
pub const CANCELLED: &str = "cancelled before it ran, by Ctrl-C or gt.cancel()";

impl FailureClass {
    pub const ALL: [Self; 14] = [
        Self::Runtime,
        Self::Index,
        Self::Value,
        Self::Type,
        Self::NotImplemented,
        Self::OutOfMemory,
        Self::WorkerLost,
        Self::Quota,
        Self::Protocol,
        Self::Internal,
        Self::Shape,
        Self::Dtype,
        Self::LinearAlgebra,
        Self::Cancelled,
    ];

    /// The wire's number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Runtime => 0,
            Self::Index => 1,
            Self::Value => 2,
            Self::Type => 3,
            Self::NotImplemented => 4,
            Self::OutOfMemory => 5,
            Self::WorkerLost => 6,
            Self::Quota => 7,
            Self::Protocol => 8,
            Self::Internal => 9,
            Self::Shape => 10,
            Self::Dtype => 11,
            Self::LinearAlgebra => 12,
            Self::Cancelled => 13,
        }
    }

    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

impl From<ErrorClass> for FailureClass {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::Runtime => Self::Runtime,
            ErrorClass::Index => Self::Index,
            ErrorClass::Value => Self::Value,
            ErrorClass::Type => Self::Type,
            ErrorClass::Shape => Self::Shape,
            ErrorClass::Dtype => Self::Dtype,
            ErrorClass::UnsupportedDtype => Self::NotImplemented,
        }
    }
}

pub(super) fn append_failure(
    op: &'static str,
    failure: &Failure<'_>,
    out: &mut Vec<u32>,
) -> Result<(), EncodeError> {
    out.push(failure.session);
    push_u64(out, failure.number);
    out.push(failure.class.code().into());
    out.push(failure.op.map_or(0, |op| op.info().code.into()));
    out.push(failure.tag);
    append_text(op, failure.text, TEXT_BYTES_MAX, out)
}

pub(super) fn failure<'a>(reader: &mut WordReader<'a>) -> Result<Failure<'a>, WireError> {
    let session = reader.word()?;
    let number = reader.u64()?;
    let class = reader.word()?;
    let Some(class) = FailureClass::from_code(class) else {
        return Err(reader.error(WireReason::Value("failure class", class)));
    };
    let code = reader.u16("op code")?;
    let op = Op::from_code(code);
    if op.is_none() && code != 0 {
        return Err(reader.error(WireReason::UnknownCode(code)));
    }
    let tag = reader.word()?;
    Ok(Failure { session, number, class, op, tag, text: reader.text(TEXT_BYTES_MAX)? })
}
