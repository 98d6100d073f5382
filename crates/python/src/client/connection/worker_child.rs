//! The worker processes of an embedded dispatcher: each is started by itself, or forked by a
//! process that has imported the modules they need. A fork happens asynchronously, so the number of
//! a forked process is learned later.

use gt_server::death::Manner;
use gt_transport::{ControlKind, ControlRecord, DescriptorError, receive_record, send_record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

/// Seconds for which a killed process is awaited: it computes nothing any more.
const END_PATIENCE_SECONDS: i64 = 5;

/// Time from a worker's closed socket to the end of its process, and to its fork server's report: a
/// few milliseconds, more where much memory is unmapped.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(300);
const LAST_WORDS_NAP: Duration = Duration::from_millis(2);

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
    /// Known once its fork server has reported its end.
    manner: Manner,
}

/// A report of the fork server.
pub(crate) enum ForkReport {
    /// The process of the worker of this index.
    Forked(u32, WorkerChild),
    Ended {
        index: u32,
        process: u32,
        manner: Manner,
    },
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

    /// Waits for the end of a process whose socket has closed, and tells how it ended, as far as
    /// that is known: a forked one is the fork server's child, which reports it. Ends it where it
    /// does not end by itself.
    pub(crate) fn manner(&mut self) -> Manner {
        match self {
            Self::Started(child) => {
                let deadline = Instant::now() + LAST_WORDS;
                // The loop ends at the deadline.
                while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                    std::thread::sleep(LAST_WORDS_NAP);
                }
                match child.try_wait() {
                    Ok(Some(status)) => {
                        let signal = status.signal().map(Manner::Signal);
                        signal.or(status.code().map(Manner::Status)).unwrap_or(Manner::Unknown)
                    }
                    Ok(None) | Err(_) => Manner::Unknown,
                }
            }
            Self::Asked(_) => Manner::Unknown,
            Self::Forked(forked) => {
                is_readable(&forked.descriptor, 0, LAST_WORDS);
                forked.manner
            }
        }
    }

    /// Takes a report of how a process has ended, if that is this one.
    pub(crate) fn note_end(&mut self, process: u32, manner: Manner) {
        match self {
            Self::Forked(forked) if forked.process == process => forked.manner = manner,
            Self::Started(_) | Self::Asked(_) | Self::Forked(_) => {}
        }
    }

    /// Returns true if a report of how it ended is still to come.
    pub(crate) fn awaits_report(&self) -> bool {
        matches!(self, Self::Forked(forked) if forked.manner == Manner::Unknown)
    }

    /// Ends the process at once. A process whose number is not known yet ends with its control
    /// socket.
    pub(crate) fn end(&mut self) {
        match self {
            Self::Started(child) => end(child),
            Self::Asked(_) => {}
            Self::Forked(forked) => {
                let _ = pidfd_send_signal(&forked.descriptor, Signal::KILL);
                is_readable(&forked.descriptor, END_PATIENCE_SECONDS, Duration::ZERO);
            }
        }
    }
}

fn end(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}

/// Returns true if the descriptor becomes readable within `seconds` and `more`; a process's does at
/// its end.
fn is_readable(descriptor: &OwnedFd, seconds: i64, more: Duration) -> bool {
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    let patience = Timespec { tv_sec: seconds, tv_nsec: more.subsec_nanos().into() };
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

    /// Takes the next report, if one arrives within `patience`. A process reports its number before
    /// it serves.
    pub(crate) fn take_report(&self, patience: Duration) -> Option<ForkReport> {
        if !is_readable(&self.socket, 0, patience) {
            return None;
        }
        let (record, descriptors) = receive_record(self.socket.as_fd()).ok()??;
        let [process, code] = [record.value & u64::from(u32::MAX), record.value >> 32];
        let process = u32::try_from(process).ok()?;
        if record.kind == ControlKind::Ended {
            let manner = Manner::of_code(u32::try_from(code).ok()?.cast_signed());
            return Some(ForkReport::Ended { index: record.index, process, manner });
        }
        let descriptor = descriptors.into_iter().next()?;
        let manner = Manner::Unknown;
        let forked = ForkedProcess { process, descriptor, manner };
        Some(ForkReport::Forked(record.index, WorkerChild::Forked(forked)))
    }

    pub(crate) fn end(&mut self) {
        end(&mut self.child);
    }
}
