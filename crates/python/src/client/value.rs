//! A value that the dispatcher holds for this client: the last reference frees it there.

use super::runtime;
use gt_protocol::Meta;

/// Names a slot of a session. Immutable: an in-place operator makes a new value.
pub(crate) struct Value {
    pub slot: u32,
    /// Which connection it belongs to; slots of an earlier one mean nothing.
    pub epoch: u32,
    pub meta: Meta,
}

impl Drop for Value {
    fn drop(&mut self) {
        runtime::release(self.slot, self.epoch, self.meta.bytes());
    }
}
