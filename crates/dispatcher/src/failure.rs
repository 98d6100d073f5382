//! Failed instructions as values: the root cause that a handle carries.

use crate::SessionId;
use gt_protocol::Op;
use gt_protocol::message::{self, FailureClass};
use std::sync::Arc;

/// Why a value does not exist. Dependents share the root cause.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Arc<Cause>);

/// The first instruction that failed.
#[derive(Debug)]
pub(crate) struct Cause {
    pub number: u64,
    pub class: FailureClass,
    pub op: Op,
    pub site: u32,
    pub text: String,
}

impl Failure {
    pub(crate) fn new(cause: Cause) -> Self {
        Self(Arc::new(cause))
    }

    pub(crate) fn cause(&self) -> &Cause {
        &self.0
    }

    /// As the client is told of it.
    pub(crate) fn message(&self, session: SessionId) -> message::Failure<'_> {
        let cause = self.cause();
        message::Failure {
            session: session.0,
            number: cause.number,
            class: cause.class,
            op: Some(cause.op),
            tag: cause.site,
            text: message::clip(&cause.text),
        }
    }
}
