//! Waiting for the first worker of a dispatcher that has none: the limits, and the messages
//! meanwhile.

use super::state::Runtime;
use gt_protocol::message::FailureClass;
use std::time::{Duration, Instant};

/// Time for which a session waits silently for its dispatcher's first worker.
const SILENCE: Duration = Duration::from_secs(1);
/// Time for which a session waits for its dispatcher's first worker, unless `gt.connect` sets
/// another: a worker with torch starts in 3 to 10 s, on a busy machine in 30 s.
pub(crate) const WORKER_WAIT: Duration = Duration::from_mins(1);

/// Advice on values that were lost with their worker.
const LOST_ADVICE: &str =
    "New tensors work; make this one again from what the program has, or from a file (gt.load)";

/// Action of a session without workers while something waits.
pub(super) enum Patience {
    Wait,
    /// Print this text on standard error, once.
    Announce(String),
    Over(String),
}

impl Runtime {
    /// The next action of a wait that needs a worker.
    pub(super) fn patience(&mut self) -> Patience {
        let Some(hope) = self.hope.as_mut() else { return Patience::Wait };
        if !self.answers.workers.is_empty() {
            self.hope = None;
            return Patience::Wait;
        }
        let waited = hope.since.get_or_insert_with(Instant::now).elapsed();
        let (limit, is_announced) = (hope.limit, hope.is_announced);
        if waited < limit && (is_announced || waited < SILENCE) {
            return Patience::Wait;
        }
        hope.is_announced = true;
        let connection = self.connection.as_ref();
        let place = connection.map(|connection| connection.describe()).unwrap_or_default();
        let advice = self.worker_advice();
        if waited < limit {
            return Patience::Announce(format!("{place}: waiting for a worker. {advice}"));
        }
        let seconds = limit.as_secs_f64();
        Patience::Over(format!("{place}: no worker has joined it within {seconds} s. {advice}"))
    }

    /// Progress of this program's own workers, once, when a wait has lasted `waited`.
    pub(super) fn start_notice(&mut self, waited: Duration) -> Option<String> {
        if self.is_start_told || waited < SILENCE {
            return None;
        }
        let text = self.connection.as_ref()?.start()?;
        self.is_start_told = true;
        Some(format!("{text}, after {:.0} s", waited.as_secs_f64()))
    }

    /// Advice on how to get a worker for a session that has none.
    fn worker_advice(&self) -> String {
        let connection = self.connection.as_ref();
        let Some(address) = connection.and_then(|connection| connection.address()) else {
            return "gt.disconnect() ends the session; the next operation starts a worker"
                .to_owned();
        };
        let place = match (address.strip_prefix("unix:"), address.rsplit_once(':')) {
            (Some(path), _) => format!("--unix {path}"),
            (None, Some((host, port))) => format!("--host {host} -p {port}"),
            (None, None) => format!("--host {address}"),
        };
        format!("Start one: `python -m gt.worker {place}`")
    }

    /// Advice that a failure adds where no worker is left, or where one was lost.
    pub(crate) fn advice(&self, class: FailureClass) -> Option<String> {
        if self.answers.workers.is_empty() {
            return Some(self.worker_advice());
        }
        (class == FailureClass::WorkerLost).then(|| LOST_ADVICE.to_owned())
    }
}
