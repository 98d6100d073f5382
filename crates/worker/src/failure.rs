//! Failures of instructions, and the first cause that dependents inherit.

use gt_protocol::Op;
use gt_protocol::message::{Failure, FailureClass, clip};

/// Fault in one step, before the instruction is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    pub class: FailureClass,
    pub text: String,
}

impl Fault {
    pub fn new(class: FailureClass, text: impl Into<String>) -> Self {
        Self { class, text: text.into() }
    }

    /// A mistake of the dispatcher.
    pub(crate) fn protocol(text: impl Into<String>) -> Self {
        Self::new(FailureClass::Protocol, text)
    }
}

/// A fault with the instruction that failed: the content of its results' slots, and of dependents'
/// slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub session: u32,
    /// The low half of the instruction's number.
    pub tag: u32,
    pub op: Option<Op>,
    pub fault: Fault,
}

impl Cause {
    pub fn message(&self) -> Failure<'_> {
        Failure {
            session: self.session,
            number: self.tag.into(),
            class: self.fault.class,
            op: self.op,
            tag: self.tag,
            text: clip(&self.fault.text),
        }
    }
}

impl From<&Failure<'_>> for Cause {
    fn from(failure: &Failure<'_>) -> Self {
        Self {
            session: failure.session,
            tag: failure.tag,
            op: failure.op,
            fault: Fault::new(failure.class, failure.text),
        }
    }
}

/// Instruction of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedInstruction {
    pub session: u32,
    pub tag: u32,
    pub op: Op,
}

impl FailedInstruction {
    pub const fn cause(&self, fault: Fault) -> Cause {
        Cause { session: self.session, tag: self.tag, op: Some(self.op), fault }
    }
}

/// Reason why a collective ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Another member's part has failed.
    Failed(Cause),
    Fault(Fault),
}

impl Broken {
    pub(crate) fn protocol(text: impl Into<String>) -> Self {
        Self::Fault(Fault::protocol(text))
    }

    pub(crate) fn cause(&self, origin: &FailedInstruction) -> Cause {
        match self {
            Self::Failed(cause) => cause.clone(),
            Self::Fault(fault) => origin.cause(fault.clone()),
        }
    }
}
