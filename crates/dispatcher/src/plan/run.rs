//! What the parts of a plan hand each other: operands, one step, its results.

use crate::handle::Shards;
use gt_protocol::{Attr, Meta, Op, Scalar};
use smallvec::SmallVec;

/// An operand of a plan.
#[derive(Clone, Debug)]
pub(super) enum Given {
    Absent,
    Scalar(Scalar),
    Value(Held),
}

impl Given {
    /// The session's slot for it, where it has one.
    pub fn slot(&self) -> Option<u32> {
        match self {
            Self::Value(held) => held.slot,
            Self::Absent | Self::Scalar(_) => None,
        }
    }
}

/// A value that a plan works on.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub meta: Meta,
    pub shards: Shards,
    /// The session's slot for it; nothing for what the plan made itself.
    pub slot: Option<u32>,
}

/// What one step of a plan runs.
#[derive(Clone, Copy)]
pub(super) struct Run<'r> {
    pub op: Op,
    pub attrs: &'r [Attr],
    pub outputs: &'r [Meta],
    pub payload: &'r [u8],
    pub consumes: u16,
}

/// A result of a step.
pub(super) type Placed = SmallVec<[(Meta, Shards); 2]>;
