//! Destination of a machine's answers.

use gt_protocol::Op;
use gt_protocol::message::{FromWorker, REPLY_BYTES_MAX};

/// An instruction that a worker executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    pub session: u32,
    /// Low half of the instruction's number.
    pub tag: u32,
    pub op: Op,
}

/// Takes a machine's answers, in order, and supplies the payloads that are not among the words.
pub trait Replies {
    fn send(&mut self, message: &FromWorker<'_>);
    /// Notes the instruction that begins, or that none does: whoever finds this worker dead can tell
    /// what it was at.
    fn running(&mut self, instruction: Option<Running>) {
        let _ = instruction;
    }
    /// Maximum bytes of a chunk of an answer: a multiple of every element's size.
    fn chunk_bytes_max(&self) -> usize {
        REPLY_BYTES_MAX
    }
    /// Passes the next payload beside the words to `show`, with the offset that it was sent for,
    /// and removes it; returns false if there is none.
    fn payload(&mut self, show: &mut dyn FnMut(u64, &[u8])) -> bool {
        let _ = show;
        false
    }
    /// Number of `cancel` messages, wrapping, that have been read or are behind the words that have
    /// not been executed.
    fn announced(&self) -> u32 {
        0
    }
}
