//! What a worker does once when it has been idle for a while: the memory that it keeps for its next instructions goes back
//! to the system.

use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// How long nothing has come, and whether the memory is given back.
#[derive(Debug)]
pub struct Idle {
    /// () -> nothing: gives memory back.
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
    /// As a `gt.worker.backend.Backend` says.
    pub fn new(backend: &Bound<'_, PyAny>) -> PyResult<Self> {
        let after = Duration::from_secs_f64(backend.getattr("idle_seconds")?.extract()?);
        Ok(Self { release: backend.getattr("release")?.unbind(), after, state: IdleState::Busy })
    }

    /// There was something to do.
    pub const fn end(&mut self) {
        self.state = IdleState::Busy;
    }

    /// How long a wait for words may last; from the first call on the worker is idle.
    pub fn limit(&mut self) -> Duration {
        if let IdleState::Busy = self.state {
            self.state = IdleState::Since(Instant::now());
        }
        match self.state {
            IdleState::Since(start) => self.after.saturating_sub(start.elapsed()),
            IdleState::Busy | IdleState::Released => Duration::MAX,
        }
    }

    /// Gives the memory back if it is time.
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
