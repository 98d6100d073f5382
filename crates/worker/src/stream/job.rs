//! One collective of the communication stream, or one round of its negotiation.

use crate::buffers::BorrowedBuffers;
use crate::exchange::{BucketMemory, Exchange, ExchangeStep, Group, Round, RoundReply};
use crate::failure::{Broken, FailedInstruction};
use crate::peers::{PeerId, Peers};
use crate::reduce_op::ReduceBytes;
use smallvec::SmallVec;

/// Our part in one collective, or one round of it.
#[derive(Debug)]
pub struct Job<M> {
    pub(super) ticket: u64,
    pub(super) origin: FailedInstruction,
    pub(super) work: Work<M>,
    /// True if its last step moved nothing.
    pub(super) is_stuck: bool,
    pub(super) is_large: bool,
}

#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a box would slow down the common variant, an exchange"
)]
pub(super) enum Work<M> {
    /// An exchange with its memory.
    Exchange { exchange: Exchange, group: Group, reduce: ReduceBytes, bucket: BucketMemory<M> },
    /// A round of a negotiation, and the state of the tag after it.
    Round { round: Round, then: Then },
}

/// Continuation after a round under the same tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    NextRound,
    /// The tag ends, successfully or not.
    End {
        well: bool,
    },
}

/// A job that is over, successfully or not.
#[derive(Debug)]
pub struct Ended<M> {
    pub(crate) ticket: u64,
    pub(crate) outcome: Outcome<M>,
}

#[derive(Debug)]
pub enum Outcome<M> {
    /// An exchange whose memory returns to the engine.
    Exchange {
        bucket: BucketMemory<M>,
        outcome: Result<(), Broken>,
    },
    Round(Vec<RoundReply>),
}

impl<M> Job<M> {
    pub(crate) fn exchange(
        ticket: u64,
        origin: FailedInstruction,
        (exchange, group): (Exchange, Group),
        reduce: ReduceBytes,
        bucket: BucketMemory<M>,
    ) -> Self {
        let work = Work::Exchange { exchange, group, reduce, bucket };
        Self { ticket, origin, work, is_stuck: false, is_large: false }
    }

    pub(crate) const fn round(
        ticket: u64,
        origin: FailedInstruction,
        round: Round,
        then: Then,
    ) -> Self {
        let work = Work::Round { round, then };
        Self { ticket, origin, work, is_stuck: false, is_large: false }
    }

    pub(super) const fn tag(&self) -> u64 {
        match &self.work {
            Work::Exchange { exchange, .. } => exchange.tag(),
            Work::Round { round, .. } => round.tag(),
        }
    }

    pub(super) fn bytes_left(&self) -> usize {
        match &self.work {
            Work::Exchange { exchange, group, .. } => exchange.bytes_left(group),
            Work::Round { .. } => 0,
        }
    }

    /// Members from which a message is still to come, with the hop.
    pub(super) fn missing(&self) -> SmallVec<[(PeerId, u32); 8]> {
        match &self.work {
            Work::Exchange { exchange, group, .. } => {
                exchange.missing(group).into_iter().map(|(peer, hop, _)| (peer, hop)).collect()
            }
            Work::Round { round, .. } => round.missing().collect(),
        }
    }
}

impl<M: BorrowedBuffers> Job<M> {
    pub(super) fn step(&mut self, peers: &mut impl Peers) -> Result<ExchangeStep, Broken> {
        match &mut self.work {
            Work::Exchange { exchange, group, reduce, bucket } => {
                exchange.step(group, *reduce, bucket, peers)
            }
            Work::Round { round, .. } => Ok(round.step(peers)),
        }
    }
}
