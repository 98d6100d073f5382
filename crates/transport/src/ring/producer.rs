//! The writing side of a ring.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::RingError;
use super::mapping::{MARK_WORDS, RingMapping, to_counter, to_usize};
use crate::scheduling::{self, poll_until};
use crate::sleep::WAIT_MAX;
use crate::sleep::park::{self, NAPPING, PARKED_ON_EVENTFD, PARKED_ON_FUTEX, RUNNING, Sleep};

/// Time for which a full ring is polled before the producer parks: longer than a wake-up takes
/// (20-50 us), short compared with the consumer's work in a full ring (a millisecond and more).
const SPIN_WHEN_FULL: Duration = Duration::from_micros(100);
/// Fraction of the ring (one in this many) that must be free before a parked producer resumes: at
/// one group at a time both sides would pay a wake-up for each group.
const RESUME_FRACTION: u32 = 4;
/// Number of words at which a napping consumer is woken: some 200 instructions, which take longer
/// than two thread switches.
const NAP_WORDS_MAX: u32 = 2048;

/// The writing side of a ring. One per ring, in one process, used by one thread at a time.
///
/// In a forked child the mapping does not exist and any use except dropping is a SIGSEGV: callers
/// that may be forked compare process ids first.
#[derive(Debug)]
pub struct Producer {
    mapping: RingMapping,
    /// Private counter: the shared tail is never read back, so no peer can move it.
    tail: u32,
    /// Head as last read and found plausible; the true one is at least this far.
    head: u32,
    waker: Option<OwnedFd>,
    corrupt: bool,
}

impl Producer {
    /// Attaches to a ring, continuing at its counters.
    ///
    /// # Errors
    /// [`RingError`] when the descriptor is not a sealed ring of an allowed size, or its counters
    /// contradict each other, or the kernel refuses. Safe with a descriptor from a hostile peer.
    #[allow(clippy::needless_pass_by_value, reason = "attaching consumes a ring's descriptor")]
    pub fn new(fd: OwnedFd) -> Result<Self, RingError> {
        let mapping = RingMapping::new(fd.as_fd())?;
        let (tail, head) = mapping.counters()?;
        Ok(Self { mapping, tail, head, waker: None, corrupt: false })
    }

    /// Capacity of the ring in words; a larger group can never be written.
    #[must_use]
    pub fn capacity(&self) -> usize {
        to_usize(self.mapping.capacity())
    }

