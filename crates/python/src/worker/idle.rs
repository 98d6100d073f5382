//! Idle policy of a worker: after a time without words, the memory that it keeps for its next
//! instructions goes back to the system.

use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// Time since the last words, and whether the memory has been released.
#[derive(Debug)]
pub struct Idle {
    /// () -> None: releases memory.
    release: Py<PyAny>,
    after: Duration,
    state: IdleState,
}

#[derive(Clone, Copy, Debug)]
enum IdleState {
    Busy,
    Since(Instant),
    Released,
}

impl Idle {
    /// Reads the policy of a `gt.worker.backend.Backend`.
    pub fn new(backend: &Bound<'_, PyAny>) -> PyResult<Self> {
        let after = Duration::from_secs_f64(backend.getattr("idle_seconds")?.extract()?);
        Ok(Self { release: backend.getattr("release")?.unbind(), after, state: IdleState::Busy })
    }

    /// Marks the worker as busy.
    pub const fn end(&mut self) {
        self.state = IdleState::Busy;
    }

    /// Time limit of a wait for words; the first call makes the worker idle.
    pub fn limit(&mut self) -> Duration {
        if let IdleState::Busy = self.state {
            self.state = IdleState::Since(Instant::now());
        }
        match self.state {
            IdleState::Since(start) => self.after.saturating_sub(start.elapsed()),
            IdleState::Busy | IdleState::Released => Duration::MAX,
        }
    }

    /// Releases the memory once the idle time is over.
    pub fn look(&mut self, py: Python<'_>) -> PyResult<()> {
        if let IdleState::Since(start) = self.state
            && start.elapsed() >= self.after
        {
            self.state = IdleState::Released;
            self.release.call0(py)?;
        }
        Ok(())
    }
}
