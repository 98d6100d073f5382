//! Pieces that were taken off their way before anybody asked for them.

use super::piece::{StoredPiece, message_of};
use gt_protocol::peer::PieceHead;
use gt_worker::MessageId;
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default)]
pub struct Aside {
    pieces: BTreeMap<(u32, MessageId), VecDeque<StoredPiece>>,
    bytes: usize,
}

impl Aside {
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn add(&mut self, peer: u32, head: &PieceHead, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.pieces
            .entry((peer, message_of(head)))
            .or_default()
            .push_back(StoredPiece::new(head, bytes));
    }

    pub fn first(&self, peer: u32, message: MessageId) -> Option<&StoredPiece> {
        self.pieces.get(&(peer, message))?.front()
    }

    /// Gives up bytes of the first piece, and the piece with its last; false if there is none.
    pub fn release(&mut self, peer: u32, message: MessageId, bytes: usize) -> bool {
        let Some(pieces) = self.pieces.get_mut(&(peer, message)) else { return false };
        if let Some(first) = pieces.front_mut()
            && first.release(bytes)
        {
            self.bytes -= first.length();
            pieces.pop_front();
        }
        if pieces.is_empty() {
            self.pieces.remove(&(peer, message));
        }
        true
    }

    /// Throws away the pieces of these messages.
    pub fn forget(&mut self, is_unwanted: impl Fn(u32, MessageId) -> bool) {
        self.pieces.retain(|&(peer, message), _| !is_unwanted(peer, message));
        self.bytes = self.pieces.values().flatten().map(StoredPiece::length).sum();
    }
}
