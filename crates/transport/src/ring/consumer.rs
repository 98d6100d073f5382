//! The reading side of a ring.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use super::RingError;
use super::mapping::{MARK_WORDS, RingMapping, to_counter, to_usize};
use crate::scheduling::{self, poll_until};
use crate::sleep::park::{self, NAPPING, PARKED_ON_EVENTFD, PARKED_ON_FUTEX, RUNNING, Sleep};
use crate::sleep::{Sleeping, WAIT_MAX};

/// The reading side of a ring. One per ring, in one process, used by one thread at a time.
///
/// In a forked child the mapping does not exist and any use except dropping is a SIGSEGV: callers
/// that may be forked compare process ids first.
#[derive(Debug)]
pub struct Consumer {
    mapping: RingMapping,
    /// Private counter: the shared head is never read back, so no peer can move it.
    head: u32,
    /// Tail as last read and found plausible; the true one is at least this far.
    tail: u32,
    /// CPU as stored in the header.
    cpu: u32,
    corrupt: bool,
}

impl Consumer {
    /// Attaches to a ring, continuing at its counters.
    ///
    /// # Errors
    /// [`RingError`] when the descriptor is not a sealed ring of an allowed size, or its counters
    /// contradict each other, or the kernel refuses. Safe with a descriptor from a hostile peer.
    #[allow(clippy::needless_pass_by_value, reason = "attaching consumes a ring's descriptor")]
    pub fn new(fd: OwnedFd) -> Result<Self, RingError> {
        let mapping = RingMapping::new(fd.as_fd())?;
        let (tail, head) = mapping.counters()?;
        Ok(Self { mapping, head, tail, cpu: 0, corrupt: false })
    }

    /// Capacity of the ring in words.
    #[must_use]
    pub fn capacity(&self) -> usize {
        to_usize(self.mapping.capacity())
    }

