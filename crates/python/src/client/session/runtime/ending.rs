//! The end of the program: one thread ends the session; the other threads are stopped and never
//! see the end.

use pyo3::prelude::*;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

/// True once the session has ended with the program.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);
/// The thread that has ended it.
static ENDING_THREAD: Mutex<Option<ThreadId>> = Mutex::new(None);

/// Ends the session with the program; the calling thread ends the program.
pub(super) fn begin() {
    *ENDING_THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current().id());
    HAS_ENDED.store(true, Ordering::Release);
}

/// Undoes [`begin`]: the calling thread has opened another session, so the program goes on.
pub(super) fn forget() {
    HAS_ENDED.store(false, Ordering::Release);
}

/// Blocks forever in a thread that outlives the program's end (a daemon thread): its session is
/// gone through no fault of its own, and an error would print half a traceback from an interpreter
/// that is being finalized.
#[inline]
pub(crate) fn hold_other_threads(py: Python<'_>) {
    if HAS_ENDED.load(Ordering::Acquire) {
        hold(py);
    }
}

#[cold]
fn hold(py: Python<'_>) {
    let ending = *ENDING_THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if ending != Some(thread::current().id()) {
        py.detach(|| {
            loop {
                thread::park();
            }
        });
    }
}
