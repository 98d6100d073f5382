//! Waiting for an answer while other threads go on.

use super::super::answers::Answer;
use super::super::connection::SharedInbox;
use super::super::errors;
use super::{FULL_NAP, RECEIVED, RUNTIME, TAKEN, epoch, with};
use pyo3::prelude::*;
use std::sync::TryLockError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a read polls before it parks: long enough for a step's worth of work (see the hot-path notes).
const READ_SPIN: Duration = Duration::from_micros(150);
/// How long a read parks before it looks for signals and dead peers.
const READ_PARK: Duration = Duration::from_millis(100);

/// Waits for the answer of `request` with the GIL released.
pub(crate) fn wait(py: Python<'_>, request: u64) -> PyResult<Answer> {
    let mut words = Vec::new();
    let mut turn = 0;
    let asked_in = epoch();
    loop {
        let (inboxes, received) = {
            let mut state = RUNTIME.get_mut(py);
            let Some(runtime) = state.as_mut() else { return Err(errors::after_fork()) };
            if let Some(answer) = runtime.answers.take(request) {
                return Ok(answer);
            }
            runtime.pump();
            if let Some(answer) = runtime.answers.take(request) {
                return Ok(answer);
            }
            if epoch() != asked_in {
                return Err(errors::connection_lost(py, "the session was ended"));
            }
            if let Some(reason) = runtime.answers.closed.clone() {
                return Err(errors::connection_lost(py, &reason));
            }
            if let Some(reason) = runtime.hopeless() {
                runtime.answers.forget(request);
                return Err(errors::no_worker(py, reason));
            }
            let inboxes = runtime
                .connection
                .as_ref()
                .map(|connection| connection.inboxes())
                .unwrap_or_default();
            (inboxes, RECEIVED.load(Ordering::Acquire))
        };
        if inboxes.is_empty() {
            return Err(errors::connection_lost(py, "the connection was closed"));
        }
        // With several workers each is watched in turn, for a shorter time.
        let next = turn % inboxes.len();
        turn += 1;
        let park = if inboxes.len() == 1 { READ_PARK } else { Duration::from_millis(1) };
        words.clear();
        let arrived = py.detach(|| {
            let found = poll_all(&inboxes, received, &mut words);
            let at = || {
                let inbox = inboxes.get(next)?;
                listen(inbox, received, &mut words, park).then_some(next)
            };
            found.or_else(at)
        });
        if let Some(index) = arrived {
            with(py, |runtime| {
                if let Some(connection) = runtime.connection.as_mut() {
                    connection.receive(index, &words, &mut runtime.answers);
                }
                RECEIVED.fetch_add(1, Ordering::AcqRel);
            });
        } else if let Err(interrupt) = py.check_signals() {
            with(py, |runtime| runtime.answers.forget(request));
            return Err(interrupt);
        }
    }
}

/// Takes what comes at any of several inboxes while a reader polls: of a value that is cut all holders answer at once, and
/// who sends must not wait until it is its turn to be watched.
fn poll_all(inboxes: &[SharedInbox], received: u64, words: &mut Vec<u32>) -> Option<usize> {
    let begun = Instant::now();
    while inboxes.len() > 1 && begun.elapsed() < READ_SPIN {
        for (index, inbox) in inboxes.iter().enumerate() {
            let Ok(mut inbox) = inbox.try_lock() else { continue };
            if TAKEN.load(Ordering::Acquire) != received {
                return None;
            }
            inbox.take(words);
            if !words.is_empty() {
                TAKEN.fetch_add(1, Ordering::AcqRel);
                return Some(index);
            }
        }
        std::thread::yield_now();
    }
    None
}

/// Takes what comes at an inbox within `park`, unless another thread does: of several that read, one listens. Whatever
/// arrived after the core had `received` batches may hold the caller's answer, so it looks again before it listens.
fn listen(inbox: &SharedInbox, received: u64, words: &mut Vec<u32>, park: Duration) -> bool {
    let mut waited = Duration::ZERO;
    while waited < park {
        match inbox.try_lock() {
            Ok(mut inbox) => {
                if TAKEN.load(Ordering::Acquire) == received {
                    let arrived = inbox.wait(words, READ_SPIN, park);
                    if arrived {
                        TAKEN.fetch_add(1, Ordering::AcqRel);
                    }
                    return arrived;
                }
            }
            Err(TryLockError::Poisoned(_)) => return false,
            Err(TryLockError::WouldBlock) => {}
        }
        if RECEIVED.load(Ordering::Acquire) != received {
            return false;
        }
        std::thread::sleep(FULL_NAP);
        waited += FULL_NAP;
    }
    false
}
