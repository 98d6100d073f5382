//! Sleeping until one of several sources has something: other processes, by the words with which
//! they would wake us, and threads of our own, by a [`FutexWaker`].

pub(crate) mod park;

use park::{PARKED_ON_FUTEX, RUNNING, Sleep};
use rustix::io::Errno;
use rustix::thread::ClockId;
use rustix::thread::futex::{Wait, WaitFlags, WaitPtr, WaitvFlags, waitv};
use rustix::time::{Timespec, clock_gettime};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// Limit of every wait, so that every deadline is representable; callers wait in a loop.
pub const WAIT_MAX: Duration = Duration::from_hours(24);
/// Maximum number of words that the kernel accepts at once.
const WORDS_MAX: usize = 128;
/// Duration of one sleep where not all words can be slept on: under a kernel before 5.16, or in a
/// large group.
const NAP: Duration = Duration::from_millis(1);

/// A word to sleep on while it has a value.
#[derive(Debug, Clone, Copy)]
pub struct Sleeping<'a> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) value: u32,
}

/// A word to sleep on, which may be held beside its owner's use.
#[derive(Debug, Clone)]
pub struct Parked {
    word: Arc<dyn ParkedWord>,
    value: u32,
}

/// Owner that keeps a word to sleep on alive: a mapping, or memory of our own.
pub(crate) trait ParkedWord: fmt::Debug + Send + Sync {
    fn word(&self) -> &AtomicU32;
}

impl ParkedWord for AtomicU32 {
    fn word(&self) -> &AtomicU32 {
        self
    }
}

impl Parked {
    pub(crate) const fn new(word: Arc<dyn ParkedWord>, value: u32) -> Self {
        Self { word, value }
    }

    /// The word itself.
    #[must_use]
    pub fn sleeping(&self) -> Sleeping<'_> {
        Sleeping { word: self.word.word(), value: self.value }
    }
}

/// Lets threads of one process wake a sleeping thread, at the price of a load while it does not
/// sleep.
#[derive(Debug, Clone, Default)]
pub struct FutexWaker {
    word: Arc<AtomicU32>,
}

impl FutexWaker {
    /// Wakes a thread that sleeps, or is about to: call it after the change that it should see.
    pub fn wake(&self) {
        // Pairs with the fence in `park`: either we see it parked, or it our change.
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) == PARKED_ON_FUTEX
            && park::claim_wake(&self.word, PARKED_ON_FUTEX)
        {
            park::wake(&self.word);
        }
    }

    /// First half of a sleep: look for work afterwards, and sleep on [`parked`](Self::parked) if
    /// there is none.
    pub fn park(&self) {
        self.word.store(PARKED_ON_FUTEX, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Second half of a sleep.
    pub fn unpark(&self) {
        self.word.store(RUNNING, Ordering::Relaxed);
    }

    /// Futex word to sleep on after [`park`](Self::park).
    #[must_use]
    pub fn parked(&self) -> Parked {
        Parked::new(Arc::<AtomicU32>::clone(&self.word), PARKED_ON_FUTEX)
    }
}

/// Sleeps until one of the words has another value or is woken; returns false if `limit` is over
/// before, or after a signal. May return early: callers check their condition. The first word is
/// the most urgent: if the kernel accepts too few, the others are noticed at the next look, after a
/// millisecond.
pub fn sleep_on_any(words: &[Sleeping<'_>], limit: Duration) -> bool {
    let limit = limit.min(WAIT_MAX);
    let Some(first) = words.first() else { return false };
    if words.len() == 1 {
        return park::sleep_on(first.word, first.value, limit) == Sleep::Woken;
    }
    let limit = if words.len() > WORDS_MAX { limit.min(NAP) } else { limit };
    let waits: Vec<Wait> = words.iter().take(WORDS_MAX).map(wait_of).collect();
    match waitv(&waits, WaitvFlags::empty(), deadline(limit).as_ref(), ClockId::Monotonic) {
        Ok(_) | Err(Errno::AGAIN) => true,
        Err(Errno::INTR | Errno::TIMEDOUT) => false,
        // The kernel lacks the call, or a sandbox forbids it: sleep on the first word, briefly.
        Err(_) => park::sleep_on(first.word, first.value, limit.min(NAP)) != Sleep::Interrupted,
    }
}

fn wait_of(sleeping: &Sleeping<'_>) -> Wait {
    let mut wait = Wait::new();
    wait.val = sleeping.value.into();
    wait.uaddr = WaitPtr::new(sleeping.word.as_ptr().cast());
    wait.flags = WaitFlags::SIZE_U32;
    wait
}

/// The end of a span by the monotonic clock: this call takes no durations.
fn deadline(limit: Duration) -> Option<Timespec> {
    let limit = Timespec::try_from(limit).ok()?;
    clock_gettime(rustix::time::ClockId::Monotonic).checked_add(limit)
}
