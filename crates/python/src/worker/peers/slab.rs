//! The link to another worker of this host: a slab each way.

use super::chunk;
use gt_protocol::peer::ChunkHead;
use gt_transport::memory::copy_streaming;
use gt_transport::slab::StoreChoice;
use gt_transport::{CHUNK_BYTES_MAX, Parked, SlabReader, SlabWriter};
use gt_worker::{Cause, CopyBytes, Front};
use std::os::fd::OwnedFd;
use std::time::Instant;

#[derive(Debug)]
pub struct SlabLink {
    to: SlabWriter,
    from: SlabReader,
    /// Number of bytes of the first chunk that were consumed already.
    read: usize,
    /// The failure, where the first chunk is one.
    failure: Option<Cause>,
    broken: bool,
    /// True if there was no room for a chunk, and new room has not been reported since.
    is_full: bool,
    stores: StoreChoice,
}

impl SlabLink {
    /// Maps the slab to write to the worker and the slab to read from it.
    pub fn new(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let to = SlabWriter::new(descriptors.next()?).ok()?;
        let from = SlabReader::new(descriptors.next()?).ok()?;
        let stores = StoreChoice::default();
        Some(Self { to, from, read: 0, failure: None, broken: false, is_full: false, stores })
    }

    /// Returns true if the other side broke the protocol: nothing is expected from it.
    pub fn is_broken(&self) -> bool {
        self.broken || self.to.is_corrupt() || self.from.is_corrupt()
    }

    pub fn is_drained(&self) -> bool {
        self.front().is_none()
    }

    /// Looks for chunks that have arrived.
    pub fn refresh(&mut self) {
        self.from.refresh();
        self.look_for_failure();
        self.broken |= self.from.front().is_some() && self.front().is_none();
    }

    fn look_for_failure(&mut self) {
        self.failure = match self.front() {
            Some((head, bytes)) if chunk::is_failure(&head) => Some(chunk::cause(bytes)),
            Some(_) | None => None,
        };
    }

    /// The first chunk, or its unread rest.
    pub fn front(&self) -> Option<(ChunkHead, &[u8])> {
        let chunk = self.from.front()?;
        Some((ChunkHead::decode(&chunk.head).ok()?, chunk.bytes.get(self.read..)?))
    }

    /// The first chunk, for the collective that asked for it.
    pub fn current(&self) -> Option<(ChunkHead, Front<'_>)> {
        let (head, bytes) = self.front()?;
        if chunk::is_failure(&head) {
            return Some((head, Front::Failure(self.failure.as_ref()?)));
        }
        Some((head, Front::Bytes { total: head.total, bytes }))
    }

    /// Consumes bytes of the first chunk, and removes it with its last byte; a failure is removed
    /// as a whole.
    pub fn release(&mut self, bytes: usize) {
        self.read += bytes;
        if self.failure.is_some()
            || self.from.front().is_some_and(|chunk| chunk.bytes.len() <= self.read)
        {
            self.release_all();
        }
    }

    pub fn release_all(&mut self) {
        self.read = 0;
        self.from.release();
        self.look_for_failure();
    }

    /// Sends a chunk of at most `ready` bytes; returns the number of bytes sent, if there was room.
    pub fn push(
        &mut self,
        head: &ChunkHead,
        ready: usize,
        fill: &mut dyn FnMut(&mut [u8], CopyBytes),
    ) -> Option<usize> {
        let length = ready.min(CHUNK_BYTES_MAX);
        let slot = self.to.slot();
        self.is_full |= slot.is_none();
        let slot = slot?.get_mut(..length)?;
        let streams = self.stores.streams(length);
        let start = Instant::now();
        fill(slot, if streams { copy_streaming } else { <[u8]>::copy_from_slice });
        self.stores.filled(streams, length, start.elapsed());
        self.to.publish(&head.encode(), length).then_some(length)
    }

    pub fn has_room_again(&mut self) -> bool {
        let has_room = self.is_full && self.to.slot().is_some();
        self.is_full &= !has_room;
        has_room
    }

    pub fn park(&mut self, words: &mut Vec<Parked>) -> bool {
        if !self.from.park() || (self.is_full && !self.to.park()) {
            return false;
        }
        words.push(self.from.parked());
        if self.is_full {
            words.push(self.to.parked());
        }
        true
    }

    pub fn unpark(&mut self) {
        self.from.unpark();
        self.to.unpark();
    }
}
