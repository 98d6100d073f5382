//! Failed instructions as values: the root cause that a handle carries.

use gt_protocol::Op;
use gt_protocol::message::FailureClass;
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
}