    /// Returns true after the producer's counter had an impossible value. No word is read from then
    /// on: the peer is hostile or broken, and the caller drops it.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        self.corrupt
    }

    /// The last mark of the producer, zeros before the first; of a living one the words may be
    /// of two marks.
    #[must_use]
    pub fn mark(&self) -> [u32; MARK_WORDS] {
        let words = &self.mapping.header().producer_mark.words;
        words.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Number of announcements of the producer ([`Producer::announce`](super::Producer::announce)),
    /// wrapping. A hostile one may store anything.
    #[must_use]
    pub fn announced(&self) -> u32 {
        self.mapping.header().announced.word.load(Ordering::Acquire)
    }

    /// Number of words that can be read now; 0 when corrupt.
    pub fn available(&mut self) -> usize {
        let unread = self.tail.wrapping_sub(self.head);
        let tail = self.mapping.header().tail.word.load(Ordering::Acquire);
        let published = tail.wrapping_sub(self.head);
        // A tail only grows, and is never more than the capacity ahead; anything else is corrupt.
        self.corrupt |= published > self.mapping.capacity() || published < unread;
        if self.corrupt {
            return 0;
        }
        self.tail = tail;
        to_usize(published)
    }

    /// Copies up to `words_max` words to the end of `out`, and frees their place. Returns their
    /// number. Each call has one fence, so read in bulk. The words are copied once and then
    /// private, so the caller's checks of `out` hold whatever the peer does to the ring.
    pub fn read(&mut self, out: &mut Vec<u32>, words_max: usize) -> usize {
        let words = self.copy(out, words_max);
        if words > 0 {
            self.release(words);
        }
        words
    }

    /// Copies up to `words_max` words to the end of `out` and leaves their place occupied, for
    /// [`release`](Self::release). Returns their number.
    pub fn copy(&mut self, out: &mut Vec<u32>, words_max: usize) -> usize {
        self.tell_cpu();
        let unread = to_usize(self.tail.wrapping_sub(self.head));
        let words = if unread < words_max { self.available() } else { unread }.min(words_max);
        if words == 0 || self.corrupt {
            return 0;
        }
        let (first, second) = self.mapping.words_at(self.head, words);
        out.reserve(words);
        out.extend(first.iter().map(|slot| slot.load(Ordering::Relaxed)));
        out.extend(second.iter().map(|slot| slot.load(Ordering::Relaxed)));
        words
    }

    /// Lets forked children have the ring too; of all these processes one may use it at a time.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn keep_in_fork(&self) -> Result<(), RingError> {
        self.mapping.keep_in_fork()
    }

    /// Notes words that the process before this one has copied; [`release`](Self::release) of 0
    /// words then frees the place of all of them.
    pub fn skip(&mut self, words: usize) {
        self.head = self.head.wrapping_add(to_counter(words));
        self.tail = self.head;
    }

    /// Tells the producer the CPU of this thread: on the same CPU the producer should sleep rather
    /// than poll.
    fn tell_cpu(&mut self) {
        let cpu = scheduling::current_cpu();
        if cpu != self.cpu {
            self.cpu = cpu;
            self.mapping.header().consumer_cpu.word.store(cpu, Ordering::Relaxed);
        }
    }

    /// Waits for words: polls with `sched_yield` for `spin`, then sleeps on a futex until `timeout`
    /// (counted from the call). Returns true when words are available. May return early with false
    /// on a signal, so callers loop and check signals and the peer's life; returns false at once
    /// when the ring is corrupt.
    pub fn wait(&mut self, spin: Duration, timeout: Duration) -> bool {
        if self.available() > 0 {
            return true;
        }
        let timeout = timeout.min(WAIT_MAX);
        let deadline = Instant::now() + timeout;
        let ready = || self.available() > 0 || self.corrupt;
        if poll_until(spin.min(timeout), ready) {
            return !self.corrupt;
        }
        self.sleep_until(deadline);
        self.available() > 0
    }

    /// Sleeps briefly on a CPU that the producer needs: publications do not end it until there are
    /// many words or the producer waits ([`Producer::end_nap`](super::Producer::end_nap)). Returns
    /// true when words are available.
    pub fn nap(&mut self, longest: Duration) -> bool {
        if self.park(NAPPING) {
            let parked = &self.mapping.header().consumer_parked.word;
            let _ = park::sleep_on(parked, NAPPING, longest.min(WAIT_MAX));
            self.park_end();
        }
        self.available() > 0
    }

    /// First half of a sleep in epoll, for a thread that serves many rings: after true, the
    /// producer's next publication writes to its waker. Returns false when words are there already
    /// or the ring is corrupt: do not sleep then. After the sleep call
    /// [`park_end`](Self::park_end), and then look for words.
    pub fn park_begin(&mut self) -> bool {
        self.park(PARKED_ON_EVENTFD)
    }

    /// Second half: the producer stops writing to the waker. It may have written meanwhile; the
    /// thread that polls the waker drains its count.
    pub fn park_end(&mut self) {
        self.mapping.header().consumer_parked.word.store(RUNNING, Ordering::Relaxed);
    }

    /// First half of a sleep on several words at once: after true, the producer wakes a thread that
    /// sleeps on [`sleeping`](Self::sleeping). Returns false when words are there already or the
    /// ring is corrupt: do not sleep then. After the sleep call [`park_end`](Self::park_end).
    pub fn park_on_futex(&mut self) -> bool {
        self.park(PARKED_ON_FUTEX)
    }

    /// Futex word to sleep on after [`park_on_futex`](Self::park_on_futex).
    #[must_use]
    pub fn sleeping(&self) -> Sleeping<'_> {
        Sleeping { word: &self.mapping.header().consumer_parked.word, value: PARKED_ON_FUTEX }
    }

    fn park(&mut self, how: u32) -> bool {
        self.mapping.header().consumer_parked.word.store(how, Ordering::Relaxed);
        // Pairs with the fence in Producer::wake_consumer: either it sees us parked, or we its tail.
        fence(Ordering::SeqCst);
        let sleeps = self.available() == 0 && !self.corrupt;
        if !sleeps {
            self.park_end();
        }
        sleeps
    }

    fn sleep_until(&mut self, deadline: Instant) {
        // Each round sleeps, so only a peer with needless wake-ups causes many rounds, and the
        // deadline limits them.
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() || !self.park(PARKED_ON_FUTEX) {
                return;
            }
            let parked = &self.mapping.header().consumer_parked.word;
            let slept = park::sleep_on(parked, PARKED_ON_FUTEX, remaining);
            self.park_end();
            if self.available() > 0 || self.corrupt || slept != Sleep::Woken {
                return;
            }
        }
    }

    /// Returns the place of the next `words` words, at most the unread ones, to the producer.
    pub fn release(&mut self, words: usize) {
        self.head = self.head.wrapping_add(to_counter(words));
        self.mapping.header().head.word.store(self.head, Ordering::Release);
        self.wake_producer();
    }

    fn wake_producer(&mut self) {
        // Pairs with the fence in Producer::park: head then parked here, parked then head there.
        fence(Ordering::SeqCst);
        let threshold = self.mapping.header().producer_parked.word.load(Ordering::Relaxed);
        if threshold == RUNNING {
            return;
        }
        let free = self.capacity() - self.available().min(self.capacity());
        let parked = &self.mapping.header().producer_parked.word;
        if free >= to_usize(threshold) && park::claim_wake(parked, threshold) {
            park::wake(parked);
        }
    }
}
