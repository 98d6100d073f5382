//! A worker without a process, for tests: words in, words out.

use super::engine::PythonEngine;
use super::machine::machine;
use gt_protocol::message::{self, FromWorker};
use gt_worker::{CommunicationStream, Machine, Nobody, Replies};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A machine over a backend's kernels, in this process.
#[pyclass(unsendable, module = "gt._core")]
#[derive(Debug)]
pub struct LocalMachine {
    machine: Machine<PythonEngine>,
    guard: Py<PyAny>,
    rest: Vec<u32>,
}

#[pymethods]
impl LocalMachine {
    /// A machine without values.
    ///
    /// Args:
    ///     backend: A `gt.worker.backend.Backend`.
    #[new]
    fn new(backend: &Bound<'_, PyAny>) -> PyResult<Self> {
        let guard = backend.getattr("guard")?.unbind();
        Ok(Self { machine: machine(backend)?, guard, rest: Vec::new() })
    }

    /// Executes the frames in `words` and returns the messages that they are answered with.
    ///
    /// Args:
    ///     words: Little-endian 32-bit words; an incomplete frame at the end waits for the next call.
    ///
    /// Raises:
    ///     `ValueError`: The words are no frames.
    fn run<'py>(&mut self, py: Python<'py>, words: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let (words, odd) = words.as_chunks::<4>();
        if !odd.is_empty() {
            return Err(PyValueError::new_err(format!("{} bytes behind the last word", odd.len())));
        }
        self.rest.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
        let mut answers = Answers::default();
        let guard = self.guard.bind(py).call0()?;
        guard.call_method0("__enter__")?;
        let done =
            self.machine.run(&self.rest, &mut answers, &mut CommunicationStream::new(Nobody));
        guard.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
        match done {
            Ok(done) => self.rest.drain(..done).for_each(drop),
            Err(stop) => return Err(PyValueError::new_err(format!("{stop:?}"))),
        }
        if let Some(error) = answers.error {
            return Err(PyRuntimeError::new_err(error));
        }
        let bytes: Vec<u8> = answers.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(PyBytes::new(py, &bytes))
    }
}

#[derive(Default)]
struct Answers {
    words: Vec<u32>,
    error: Option<String>,
}

impl Replies for Answers {
    fn send(&mut self, message: &FromWorker<'_>) {
        if let Err(error) = message::encode(message, &mut self.words) {
            self.error = Some(error.to_string());
        }
    }
}
