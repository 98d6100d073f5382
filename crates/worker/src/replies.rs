//! Where a machine's answers go.

use gt_protocol::message::{FromWorker, REPLY_BYTES_MAX};

/// Takes a machine's answers, in order, and has the payloads that are not among the words.
pub trait Replies {
    fn send(&mut self, message: &FromWorker<'_>);
    /// Bytes of a chunk of an answer at most: a multiple of every element's size.
    fn chunk_bytes_max(&self) -> usize {
        REPLY_BYTES_MAX
    }
    /// Shows the next payload that came beside the words, with the offset that it was sent for, and takes it away; false
    /// where there is none.
    fn payload(&mut self, show: &mut dyn FnMut(u64, &[u8])) -> bool {
        let _ = show;
        false
    }
}
