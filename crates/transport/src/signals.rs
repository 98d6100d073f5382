//! Requests to end (SIGINT, SIGTERM) as a descriptor: the handler writes to an eventfd.
//!
//! State is two words of the process, so that a forked child can be told apart from its parent: it
//! stops listening first, or it would write to the parent's eventfd.

#![allow(unsafe_code, reason = "a signal handler is a function of the C library's kind")]

use crate::descriptors::eventfd;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Number of the eventfd, -1 while nobody listens.
static LISTENER: AtomicI32 = AtomicI32::new(-1);
/// The last signal, 0 before the first.
static LAST: AtomicI32 = AtomicI32::new(0);

/// The descriptor of requests to end; dropped, it hears no more.
#[derive(Debug)]
pub struct EndSignals {
    eventfd: OwnedFd,
}

/// Listens for SIGINT and SIGTERM from now on, in place of an earlier listener.
///
/// # Errors
/// An error of the kernel: no descriptors left.
pub fn listen() -> io::Result<EndSignals> {
    let eventfd = eventfd().map_err(io::Error::other)?;
    LISTENER.store(eventfd.as_raw_fd(), Ordering::SeqCst);
    for number in [libc::SIGINT, libc::SIGTERM] {
        handle(number)?;
    }
    Ok(EndSignals { eventfd })
}

/// Ignores SIGINT and SIGTERM until somebody listens, if somebody has listened before.
pub fn ignore() {
    LISTENER.store(-1, Ordering::SeqCst);
}

impl EndSignals {
    /// True if the last signal was SIGINT.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        LAST.load(Ordering::SeqCst) == libc::SIGINT
    }
}

impl AsRawFd for EndSignals {
    fn as_raw_fd(&self) -> i32 {
        self.eventfd.as_raw_fd()
    }
}

impl Drop for EndSignals {
    fn drop(&mut self) {
        // Another one may listen by now.
        let own = self.eventfd.as_raw_fd();
        let _ = LISTENER.compare_exchange(own, -1, Ordering::SeqCst, Ordering::SeqCst);
    }
}

extern "C" fn on_signal(number: libc::c_int) {
    LAST.store(number, Ordering::SeqCst);
    let listener = LISTENER.load(Ordering::SeqCst);
    if listener >= 0 {
        let count = 1_u64;
        // SAFETY: `errno` of this thread, which the interrupted code may be about to read; `write` is
        // async-signal-safe, and reads eight bytes of a local variable.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            // A full counter is readable already.
            let _ = libc::write(listener, (&raw const count).cast(), size_of::<u64>());
            *errno = before;
        }
    }
}

#[allow(clippy::as_conversions, reason = "the C library takes a handler's address as a number")]
fn handle(number: libc::c_int) -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int) = on_signal;
    // SAFETY: the struct has integers and an optional pointer, for which all zeros is valid; the
    // handler does nothing but what is async-signal-safe.
    let answer = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(number, &raw const action, std::ptr::null_mut())
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
