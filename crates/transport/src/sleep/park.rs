//! Sleep of one side of a ring or slab: the values of the consumer's parked word, and the futex
//! calls. The futex is shared, not private: the two sides are different processes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};

/// The side runs.
pub(crate) const RUNNING: u32 = 0;
/// The consumer sleeps on a futex at its parked word.
pub(crate) const PARKED_ON_FUTEX: u32 = 1;
/// The consumer sleeps in epoll over many rings; only the waker wakes it.
pub(crate) const PARKED_ON_EVENTFD: u32 = 2;

/// The consumer naps on a futex: it shares the producer's CPU and should not take it for a few
/// words.
pub(crate) const NAPPING: u32 = 3;

/// Maximum number of sleepers on one word: far more than ever occur.
const SLEEPERS_MAX: u32 = 64;

/// Reason why a sleep is over. The other side may be hostile, so `Woken` alone means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    Woken,
    Interrupted,
    TimedOut,
}

/// Sleeps while `word` is `expected`.
pub(crate) fn sleep_on(word: &AtomicU32, expected: u32, timeout: Duration) -> Sleep {
    let Ok(timeout) = Timespec::try_from(timeout) else {
        return Sleep::TimedOut; // Unreachable below WAIT_MAX.
    };
    match futex::wait(word, Flags::empty(), expected, Some(&timeout)) {
        Ok(()) | Err(Errno::AGAIN) => Sleep::Woken,
        Err(Errno::INTR) => Sleep::Interrupted,
        Err(errno) => {
            debug_assert_eq!(errno, Errno::TIMEDOUT, "futex wait for {expected}");
            Sleep::TimedOut
        }
    }
}

/// Marks the sleeper as running and wakes it; returns true if this call was the one that did.
/// Zeroing first makes a sleeper that is not yet in the kernel fall through, and keeps all further
/// publications free of system calls while the sleeper takes its 20-50 us to start.
pub(crate) fn claim_wake(word: &AtomicU32, seen: u32) -> bool {
    word.compare_exchange(seen, RUNNING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Wakes all sleepers on `word`: one, or two threads of a process of which the later one counts.
pub(crate) fn wake(word: &AtomicU32) {
    let woken = futex::wake(word, Flags::empty(), SLEEPERS_MAX);
    debug_assert!(woken.is_ok(), "futex wake: {woken:?}");
}
