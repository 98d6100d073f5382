//! Requests to end (SIGINT, SIGTERM) as a socket: the handler writes to its other end.
//!
//! State is two words of the process, so that a forked child can be told apart from its parent: it
//! stops listening first, or it would write to the parent's socket.

#![allow(unsafe_code, reason = "a signal handler is a function of the C library's kind")]

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering};

/// Number of the socket to write to, -1 while nobody listens.
static LISTENER: AtomicI32 = AtomicI32::new(-1);
/// The last signal, 0 before the first.
static LAST: AtomicI32 = AtomicI32::new(0);

/// Requests to end; dropped, it hears no more.
#[derive(Debug)]
pub struct EndSignals {
    written: UnixStream,
}

/// Listens for SIGINT and SIGTERM from now on, in place of an earlier listener; for those, too, that
/// came since [`ignore`]. The socket is readable when one has come, and non-blocking.
///
/// # Errors
/// An error of the kernel: no descriptors left.
pub fn listen() -> io::Result<(EndSignals, UnixStream)> {
    let (written, read) = UnixStream::pair()?;
    written.set_nonblocking(true)?;
    read.set_nonblocking(true)?;
    LISTENER.store(written.as_raw_fd(), Ordering::SeqCst);
    for number in [libc::SIGINT, libc::SIGTERM] {
        handle(number)?;
    }
    let earlier = LAST.load(Ordering::SeqCst);
    if earlier != 0 {
        on_signal(earlier);
    }
    Ok((EndSignals { written }, read))
}

/// Only notes SIGINT and SIGTERM until somebody listens, who then hears of them; somebody has
/// listened before.
pub fn ignore() {
    LISTENER.store(-1, Ordering::SeqCst);
    LAST.store(0, Ordering::SeqCst);
}

impl EndSignals {
    /// True if the last signal was SIGINT.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        LAST.load(Ordering::SeqCst) == libc::SIGINT
    }
}

impl Drop for EndSignals {
    fn drop(&mut self) {
        // Another one may listen by now.
        let own = self.written.as_raw_fd();
        let _ = LISTENER.compare_exchange(own, -1, Ordering::SeqCst, Ordering::SeqCst);
    }
}

extern "C" fn on_signal(number: libc::c_int) {
    LAST.store(number, Ordering::SeqCst);
    let listener = LISTENER.load(Ordering::SeqCst);
    if listener >= 0 {
        let byte = 1_u8;
        // SAFETY: `errno` of this thread, which the interrupted code may be about to read; `write` is
        // async-signal-safe, and reads one byte of a local variable.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            // A full socket is readable already.
            let _ = libc::write(listener, (&raw const byte).cast(), size_of::<u8>());
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
