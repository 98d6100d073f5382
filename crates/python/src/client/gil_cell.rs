//! Interior mutability that the GIL guards.

use pyo3::Python;
use std::cell::{Ref, RefCell, RefMut};

/// A cell that only code holding the GIL touches. A second borrow is a bug of ours and panics instead of corrupting.
pub(crate) struct GilCell<T>(RefCell<T>);

// SAFETY: every access takes a `Python` token, and the module refuses interpreters without a GIL
// (lib.rs), so one thread at a time touches the cell. Several threads use the content in turn, so
// it must be `Send`.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// The content of a cell that is borrowed exclusively.
    pub(crate) fn inner_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    pub(crate) fn get(&self, _py: Python<'_>) -> Ref<'_, T> {
        self.0.borrow()
    }

    pub(crate) fn get_mut(&self, _py: Python<'_>) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }

    /// Access for destructors, which Python runs with the GIL held; `None` while the cell is
    /// borrowed further up the stack.
    ///
    /// # Safety
    /// The caller holds the GIL.
    pub(crate) unsafe fn try_get_mut(&self) -> Option<RefMut<'_, T>> {
        self.0.try_borrow_mut().ok()
    }
}
