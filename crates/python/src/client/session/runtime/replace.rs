//! One connection in place of another, or none: values of the earlier one are void.

use super::ending::{self, hold_other_threads};
use super::fork::{FORKED, forked, watch_forks};
use super::prepare::prepare;
use super::state::{
    EPOCH, Hope, RECEIVED, Runtime, SlotPool, TAKEN, WAITING, Waiting, has_begun, with,
};
use crate::client::connection::Connection;
use crate::client::connection::answers::Answers;
use crate::client::session::errors;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Set in a forked child that has left its parent's session.
static CHILD: AtomicBool = AtomicBool::new(false);

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
        let old = begin_anew(py, runtime);
        runtime.announced = announce_sites.then(Vec::new);
        runtime.is_start_told = false;
        runtime.hope = hope.map(|limit| Hope { limit, since: None, is_announced: false });
        runtime.connection = Some(connection);
        old
    });
    close(py, old);
}

/// Makes a forked child a program of its own, whose first operation opens a session; of no effect elsewhere.
pub(crate) fn leave_parent(py: Python<'_>) {
    if forked() {
        CHILD.store(true, Ordering::Relaxed);
        let old = with(py, |runtime| {
            runtime.announced = None;
            runtime.hope = None;
            begin_anew(py, runtime)
        });
        assert!(old.is_none(), "a connection of the parent's is not a child's to end");
    }
}

/// Whose a tensor is that has no value in this session, and what to do.
pub(crate) fn whose() -> &'static str {
    if has_left_parent() {
        return "belongs to the process that this one was forked from; keep it in the dataset, or keep a numpy array \
                (.numpy()) in its place, or load with num_workers=0";
    }
    "belongs to another session (gt.connect or gt.disconnect was called since); bring its data along by .numpy() and \
     gt.tensor()"
}

/// Whether this process began as a child that left its parent's session: earlier values are the parent's.
fn has_left_parent() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// Whether this is such a child, and has no session yet. When that begins a loader brings tensors of its dataset along,
/// so it must begin before such a tensor is used.
pub(crate) fn is_new_child(py: Python<'_>) -> bool {
    has_left_parent() && !has_begun(py)
}

/// Begins the session of such a child.
#[inline]
pub(crate) fn begin_new_child(py: Python<'_>) -> PyResult<()> {
    if is_new_child(py) { prepare(py) } else { Ok(()) }
}

/// Makes all values void; the connection there was, where it is ours to end.
fn begin_anew(py: Python<'_>, runtime: &mut Runtime) -> Option<Box<dyn Connection>> {
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
    runtime.connection.take()
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
