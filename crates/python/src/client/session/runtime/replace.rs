//! Replacing one connection by another, or by none: values of the earlier one become void.

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

/// True in a forked child that has left its parent's session.
static CHILD: AtomicBool = AtomicBool::new(false);

/// Puts a new connection in place of the current one.
///
/// `hope` is set where the workers are not this program's own: the time to wait for the first.
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

/// Makes a forked child an independent program, whose first operation opens a session; without
/// effect in other processes.
pub(crate) fn leave_parent(py: Python<'_>) {
    if forked() {
        CHILD.store(true, Ordering::Relaxed);
        let old = with(py, |runtime| {
            runtime.announced = None;
            runtime.hope = None;
            begin_anew(py, runtime)
        });
        assert!(old.is_none(), "a forked child must not end its parent's connection");
    }
}

/// The end of an error message about a tensor without a value in this session: its owner, and
/// advice.
pub(crate) fn whose() -> &'static str {
    if has_left_parent() {
        return "belongs to the process that this one was forked from; keep it in the dataset, or keep a numpy array \
                (.numpy()) in its place, or load with num_workers=0";
    }
    "belongs to another session (gt.connect or gt.disconnect was called since); bring its data along by .numpy() and \
     gt.tensor()"
}

/// Returns true if this process is a forked child that left its parent's session: earlier values
/// are the parent's.
fn has_left_parent() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// Returns true if this is such a child without a session yet. A loader sends tensors of its
/// dataset along when the session begins, so the session must begin before such a tensor is used.
pub(crate) fn is_new_child(py: Python<'_>) -> bool {
    has_left_parent() && !has_begun(py)
}

/// Opens the session of such a child.
#[inline]
pub(crate) fn begin_new_child(py: Python<'_>) -> PyResult<()> {
    if is_new_child(py) { prepare(py) } else { Ok(()) }
}

/// Makes all values void; returns the old connection, unless it is the parent's.
fn begin_anew(py: Python<'_>, runtime: &mut Runtime) -> Option<Box<dyn Connection>> {
    if FORKED.swap(false, Ordering::Relaxed) {
        // The parent's connection must not be ended here.
        std::mem::forget(runtime.connection.take());
        // Words that the parent's other threads had taken belong to the parent.
        RECEIVED.store(TAKEN.load(Ordering::Acquire), Ordering::Release);
    }
    EPOCH.fetch_add(1, Ordering::Relaxed);
    *WAITING.get_mut(py) = Waiting::default();
    runtime.drop_held();
    runtime.slots = SlotPool::default();
    runtime.answers = Answers::default();
    runtime.begun = false;
    runtime.connection.take()
}

/// Ends the connection, if there is one.
pub(crate) fn disconnect(py: Python<'_>) {
    let old = with(py, |runtime| {
        if forked() {
            // The parent's connection must not be ended here.
            std::mem::forget(runtime.connection.take());
            return None;
        }
        EPOCH.fetch_add(1, Ordering::Relaxed);
        *WAITING.get_mut(py) = Waiting::default();
        runtime.drop_held();
        runtime.connection.take()
    });
    close(py, old);
}

/// Ends the connection with the program: other threads that use the session block from here on.
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
        error.write_unraisable(py, None); // the session has ended; only its last messages are lost
    }
}
