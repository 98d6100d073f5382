//! Sleeping until any of several others has something: other processes, by the words at which they would wake us, and
//! threads of our own, by a [`FutexWaker`].

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

/// No wait is longer than this, so that every deadline is representable; callers wait in a loop.
pub const WAIT_MAX: Duration = Duration::from_hours(24);
/// Words that the kernel takes at once.
const WORDS_MAX: usize = 128;
/// How long one sleep lasts where not all words can be slept on: under a kernel before 5.16, or in a large group.
const NAP: Duration = Duration::from_millis(1);

/// A word to sleep on while it has a value.
#[derive(Debug, Clone, Copy)]
pub struct Sleeping<'a> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) value: u32,
}

/// A word to sleep on, whoever else uses what it belongs to meanwhile.
#[derive(Debug, Clone)]
pub struct Parked {
    word: Arc<dyn ParkedWord>,
    value: u32,
}

/// What keeps a word to sleep on where it is: a mapping, or memory of our own.
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

/// By which threads of one process wake a thread that sleeps, at the price of a load while it does not.
#[derive(Debug, Clone, Default)]
pub struct FutexWaker {
    word: Arc<AtomicU32>,
}

impl FutexWaker {
    /// Wakes who sleeps, or is about to: call it after the change that it should see.
    pub fn wake(&self) {
        // Pairs with the fence in `park`: either we see it parked, or it our change.
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) == PARKED_ON_FUTEX
            && park::claim_wake(&self.word, PARKED_ON_FUTEX)
        {
            park::wake(&self.word);
        }
    }

    /// First half of a sleep: afterwards look whether there is anything, and sleep on [`parked`](Self::parked) if not.
    pub fn park(&self) {
        self.word.store(PARKED_ON_FUTEX, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Second half.
    pub fn unpark(&self) {
        self.word.store(RUNNING, Ordering::Relaxed);
    }

    /// What to sleep on after [`park`](Self::park).
    #[must_use]
    pub fn parked(&self) -> Parked {
        Parked::new(Arc::<AtomicU32>::clone(&self.word), PARKED_ON_FUTEX)
    }
}

/// Sleeps until one of the words has another value or is woken; false when `limit` is over before, or a signal came. May
/// return early: callers look at what they wait for. The first word is the most urgent: where the kernel takes too few, the others are noticed with
/// the next look, after a millisecond.
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
        // The kernel does not have the call, or a sandbox does not allow it: as after a wake-up, but not for long.
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

/// The moment by the monotonic clock: this call takes no spans.
fn deadline(limit: Duration) -> Option<Timespec> {
    let limit = Timespec::try_from(limit).ok()?;
    clock_gettime(rustix::time::ClockId::Monotonic).checked_add(limit)
}
