//! State of a worker's loop: a machine over a backend, and the idle policy for the backend's
//! memory.

use super::engine::PythonEngine;
use super::idle::Idle;
use gt_transport::packing::PackingPolicy;
use gt_transport::tcp::{LinkLimits, Probes};
use gt_worker::{Codec, LookAhead, Machine};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Duration;

/// A machine with its idle policy.
#[derive(Debug)]
pub struct Worker {
    pub machine: Machine<PythonEngine>,
    pub idle: Idle,
    /// Packing of bytes that go to workers of other hosts.
    pub packing: PackingPolicy,
    pub links: WorkerLinks,
}

/// Time for which connections to other hosts may be silent.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLinks {
    pub dispatcher: LinkLimits,
    pub peers: LinkLimits,
}

impl Worker {
    /// A machine over a `gt.worker.backend.Backend`, configured by its settings.
    pub fn new(backend: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (packing, codec) = compression(backend.getattr("compression")?.extract()?)?;
        let mut machine = machine(backend)?;
        machine.set_codec(codec);
        let links = links(&backend.getattr("links")?)?;
        Ok(Self { machine, idle: Idle::new(backend)?, packing, links })
    }
}

/// Reads the settings of a `gt.worker.backend.Links`.
fn links(said: &Bound<'_, PyAny>) -> PyResult<WorkerLinks> {
    let seconds = |name: &str| -> PyResult<Duration> {
        let number = said.getattr(name)?.extract()?;
        Duration::try_from_secs_f64(number)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    };
    let (interval, peers) = (seconds("ask_seconds")?, seconds("peer_seconds")?);
    let resume = Some(seconds("resume_seconds")?).filter(|limit| !limit.is_zero());
    let probes = Probes { interval, count: said.getattr("asks")?.extract()? };
    Ok(WorkerLinks {
        dispatcher: LinkLimits { probes, resume },
        peers: LinkLimits { probes: Probes::within(peers, interval), resume },
    })
}

/// Parses `GT_COMPRESSION`: when bytes are packed, and the lossy codec for sums before that.
fn compression(words: &str) -> PyResult<(PackingPolicy, Option<Codec>)> {
    let (mut packing, mut codec) = (PackingPolicy::Measured, None);
    for word in words.split(',') {
        match word {
            "auto" => packing = PackingPolicy::Measured,
            "on" => packing = PackingPolicy::Always,
            "off" => packing = PackingPolicy::Never,
            "bf16" => codec = Some(Codec::Bf16),
            "int8" => codec = Some(Codec::Int8),
            _ => {
                let text = format!("compression {word} is not auto, on, off, bf16 or int8");
                return Err(PyValueError::new_err(text));
            }
        }
    }
    Ok((packing, codec))
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
