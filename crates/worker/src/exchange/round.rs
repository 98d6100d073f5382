//! One round of the negotiation between the members of a collective: a payload to each of the
//! others, and one from each.
//!
//! It is over only when every other member has answered, has failed or is gone: the owner of
//! borrowed memory must know that none of them reads it any more.

use super::messages::ExchangeStep;
use crate::failure::{Broken, Cause};
use crate::peers::{CopyBytes, Front, MessageId, PeerId, PeerLost, Peers, Progress};
use gt_protocol::peer::PAYLOAD_BYTES_MAX;

/// Payloads for the others.
#[derive(Clone, Debug)]
pub enum RoundPayloads {
    /// One for each of them, in their order.
    Each(Vec<Vec<u8>>),
    /// Our part has failed.
    Failure(Cause),
}

/// Another member, and the progress of the messages to and from it.
#[derive(Debug)]
struct Correspondent {
    peer: PeerId,
    sent_bytes: usize,
    is_sent: bool,
    received: Vec<u8>,
    answer: Option<Result<Vec<u8>, Broken>>,
}

/// Answer of a member.
pub type RoundReply = (PeerId, Result<Vec<u8>, Broken>);

#[derive(Debug)]
pub struct Round {
    message: MessageId,
    payloads: RoundPayloads,
    others: Vec<Correspondent>,
}

impl Round {
    pub fn new(tag: u64, number: u32, payloads: RoundPayloads, others: &[PeerId]) -> Self {
        let other = |&peer: &PeerId| Correspondent {
            peer,
            sent_bytes: 0,
            is_sent: false,
            received: Vec::new(),
            answer: None,
        };
        let others = others.iter().map(other).collect();
        Self { message: MessageId { tag, hop: number }, payloads, others }
    }

    pub const fn tag(&self) -> u64 {
        self.message.tag
    }

    /// Members that have not answered yet.
    pub fn missing(&self) -> impl Iterator<Item = (PeerId, u32)> + '_ {
        let missing = self.others.iter().filter(|other| other.answer.is_none());
        missing.map(|other| (other.peer, self.message.hop))
    }

    /// Answers of a round that is over.
    pub fn into_answers(self) -> Vec<RoundReply> {
        let answer = |other: Correspondent| {
            (other.peer, other.answer.expect("a round is over when all have answered"))
        };
        self.others.into_iter().map(answer).collect()
    }

    /// Sends as far as there is room, and receives what has arrived.
    pub fn step(&mut self, peers: &mut impl Peers) -> ExchangeStep {
        let Self { message, payloads, others } = self;
        let mut has_moved = false;
        for (place, other) in others.iter_mut().enumerate() {
            if !other.is_sent {
                let sent = match payloads {
                    RoundPayloads::Each(each) => other.send(&each[place], *message, peers),
                    RoundPayloads::Failure(cause) => peers.fail(other.peer, *message, cause),
                };
                // A member that is gone need not be told; its earlier messages are still read.
                other.is_sent = sent.unwrap_or(true);
                has_moved |= other.is_sent;
            }
            while other.answer.is_none() && other.receive(*message, peers) {
                has_moved = true;
            }
        }
        match others.iter().all(|other| other.is_sent && other.answer.is_some()) {
            true => ExchangeStep::Done,
            false if has_moved => ExchangeStep::Moved,
            false => ExchangeStep::Stuck,
        }
    }
}

impl Correspondent {
    /// Returns true once everything is sent.
    fn send(
        &mut self,
        payload: &[u8],
        message: MessageId,
        peers: &mut impl Peers,
    ) -> Result<bool, PeerLost> {
        let from = self.sent_bytes;
        let progress = Progress { total: payload.len(), from, to: payload.len() };
        let mut fill =
            |slot: &mut [u8], copy: CopyBytes| copy(slot, &payload[from..from + slot.len()]);
        let taken = peers.push(self.peer, message, progress, &mut fill)?;
        self.sent_bytes += taken.unwrap_or(0);
        Ok(taken.is_some() && self.sent_bytes == payload.len())
    }

    /// Returns false where nothing has arrived.
    fn receive(&mut self, message: MessageId, peers: &mut impl Peers) -> bool {
        let length = match peers.front(self.peer, message) {
            Ok(Front::Nothing) => return false,
            Ok(Front::Bytes { total, bytes }) => {
                let total = usize::try_from(total).unwrap_or(usize::MAX);
                if total > PAYLOAD_BYTES_MAX {
                    let text =
                        format!("worker {} sends a payload of {total} bytes", self.peer.index);
                    self.answer = Some(Err(Broken::protocol(text)));
                } else {
                    self.received.extend_from_slice(bytes);
                    if self.received.len() >= total {
                        self.answer = Some(Ok(std::mem::take(&mut self.received)));
                    }
                }
                bytes.len()
            }
            Ok(Front::Failure(cause)) => {
                self.answer = Some(Err(Broken::Failed(cause.clone())));
                0
            }
            Err(lost) => {
                self.answer = Some(Err(lost.into()));
                return true;
            }
        };
        peers.release(self.peer, message, length);
        true
    }
}
