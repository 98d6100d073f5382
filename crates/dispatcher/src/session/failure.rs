//! Failures as values: the root cause that a handle carries.

use super::spec::ValueSpec;
use crate::event::SessionId;
use gt_protocol::message::{self, FailureClass};
use gt_protocol::rules::{RuleArg, describe};
use gt_protocol::{Family, Op, Scalar};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of instructions over several workers whose operands are kept for the text of a later
/// failure: about 1 MB a session. For older ones the text shows the operands as the worker had
/// them.
const SPREAD_KEPT: usize = 4096;

/// Failure in place of a value. Dependents share the root cause.
#[derive(Clone, Debug)]
pub(crate) struct ValueFailure(Arc<RootCause>);

/// The first instruction that failed.
#[derive(Debug)]
pub(crate) struct RootCause {
    pub number: u64,
    pub class: FailureClass,
    pub op: Op,
    pub site: u32,
    pub text: String,
}

impl ValueFailure {
    pub(crate) fn new(cause: RootCause) -> Self {
        Self(Arc::new(cause))
    }

    pub(crate) fn cause(&self) -> &RootCause {
        &self.0
    }

    /// Message of the failure for the client.
    pub(crate) fn message(&self, session: SessionId) -> message::Failure<'_> {
        let cause = self.cause();
        message::Failure {
            session: session.0,
            number: cause.number,
            class: cause.class,
            op: of_users(cause.op),
            tag: cause.site,
            text: message::clip(&cause.text),
        }
    }
}

/// The operator, unless only plans use it: a user does not know it, and the client names the
/// instruction's own.
pub(crate) fn of_users(op: Op) -> Option<Op> {
    (op.info().family != Family::Collective).then_some(op)
}

/// An operand as its client sees it, independent of its shards on workers.
#[derive(Debug)]
pub(crate) enum ClientOperand {
    Absent,
    Scalar(Scalar),
    Value(Arc<ValueSpec>),
}

pub(crate) type ClientOperands = SmallVec<[ClientOperand; 2]>;

/// Operands of instructions that several workers execute: a worker reports shards, and operators of
/// the plan.
#[derive(Debug, Default)]
pub(crate) struct OperandHistory(VecDeque<(u64, Op, ClientOperands)>);

impl OperandHistory {
    pub(crate) fn keep(&mut self, number: u64, op: Op, operands: ClientOperands) {
        if self.0.len() == SPREAD_KEPT {
            self.0.pop_front();
        }
        self.0.push_back((number, op, operands));
    }

    /// `reason; gather f32[2,3] i64[2,3]` for a worker's report about its part of instruction
    /// `number`.
    pub(crate) fn in_text(&self, number: u64, report: &message::Failure<'_>) -> String {
        let place = self.0.binary_search_by_key(&number, |(number, ..)| *number);
        let Some((_, op, operands)) = place.ok().and_then(|place| self.0.get(place)) else {
            return report.text.to_owned();
        };
        let suffix = report.op.and_then(|op| report.text.rfind(&format!("; {}", op.info().name)));
        let reason = report.text.get(..suffix.unwrap_or(report.text.len())).unwrap_or_default();
        let args: SmallVec<[RuleArg<'_>; 4]> = operands
            .iter()
            .map(|operand| match operand {
                ClientOperand::Absent => RuleArg::Absent,
                ClientOperand::Scalar(scalar) => RuleArg::Scalar(*scalar),
                ClientOperand::Value(spec) => RuleArg::Value(&spec.meta),
            })
            .collect();
        format!("{reason}; {}", describe(*op, &args))
    }
}
