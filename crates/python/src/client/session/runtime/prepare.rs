//! Preconditions of an instruction: a connection, the configuration, and room.

use super::cancel::check_signals;
use super::ending::hold_other_threads;
use super::fork::forked;
use super::patience::Patience;
use super::state::{Caller, RUNTIME, Runtime, WAITING, with};
use crate::client::session::{errors, site};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The shortest and longest nap while a ring is full: the worker still has thousands of
/// instructions to run. A nap is a quarter of the time waited so far, so it overshoots by a quarter
/// at most, and three quarters of the ring are still full when it ends.
const FULL_NAP_MIN: Duration = Duration::from_micros(50);
const FULL_NAP_MAX: Duration = Duration::from_millis(2);

/// Function that opens a connection at the first operation where the program has not connected.
static OPEN: PyOnceLock<fn(Python<'_>) -> PyResult<()>> = PyOnceLock::new();
/// True while a thread opens the connection that the first operation needs; the other threads wait
/// for it.
static OPENING: AtomicBool = AtomicBool::new(false);

/// Sets the function that opens the connection at the first operation; the first call wins.
pub(crate) fn set_opener(py: Python<'_>, open: fn(Python<'_>) -> PyResult<()>) {
    OPEN.get_or_init(py, || open);
}

/// Connects if there is no connection, sends what an open region holds back, and waits until an
/// instruction fits and all earlier frees have been sent. After it, one instruction may be sent
/// without waiting.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    // The loop ends: each turn sends one thing, and nothing is added but frees.
    loop {
        wait_for_room(py)?;
        if !with(py, |runtime| runtime.holds()) {
            return Ok(());
        }
        with(py, Runtime::send_held)?;
    }
}

fn wait_for_room(py: Python<'_>) -> PyResult<()> {
    let mut full_since: Option<Instant> = None;
    loop {
        hold_other_threads(py);
        let missing = {
            let mut state = RUNTIME.get_mut(py);
            let runtime = state.get_or_insert_with(Runtime::new);
            if forked() {
                return Err(errors::after_fork());
            }
            let goes_on = full_since.is_none() || runtime.has_ample_room();
            if goes_on && runtime.has_room(py) && WAITING.get(py).slots.is_empty() {
                return Ok(());
            }
            let room = runtime.connection.as_mut().map(|connection| connection.has_room());
            if full_since.is_some() {
                // A worker that waits for its answers to be read makes no room.
                runtime.receive_ready();
            }
            match room {
                None => Missing::Connection,
                Some(true) if runtime.answers.closed.is_none() && runtime.begun => Missing::Room,
                Some(true) if runtime.answers.closed.is_none() => {
                    runtime.begun = true;
                    Missing::Configuration
                }
                Some(_) => {
                    runtime.receive_ready();
                    if let Some(reason) = runtime.answers.closed.clone() {
                        return Err(errors::connection_lost(py, &reason));
                    }
                    match runtime.patience() {
                        Patience::Wait => Missing::Room,
                        Patience::Announce(text) => Missing::Worker(text),
                        Patience::Over(reason) => return Err(errors::no_worker(py, reason)),
                    }
                }
            }
        };
        match missing {
            Missing::Connection if !OPENING.swap(true, Ordering::AcqRel) => {
                let open = OPEN.get(py).expect("set when gt is imported");
                let opened = open(py);
                OPENING.store(false, Ordering::Release);
                opened?;
            }
            Missing::Configuration => {
                let begun = py
                    .import("gt.config.scopes")
                    .and_then(|scopes| scopes.call_method0("session_begins"));
                if let Err(error) = begun {
                    with(py, |runtime| runtime.begun = false);
                    return Err(error);
                }
            }
            Missing::Worker(text) => errors::announce(py, &text)?,
            // The ring is full, or another thread opens the connection.
            Missing::Connection | Missing::Room => {
                let full_for = full_since.get_or_insert_with(Instant::now).elapsed();
                let nap = (full_for / 4).clamp(FULL_NAP_MIN, FULL_NAP_MAX);
                py.detach(|| std::thread::sleep(nap));
                check_signals(py)?;
            }
        }
    }
}

/// [`prepare`] for an instruction of this caller.
pub(crate) fn prepare_for(py: Python<'_>, caller: Caller) -> PyResult<()> {
    loop {
        prepare(py)?;
        if with(py, |runtime| runtime.knows_site(caller.site)) {
            return Ok(());
        }
        let name = site::name(py, caller.site);
        with(py, |runtime| runtime.announce_site(caller.site, name));
    }
}

/// [`prepare`] for an instruction with a large payload: waits for a payload slot too.
pub(crate) fn prepare_payload(py: Python<'_>) -> PyResult<()> {
    loop {
        prepare(py)?;
        let full = with(py, |runtime| {
            runtime.connection.as_mut().and_then(|connection| connection.full_payloads())
        });
        let Some(payloads) = full else { return Ok(()) };
        py.detach(|| payloads.wait());
        // A worker that waits for its answers to be read takes no payloads; neither does one that
        // is gone.
        with(py, Runtime::receive_ready);
        check_signals(py)?;
    }
}

/// Precondition that an instruction still waits for.
enum Missing {
    Connection,
    /// The configuration is read once a session, at the first operation; reading it may itself ask
    /// workers.
    Configuration,
    Room,
    /// There is no worker; the user gets this text.
    Worker(String),
}
