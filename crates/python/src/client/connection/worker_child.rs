//! The worker processes of an embedded dispatcher: each is started by itself, or forked by a
//! process that has imported the modules they need. A fork happens asynchronously, so the number of
//! a forked process is learned later.

use gt_transport::{ControlKind, ControlRecord, DescriptorError, receive_record, send_record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

/// Seconds for which a killed process is awaited: it computes nothing any more.
const END_PATIENCE_SECONDS: i64 = 5;

/// A worker's process.
pub(crate) enum WorkerChild {
    Started(Child),
    /// Requested from the fork server, whose process number this is.
    Asked(u32),
    Forked(ForkedProcess),
}

/// A child process of the fork server. Its descriptor (pidfd) never refers to another process, even
/// after its end.
pub(crate) struct ForkedProcess {
    process: u32,
    descriptor: OwnedFd,
}

impl WorkerChild {
    /// The number of the process in which this worker runs, or starts.
    pub(crate) fn id(&self) -> u32 {
        match self {
            Self::Started(child) => child.id(),
            Self::Asked(server) => *server,
            Self::Forked(forked) => forked.process,
        }
    }

    /// Ends the process at once. A process whose number is not known yet ends with its control
    /// socket.
    pub(crate) fn end(&mut self) {
        match self {
            Self::Started(child) => end(child),
            Self::Asked(_) => {}
            Self::Forked(forked) => {
                let _ = pidfd_send_signal(&forked.descriptor, Signal::KILL);
                is_readable(&forked.descriptor, END_PATIENCE_SECONDS);
            }
        }
    }
}

fn end(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}

/// Returns true if the descriptor becomes readable within `seconds`; a process's does at its end.
fn is_readable(descriptor: &OwnedFd, seconds: i64) -> bool {
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    let patience = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut polled, Some(&patience)).is_ok_and(|ready| ready > 0)
}

/// The process that forks workers; it ends when its socket closes.
pub(crate) struct ForkServer {
    child: Child,
    socket: OwnedFd,
}

impl ForkServer {
    pub(crate) fn new(child: Child, socket: OwnedFd) -> Self {
        Self { child, socket }
    }

    /// Returns true if the system has pidfds, as [`ForkedProcess`] needs: Linux has since 5.3, but
    /// some containers forbid them.
    pub(crate) fn is_possible() -> bool {
        pidfd_open(getpid(), PidfdFlags::empty()).is_ok()
    }

    /// Asks for the worker of this index and sends its end of the control socket along.
    pub(crate) fn fork(
        &self,
        index: u32,
        control: &OwnedFd,
    ) -> Result<WorkerChild, DescriptorError> {
        let record = ControlRecord { kind: ControlKind::Fork, index, value: 0 };
        send_record(self.socket.as_fd(), &record, &[control.as_fd()])?;
        Ok(WorkerChild::Asked(self.child.id()))
    }

    /// Takes a process that has reported its number and its worker's index. It reports before it
    /// serves.
    pub(crate) fn take_forked(&self) -> Option<(u32, WorkerChild)> {
        if !is_readable(&self.socket, 0) {
            return None;
        }
        let (record, descriptors) = receive_record(self.socket.as_fd()).ok()??;
        let process = u32::try_from(record.value).ok()?;
        let descriptor = descriptors.into_iter().next()?;
        Some((record.index, WorkerChild::Forked(ForkedProcess { process, descriptor })))
    }

    pub(crate) fn end(&mut self) {
        end(&mut self.child);
    }
}
