//! A collective that a backend moves, at one member: rounds of payloads with the others, and how far they are.

use crate::exchange::{Exchange, Group, RoundPayloads, RoundReply};
use crate::peers::PeerId;
use crate::stream::Then;
use smallvec::SmallVec;

/// How far a negotiation is; in all but the last a round is in flight.
#[derive(Debug)]
pub enum Stage {
    Negotiating,
    /// All know that it goes by messages.
    FallingBack,
    /// The result can be had.
    Finishing,
    /// Our part has failed, and the others are told.
    Failed,
    /// Nobody sends anything more; the last payloads, in the group's order.
    Finished(Vec<Option<Vec<u8>>>),
}

#[derive(Debug)]
pub struct Negotiation<R> {
    pub tag: u64,
    pub group: Group,
    /// What would go by messages; whose memory is read instead.
    pub exchange: Option<Exchange>,
    /// The backend's part.
    pub rendezvous: Option<R>,
    pub stage: Stage,
    /// The round that is in flight, and our payload in it.
    pub round: u32,
    pub payload: Vec<u8>,
    /// Those that still answer.
    pub others: Vec<PeerId>,
    pub shares_result: bool,
    pub receivers: SmallVec<[PeerId; 8]>,
    pub senders: SmallVec<[PeerId; 8]>,
}

impl<R> Negotiation<R> {
    pub const fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Finished(_))
    }

    /// Whether the result can be had.
    pub const fn has_result(&self) -> bool {
        matches!(self.stage, Stage::Finishing | Stage::Finished(_))
    }

    /// The backend's part, and the last payloads; none of one that went wrong.
    pub fn into_last(self) -> (Option<R>, Vec<Option<Vec<u8>>>) {
        let payloads = match self.stage {
            Stage::Finished(payloads) => payloads,
            Stage::Negotiating | Stage::FallingBack | Stage::Finishing | Stage::Failed => {
                vec![None; self.group.len()]
            }
        };
        (self.rendezvous, payloads)
    }

    /// The same payload for all others.
    pub fn same_for_all(&mut self, payload: Vec<u8>) -> RoundPayloads {
        let each = vec![payload.clone(); self.others.len()];
        self.payload = payload;
        RoundPayloads::Each(each)
    }

    /// What was received in a round in which nobody has failed, at the members' places, and our own payload.
    pub fn by_place<'a>(&'a self, answers: &'a [RoundReply]) -> Vec<&'a [u8]> {
        let mut payloads = vec![self.payload.as_slice(); self.group.len()];
        for (peer, answer) in answers {
            if let Ok(payload) = answer {
                payloads[self.group.place_of(*peer)] = payload;
            }
        }
        payloads
    }

    /// What was received in the last round, at the members' places.
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
