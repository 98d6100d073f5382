//! The socket on which a process receives requests to fork workers, and reports the new processes.

use super::process::{connection, owned};
use gt_transport::{ControlKind, ControlRecord, receive_record, send_record};
use pyo3::prelude::*;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};

/// Lowest descriptor number of a socket: a program may have closed its standard streams, and no
/// socket may take their numbers.
const DESCRIPTOR_MIN: i32 = 3;

/// The end of the socket on which requests come.
#[pyclass(frozen, module = "gt._core")]
pub struct ForkRequests {
    socket: OwnedFd,
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
        Self { socket: owned(descriptor) }
    }

    /// Waits for the next request; None once the client is gone.
    ///
    /// Raises:
    ///     `ConnectionError`: The system has no descriptor left.
    fn receive(&self, py: Python<'_>) -> PyResult<Option<ForkRequest>> {
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
        let raw = Pid::from_raw(process.cast_signed()).ok_or_else(|| connection("process 0"))?;
        let descriptor = pidfd_open(raw, PidfdFlags::empty()).map_err(connection)?;
        let value = u64::from(process);
        let record = ControlRecord { kind: ControlKind::Fork, index: request.index, value };
        // If the client is gone, the worker ends with its control socket.
        drop(send_record(self.socket.as_fd(), &record, &[descriptor.as_fd()]));
        Ok(())
    }
}
