//! The dispatcher's end of a worker process, for tests: rings, and the socket that hands them over.

use gt_protocol::text::NoNames;
use gt_protocol::{Id, Operand};
use gt_transport::{
    Consumer, ControlKind, ControlRecord, Producer, create, send_record, socket_pair,
};
use pyo3::exceptions::{PyConnectionError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// The least that a worker takes, so that tests meet full rings.
const RING_WORDS: u32 = 1 << 15;

/// What a dispatcher holds of one worker.
#[pyclass(unsendable, module = "gt._core")]
#[derive(Debug)]
pub struct WorkerConnection {
    index: u32,
    control: OwnedFd,
    far: Option<OwnedFd>,
    words: Producer,
    answers: Consumer,
}

#[pymethods]
impl WorkerConnection {
    /// Rings and a control socket for the worker `index`, whose setup waits in the socket.
    #[new]
    fn new(index: u32) -> PyResult<Self> {
        let (control, far) = socket_pair().map_err(connection)?;
        let (down, up) = (ring()?, ring()?);
        let record = ControlRecord { kind: ControlKind::Setup, index, value: 0 };
        send_record(control.as_fd(), &record, &[down.as_fd(), up.as_fd()]).map_err(connection)?;
        let words = Producer::new(down).map_err(connection)?;
        let answers = Consumer::new(up).map_err(connection)?;
        Ok(Self { index, control, far: Some(far), words, answers })
    }

    /// The number of the worker's end of the socket, for the process that is to inherit it.
    fn worker_fd(&self) -> Option<i32> {
        self.far.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Closes the worker's end here, once the process has it.
    fn hand_over(&mut self) {
        self.far = None;
    }

    /// Gives two workers slabs to each other.
    fn introduce(&self, other: &Self) -> PyResult<()> {
        let slab = || gt_transport::slab::create().map_err(connection);
        let (there, back) = (slab()?, slab()?);
        self.tell(other.index, &there, &back)?;
        other.tell(self.index, &back, &there)
    }

    /// Says that the worker `index` is gone.
    fn lost(&self, index: u32) -> PyResult<()> {
        let record = ControlRecord { kind: ControlKind::PeerGone, index, value: 0 };
        send_record(self.control.as_fd(), &record, &[]).map_err(connection)
    }

    /// Publishes words; waits while the ring is full.
    fn write(&mut self, py: Python<'_>, words: &[u8]) -> PyResult<()> {
        let words: Vec<u32> =
            words.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        for piece in words.chunks(self.words.capacity() / 4) {
            while !self.words.write(&[piece]) {
                py.check_signals()?;
                let ring = &mut self.words;
                py.detach(|| ring.wait_space(piece.len(), Duration::from_millis(50)));
            }
        }
        Ok(())
    }

    /// Publishes the instructions of a trace's lines; their numbers are the worker's slots.
    ///
    /// Raises:
    ///     `ValueError`: A line is no instruction.
    fn instruct(&mut self, py: Python<'_>, lines: &str) -> PyResult<()> {
        let refused = |line: &str, error: &dyn std::fmt::Display| {
            PyValueError::new_err(format!("{line}: {error}"))
        };
        let (mut words, mut payload) = (Vec::new(), Vec::new());
        for line in lines.lines() {
            let parsed = gt_protocol::text::parse(line, &mut NoNames, &mut payload);
            let Some(mut instruction) = parsed.map_err(|error| refused(line, &error))? else {
                continue;
            };
            for id in &mut instruction.outputs {
                *id = slot(*id);
            }
            for operand in &mut instruction.operands {
                if let Operand::Value(id) = operand {
                    *id = slot(*id);
                }
            }
            gt_protocol::wire::encode(&instruction, &mut words)
                .map_err(|error| refused(line, &error))?;
        }
        self.write(py, bytemuck::cast_slice(&words))
    }

    /// The words that have come, at least one.
    ///
    /// Raises:
    ///     `TimeoutError`: None came in time.
    fn read<'py>(&mut self, py: Python<'py>, timeout_ms: u64) -> PyResult<Bound<'py, PyBytes>> {
        let ring = &mut self.answers;
        let (spin, timeout) = (Duration::from_micros(100), Duration::from_millis(timeout_ms));
        if !py.detach(|| ring.wait(spin, timeout)) {
            return Err(PyTimeoutError::new_err(format!("no answer in {timeout_ms} ms")));
        }
        let mut words = Vec::new();
        self.answers.read(&mut words, self.answers.capacity());
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(PyBytes::new(py, &bytes))
    }
}

impl WorkerConnection {
    fn tell(&self, index: u32, to: &OwnedFd, from: &OwnedFd) -> PyResult<()> {
        let record = ControlRecord { kind: ControlKind::Peer, index, value: 0 };
        send_record(self.control.as_fd(), &record, &[to.as_fd(), from.as_fd()]).map_err(connection)
    }
}

/// The slot of this number.
fn slot(id: Id) -> Id {
    Id::slot(u32::try_from(id.parts().0).unwrap_or(u32::MAX))
}

fn ring() -> PyResult<OwnedFd> {
    create(RING_WORDS).map_err(connection)
}

fn connection(error: impl std::fmt::Display) -> PyErr {
    PyConnectionError::new_err(error.to_string())
}
