//! The processes of an embedded dispatcher's workers: each started by itself, or forked by one that has imported what
//! they need. It forks in its own time, so the number of a forked process is learned later.

use gt_transport::{ControlKind, ControlRecord, DescriptorError, receive_record, send_record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

/// How long a killed process may take to be gone, in seconds: it computes nothing any more.
const END_PATIENCE_SECONDS: i64 = 5;

/// A worker's process.
pub(crate) enum WorkerChild {
    Started(Child),
    /// The fork server, whose number this is, has been asked for it.
    Asked(u32),
    Forked(ForkedProcess),
}

/// A process that is a child of the fork server's. Its descriptor means no other process, even after its end.
pub(crate) struct ForkedProcess {
    process: u32,
    descriptor: OwnedFd,
}

impl WorkerChild {
    /// The number of the process in which this worker is, or begins.
    pub(crate) fn id(&self) -> u32 {
        match self {
            Self::Started(child) => child.id(),
            Self::Asked(server) => *server,
            Self::Forked(forked) => forked.process,
        }
    }

    /// Ends the process at once. One that is not known yet ends with its control socket.
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

/// Whether something is to be read here within so many seconds; of a process, its end.
fn is_readable(descriptor: &OwnedFd, seconds: i64) -> bool {
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    let patience = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut polled, Some(&patience)).is_ok_and(|ready| ready > 0)
}

/// The process that forks workers; it ends with its socket.
pub(crate) struct ForkServer {
    child: Child,
    socket: OwnedFd,
}

impl ForkServer {
    pub(crate) fn new(child: Child, socket: OwnedFd) -> Self {
        Self { child, socket }
    }

    /// Whether this system tells processes apart as [`ForkedProcess`] does: since Linux 5.3, but in some containers.
    pub(crate) fn is_possible() -> bool {
        pidfd_open(getpid(), PidfdFlags::empty()).is_ok()
    }

    /// Asks for the worker of this index, whose end of its control socket this is.
    pub(crate) fn fork(
        &self,
        index: u32,
        control: &OwnedFd,
    ) -> Result<WorkerChild, DescriptorError> {
        let record = ControlRecord { kind: ControlKind::Fork, index, value: 0 };
        send_record(self.socket.as_fd(), &record, &[control.as_fd()])?;
        Ok(WorkerChild::Asked(self.child.id()))
    }

    /// A process that has said since who it is, with the worker's index. It does so before it serves.
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
