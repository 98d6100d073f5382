//! The journal: whatever the core's thread takes in between two forks, in memory that it shares
//! with its standby. The standby has the state at the fork; when the dispatcher is killed it takes
//! the same again, and so gets the same state and the same outputs.
//!
//! An input is in the journal before the core acts on it, and before its place in a ring or slab is
//! given back. What depends on the clock is an input too: how many instructions a turn had, marks,
//! whether bytes had room in a slab, and which words made a frame of TCP. Beside the records stands what has been published to each
//! peer: number and sums of its words, by which the standby's are compared.

pub(crate) mod replay;

use gt_dispatcher::{SessionId, WorkerIndex};
use gt_transport::SharedWords;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Words of records between two forks (32 MiB): more than a million small instructions. There are
/// two buffers, since the standby before stands until the next one does.
const BUFFER_WORDS: usize = 8 << 20;
/// Words that are left when a fork is due: more than one turn of a client may take (64 chunks of 64
/// KiB beside a ring's words).
const RESERVE_WORDS: usize = 2 << 20;
/// Places for what was published: sessions and workers, each at most 1024, and as many again, so that
/// a place is not used again at once.
pub(crate) const PLACES: usize = 4096;

/// Words of a place: two entries, so that one is whole while the other is written.
const PLACE_WORDS: usize = 16;
const ENTRY_WORDS: usize = 8;
/// Words in front of the places: the generation that may take over, and the lengths of the buffers.
const HEAD_WORDS: usize = 16;
const GENERATION: usize = 0;
const LENGTHS: usize = 1;
/// Generation of a dispatcher that nobody is to follow.
const NOBODY: u32 = 0;

/// State of the journal.
const OFF: u32 = 0;
const WRITING: u32 = 1;
const REPLAYING: u32 = 2;

/// First words of records: kind, and flags of a run.
const WORDS: u32 = 1;
const PAYLOAD: u32 = 2;
const RUN: u32 = 3;
const MARK: u32 = 4;
/// Bytes that go into a slab, and such that have no room there.
const BESIDE: u32 = 5;
const AMONG: u32 = 6;
/// A frame that goes to a socket's task.
const SENT: u32 = 7;
const KIND: u32 = 0xff;
const IS_CANCELLED: u32 = 1 << 8;
const IS_CONTINUED: u32 = 1 << 9;

/// Sender of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    Session(SessionId),
    Worker(WorkerIndex),
}

impl Party {
    fn words(self) -> [u32; 2] {
        match self {
            Self::Session(session) => [0, session.0],
            Self::Worker(index) => [1, index],
        }
    }
}

/// Sums over words that were published: of the words, and of the words times their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    count: u64,
    plain: u64,
    placed: u64,
}

impl Sums {
    pub fn add(&mut self, words: &[u32]) {
        let (mut plain, mut placed, mut place) = (0_u64, 0_u64, self.count);
        for &word in words {
            let word = u64::from(word);
            plain = plain.wrapping_add(word);
            placed = placed.wrapping_add(word.wrapping_mul(place | 1));
            place = place.wrapping_add(1);
        }
        self.count = place;
        self.plain = self.plain.wrapping_add(plain);
        self.placed = self.placed.wrapping_add(placed);
    }
}

/// One for each dispatcher and its standby; used by the core's thread alone, which is why its own
/// numbers are relaxed.
#[derive(Debug)]
pub(crate) struct Journal {
    shared: SharedWords,
    state: AtomicU32,
    /// Buffer in use: 0 or 1.
    buffer: AtomicUsize,
    /// Number of words in it.
    length: AtomicUsize,
    /// Place of the count of the run that is the last record, 0 if another record is.
    run: AtomicUsize,
    run_frames: AtomicU32,
    /// Head of the run at work: kind and flags, and party.
    run_head: [AtomicU32; 3],
    /// Number of words that the replay has read.
    cursor: AtomicUsize,
    /// Generation of this process's standby.
    generation: AtomicU32,
    /// Number of stores until the process "dies"; 0 for never.
    #[cfg(test)]
    pub stores_left: AtomicU32,
}

