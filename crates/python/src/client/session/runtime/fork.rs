//! Forks of this process: a child does not use its parent's connection.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// True in a child that was forked while a connection was open: that connection belongs to the
/// parent.
pub(super) static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

pub(super) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Registers the handler for forks.
pub(super) fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}
