//! The link to one other worker, of either kind.

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

/// Calls the same method on either kind of link.
macro_rules! either {
    ($link:expr, $name:ident($($argument:expr),*)) => {
        match $link {
            WorkerLink::Slab(link) => link.$name($($argument),*),
            WorkerLink::Tcp(link) => link.$name($($argument),*),
        }
    };
}

impl WorkerLink {
    /// Returns true if nothing more is to be expected from the other side.
    pub fn is_broken(&self) -> bool {
        either!(self, is_broken())
    }

    /// Returns true if a worker of another host is expected to call again.
    pub fn awaits_call(&mut self) -> bool {
        match self {
            Self::Slab(_) => false,
            Self::Tcp(link) => link.awaits_call(),
        }
    }

    /// Returns true if nothing more can be sent. Chunks that have arrived are still read.
    pub fn is_cut(&self) -> bool {
        match self {
            // For a slab, the dispatcher reports that the other side is gone.
            Self::Slab(_) => false,
            Self::Tcp(link) => link.is_cut(),
        }
    }

    /// Returns true if no chunk is left of a worker that is gone.
    pub fn is_drained(&self) -> bool {
        either!(self, is_drained())
    }

    /// Looks for chunks that have arrived.
    pub fn refresh(&mut self) {
        either!(self, refresh());
    }

    /// The first chunk, or its unread rest.
    pub fn front(&self) -> Option<(ChunkHead, &[u8])> {
        either!(self, front())
    }

    /// The first chunk, for the collective that asked for it.
    pub fn current(&self) -> Option<(ChunkHead, Front<'_>)> {
        either!(self, current())
    }

    /// Consumes bytes of the first chunk, and removes it with its last byte; a failure is removed
    /// as a whole.
    pub fn release(&mut self, bytes: usize) {
        either!(self, release(bytes));
    }

    pub fn release_all(&mut self) {
        either!(self, release_all());
    }

    /// Sends a chunk of at most `ready` bytes; returns the number of bytes sent, if there was room.
    pub fn push(
        &mut self,
        head: &ChunkHead,
        ready: usize,
        fill: &mut dyn FnMut(&mut [u8], CopyBytes),
    ) -> Option<usize> {
        either!(self, push(head, ready, fill))
    }

    /// Returns true, once, if there is room again since there was none for a chunk.
    pub fn has_room_again(&mut self) -> bool {
        either!(self, has_room_again())
    }

    /// First half of a sleep: adds the words at which a new chunk, or new room, will be noticed;
    /// returns false where there is one already.
    pub fn park(&mut self, words: &mut Vec<Parked>) -> bool {
        either!(self, park(words))
    }

    /// Second half of a sleep.
    pub fn unpark(&mut self) {
        if let Self::Slab(link) = self {
            link.unpark();
        }
    }
}
