//! Pieces that were taken off their way before anybody asked for them.

use super::piece::{Head, Kept};
use gt_worker::Stream;
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default)]
pub struct Aside {
    pieces: BTreeMap<(u32, Stream), VecDeque<Kept>>,
    bytes: usize,
}

impl Aside {
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn add(&mut self, peer: u32, head: &Head, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.pieces.entry((peer, head.stream)).or_default().push_back(Kept::new(head, bytes));
    }

    pub fn first(&self, peer: u32, stream: Stream) -> Option<&Kept> {
        self.pieces.get(&(peer, stream))?.front()
    }

    /// Gives up bytes of the first piece, and the piece with its last; false if there is none.
    pub fn release(&mut self, peer: u32, stream: Stream, bytes: usize) -> bool {
        let Some(pieces) = self.pieces.get_mut(&(peer, stream)) else { return false };
        if let Some(first) = pieces.front_mut()
            && first.release(bytes)
        {
            self.bytes -= first.length();
            pieces.pop_front();
        }
        if pieces.is_empty() {
            self.pieces.remove(&(peer, stream));
        }
        true
    }

    /// Throws away the pieces of these messages.
    pub fn forget(&mut self, is_unwanted: impl Fn(u32, Stream) -> bool) {
        self.pieces.retain(|&(peer, stream), _| !is_unwanted(peer, stream));
        self.bytes = self.pieces.values().flatten().map(Kept::length).sum();
    }
}
