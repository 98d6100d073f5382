//! What a loop of a worker runs: a machine over a backend, and what becomes of the backend's memory while nothing comes.

use super::engine::PythonEngine;
use super::idle::Idle;
use gt_transport::packing::PackingPolicy;
use gt_worker::{LookAhead, Machine};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A machine with its idle policy.
#[derive(Debug)]
pub struct Worker {
    pub machine: Machine<PythonEngine>,
    pub idle: Idle,
    /// Of what goes to workers of other hosts.
    pub packing: PackingPolicy,
}

impl Worker {
    /// Over a `gt.worker.backend.Backend`, set up as that says.
    pub fn new(backend: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            machine: machine(backend)?,
            idle: Idle::new(backend)?,
            packing: packing(backend.getattr("compression")?.extract()?)?,
        })
    }
}

/// What `GT_COMPRESSION` says.
fn packing(word: &str) -> PyResult<PackingPolicy> {
    match word {
        "auto" => Ok(PackingPolicy::Measured),
        "on" => Ok(PackingPolicy::Always),
        "off" => Ok(PackingPolicy::Never),
        _ => Err(PyValueError::new_err(format!("compression {word} is not auto, on or off"))),
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