    /// Returns true after the consumer's counter had an impossible value, or its waker could not be
    /// written to. Nothing is written from then on: the peer is hostile or broken, and the caller
    /// drops it.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        self.corrupt
    }

    /// Returns true if the consumer last looked for words on the caller's CPU. Polling then keeps
    /// it from running, because a `sched_yield` guarantees nothing: on Linux 6.18 a polling
    /// worker's 30 yields in a row, for all of its 50 us, gave the CPU to no other thread, while
    /// the client was ready to read the answer.
    #[must_use]
    pub fn shares_cpu(&self) -> bool {
        let consumer = self.mapping.header().consumer_cpu.word.load(Ordering::Relaxed);
        consumer == scheduling::current_cpu()
    }

    /// Returns true once the consumer has looked for words: its process has started.
    #[must_use]
    pub fn has_reader(&self) -> bool {
        self.mapping.header().consumer_cpu.word.load(Ordering::Relaxed) != 0
    }

    /// Number of free words; 0 when corrupt. Reads the consumer's cache line: on a hot path use
    /// [`has_space`](Self::has_space).
    pub fn space(&mut self) -> usize {
        self.refresh_head();
        to_usize(self.free())
    }

    /// Returns true if this many words fit; reads the shared head only if the last known one does
    /// not suffice.
    pub fn has_space(&mut self, words: usize) -> bool {
        words <= to_usize(self.free()) || words <= self.space()
    }

    /// Returns true if a producer that found the ring full for `words` should go on: a quarter of
    /// it is free.
    pub fn has_resumed(&mut self, words: usize) -> bool {
        self.has_space(words.max(to_usize(self.mapping.capacity() / RESUME_FRACTION)))
    }

    /// Writes the parts as one group and publishes it; wakes the consumer if that has parked.
    /// Returns false, with nothing written, when the group does not fit now (or ever: see
    /// [`capacity`](Self::capacity)) or the ring is corrupt.
    pub fn write(&mut self, parts: &[&[u32]]) -> bool {
        let words = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        if !self.has_space(words) {
            return false;
        }
        let mut tail = self.tail;
        for part in parts {
            self.mapping.copy_in(tail, part);
            tail = tail.wrapping_add(to_counter(part.len()));
        }
        self.publish(tail);
        true
    }

    /// Number of words published so far, wrapping.
    #[must_use]
    pub fn published(&self) -> u32 {
        self.tail
    }

    /// Lets forked children have the ring too; of all these processes one may use it at a time.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn keep_in_fork(&self) -> Result<(), RingError> {
        self.mapping.keep_in_fork()
    }

    /// Number of words published as the header tells it: by the process before this one, or
    /// whatever a hostile consumer has stored.
    #[must_use]
    pub fn published_in_header(&self) -> u32 {
        self.mapping.header().tail.word.load(Ordering::Acquire)
    }

    /// Notes words that the process before this one has published. Returns false if others are
    /// there, as far as they are unread.
    pub fn skip(&mut self, words: &[u32]) -> bool {
        self.refresh_after_skip(words.len());
        let unread = to_usize(self.tail.wrapping_sub(self.head)).min(words.len());
        let last = words.get(words.len() - unread..).unwrap_or_default();
        let start = self.tail.wrapping_sub(to_counter(unread));
        let (first, second) = self.mapping.words_at(start, unread);
        first.iter().chain(second).map(|word| word.load(Ordering::Relaxed)).eq(last.iter().copied())
    }

    /// Wakes a consumer that the process before this one may have left asleep.
    pub fn wake(&mut self) {
        self.wake_consumer();
    }

    fn refresh_after_skip(&mut self, words: usize) {
        self.tail = self.tail.wrapping_add(to_counter(words));
        let head = self.mapping.header().head.word.load(Ordering::Acquire);
        // The consumer is at most a ring behind; anything else is corrupt.
        self.corrupt |= self.tail.wrapping_sub(head) > self.mapping.capacity();
        self.head = if self.corrupt { self.tail } else { head };
    }

    /// Waits until this many words fit: polls for a while, then sleeps until a quarter of the ring
    /// is free (all of `words` for a larger group) or the timeout is over. Returns true when the
    /// words fit; if the consumer stops before a quarter is free, that shows only at the timeout,
    /// so keep it short (100 ms). May return early with false on a signal, so callers loop and
    /// check signals and the peer's life; returns false at once for a group beyond the capacity or
    /// a corrupt ring.
    pub fn wait_space(&mut self, words: usize, timeout: Duration) -> bool {
        if words > self.capacity() || self.corrupt {
            return false;
        }
        if self.has_space(words) {
            return true;
        }
        let timeout = timeout.min(WAIT_MAX);
        let deadline = Instant::now() + timeout;
        let threshold = to_counter(words).max(self.mapping.capacity() / RESUME_FRACTION);
        let ready = || self.has_resumed(words) || self.corrupt;
        if poll_until(SPIN_WHEN_FULL.min(timeout), ready) {
            return !self.corrupt;
        }
        self.park(threshold, deadline);
        self.has_space(words) && !self.corrupt
    }

    /// Announces a message that the consumer should know of before it has read the words in front
    /// of it.
    pub fn announce(&mut self) {
        self.mapping.header().announced.word.fetch_add(1, Ordering::Release);
    }

    /// Sets the eventfd that wakes a consumer sleeping in epoll
    /// ([`park_begin`](super::Consumer::park_begin)) from now on. It must be non-blocking: a peer's
    /// claim that a descriptor is an eventfd guarantees nothing.
    pub fn set_waker(&mut self, eventfd: OwnedFd) {
        self.waker = Some(eventfd);
        // The consumer may have parked, and words may have been written, before there was a waker.
        self.wake_consumer();
    }

    /// Wakes a napping consumer ([`Consumer::nap`](super::Consumer::nap)): the caller is about to
    /// wait for it.
    pub fn end_nap(&mut self) {
        // Pairs with the fence in Consumer::park.
        fence(Ordering::SeqCst);
        let parked = &self.mapping.header().consumer_parked.word;
        if parked.load(Ordering::Relaxed) == NAPPING && park::claim_wake(parked, NAPPING) {
            park::wake(parked);
        }
    }

    /// Notes what the producer is at, for the consumer to read if this process dies of it: three
    /// plain stores, since that happens once an instruction.
    #[inline]
    pub fn mark(&mut self, mark: [u32; MARK_WORDS]) {
        for (place, word) in self.mapping.header().producer_mark.words.iter().zip(mark) {
            place.store(word, Ordering::Relaxed);
        }
    }

    fn free(&self) -> u32 {
        if self.corrupt { 0 } else { self.mapping.capacity() - self.tail.wrapping_sub(self.head) }
    }

    /// The true head is between the last known one and the tail; anything else is corrupt.
    fn refresh_head(&mut self) {
        let head = self.mapping.header().head.word.load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) > self.tail.wrapping_sub(self.head) {
            self.corrupt = true;
        } else {
            self.head = head;
        }
    }

    fn publish(&mut self, tail: u32) {
        if tail == self.tail {
            return;
        }
        self.tail = tail;
        self.mapping.header().tail.word.store(tail, Ordering::Release);
        self.wake_consumer();
    }

    fn wake_consumer(&mut self) {
        // Pairs with the fence in Consumer::park: tail then parked here, parked then tail there.
        fence(Ordering::SeqCst);
        let parked = &self.mapping.header().consumer_parked.word;
        match (parked.load(Ordering::Relaxed), &self.waker) {
            (PARKED_ON_FUTEX, _) if park::claim_wake(parked, PARKED_ON_FUTEX) => park::wake(parked),
            (PARKED_ON_EVENTFD, Some(waker)) if park::claim_wake(parked, PARKED_ON_EVENTFD) => {
                self.corrupt |= !write_eventfd(waker);
            }
            (NAPPING, _) if self.tail.wrapping_sub(self.head) > NAP_WORDS_MAX => {
                self.refresh_head();
                if self.tail.wrapping_sub(self.head) > NAP_WORDS_MAX {
                    self.end_nap();
                }
            }
            _ => {}
        }
    }

    fn park(&mut self, threshold: u32, deadline: Instant) {
        // Each round sleeps, so only a peer with needless wake-ups causes many rounds, and the
        // deadline limits them.
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return;
            }
            self.mapping.header().producer_parked.word.store(threshold, Ordering::Relaxed);
            // Pairs with the fence in Consumer::wake_producer.
            fence(Ordering::SeqCst);
            self.refresh_head();
            let parked = &self.mapping.header().producer_parked.word;
            let mut slept = Sleep::Woken;
            if self.free() < threshold && !self.corrupt {
                slept = park::sleep_on(parked, threshold, remaining);
            }
            parked.store(RUNNING, Ordering::Relaxed);
            self.refresh_head();
            if self.free() >= threshold || self.corrupt || slept != Sleep::Woken {
                return;
            }
        }
    }
}

/// Adds one to an eventfd; returns false if it cannot be written to. A full counter (EAGAIN) is
/// readable already.
fn write_eventfd(waker: &OwnedFd) -> bool {
    matches!(rustix::io::write(waker, &1_u64.to_ne_bytes()), Ok(_) | Err(Errno::AGAIN))
}
