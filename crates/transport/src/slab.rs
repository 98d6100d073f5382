//! A slab: slots of bytes in a sealed memfd, from one writer to one reader, for payloads too large
//! for a word ring.
//!
//! The writer fills a slot in place, directly from the source, and publishes it with a few words of
//! head; the reader reads it in place and gives it back. So bytes are copied once on either side,
//! and both sides work at the same time.
//!
//! Layout: one page of header, then [`SLOTS`] slots of [`SLOT_BYTES`]. A slot begins with a cache
//! line (length and head); its bytes follow, aligned to that line. Who wakes whom is as in a word
//! ring: a publication stores the tail, fences and loads the reader's parked word; a reader that
//! parks stores that word, fences and re-reads the tail.
//!
//! The two sides trust each other with the bytes (a party that both trust introduced them): a peer
//! that breaks the protocol can give the other wrong bytes, and do nothing else. Seals, size,
//! counters and lengths are checked.

mod mapping;
mod stores;

use crate::ring::{RingError, sealed_memfd};
use crate::scheduling::poll_until;
use crate::sleep::park::{self, PARKED_ON_FUTEX, RUNNING};
use crate::sleep::{Parked, WAIT_MAX};
use mapping::SlabMapping;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};
pub use stores::StoreChoice;

/// Number of slots of a slab: enough that a side which is scheduled late finds work for as long as
/// the other may be away.
pub const SLOTS: u32 = 16;
/// Bytes of a slot, with its first line: small enough that a chunk is reduced while it is in the
/// second-level cache, large enough that the hand-over (a fence on each side) takes under 1 % of
/// copying it. With [`SLOTS`] a slab has 1 MiB and a page, a pair of workers twice that, allocated
/// only when it is used.
pub const SLOT_BYTES: usize = 64 * 1024;
/// Number of head words of a slot.
pub const HEAD_WORDS: usize = 8;
/// Maximum bytes of a chunk in one slot; a multiple of every element's size.
pub const CHUNK_BYTES_MAX: usize = SLOT_BYTES - mapping::LINE_BYTES;

/// Bytes from which a payload of a word stream is worth a slot beside it: the hand-over takes half
/// a microsecond more, and a word through a ring takes as long as four through a slab.
pub const PAYLOAD_BYTES_MIN: usize = 4 * 1024;

/// Number of slots by which the process before this one may be ahead: the log between two forks
/// counts them, so this only bounds what a hostile reader may have stored.
const SLOTS_SKIPPED_MAX: u32 = 1 << 20;

/// Number of slots that must be free before a sleeping writer is woken: a wake-up for each slot
/// would be one for each chunk.
const RESUME_SLOTS: u32 = SLOTS / 4;

/// Makes an empty slab.
///
/// # Errors
/// [`RingError::System`] if the kernel refuses.
pub fn create() -> Result<OwnedFd, RingError> {
    sealed_memfd("gt-slab", mapping::FILE_BYTES)
}

/// The writing side; one for each slab, used by one thread at a time.
#[derive(Debug)]
pub struct SlabWriter {
    mapping: SlabMapping,
    tail: u32,
    /// Head as last read and found plausible; the true one is at least this far.
    head: u32,
    corrupt: bool,
}

/// The reading side; one for each slab, used by one thread at a time.
#[derive(Debug)]
pub struct SlabReader {
    mapping: SlabMapping,
    head: u32,
    tail: u32,
    corrupt: bool,
}

/// Chunk at the front of a slab.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// The head words that the writer gave it.
    pub head: [u32; HEAD_WORDS],
    /// Its bytes, in the slot.
    pub bytes: &'a [u8],
}

impl SlabWriter {
    /// Attaches to a slab, continuing at its counters.
    ///
    /// # Errors
    /// [`RingError`] when the descriptor is not a sealed slab, or its counters contradict each other.
    #[allow(clippy::needless_pass_by_value, reason = "attaching consumes a slab's descriptor")]
    pub fn new(fd: OwnedFd) -> Result<Self, RingError> {
        let mapping = SlabMapping::new(fd.as_fd())?;
        let (tail, head) = mapping.counters()?;
        Ok(Self { mapping, tail, head, corrupt: false })
    }

