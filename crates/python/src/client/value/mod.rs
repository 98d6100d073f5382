//! A value that the dispatcher holds for this client: the last reference frees it there.

pub(crate) mod dtype;
pub(crate) mod metadata;
pub(crate) mod pool;
pub(crate) mod steps;
pub(crate) mod variable;

use crate::client::gil_cell::GilCell;
use crate::client::session::runtime;
use metadata::SharedMeta;
use pool::{Pool, Pooled, Resident};
use pyo3::Python;

/// Names a slot of a session. Immutable: an in-place operator makes a new value.
pub(crate) struct Value {
    pub slot: u32,
    /// Which connection it belongs to; slots of an earlier one mean nothing.
    pub epoch: u32,
    pub meta: SharedMeta,
}

/// A reference to a value, counted.
pub(crate) type SharedValue = Pooled<Value>;

static POOL: GilCell<Pool<Value>> = GilCell::new(Pool::new());

impl Resident for Value {
    fn pool() -> &'static GilCell<Pool<Self>> {
        &POOL
    }

    #[inline]
    fn end(self, py: Python<'_>) {
        runtime::release(py, self.slot, self.epoch, self.meta.bytes);
        self.meta.release(py);
    }
}
