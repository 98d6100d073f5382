//! Draining of a collective whose part here has failed: the other members are told the cause, and
//! the messages that they still send are dropped, so that nothing behind them waits.

use crate::exchange::{Exchange, Group};
use crate::failure::Cause;
use crate::peers::{Front, MessageId, PeerId, Peers};
use gt_protocol::integer::to_u64;
use smallvec::SmallVec;

/// A part that failed before its messages were known.
#[derive(Debug)]
pub struct Abort {
    pub(crate) tag: u64,
    /// The first hop of the failed part.
    pub(crate) hop: u32,
    pub(crate) cause: Cause,
    /// Members that wait for a message of ours.
    pub(crate) receivers: SmallVec<[PeerId; 8]>,
    /// Members that send us a message.
    pub(crate) senders: SmallVec<[PeerId; 8]>,
}

/// A message that another member may still send us.
#[derive(Debug)]
struct Left {
    peer: PeerId,
    hop: u32,
    taken_bytes: u64,
}

#[derive(Debug)]
pub struct ExchangeDrain {
    tag: u64,
    cause: Cause,
    /// Members that have still to be told of our failure, with the hop.
    untold_peers: SmallVec<[(PeerId, u32); 8]>,
    left: SmallVec<[Left; 8]>,
}

impl ExchangeDrain {
    pub fn of_abort(abort: Abort) -> Self {
        let Abort { tag, hop, cause, receivers, senders } = abort;
        // A member that receives the failure in the first hop sends only a failure in the second.
        let untold_peers = receivers.into_iter().map(|peer| (peer, hop)).collect();
        let left = senders.into_iter().map(|peer| Left { peer, hop, taken_bytes: 0 }).collect();
        Self { tag, cause, untold_peers, left }
    }

    pub fn of_exchange(exchange: &Exchange, group: &Group, cause: Cause) -> Self {
        let left = |(peer, hop, taken): (PeerId, u32, usize)| Left {
            peer,
            hop,
            taken_bytes: to_u64(taken),
        };
        let left = exchange.missing(group).into_iter().map(left).collect();
        Self { tag: exchange.tag(), cause, untold_peers: exchange.unsent().collect(), left }
    }

    pub const fn tag(&self) -> u64 {
        self.tag
    }

    pub fn is_over(&self) -> bool {
        self.untold_peers.is_empty() && self.left.is_empty()
    }

    pub fn missing(&self) -> impl Iterator<Item = (PeerId, u32)> + '_ {
        self.left.iter().map(|left| (left.peer, left.hop))
    }

    /// Sends the failure to members that have room for it, and drops arrived chunks; returns true
    /// if anything moved.
    pub fn step(&mut self, peers: &mut impl Peers) -> bool {
        let Self { tag, cause, untold_peers, left } = self;
        let before = untold_peers.len();
        // A member that is gone need not be told.
        untold_peers.retain(|&mut (peer, hop)| {
            matches!(peers.fail(peer, MessageId { tag: *tag, hop }, cause), Ok(false))
        });
        let mut moved = untold_peers.len() < before;
        let mut over: SmallVec<[PeerId; 8]> = SmallVec::new();
        left.retain(|left| {
            let (state, has_moved) = left.take_in(*tag, peers);
            moved |= has_moved;
            if state == DrainState::Failed {
                over.push(left.peer);
            }
            state == DrainState::Coming
        });
        // A failure ends all messages of its sender. A later failure in a second hop is dropped
        // with the tag.
        left.retain(|left| !over.contains(&left.peer));
        moved || !over.is_empty()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DrainState {
    Coming,
    Whole,
    /// The sender's part has failed too, or it is gone.
    Failed,
}

impl Left {
    /// Drops the arrived part of the message; returns the state, and true if there was any.
    fn take_in(&mut self, tag: u64, peers: &mut impl Peers) -> (DrainState, bool) {
        let message = MessageId { tag, hop: self.hop };
        let mut moved = false;
        loop {
            let (length, state) = match peers.front(self.peer, message) {
                Ok(Front::Nothing) => return (DrainState::Coming, moved),
                Ok(Front::Bytes { total, bytes }) => {
                    self.taken_bytes += to_u64(bytes.len());
                    let is_whole = self.taken_bytes >= total;
                    (bytes.len(), if is_whole { DrainState::Whole } else { DrainState::Coming })
                }
                Ok(Front::Failure(_)) => (0, DrainState::Failed),
                Err(_) => return (DrainState::Failed, moved),
            };
            peers.release(self.peer, message, length);
            moved = true;
            if state != DrainState::Coming {
                return (state, moved);
            }
        }
    }
}