    /// Returns true after the reader's counter had an impossible value; nothing is written from
    /// then on.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        self.corrupt
    }

    /// Lets forked children have the slab too; of all these processes one may use it at a time.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn keep_in_fork(&self) -> Result<(), RingError> {
        self.mapping.keep_in_fork()
    }

    /// Notes a slot that the process before this one has published; returns false if it has not.
    pub fn skip(&mut self) -> bool {
        let tail = self.mapping.header().tail.word.load(Ordering::Acquire);
        let ahead = tail.wrapping_sub(self.tail);
        if ahead == 0 || ahead > SLOTS_SKIPPED_MAX {
            return false;
        }
        self.tail = self.tail.wrapping_add(1);
        self.head = self.tail.wrapping_sub(SLOTS);
        true
    }

    /// Looks for the slots that are free after [`skip`](Self::skip), and wakes a reader that the
    /// process before this one may have left asleep. Returns false if a slot was published that was
    /// not skipped.
    pub fn resume(&mut self) -> bool {
        let header = self.mapping.header();
        let (tail, head) =
            (header.tail.word.load(Ordering::Acquire), header.head.word.load(Ordering::Acquire));
        self.head = head;
        self.corrupt |= tail != self.tail || self.tail.wrapping_sub(head) > SLOTS;
        let parked = &self.mapping.header().reader_parked.word;
        if parked.load(Ordering::Relaxed) == PARKED_ON_FUTEX
            && park::claim_wake(parked, PARKED_ON_FUTEX)
        {
            park::wake(parked);
        }
        !self.corrupt
    }

    /// The bytes of the next slot, if one is free: [`CHUNK_BYTES_MAX`] of them, to be filled before
    /// [`publish`](Self::publish).
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        if self.free() == 0 {
            self.refresh();
        }
        if self.free() == 0 {
            return None;
        }
        Some(self.mapping.bytes_mut(self.tail))
    }

    /// Publishes the first `length` bytes of the slot that [`slot`](Self::slot) gave; wakes the
    /// reader if it sleeps. Returns false, with nothing published, if there is no free slot or
    /// `length` exceeds it.
    pub fn publish(&mut self, head: &[u32; HEAD_WORDS], length: usize) -> bool {
        let Ok(words) = u32::try_from(length) else { return false };
        if length > CHUNK_BYTES_MAX || self.free() == 0 {
            return false;
        }
        self.mapping.set_head(self.tail, head, words);
        self.tail = self.tail.wrapping_add(1);
        self.mapping.header().tail.word.store(self.tail, Ordering::Release);
        // Pairs with the fence in SlabReader::wait.
        fence(Ordering::SeqCst);
        let parked = &self.mapping.header().reader_parked.word;
        if parked.load(Ordering::Relaxed) == PARKED_ON_FUTEX
            && park::claim_wake(parked, PARKED_ON_FUTEX)
        {
            park::wake(parked);
        }
        true
    }

    /// Waits until a slot is free: polls and yields for `spin`, then sleeps until `timeout`.
    /// Returns true when one is free. May return early with false, so callers loop and check the
    /// peer's life.
    pub fn wait(&mut self, spin: Duration, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout.min(WAIT_MAX);
        let ready = || {
            self.refresh();
            self.free() > 0 || self.corrupt
        };
        if !poll_until(spin.min(timeout), ready) {
            self.sleep(deadline);
        }
        self.refresh();
        self.free() > 0
    }

    fn sleep(&mut self, deadline: Instant) {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let parked = &self.mapping.header().writer_parked.word;
        parked.store(RESUME_SLOTS, Ordering::Relaxed);
        // Pairs with the fence in SlabReader::release.
        fence(Ordering::SeqCst);
        let head = self.mapping.header().head.word.load(Ordering::Acquire);
        if !remaining.is_zero() && self.tail.wrapping_sub(head) >= SLOTS {
            let _ = park::sleep_on(parked, RESUME_SLOTS, remaining);
        }
        parked.store(RUNNING, Ordering::Relaxed);
    }

    /// First half of a sleep on several words at once: after true, the reader wakes a thread that
    /// sleeps on [`parked`](Self::parked). Returns false when a slot is free: do not sleep then.
    /// After the sleep call [`unpark`](Self::unpark).
    pub fn park(&mut self) -> bool {
        self.mapping.header().writer_parked.word.store(RESUME_SLOTS, Ordering::Relaxed);
        // Pairs with the fence in SlabReader::release.
        fence(Ordering::SeqCst);
        self.refresh();
        let sleeps = self.free() == 0 && !self.corrupt;
        if !sleeps {
            self.unpark();
        }
        sleeps
    }

    /// Second half: the reader no longer wakes this side.
    pub fn unpark(&mut self) {
        self.mapping.header().writer_parked.word.store(RUNNING, Ordering::Relaxed);
    }

    /// Futex word to sleep on after [`park`](Self::park).
    #[must_use]
    pub fn parked(&self) -> Parked {
        Parked::new(self.mapping.parked(false), RESUME_SLOTS)
    }

    fn free(&self) -> u32 {
        if self.corrupt { 0 } else { SLOTS - self.tail.wrapping_sub(self.head) }
    }

    /// The true head is between the last known one and the tail; anything else is corrupt.
    fn refresh(&mut self) {
        let head = self.mapping.header().head.word.load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) > self.tail.wrapping_sub(self.head) {
            self.corrupt = true;
        } else {
            self.head = head;
        }
    }
}

