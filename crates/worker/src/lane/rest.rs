//! What is left to do of a collective whose part here has failed: the others hear why, and what they still send is taken
//! in and thrown away, so that it stands in nobody's way.

use crate::Cause;
use crate::collective::{Bundle, Exchange, Group};
use crate::peers::{Front, Peers, Stream};
use smallvec::SmallVec;

/// A part that failed before it was known what it would be.
#[derive(Debug)]
pub struct Refusal {
    pub(crate) tag: u64,
    /// The first hop of what failed.
    pub(crate) hop: u32,
    pub(crate) cause: Cause,
    /// Who waits for something of ours.
    pub(crate) listeners: SmallVec<[u32; 8]>,
    /// Who sends us something.
    pub(crate) senders: SmallVec<[u32; 8]>,
}

impl Refusal {
    pub(crate) const fn tag(&self) -> u64 {
        self.tag
    }
}

/// A message that somebody may still send us.
#[derive(Debug)]
struct Left {
    peer: u32,
    hop: u32,
    taken_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Rest {
    tag: u64,
    cause: Cause,
    /// To whom, and in which hop, our failure has still to go.
    untold: SmallVec<[(u32, u32); 8]>,
    left: SmallVec<[Left; 8]>,
}

impl Rest {
    pub fn of_refusal(refusal: Refusal) -> Self {
        let Refusal { tag, hop, cause, listeners, senders } = refusal;
        // Who meets the failure in the first hop sends nothing in the second but a failure.
        let untold = listeners.into_iter().map(|peer| (peer, hop)).collect();
        let left = senders.into_iter().map(|peer| Left { peer, hop, taken_bytes: 0 }).collect();
        Self { tag, cause, untold, left }
    }

    pub fn of_exchange(exchange: &Exchange, group: &Group, cause: Cause) -> Self {
        Self::new(exchange.tag(), cause, exchange.unsent(), exchange.missing(group))
    }

    pub fn of_bundle<M>(bundle: &Bundle<M>, cause: Cause) -> Self {
        Self::new(bundle.tag(), cause, bundle.unsent(), bundle.missing())
    }

    /// Messages that are not out, and those that have not come in whole with the bytes that we have had of each.
    fn new(
        tag: u64,
        cause: Cause,
        unsent: impl Iterator<Item = (u32, u32)>,
        missing: SmallVec<[(u32, u32, usize); 8]>,
    ) -> Self {
        let left = |(peer, hop, taken): (u32, u32, usize)| {
            let taken_bytes = u64::try_from(taken).unwrap_or(u64::MAX);
            Left { peer, hop, taken_bytes }
        };
        Self { tag, cause, untold: unsent.collect(), left: missing.into_iter().map(left).collect() }
    }

    pub const fn tag(&self) -> u64 {
        self.tag
    }

    pub fn is_over(&self) -> bool {
        self.untold.is_empty() && self.left.is_empty()
    }

    pub fn missing(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.left.iter().map(|left| (left.peer, left.hop))
    }

    /// Tells who has room for it, and throws away what has come; true if anything moved.
    pub fn step(&mut self, peers: &mut impl Peers) -> bool {
        let Self { tag, cause, untold, left } = self;
        let before = untold.len();
        // Who is gone need not be told.
        untold.retain(|&mut (peer, hop)| {
            matches!(peers.fail(peer, Stream { tag: *tag, hop }, cause), Ok(false))
        });
        let mut moved = untold.len() < before;
        let mut over: SmallVec<[u32; 8]> = SmallVec::new();
        left.retain(|left| {
            let (state, has_moved) = left.take_in(*tag, peers);
            moved |= has_moved;
            if state == State::Failed {
                over.push(left.peer);
            }
            state == State::Coming
        });
        // A failure ends all that its sender would have sent. What it says of a second hop comes later, for the tag's end.
        left.retain(|left| !over.contains(&left.peer));
        moved || !over.is_empty()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Coming,
    Whole,
    /// The sender's part has failed too, or it is gone.
    Failed,
}

impl Left {
    /// Throws away what is here of the message; says whether there was anything.
    fn take_in(&mut self, tag: u64, peers: &mut impl Peers) -> (State, bool) {
        let stream = Stream { tag, hop: self.hop };
        let mut moved = false;
        loop {
            let (length, state) = match peers.front(self.peer, stream) {
                Ok(Front::Nothing) => return (State::Coming, moved),
                Ok(Front::Bytes { total, bytes }) => {
                    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                    self.taken_bytes = self.taken_bytes.saturating_add(length);
                    let is_whole = self.taken_bytes >= total;
                    (bytes.len(), if is_whole { State::Whole } else { State::Coming })
                }
                Ok(Front::Failure(_)) => (0, State::Failed),
                Err(_) => return (State::Failed, moved),
            };
            peers.release(self.peer, stream, length);
            moved = true;
            if state != State::Coming {
                return (state, moved);
            }
        }
    }
}
