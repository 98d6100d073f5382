//! A copy of the running process that waits for its end and goes on in its place.
//!
//! The child has one thread, a copy of the one that called. Locks of other threads stay as they
//! were at that moment: whatever such a thread may have held, the child must neither take nor drop.
//! glibc makes its allocator usable in the child.

#![allow(unsafe_code, reason = "fork, close_range and _exit are calls of the C library")]

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, waitid};
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};

/// A process that can be waited for, by a descriptor that never refers to another one.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: Pid,
    pidfd: OwnedFd,
}

/// Side of a fork on which the call returns.
#[derive(Debug)]
pub enum Forked {
    /// The process that called.
    Parent(ProcessHandle),
    /// Its copy.
    Child,
}

/// Copies the process.
///
/// # Errors
/// An error of the kernel: no memory or no processes left, or one before Linux 5.3.
pub fn fork_process() -> io::Result<Forked> {
    // SAFETY: no memory is shared that was not shared before. The child's use of locks is its
    // caller's concern, as the module says; it is no question of memory safety.
    let answer = unsafe { libc::fork() };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    let Some(pid) = Pid::from_raw(answer) else { return Ok(Forked::Child) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Forked::Parent(ProcessHandle { pid, pidfd })),
        Err(errno) => {
            // The child is ours and not yet waited for, so the number is still its own.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            Err(errno.into())
        }
    }
}

impl ProcessHandle {
    /// The calling process.
    ///
    /// # Errors
    /// An error of the kernel: no descriptors left, or one before Linux 5.3.
    pub fn own() -> io::Result<Self> {
        let pid = rustix::process::getpid();
        Ok(Self { pid, pidfd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Number of the process.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// The descriptor: readable when the process has ended.
    #[must_use]
    pub fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    /// Sends SIGKILL.
    pub fn kill(&self) {
        // It may have ended.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits until the process, which need not be a child, has ended with all its threads.
    pub fn wait_for_end(&self) {
        // The loop ends with the process: only signals interrupt it.
        loop {
            let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match rustix::event::poll(&mut polled, None) {
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Collects a child that has ended; returns false while it runs. `is_waited_for`: waits until
    /// it has ended.
    pub fn reap(&self, is_waited_for: bool) -> bool {
        let mut options = WaitIdOptions::EXITED;
        options.set(WaitIdOptions::NOHANG, !is_waited_for);
        // The loop ends: only signals interrupt it.
        loop {
            match waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
                Err(Errno::INTR) => {}
                Ok(status) => return status.is_some(),
                Err(_) => return true, // No child, or collected already.
            }
        }
    }
}

/// Closes all descriptors but the standard ones and these; allocates nothing.
///
/// # Errors
/// An error of the kernel, which before Linux 5.9 does not know the call.
pub fn close_all_but(sorted: &[RawFd]) -> io::Result<()> {
    let mut first = 3_u32;
    for &kept in sorted {
        let Ok(kept) = u32::try_from(kept) else { continue };
        if kept > first {
            close_range(first, kept - 1)?;
        }
        first = first.max(kept.saturating_add(1));
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: the call takes numbers. Owners of these descriptors in this process are forgotten by
    // the caller and neither used nor dropped.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0_u32) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends the process without a look at other threads' data: no destructor and no exit handler runs.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(code) }
}
