//! One connection in place of another, or none: values of the earlier one are void.

use super::ending::{self, hold_other_threads};
use super::fork::{FORKED, forked, watch_forks};
use super::state::{EPOCH, Hope, RECEIVED, SlotPool, TAKEN, WAITING, Waiting, with};
use crate::client::connection::Connection;
use crate::client::connection::answers::Answers;
use crate::client::session::errors;
use pyo3::prelude::*;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Puts a new connection in place of the current one.
///
/// `hope` where the workers are not this program's own: how long to wait for the first.
pub(crate) fn install(
    py: Python<'_>,
    connection: Box<dyn Connection>,
    announce_sites: bool,
    hope: Option<Duration>,
) {
    hold_other_threads(py);
    ending::forget();
    watch_forks();
    let old = with(py, |runtime| {
        if FORKED.swap(false, Ordering::Relaxed) {
            // The parent's connection is not ours to end; the new one is.
            std::mem::forget(runtime.connection.take());
            // What the parent's other threads had taken is theirs.
            RECEIVED.store(TAKEN.load(Ordering::Acquire), Ordering::Release);
        }
        EPOCH.fetch_add(1, Ordering::Relaxed);
        *WAITING.get_mut(py) = Waiting::default();
        runtime.slots = SlotPool::default();
        runtime.answers = Answers::default();
        runtime.begun = false;
        runtime.announced = announce_sites.then(Vec::new);
        runtime.is_start_told = false;
        runtime.hope = hope.map(|limit| Hope { limit, since: None, is_announced: false });
        runtime.connection.replace(connection)
    });
    close(py, old);
}

/// Ends the connection, if there is one.
pub(crate) fn disconnect(py: Python<'_>) {
    let old = with(py, |runtime| {
        if forked() {
            // The parent's connection is not ours to end.
            std::mem::forget(runtime.connection.take());
            return None;
        }
        EPOCH.fetch_add(1, Ordering::Relaxed);
        *WAITING.get_mut(py) = Waiting::default();
        runtime.connection.take()
    });
    close(py, old);
}

/// Ends the connection with the program: to other threads the session stands still from here on.
pub(crate) fn end_with_program(py: Python<'_>) {
    ending::begin();
    disconnect(py);
}

fn close(py: Python<'_>, connection: Option<Box<dyn Connection>>) {
    let Some(mut connection) = connection else { return };
    connection.close();
    if let Some(text) = connection.take_notice()
        && let Err(error) = errors::announce(py, &text)
    {
        error.write_unraisable(py, None); // the session has ended; only its last words are lost
    }
}
