//! The interface of a machine to the links that reach other workers.

use crate::failure::{Broken, Cause, Fault};
use gt_protocol::message::{FailureClass, Peer};

/// A worker as an instruction means it. The next worker with the index of one that is gone is the
/// next incarnation: messages about or to one do not concern the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId {
    pub index: u32,
    /// Number of workers that had the index before.
    pub incarnation: u32,
}

/// Identifies a message between workers: the tag of its instruction, and the hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId {
    pub tag: u64,
    pub hop: u32,
}

/// Progress of a message: of its `total` bytes, `from..to` are available now.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub total: usize,
    pub from: usize,
    pub to: usize,
}

/// Copies bytes to a slice of the same length: a link knows the best way to write its memory.
pub type CopyBytes = fn(&mut [u8], &[u8]);

/// Available part of a message.
#[derive(Clone, Copy, Debug)]
pub enum Front<'a> {
    Nothing,
    /// The next bytes, and the length of the whole message; empty only for an empty message.
    Bytes {
        total: u64,
        bytes: &'a [u8],
    },
    /// The sender's part has failed: this replaces the remaining bytes.
    Failure(&'a Cause),
}

/// Error of a worker that cannot be reached any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {} is gone", .0.index)]
pub struct PeerLost(pub PeerId);

/// The other workers. Messages go out and come in chunk by chunk, so that one side processes what
/// the other has sent so far. Nothing here waits.
pub trait Peers {
    /// Handles the dispatcher's introduction: the worker that instructions mean by an index from
    /// now on, and the way to reach it. Messages in flight continue with the earlier incarnation,
    /// until its end.
    fn introduce(&mut self, peer: &Peer<'_>);

    /// Starts an instruction with this tag; others may be in flight. Chunks of tags that have not
    /// started are set aside until their turn: two workers that send each other more than the link
    /// holds must not wait for each other.
    fn begin(&mut self, tag: u64);

    /// Ends a tag. Unless it ended `well`, chunks that still arrive for it are dropped.
    fn end(&mut self, tag: u64, well: bool);

    /// Suspends a tag: chunks that arrive are set aside until it starts again.
    fn pause(&mut self, tag: u64);

    /// Looks for arrivals. Returns true for more than chunks: room where there was none, or a
    /// worker that joined or is gone.
    fn poll(&mut self) -> bool;

    /// Returns true if the next chunk on any link has this tag, as of the last
    /// [`poll`](Self::poll).
    fn has_come(&self, tag: u64) -> bool;

    /// Sends the next bytes of a message, as many as there is room for: `fill` writes them in place
    /// with the copy function that it gets. Returns their number, or `None` while there is no room.
    /// A message without bytes also takes one call.
    fn push(
        &mut self,
        peer: PeerId,
        message: MessageId,
        progress: Progress,
        fill: &mut dyn FnMut(&mut [u8], CopyBytes),
    ) -> Result<Option<usize>, PeerLost>;

    /// Ends a message with a failure; returns false while there is no room.
    fn fail(&mut self, peer: PeerId, message: MessageId, cause: &Cause) -> Result<bool, PeerLost>;

    /// Available part of a message from `peer`, as of the last [`poll`](Self::poll).
    fn front(&self, peer: PeerId, message: MessageId) -> Result<Front<'_>, PeerLost>;

    /// Returns true if nothing more is to be expected from a worker.
    fn is_gone(&self, peer: PeerId) -> bool {
        // No instruction has this tag.
        self.front(peer, MessageId { tag: u64::MAX, hop: 0 }).is_err()
    }

    /// Consumes the first `bytes` that [`front`](Self::front) showed; a failure is consumed as a
    /// whole.
    fn release(&mut self, peer: PeerId, message: MessageId, bytes: usize);

    /// Sets aside the chunks before `message` from `peer` on its link, which belong to instructions
    /// that cannot take them now: called when nothing moves. Returns true if there were any.
    fn clear(&mut self, peer: PeerId, message: MessageId) -> bool;
}

impl From<PeerLost> for Fault {
    fn from(lost: PeerLost) -> Self {
        Self::new(FailureClass::WorkerLost, lost.to_string())
    }
}

impl From<PeerLost> for Broken {
    fn from(lost: PeerLost) -> Self {
        Self::Fault(lost.into())
    }
}
