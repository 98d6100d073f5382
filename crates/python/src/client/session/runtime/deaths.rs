//! The thread that notices at once when a worker of this program ends, whatever the program does.
//!
//! It blocks without the interpreter, and takes it only when a worker has ended while the session
//! goes on: never for the end of the session itself.

use super::state::{epoch, with};
use crate::client::connection::Deaths;
use crate::client::session::errors;
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// Nap while another thread, which waits at the worker's inbox, is about to notice.
const NAP: Duration = Duration::from_millis(20);
/// Time limit for that: a thread that holds the interpreter for longer notices by itself later.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts the thread for the current connection, if workers are its own. Without it a worker's end
/// is noticed at the next read.
pub(crate) fn watch_deaths(py: Python<'_>) {
    let deaths = with(py, |runtime| runtime.connection.as_ref().and_then(|one| one.deaths()));
    let Some(deaths) = deaths else { return };
    let session = epoch();
    let thread = std::thread::Builder::new().name("gt-deaths".to_owned()).stack_size(256 << 10);
    drop(thread.spawn(move || watch(&deaths, session)));
}

fn watch(deaths: &Deaths, session: u32) {
    // The loop ends with the connection.
    while let Some(event) = deaths.wait() {
        if event == Deaths::END || epoch() != session {
            return;
        }
        let limit = Instant::now() + PATIENCE;
        // The loop ends at the limit.
        while epoch() == session && Instant::now() < limit {
            if Python::try_attach(|py| is_noticed(py, session)).unwrap_or(true) {
                break;
            }
            std::thread::sleep(NAP);
        }
    }
}

/// Returns true once the connection knows of the end, and the user has been told.
fn is_noticed(py: Python<'_>, session: u32) -> bool {
    let notices = with(py, |runtime| {
        if epoch() != session {
            return Some(Vec::new());
        }
        runtime.receive_ready();
        let is_known = runtime.connection.as_mut().is_none_or(|one| !one.has_dead_worker());
        is_known.then(|| runtime.answers.take_notices())
    });
    let Some(notices) = notices else { return false };
    for text in notices {
        if let Err(error) = errors::announce(py, &text) {
            error.write_unraisable(py, None);
        }
    }
    true
}
