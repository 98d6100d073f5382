//! The log: the words that the workers of a program were sent, in one order, the latest ones up to a
//! limit.
//!
//! Instructions are pure, draws are attributes, and no bit depends on time: so the words that led
//! to a value, sent again in their order, lead to the same bits. Whoever owns the workers' rings
//! appends what it writes there, which costs a copy of some 20 words an instruction; nothing is
//! looked at before a worker has died. The log is what happened as if none had: values that are made
//! again leave no words in it.

use crate::event::WorkerIndex;
use gt_protocol::wire::{
    self,
    cut::{self, frames},
};
use gt_protocol::{Op, integer::to_usize};
use std::collections::{BTreeMap, VecDeque};

/// Words of one part of the log, 1 MiB: the log drops whole parts.
const PART_WORDS: usize = 1 << 18;
/// Code of frames that are no instructions.
const NOTE: u16 = 0;
const NOTE_WORDS: u32 = 3;
/// Kinds of such frames: the words that follow are of a worker; a worker has left with all that it
/// had; bytes of an upload are not kept.
const WORKER: u32 = 0;
const LEFT: u32 = 1;
const OMITTED: u32 = 2;

/// Instructions that the workers of a program were sent, the latest ones up to a limit.
#[derive(Debug)]
pub struct Lineage {
    /// Earlier parts, of whole frames.
    past: VecDeque<Part>,
    present: Part,
    /// The worker of the last words.
    worker: WorkerIndex,
    /// Limit of all parts together.
    words_max: usize,
    words_past: usize,
    /// Words of payloads that were sent beside the ring, as far as they are kept.
    beside: usize,
    /// Words in front of those that are written down and not sent, while any are.
    held: Option<usize>,
    /// The session of each worker's first instruction.
    sessions: BTreeMap<WorkerIndex, Vec<u32>>,
}

#[derive(Debug, Default)]
struct Part {
    words: Vec<u32>,
    beside: usize,
}

/// Frame of the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum Frame<'a> {
    Instruction(&'a [u32]),
    /// The worker has left, with all that it had.
    Left,
    /// Bytes of this slot's upload are not kept.
    Omitted(u32),
}

/// Place of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePlace {
    pub worker: WorkerIndex,
    /// True if the frame was not sent.
    pub is_held: bool,
}

impl Lineage {
    /// An empty log of at most so many words.
    pub fn new(words_max: usize) -> Self {
        Self {
            past: VecDeque::new(),
            present: Part::default(),
            worker: 0,
            words_max,
            words_past: 0,
            beside: 0,
            held: None,
            sessions: BTreeMap::new(),
        }
    }

    /// Appends whole frames as they go to a worker.
    #[inline]
    pub fn append(&mut self, worker: WorkerIndex, words: &[u32]) {
        if worker != self.worker && !words.is_empty() {
            self.turn_to(worker);
        }
        self.push(words);
    }

    #[inline]
    fn push(&mut self, words: &[u32]) {
        if self.present.words.len() + words.len() > self.present.words.capacity() {
            self.begin_part(words.len());
        }
        self.present.words.extend_from_slice(words);
    }

    fn turn_to(&mut self, worker: WorkerIndex) {
        self.worker = worker;
        self.push(&note(WORKER, worker));
    }

    /// Appends the frames of a payload that goes beside the ring, unless payloads fill half of the
    /// log: then the value of `slot` cannot be made again.
    pub fn append_beside(&mut self, worker: WorkerIndex, slot: u32, words: &[u32]) {
        if self.beside + words.len() > self.words_max / 2 {
            return self.append(worker, &note(OMITTED, slot));
        }
        self.append(worker, words);
        self.present.beside += words.len();
        self.beside += words.len();
    }

    /// Notes that these slots are empty, without a word to the worker.
    pub fn vacate(&mut self, worker: WorkerIndex, slots: &[u32]) {
        let mut words = Vec::new();
        wire::encode_free(slots, &mut words);
        self.append(worker, &words);
    }

    /// Notes that a worker is gone, with all that it had.
    pub fn leave(&mut self, worker: WorkerIndex) {
        self.append(worker, &note(LEFT, worker));
    }

    /// Words that are appended from here on are not sent, until [`Lineage::resume`].
    pub fn hold(&mut self) {
        self.held.get_or_insert(self.words_past + self.present.words.len());
    }

    pub fn resume(&mut self) {
        self.held = None;
    }

    #[inline]
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Begins a part with room for so many words, in the memory of the oldest one where the log is
    /// full. Words that were not sent are nowhere else: while there are any, nothing is dropped.
    #[cold]
    fn begin_part(&mut self, words: usize) {
        let full = std::mem::take(&mut self.present);
        self.words_past += full.words.len();
        self.past.push_back(full);
        let room = (words + to_usize(NOTE_WORDS)).max(PART_WORDS);
        while self.held.is_none() && self.words_past + room > self.words_max {
            let Some(mut oldest) = self.past.pop_front() else { break };
            self.words_past -= oldest.words.len();
            self.beside -= oldest.beside;
            note_sessions(&mut self.sessions, &oldest.words);
            oldest.words.clear();
            self.present.words = oldest.words;
        }
        self.present.words.reserve_exact(room);
        self.present.words.extend(note(WORKER, self.worker));
    }

    /// Drops all words: a part of them was cancelled, and only the worker knows which.
    pub fn forget(&mut self) {
        for part in self.past.drain(..).chain([std::mem::take(&mut self.present)]) {
            note_sessions(&mut self.sessions, &part.words);
        }
        (self.words_past, self.beside, self.held) = (0, 0, None);
    }

    /// Number of words that are kept.
    pub fn len(&self) -> usize {
        self.words_past + self.present.words.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All frames that say something, with their places.
    pub(super) fn frames(&self) -> impl Iterator<Item = (Frame<'_>, FramePlace)> {
        let parts = self.past.iter().chain([&self.present]);
        let (mut worker, mut words) = (0, 0);
        let all = parts.flat_map(|part| frames(&part.words));
        all.filter_map(move |frame| {
            let is_held = self.held.is_some_and(|held| words >= held);
            words += frame.len();
            let said = match frame {
                [first, kind, number] if wire::halves(*first).0 == NOTE => match *kind {
                    WORKER => {
                        worker = *number;
                        return None;
                    }
                    LEFT => Frame::Left,
                    _ => Frame::Omitted(*number),
                },
                [first, ..] if cut::is_message(*first) => return None,
                _ => Frame::Instruction(frame),
            };
            Some((said, FramePlace { worker, is_held }))
        })
    }

    /// The session of a worker's first instruction, as the worker was told it.
    pub(super) fn first_session(&self, worker: WorkerIndex) -> &[u32] {
        self.sessions.get(&worker).map_or(&[], Vec::as_slice)
    }
}

const fn note(kind: u32, number: u32) -> [u32; 3] {
    [NOTE_WORDS << 16, kind, number]
}

/// Keeps the last session of each worker among words that are dropped.
fn note_sessions(sessions: &mut BTreeMap<WorkerIndex, Vec<u32>>, words: &[u32]) {
    let mut worker = 0;
    for frame in frames(words) {
        if let [first, WORKER, number] = frame
            && wire::halves(*first).0 == NOTE
        {
            worker = *number;
        } else if is_session(frame) {
            frame.clone_into(sessions.entry(worker).or_default());
        }
    }
}

pub(super) fn is_session(frame: &[u32]) -> bool {
    frame.first().is_some_and(|&first| wire::halves(first).0 == Op::Session.info().code)
}