impl Journal {
    /// # Errors
    /// No memory.
    pub fn new() -> io::Result<Self> {
        let count = HEAD_WORDS + PLACES * PLACE_WORDS + 2 * BUFFER_WORDS;
        let zero = || AtomicUsize::new(0);
        Ok(Self {
            shared: SharedWords::new(count)?,
            state: AtomicU32::new(OFF),
            buffer: zero(),
            length: zero(),
            run: zero(),
            run_frames: AtomicU32::new(0),
            run_head: [0; 3].map(AtomicU32::new),
            cursor: zero(),
            generation: AtomicU32::new(NOBODY),
            #[cfg(test)]
            stores_left: AtomicU32::new(0),
        })
    }

    /// Place between two stores, at which a test lets the process die.
    #[cfg(test)]
    fn between_stores(&self) {
        let left = self.stores_left.load(Ordering::Relaxed);
        self.stores_left.store(left.saturating_sub(1), Ordering::Relaxed);
        assert!(left != 1, "died");
    }

    #[cfg(not(test))]
    #[inline]
    #[allow(clippy::unused_self, reason = "a test needs it")]
    fn between_stores(&self) {}

    /// Prepares the other buffer and the next generation, for a fork.
    pub fn turn_over(&self) {
        let buffer = 1 - self.buffer.load(Ordering::Relaxed);
        self.buffer.store(buffer, Ordering::Relaxed);
        self.length.store(0, Ordering::Relaxed);
        self.run.store(0, Ordering::Relaxed);
        self.cursor.store(0, Ordering::Relaxed);
        self.word(LENGTHS + buffer).store(0, Ordering::Release);
        let generation = self.generation.load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// Makes the standby of [`turn_over`](Self::turn_over) the one that takes over, and none before.
    pub fn begin(&self) {
        self.word(GENERATION).store(self.generation.load(Ordering::Relaxed), Ordering::Release);
        self.state.store(WRITING, Ordering::Relaxed);
    }

    /// Lets no standby take over.
    pub fn end(&self) {
        self.word(GENERATION).store(NOBODY, Ordering::Release);
        self.state.store(OFF, Ordering::Relaxed);
    }

    /// Returns true if inputs are written down.
    pub fn is_on(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WRITING
    }

    /// Returns true if a fork is due.
    pub fn is_low(&self) -> bool {
        self.is_on() && self.length.load(Ordering::Relaxed) > BUFFER_WORDS - RESERVE_WORDS
    }

    /// Notes words that have arrived.
    pub fn words(&self, party: Party, words: &[u32]) {
        let [kind, number] = party.words();
        self.append(&[WORDS, kind, number, count(words.len())], words);
    }

    /// Notes bytes that were taken out of a slab.
    pub fn payload(&self, offset: u64, bytes: &[u8]) {
        let words = bytes.len().div_ceil(4);
        let [low, high] = halves(offset);
        let head = [PAYLOAD, low, high, count(bytes.len())];
        self.append_with(&head, words, |shared, place| shared.copy_bytes_in(place, bytes));
    }

    /// Begins a turn of a peer.
    pub fn begin_run(&self, party: Party, is_cancelled: bool) {
        let [kind, number] = party.words();
        let first = if is_cancelled { RUN | IS_CANCELLED } else { RUN };
        for (place, word) in self.run_head.iter().zip([first, kind, number]) {
            place.store(word, Ordering::Relaxed);
        }
        self.run.store(0, Ordering::Relaxed);
    }

    /// Notes that the turn goes on with one more instruction or message.
    #[inline]
    pub fn frame(&self) {
        if !self.is_on() {
            return;
        }
        let run = self.run.load(Ordering::Relaxed);
        if run == 0 {
            return self.append_run();
        }
        let frames = self.run_frames.load(Ordering::Relaxed) + 1;
        self.run_frames.store(frames, Ordering::Relaxed);
        self.between_stores();
        self.word(run).store(frames, Ordering::Release);
        self.between_stores();
    }

    fn append_run(&self) {
        let [first, kind, number] = self.run_head.each_ref().map(|w| w.load(Ordering::Relaxed));
        self.append(&[first, kind, number, 1], &[]);
        self.run_head[0].store(first | IS_CONTINUED, Ordering::Relaxed);
        self.run_frames.store(1, Ordering::Relaxed);
        self.run.store(self.start() + self.length.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// Notes a mark in a worker's stream.
    pub fn mark(&self, worker: WorkerIndex, request: u64) {
        let [low, high] = halves(request);
        self.append(&[MARK, worker, low, high], &[]);
    }

    /// Notes whether the next bytes go into a slab, or among the words.
    pub fn room_beside(&self, is_there: bool) {
        self.append(&[if is_there { BESIDE } else { AMONG }], &[]);
    }

    /// Notes that these words, the next ones, are about to go to a peer as a frame.
    pub fn sent(&self, place: usize, words: &[u32]) {
        self.append(&[SENT, count(place), count(words.len()), sum_of(words)], &[]);
    }

    /// Notes that words are about to be published to a peer, which has then got `published` of them,
    /// wrapping.
    pub fn publish(&self, place: usize, published: u32, sums: &Sums) {
        if self.is_on() {
            self.between_stores();
            self.set_published(place, published, sums);
            self.between_stores();
        }
    }

    /// Begins a place, of a new peer.
    pub fn begin_place(&self, place: usize, published: u32, sums: &Sums) {
        self.set_published(place, published, sums);
        self.set_published(place, published, sums);
    }

    fn set_published(&self, place: usize, published: u32, sums: &Sums) {
        let entries = HEAD_WORDS + place * PLACE_WORDS;
        // The older of the two entries: the other one stays whole meanwhile.
        let newest = self.word(entries + ENTRY_WORDS - 1).load(Ordering::Relaxed);
        let entry = entries + if newest == 0 { ENTRY_WORDS } else { 0 };
        let [plain_low, plain_high] = halves(sums.plain);
        let [placed_low, placed_high] = halves(sums.placed);
        let words = [published, plain_low, plain_high, placed_low, placed_high];
        for (step, word) in words.into_iter().enumerate() {
            self.word(entry + step).store(word, Ordering::Release);
            self.between_stores();
        }
        self.word(entries + ENTRY_WORDS - 1).store(u32::from(newest == 0), Ordering::Release);
    }

    /// Returns true if these are the sums with which this number of words was published.
    pub fn was_published(&self, place: usize, published: u32, sums: &Sums) -> bool {
        let entries = HEAD_WORDS + place * PLACE_WORDS;
        let [plain_low, plain_high] = halves(sums.plain);
        let [placed_low, placed_high] = halves(sums.placed);
        let words = [published, plain_low, plain_high, placed_low, placed_high];
        [entries, entries + ENTRY_WORDS].into_iter().any(|entry| {
            let is_it = |(step, &word)| self.word(entry + step).load(Ordering::Acquire) == word;
            words.iter().enumerate().all(is_it)
        })
    }

    fn append(&self, head: &[u32], words: &[u32]) {
        self.append_with(head, words.len(), |shared, place| shared.copy_in(place, words));
    }

    fn append_with(
        &self,
        head: &[u32],
        words: usize,
        copy_in: impl FnOnce(&SharedWords, usize) -> bool,
    ) {
        if !self.is_on() {
            return;
        }
        let length = self.length.load(Ordering::Relaxed);
        let end = length + head.len() + words;
        let start = self.start() + length;
        let fits = end <= BUFFER_WORDS
            && self.shared.copy_in(start, head)
            && copy_in(&self.shared, start + head.len());
        if !fits {
            // From here on a death loses everything, until the next fork.
            return self.end();
        }
        self.run.store(0, Ordering::Relaxed);
        self.length.store(end, Ordering::Relaxed);
        let buffer = self.buffer.load(Ordering::Relaxed);
        self.between_stores();
        self.word(LENGTHS + buffer).store(count(end), Ordering::Release);
        self.between_stores();
    }

    /// Index of the buffer's first word.
    fn start(&self) -> usize {
        let buffer = self.buffer.load(Ordering::Relaxed);
        HEAD_WORDS + PLACES * PLACE_WORDS + buffer * BUFFER_WORDS
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        &self.shared.words()[index]
    }
}

/// A sum over words that shows a difference.
pub(crate) fn sum_of(words: &[u32]) -> u32 {
    let mut sums = Sums::default();
    sums.add(words);
    let [plain_low, plain_high] = halves(sums.plain);
    let [placed_low, placed_high] = halves(sums.placed);
    plain_low ^ plain_high ^ placed_low.rotate_left(16) ^ placed_high
}

fn halves(number: u64) -> [u32; 2] {
    let low = number & u64::from(u32::MAX);
    [low, number >> 32].map(|half| u32::try_from(half).unwrap_or(u32::MAX))
}

fn count(words: usize) -> u32 {
    u32::try_from(words).expect("a record has fewer words than its buffer")
}
