//! Chunks that were taken from their link before they were asked for.

use super::chunk::{StoredChunk, message_of};
use gt_protocol::peer::ChunkHead;
use gt_worker::{MessageId, PeerId};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default)]
pub struct EarlyChunks {
    chunks: BTreeMap<(PeerId, MessageId), VecDeque<StoredChunk>>,
    bytes: usize,
}

impl EarlyChunks {
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn add(&mut self, peer: PeerId, head: &ChunkHead, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.chunks
            .entry((peer, message_of(head)))
            .or_default()
            .push_back(StoredChunk::new(head, bytes));
    }

    pub fn first(&self, peer: PeerId, message: MessageId) -> Option<&StoredChunk> {
        self.chunks.get(&(peer, message))?.front()
    }

    /// Consumes bytes of the first chunk, and removes the chunk with its last byte; false if there
    /// is none.
    pub fn release(&mut self, peer: PeerId, message: MessageId, bytes: usize) -> bool {
        let Some(chunks) = self.chunks.get_mut(&(peer, message)) else { return false };
        if let Some(first) = chunks.front_mut()
            && first.release(bytes)
        {
            self.bytes -= first.length();
            chunks.pop_front();
        }
        if chunks.is_empty() {
            self.chunks.remove(&(peer, message));
        }
        true
    }

    /// Drops the chunks of these messages.
    pub fn forget(&mut self, is_unwanted: impl Fn(PeerId, MessageId) -> bool) {
        self.chunks.retain(|&(peer, message), _| !is_unwanted(peer, message));
        self.bytes = self.chunks.values().flatten().map(StoredChunk::length).sum();
    }
}
