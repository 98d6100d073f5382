//! The way to one other worker, whichever it is.

use super::slab::SlabLink;
use super::tcp::TcpLink;
use gt_protocol::peer::ChunkHead;
use gt_transport::Parked;
use gt_worker::{CopyBytes, Front};

#[derive(Debug)]
pub enum WorkerLink {
    Slab(SlabLink),
    Tcp(TcpLink),
}

/// The same call to either.
macro_rules! either {
    ($link:expr, $name:ident($($argument:expr),*)) => {
        match $link {
            WorkerLink::Slab(link) => link.$name($($argument),*),
            WorkerLink::Tcp(link) => link.$name($($argument),*),
        }
    };
}

impl WorkerLink {
    /// Nothing more is to be expected from the other side.
    pub fn is_broken(&self) -> bool {
        either!(self, is_broken())
    }

    /// Nothing can be sent any more. What has come is still read.
    pub fn is_cut(&self) -> bool {
        match self {
            // The dispatcher says that the other side is gone.
            Self::Slab(_) => false,
            Self::Tcp(link) => link.is_cut(),
        }
    }

    /// Nothing is left of what a worker that is gone has sent.
    pub fn is_drained(&self) -> bool {
        either!(self, is_drained())
    }

    /// Looks what has come.
    pub fn refresh(&mut self) {
        either!(self, refresh());
    }

    /// The first chunk, or what is left of it.
    pub fn front(&self) -> Option<(ChunkHead, &[u8])> {
        either!(self, front())
    }

    /// The same for who asked for it.
    pub fn current(&self) -> Option<(ChunkHead, Front<'_>)> {
        either!(self, current())
    }

    /// Gives up bytes of the first chunk, and the chunk with its last; a failure as a whole.
    pub fn release(&mut self, bytes: usize) {
        either!(self, release(bytes));
    }

    pub fn release_all(&mut self) {
        either!(self, release_all());
    }

    /// Sends a chunk of at most `ready` bytes; how many, if there is room.
    pub fn push(
        &mut self,
        head: &ChunkHead,
        ready: usize,
        fill: &mut dyn FnMut(&mut [u8], CopyBytes),
    ) -> Option<usize> {
        either!(self, push(head, ready, fill))
    }

    /// Whether there is room again since there was none for a chunk: said once.
    pub fn has_room_again(&mut self) -> bool {
        either!(self, has_room_again())
    }

    /// First half of a sleep: says where a chunk that comes, or room where there was none, will be noticed; false where
    /// there is one already.
    pub fn park(&mut self, words: &mut Vec<Parked>) -> bool {
        either!(self, park(words))
    }

    /// Second half.
    pub fn unpark(&mut self) {
        if let Self::Slab(link) = self {
            link.unpark();
        }
    }
}
