//! Reading the journal of a dispatcher that was killed.

use super::{
    AMONG, BESIDE, BUFFER_WORDS, IS_CANCELLED, IS_CONTINUED, Journal, KIND, LENGTHS, MARK, OFF,
    PAYLOAD, Party, REPLAYING, RUN, SENT, WORDS,
};
use gt_dispatcher::{SessionId, WorkerIndex};
use gt_protocol::integer::to_usize;
use std::sync::atomic::Ordering;

/// Input of the core, in the order in which it was taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Words {
        party: Party,
        words: Vec<u32>,
    },
    /// A turn, or more of it.
    Run {
        party: Party,
        is_cancelled: bool,
        is_continued: bool,
        frames: u32,
    },
    Mark {
        worker: WorkerIndex,
        request: u64,
    },
    /// A frame of so many words went to the socket of the peer at this place.
    Sent {
        place: usize,
        words: usize,
        sum: u32,
    },
}

/// Error of a journal that does not fit to the state at the fork: our own mistake.
#[derive(Debug, thiserror::Error)]
#[error("record {kind} at word {at} of its journal: {why}")]
pub(crate) struct BrokenJournal {
    pub kind: u32,
    pub at: usize,
    pub why: &'static str,
}

impl Journal {
    /// Begins the replay, in the standby; returns false if another one is to take over, or none.
    pub fn begin_replay(&self) -> bool {
        let active = self.word(super::GENERATION).load(Ordering::Acquire);
        let buffer = self.buffer.load(Ordering::Relaxed);
        let length = self.word(LENGTHS + buffer).load(Ordering::Acquire);
        self.length.store(to_usize(length).min(BUFFER_WORDS), Ordering::Relaxed);
        self.cursor.store(0, Ordering::Relaxed);
        self.state.store(REPLAYING, Ordering::Relaxed);
        active == self.generation.load(Ordering::Relaxed)
    }

    /// Ends the replay; nothing is written until the next fork.
    pub fn end_replay(&self) {
        self.state.store(OFF, Ordering::Relaxed);
    }

    /// Returns true while inputs come from the journal.
    pub fn is_replaying(&self) -> bool {
        self.state.load(Ordering::Relaxed) == REPLAYING
    }

    /// The next input; `None` at the end.
    ///
    /// # Errors
    /// A record that belongs to an instruction, which did not ask for it.
    pub fn next(&self) -> Option<Result<Record, BrokenJournal>> {
        let at = self.cursor.load(Ordering::Relaxed);
        let head = self.head()?;
        let [first, second, third, fourth] = head;
        let party = match second {
            0 => Party::Session(SessionId(third)),
            _ => Party::Worker(third),
        };
        self.cursor.store(at + head.len(), Ordering::Relaxed);
        let record = match first & KIND {
            WORDS => Record::Words { party, words: self.take(to_usize(fourth)) },
            RUN => Record::Run {
                party,
                is_cancelled: first & IS_CANCELLED != 0,
                is_continued: first & IS_CONTINUED != 0,
                frames: fourth,
            },
            MARK => {
                Record::Mark { worker: second, request: u64::from(third) | u64::from(fourth) << 32 }
            }
            SENT => Record::Sent { place: to_usize(second), words: to_usize(third), sum: fourth },
            kind => return Some(Err(BrokenJournal { kind, at, why: "nothing asked for it" })),
        };
        Some(Ok(record))
    }

    /// Takes the next record, if it says where bytes went; returns true if that was a slab. At the
    /// end they went nowhere yet, and may go among the words.
    pub fn take_room_beside(&self) -> bool {
        let at = self.cursor.load(Ordering::Relaxed);
        let Some([kind @ (BESIDE | AMONG), ..]) = self.head() else { return false };
        self.cursor.store(at + 1, Ordering::Relaxed);
        kind == BESIDE
    }

    /// Takes the next record, if it has bytes from a slab: returns the offset that they were sent
    /// for, and copies them over the content of `bytes`.
    pub fn take_payload(&self, bytes: &mut Vec<u8>) -> Option<u64> {
        let at = self.cursor.load(Ordering::Relaxed);
        let head @ [PAYLOAD, low, high, length] = self.head()? else { return None };
        self.cursor.store(at + head.len(), Ordering::Relaxed);
        let length = to_usize(length);
        bytes.clear();
        for word in self.take(length.div_ceil(4)) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.truncate(length);
        Some(u64::from(low) | u64::from(high) << 32)
    }

    /// First words of the next record, which has at least these unless it says where bytes went.
    fn head(&self) -> Option<[u32; 4]> {
        let at = self.cursor.load(Ordering::Relaxed);
        if at >= self.length.load(Ordering::Relaxed) {
            return None;
        }
        let word = |step: usize| self.word(self.start() + at + step).load(Ordering::Relaxed);
        let first = word(0);
        let is_alone = first == BESIDE || first == AMONG;
        Some(if is_alone { [first, 0, 0, 0] } else { [first, word(1), word(2), word(3)] })
    }

    fn take(&self, words: usize) -> Vec<u32> {
        let at = self.cursor.load(Ordering::Relaxed);
        self.cursor.store(at + words, Ordering::Relaxed);
        (at..at + words).map(|at| self.word(self.start() + at).load(Ordering::Relaxed)).collect()
    }
}