impl SlabReader {
    /// Attaches to a slab, continuing at its counters.
    ///
    /// # Errors
    /// [`RingError`] when the descriptor is not a sealed slab, or its counters contradict each other.
    #[allow(clippy::needless_pass_by_value, reason = "attaching consumes a slab's descriptor")]
    pub fn new(fd: OwnedFd) -> Result<Self, RingError> {
        let mapping = SlabMapping::new(fd.as_fd())?;
        let (tail, head) = mapping.counters()?;
        Ok(Self { mapping, head, tail, corrupt: false })
    }

    /// Returns true after the writer's counter had an impossible value; nothing is read from then
    /// on.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        self.corrupt
    }

    /// Lets forked children have the slab too; of all these processes one may use it at a time.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn keep_in_fork(&self) -> Result<(), RingError> {
        self.mapping.keep_in_fork()
    }

    /// Notes a chunk that the process before this one has copied.
    pub fn skip(&mut self) {
        self.head = self.head.wrapping_add(1);
        self.tail = self.head;
    }

    /// Gives back the slots of all chunks that were skipped, and wakes a writer that waits.
    pub fn resume(&mut self) {
        self.refresh();
        self.give_back();
    }

    /// Looks for newly published chunks; returns true if a chunk is there.
    pub fn refresh(&mut self) -> bool {
        let tail = self.mapping.header().tail.word.load(Ordering::Acquire);
        let published = tail.wrapping_sub(self.head);
        self.corrupt |= published > SLOTS || published < self.tail.wrapping_sub(self.head);
        if !self.corrupt {
            self.tail = tail;
        }
        self.has_chunk()
    }

    /// The first chunk among those that the last [`refresh`](Self::refresh) saw.
    #[must_use]
    pub fn front(&self) -> Option<Chunk<'_>> {
        if !self.has_chunk() {
            return None;
        }
        let (head, length) = self.mapping.head(self.head);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(CHUNK_BYTES_MAX);
        let bytes = self.mapping.bytes(self.head).get(..length)?;
        Some(Chunk { head, bytes })
    }

    /// Takes the first chunk out: copies its bytes over the content of `bytes`, and gives its slot
    /// back. For a peer that may go on writing there: only the copy is looked at. `None` if there
    /// is no chunk.
    pub fn take(&mut self, bytes: &mut Vec<u8>) -> Option<[u32; HEAD_WORDS]> {
        let head = self.copy(bytes)?;
        self.release();
        Some(head)
    }

    /// Copies the first chunk's bytes likewise, and leaves its slot occupied for
    /// [`release`](Self::release).
    pub fn copy(&mut self, bytes: &mut Vec<u8>) -> Option<[u32; HEAD_WORDS]> {
        if !self.has_chunk() && !self.refresh() {
            return None;
        }
        let (head, length) = self.mapping.head(self.head);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(CHUNK_BYTES_MAX);
        self.mapping.copy_out(self.head, length, bytes);
        Some(head)
    }

    /// Gives the first chunk's slot back; wakes the writer if it sleeps and enough slots are free.
    pub fn release(&mut self) {
        if !self.has_chunk() {
            return;
        }
        self.head = self.head.wrapping_add(1);
        self.give_back();
    }

    fn give_back(&mut self) {
        self.mapping.header().head.word.store(self.head, Ordering::Release);
        // Pairs with the fence in SlabWriter::sleep.
        fence(Ordering::SeqCst);
        let parked = &self.mapping.header().writer_parked.word;
        let threshold = parked.load(Ordering::Relaxed);
        if threshold != RUNNING {
            self.refresh();
            let free = SLOTS - self.tail.wrapping_sub(self.head);
            if free >= threshold.min(SLOTS) && park::claim_wake(parked_of(&self.mapping), threshold)
            {
                park::wake(parked_of(&self.mapping));
            }
        }
    }

    /// Waits for a chunk: polls and yields for `spin`, then sleeps until `timeout`. Returns true
    /// when one is there. May return early with false, so callers loop and check the peer's life.
    pub fn wait(&mut self, spin: Duration, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout.min(WAIT_MAX);
        let ready = || self.refresh() || self.corrupt;
        if !poll_until(spin.min(timeout), ready) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            self.mapping.header().reader_parked.word.store(PARKED_ON_FUTEX, Ordering::Relaxed);
            // Pairs with the fence in SlabWriter::publish: either it sees us parked, or we its tail.
            fence(Ordering::SeqCst);
            let idle = !self.refresh() && !self.corrupt;
            let parked = &self.mapping.header().reader_parked.word;
            if idle && !remaining.is_zero() {
                let _ = park::sleep_on(parked, PARKED_ON_FUTEX, remaining);
            }
            parked.store(RUNNING, Ordering::Relaxed);
        }
        self.refresh()
    }

    /// First half of a sleep on several words at once: after true, the writer wakes a thread that
    /// sleeps on [`parked`](Self::parked). Returns false when there is more than the last
    /// [`refresh`](Self::refresh) saw: do not sleep then. After the sleep call
    /// [`unpark`](Self::unpark).
    pub fn park(&mut self) -> bool {
        let last_tail = self.tail;
        self.mapping.header().reader_parked.word.store(PARKED_ON_FUTEX, Ordering::Relaxed);
        // Pairs with the fence in SlabWriter::publish: either it sees us parked, or we its tail.
        fence(Ordering::SeqCst);
        self.refresh();
        let sleeps = self.tail == last_tail && !self.corrupt;
        if !sleeps {
            self.unpark();
        }
        sleeps
    }

    /// Second half: the writer no longer wakes this side.
    pub fn unpark(&mut self) {
        self.mapping.header().reader_parked.word.store(RUNNING, Ordering::Relaxed);
    }

    /// Futex word to sleep on after [`park`](Self::park).
    #[must_use]
    pub fn parked(&self) -> Parked {
        Parked::new(self.mapping.parked(true), PARKED_ON_FUTEX)
    }

    fn has_chunk(&self) -> bool {
        !self.corrupt && self.tail != self.head
    }
}

fn parked_of(mapping: &SlabMapping) -> &std::sync::atomic::AtomicU32 {
    &mapping.header().writer_parked.word
}
