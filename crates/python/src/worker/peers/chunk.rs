//! A chunk of a message: the words before its bytes, and a chunk that is kept until it is asked
//! for.

use gt_protocol::message::{self, FromWorker};
use gt_protocol::peer::{ChunkHead, ChunkKind};
use gt_worker::{Cause, Front, MessageId};

pub const fn bytes_head(message: MessageId, total: u64) -> ChunkHead {
    ChunkHead { tag: message.tag, hop: message.hop, kind: ChunkKind::Bytes, total }
}

pub const fn failure_head(message: MessageId) -> ChunkHead {
    ChunkHead { tag: message.tag, hop: message.hop, kind: ChunkKind::Failure, total: 0 }
}

pub const fn message_of(head: &ChunkHead) -> MessageId {
    MessageId { tag: head.tag, hop: head.hop }
}

pub fn is_failure(head: &ChunkHead) -> bool {
    head.kind == ChunkKind::Failure
}

/// A chunk that was taken off its link.
#[derive(Debug)]
pub struct StoredChunk {
    total: u64,
    part: Result<Vec<u8>, Cause>,
    read: usize,
    /// Number of bytes that it had in the link.
    length: usize,
}

impl StoredChunk {
    pub fn new(head: &ChunkHead, bytes: &[u8]) -> Self {
        let part = if is_failure(head) { Err(cause(bytes)) } else { Ok(bytes.to_vec()) };
        Self { total: head.total, part, read: 0, length: bytes.len() }
    }

    pub const fn length(&self) -> usize {
        self.length
    }

    pub fn front(&self) -> Front<'_> {
        match &self.part {
            Ok(bytes) => {
                let bytes = &bytes[self.read..];
                Front::Bytes { total: self.total, bytes }
            }
            Err(cause) => Front::Failure(cause),
        }
    }

    /// Consumes bytes, or a failure; returns true if nothing is left.
    pub fn release(&mut self, bytes: usize) -> bool {
        self.read += bytes;
        self.part.as_ref().map_or(true, |all| self.read >= all.len())
    }
}

/// The words of a failure's message, as bytes.
pub fn failure(cause: &Cause) -> Vec<u8> {
    let mut words = Vec::new();
    let encoded = message::encode(&FromWorker::Failure(cause.message()), &mut words);
    encoded.expect("a cause with a clipped text has a binary form");
    bytemuck::cast_slice(&words).to_vec()
}

/// Parses a failure message; a message that cannot be parsed is a failure too.
pub fn cause(bytes: &[u8]) -> Cause {
    let words: Vec<u32> =
        bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if let Ok((FromWorker::Failure(failure), _)) = message::decode(&words) {
        return Cause::from(&failure);
    }
    let text = "another worker's failure cannot be read";
    let fault = gt_worker::Fault::new(message::FailureClass::Protocol, text);
    Cause { session: 0, tag: 0, op: None, fault }
}
