//! Waking the core's thread out of epoll, by the sockets' thread.

use gt_transport::DescriptorError;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// An eventfd that is written only while the core's thread sleeps: a system call for each message
/// would cost more than most messages do.
#[derive(Debug)]
pub(crate) struct Waker {
    eventfd: OwnedFd,
    sleeping: AtomicBool,
}

impl Waker {
    pub fn new() -> Result<Self, DescriptorError> {
        Ok(Self { eventfd: gt_transport::eventfd()?, sleeping: AtomicBool::new(false) })
    }

    /// Wakes the core's thread, after a message was put into a channel that it reads.
    pub fn wake(&self) {
        // Pairs with the fence in `sleep_begin`: either the sleeper sees the channel filled, or we see it sleeping.
        fence(Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::AcqRel) {
            // A full counter (the only error there is) wakes the sleeper too.
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Announces that the core's thread is about to sleep; it then looks at its channels once more.
    pub fn sleep_begin(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub fn sleep_end(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
