//! A collective that a backend runs, at one member: rounds of payloads with the others, and the
//! progress.

use crate::exchange::{Exchange, Group, RoundPayloads, RoundReply};
use crate::peers::PeerId;
use crate::stream::Then;
use smallvec::SmallVec;

/// Stage of a negotiation; in all but the last a round is in flight.
#[derive(Debug)]
pub enum Stage {
    Negotiating,
    /// All members know that they use messages.
    FallingBack,
    /// The result is available.
    Finishing,
    /// Our part has failed, and the others are told.
    Failed,
    /// No member sends anything more; holds the last payloads, in the group's order.
    Finished(Vec<Option<Vec<u8>>>),
}

#[derive(Debug)]
pub struct Negotiation<R> {
    pub tag: u64,
    pub group: Group,
    /// Exchange that messages would make; its ranges are read from memory instead.
    pub exchange: Option<Exchange>,
    /// The backend's part.
    pub rendezvous: Option<R>,
    pub stage: Stage,
    /// The round in flight, and our payload in it.
    pub round: u32,
    pub payload: Vec<u8>,
    /// The members that still answer.
    pub others: Vec<PeerId>,
    pub shares_result: bool,
    pub receivers: SmallVec<[PeerId; 8]>,
    pub senders: SmallVec<[PeerId; 8]>,
}

impl<R> Negotiation<R> {
    pub const fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Finished(_))
    }

    /// Returns true if the result is available.
    pub const fn has_result(&self) -> bool {
        matches!(self.stage, Stage::Finishing | Stage::Finished(_))
    }

    /// The backend's part, and the last payloads; empty for one that failed.
    pub fn into_last(self) -> (Option<R>, Vec<Option<Vec<u8>>>) {
        let payloads = match self.stage {
            Stage::Finished(payloads) => payloads,
            Stage::Negotiating | Stage::FallingBack | Stage::Finishing | Stage::Failed => {
                vec![None; self.group.len()]
            }
        };
        (self.rendezvous, payloads)
    }

    /// Payloads that are the same for all others.
    pub fn same_for_all(&mut self, payload: Vec<u8>) -> RoundPayloads {
        let each = vec![payload.clone(); self.others.len()];
        self.payload = payload;
        RoundPayloads::Each(each)
    }

    /// Payloads of a round in which no member failed, in the group's order, our own included.
    pub fn by_place<'a>(&'a self, answers: &'a [RoundReply]) -> Vec<&'a [u8]> {
        let mut payloads = vec![self.payload.as_slice(); self.group.len()];
        for (peer, answer) in answers {
            if let Ok(payload) = answer {
                payloads[self.group.place_of(*peer)] = payload;
            }
        }
        payloads
    }

    /// Payloads received in the last round, in the group's order.
    pub fn last_payloads(&self, answers: Vec<RoundReply>) -> Vec<Option<Vec<u8>>> {
        let mut payloads = vec![None; self.group.len()];
        for (peer, answer) in answers {
            payloads[self.group.place_of(peer)] = answer.ok();
        }
        payloads
    }

    pub const fn then(&self) -> Then {
        match self.stage {
            Stage::Negotiating | Stage::FallingBack => Then::NextRound,
            Stage::Finishing | Stage::Finished(_) => Then::End { well: true },
            Stage::Failed => Then::End { well: false },
        }
    }
}
