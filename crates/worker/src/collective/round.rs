//! One round of a talk between the members of a collective: a word to each of the others, and a word from each.
//!
//! It is over when every other member has said something, has failed or is gone, and not before: whoever has lent memory
//! must know of all that they do not read it any more.

use super::exchange::Step;
use crate::peers::{Front, Peers, Progress, Stream};
use crate::ways::WORD_BYTES_MAX;
use crate::{Broken, Cause, Fault};

/// What is said.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    /// One word for each of those who listen, in their order.
    Words(Vec<Vec<u8>>),
    /// Our part has failed.
    Failure(Cause),
}

#[derive(Debug)]
struct Part {
    peer: u32,
    sent_bytes: usize,
    has_said: bool,
    taken: Vec<u8>,
    heard: Option<Result<Vec<u8>, Broken>>,
}

/// What a member has said.
pub(crate) type Heard = (u32, Result<Vec<u8>, Broken>);

#[derive(Debug)]
pub(crate) struct Round {
    stream: Stream,
    says: Says,
    parts: Vec<Part>,
}

impl Round {
    pub fn new(tag: u64, number: u32, says: Says, others: &[u32]) -> Self {
        let part = |&peer: &u32| Part {
            peer,
            sent_bytes: 0,
            has_said: false,
            taken: Vec::new(),
            heard: None,
        };
        let parts = others.iter().map(part).collect();
        Self { stream: Stream { tag, hop: number }, says, parts }
    }

    pub const fn tag(&self) -> u64 {
        self.stream.tag
    }

    /// Whom we have not heard yet.
    pub fn missing(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let missing = self.parts.iter().filter(|part| part.heard.is_none());
        missing.map(|part| (part.peer, self.stream.hop))
    }

    pub fn heard(self) -> Vec<Heard> {
        self.parts.into_iter().filter_map(|part| Some((part.peer, part.heard?))).collect()
    }

    /// Says what there is room for, and takes in what has come.
    pub fn step(&mut self, peers: &mut impl Peers) -> Step {
        let Self { stream, says, parts } = self;
        let mut moved = false;
        for (place, part) in parts.iter_mut().enumerate() {
            if !part.has_said {
                let said = match says {
                    Says::Words(words) => {
                        let word = words.get(place).map_or(&[][..], Vec::as_slice);
                        part.say(word, *stream, peers)
                    }
                    Says::Failure(cause) => peers.fail(part.peer, *stream, cause),
                };
                // Whoever is gone need not be told; what it said before is still heard.
                part.has_said = said.unwrap_or(true);
                moved |= part.has_said;
            }
            while part.heard.is_none() && part.listen(*stream, peers) {
                moved = true;
            }
        }
        match parts.iter().all(|part| part.has_said && part.heard.is_some()) {
            true => Step::Done,
            false if moved => Step::Moved,
            false => Step::Stuck,
        }
    }
}

impl Part {
    /// True when all is said.
    fn say(
        &mut self,
        word: &[u8],
        stream: Stream,
        peers: &mut impl Peers,
    ) -> Result<bool, crate::PeerLost> {
        let from = self.sent_bytes;
        let progress = Progress { total: word.len(), from, to: word.len() };
        let mut fill = |slot: &mut [u8]| {
            slot.copy_from_slice(word.get(from..from + slot.len()).unwrap_or_default());
        };
        let taken = peers.push(self.peer, stream, progress, &mut fill)?;
        self.sent_bytes += taken.unwrap_or(0);
        Ok(taken.is_some() && self.sent_bytes == word.len())
    }

    /// False where there is nothing.
    fn listen(&mut self, stream: Stream, peers: &mut impl Peers) -> bool {
        let length = match peers.front(self.peer, stream) {
            Ok(Front::Nothing) => return false,
            Ok(Front::Bytes { total, bytes }) => {
                let total = usize::try_from(total).unwrap_or(usize::MAX);
                if total > WORD_BYTES_MAX {
                    let text = format!("worker {} says a word of {total} bytes", self.peer);
                    self.heard = Some(Err(Broken::Fault(Fault::protocol(text))));
                } else {
                    self.taken.extend_from_slice(bytes);
                    if self.taken.len() >= total {
                        self.heard = Some(Ok(std::mem::take(&mut self.taken)));
                    }
                }
                bytes.len()
            }
            Ok(Front::Failure(cause)) => {
                self.heard = Some(Err(Broken::Failed(cause.clone())));
                0
            }
            Err(lost) => {
                self.heard = Some(Err(lost.into()));
                return true;
            }
        };
        peers.release(self.peer, stream, length);
        true
    }
}
