//! The end of the program: one thread ends the session, and no other learns of it.

use pyo3::prelude::*;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

/// Whether the session has ended with the program.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);
/// The thread that has ended it.
static ENDING_THREAD: Mutex<Option<ThreadId>> = Mutex::new(None);

/// The session ends with the program, which the calling thread ends.
pub(super) fn begin() {
    *ENDING_THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current().id());
    HAS_ENDED.store(true, Ordering::Release);
}

/// The calling thread has opened another session, so the program goes on.
pub(super) fn forget() {
    HAS_ENDED.store(false, Ordering::Release);
}

/// Returns never in a thread that goes on (a daemon, in Python's words) when the program has ended: its session is gone
/// through no fault of its own, and an error would be half a traceback from an interpreter that is being taken down.
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
