//! Waiting of the core's thread: it polls for a moment, then sleeps in epoll until it is woken.

use crate::link::Inbound;
use rustix::event::{Timespec, epoll};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Time of polling before a sleep: a wake-up costs the waker 5 to 8 us and the sleeper starts 20 to
/// 50 us later. More would take the CPU from the workers and clients that are waited for.
const POLL: Duration = Duration::from_micros(30);
/// Time of polling for room in a worker's ring, which with several clients holds some 40 us of
/// small operations: a nap would leave the worker without work.
const POLL_FOR_ROOM: Duration = Duration::from_micros(200);
/// The shortest and longest nap while a full ring is waited for. Rings have no waker for room. A
/// nap is a quarter of the time waited so far, so it overshoots by a quarter at most, and a full
/// ring keeps its reader busy for longer than that.
const NAP_MIN: Duration = Duration::from_micros(20);
const NAP_MAX: Duration = Duration::from_millis(2);
/// Maximum number of eventfds reported at once; the others are seen at the next poll.
const EVENTS: usize = 16;
/// Data of events of wakers, and of processes that have ended.
const WAKER: u64 = 0;
const PROCESS: u64 = 1;

/// Returns true if a thread that has made no progress for this long should sleep.
pub(crate) fn is_due(idle: Duration, held_back: bool) -> bool {
    idle >= if held_back { POLL_FOR_ROOM } else { POLL }
}

/// Condition that ends a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doze {
    /// A write to a waker.
    Sound,
    /// A write to a waker, or the end of this time.
    Until(Duration),
    /// A write to a waker, or possibly room in a ring, after this long without any.
    Nap(Duration),
}

/// Reason why the thread cannot wait.
#[derive(Debug, thiserror::Error)]
#[error("epoll failed: {0}")]
pub struct SleepError(#[from] rustix::io::Errno);

/// The epoll instance. Eventfds are edge-triggered, so they need not be drained.
#[derive(Debug)]
pub(crate) struct EpollSleeper {
    epoll: OwnedFd,
}

impl EpollSleeper {
    pub fn new(waker: impl AsFd) -> Result<Self, SleepError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let sleeper = Self { epoll };
        sleeper.add(waker, WAKER)?;
        Ok(sleeper)
    }

    /// Wakes the thread when a process has ended, until its descriptor is closed.
    pub fn watch_process(&self, pidfd: impl AsFd) {
        if let Err(error) = self.add(pidfd, PROCESS) {
            // It is found at the next look, a second later at most while the thread has work.
            tracing::error!("cannot watch a process: {error}");
        }
    }

    fn add(&self, descriptor: impl AsFd, data: u64) -> Result<(), SleepError> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(data), flags)?)
    }

    pub fn watch(&self, inbound: &Inbound) {
        if let Some(Err(error)) = inbound.waker().map(|waker| self.add(waker, WAKER)) {
            // Without memory for a watch its words are found whenever another waker wakes the
            // thread.
            tracing::error!("cannot watch a ring's waker: {error}");
        }
    }

    /// Removes a peer's waker: the peer keeps a copy, with which it could go on waking us.
    pub fn forget(&self, inbound: &Inbound) {
        if let Some(waker) = inbound.waker() {
            let _ = epoll::delete(&self.epoll, waker);
        }
    }

    /// Sleeps; returns true if a process has ended.
    pub fn sleep(&self, doze: Doze) -> Result<bool, SleepError> {
        let nap = match doze {
            Doze::Sound => None,
            Doze::Until(end) => Timespec::try_from(end.max(NAP_MIN)).ok(),
            Doze::Nap(idle) => Timespec::try_from((idle / 4).clamp(NAP_MIN, NAP_MAX)).ok(),
        };
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), nap.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(events.iter().any(|event| event.data.u64() == PROCESS))
    }
}
