//! Forks of this process: a child has no part in its parent's connection.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set in a child that was forked while a connection was open: that one belongs to the parent.
pub(super) static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

pub(super) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Learns of forks from here on.
pub(super) fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}
