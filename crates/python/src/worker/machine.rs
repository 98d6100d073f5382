//! What a loop of a worker runs: a machine over a backend, and what becomes of the backend's memory while nothing comes.

use super::engine::PythonEngine;
use super::idle::Idle;
use gt_worker::{LookAhead, Machine};
use pyo3::prelude::*;

/// A machine with its idle policy.
#[derive(Debug)]
pub struct Worker {
    pub machine: Machine<PythonEngine>,
    pub idle: Idle,
}

impl Worker {
    /// Over a `gt.worker.backend.Backend`, set up as that says.
    pub fn new(backend: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { machine: machine(backend)?, idle: Idle::new(backend)? })
    }
}

fn machine(backend: &Bound<'_, PyAny>) -> PyResult<Machine<PythonEngine>> {
    let mut machine = Machine::new(PythonEngine::new(backend)?);
    let look_ahead = match backend.getattr("look_ahead")?.extract::<Option<u64>>()? {
        None => LookAhead::Published,
        Some(0) => LookAhead::Nothing,
        Some(seed) => LookAhead::Drawn(seed),
    };
    machine.set_look_ahead(look_ahead);
    Ok(machine)
}
