//! The socket on which a process receives requests to fork workers, and reports the new processes
//! and their ends.

use super::process::{connection, owned};
use gt_transport::{ControlKind, ControlRecord, receive_record, send_record};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Lowest descriptor number of a socket: a program may have closed its standard streams, and no
/// socket may take their numbers.
const DESCRIPTOR_MIN: i32 = 3;

/// The end of the socket on which requests come, and the processes that were started for them.
#[pyclass(frozen, module = "gt._core")]
pub struct ForkRequests {
    socket: OwnedFd,
    /// Live workers, and those whose end was not reported yet.
    started: Mutex<Vec<StartedProcess>>,
}

/// A process that runs a worker, by a descriptor (pidfd) that never refers to another one.
struct StartedProcess {
    index: u32,
    process: u32,
    descriptor: OwnedFd,
}

/// A request for a worker.
#[pyclass(frozen, get_all, module = "gt._core")]
pub struct ForkRequest {
    index: u32,
    control_fd: i32,
}

#[pymethods]
impl ForkRequests {
    /// Takes over an inherited descriptor.
    #[new]
    fn new(descriptor: i32) -> Self {
        Self { socket: owned(descriptor), started: Mutex::new(Vec::new()) }
    }

    /// Waits for the next request, and reports processes that end meanwhile; None once the client
    /// is gone.
    ///
    /// Raises:
    ///     `ConnectionError`: The system has no descriptor left.
    fn receive(&self, py: Python<'_>) -> PyResult<Option<ForkRequest>> {
        py.detach(|| self.wait()).map_err(connection)?;
        // An error here comes from a client that has ended without reading the reports.
        let Ok(Some((record, descriptors))) = py.detach(|| receive_record(self.socket.as_fd()))
        else {
            return Ok(None);
        };
        let Some(control) = descriptors.into_iter().next() else { return Ok(None) };
        let control = fcntl_dupfd_cloexec(&control, DESCRIPTOR_MIN).map_err(connection)?;
        Ok(Some(ForkRequest { index: record.index, control_fd: control.into_raw_fd() }))
    }

    /// Reports the process of a worker, with a descriptor (pidfd) that never refers to another one.
    ///
    /// Raises:
    ///     `ConnectionError`: There is no such process.
    fn tell(&self, request: &ForkRequest, process: u32) -> PyResult<()> {
        let descriptor = pidfd(process)?;
        let value = u64::from(process);
        let record = ControlRecord { kind: ControlKind::Fork, index: request.index, value };
        // If the client is gone, the worker ends with its control socket.
        drop(send_record(self.socket.as_fd(), &record, &[descriptor.as_fd()]));
        Ok(())
    }

    /// Watches a child process of this one that runs a worker: its end will be reported.
    ///
    /// Raises:
    ///     `ConnectionError`: There is no such process.
    fn watch(&self, request: &ForkRequest, process: u32) -> PyResult<()> {
        let descriptor = pidfd(process)?;
        let started = StartedProcess { index: request.index, process, descriptor };
        let mut all = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if all.iter().any(|one| one.process == process) {
            return Err(PyRuntimeError::new_err(format!("process {process} is watched already")));
        }
        all.push(started);
        Ok(())
    }
}

impl ForkRequests {
    /// Returns when the socket has something.
    fn wait(&self) -> std::io::Result<()> {
        let mut all = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        // The loop ends at the next request or with the client; each other round takes a process
        // off the list.
        loop {
            let mut polled = vec![PollFd::new(&self.socket, PollFlags::IN)];
            polled.extend(all.iter().map(|one| PollFd::new(&one.descriptor, PollFlags::IN)));
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
            let mut of_processes = ready.iter().copied().skip(1);
            all.retain(|one| {
                let has_ended = of_processes.next().unwrap_or(false);
                if has_ended {
                    self.report(one);
                }
                !has_ended
            });
            if ready.first().copied().unwrap_or(false) {
                return Ok(());
            }
        }
    }

    /// Reaps a process that has ended, and reports how.
    fn report(&self, ended: &StartedProcess) {
        let of_it = WaitId::PidFd(ended.descriptor.as_fd());
        let Ok(Some(status)) = waitid(of_it, WaitIdOptions::EXITED) else { return };
        let code = match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => -signal,
            (None, code) => code.unwrap_or(0),
        };
        let value = u64::from(ended.process) | u64::from(code.cast_unsigned()) << 32;
        let record = ControlRecord { kind: ControlKind::Ended, index: ended.index, value };
        // A client that is gone needs no report.
        drop(send_record(self.socket.as_fd(), &record, &[]));
    }
}

fn pidfd(process: u32) -> PyResult<OwnedFd> {
    let raw = Pid::from_raw(process.cast_signed()).ok_or_else(|| connection("process 0"))?;
    pidfd_open(raw, PidfdFlags::empty()).map_err(connection)
}
