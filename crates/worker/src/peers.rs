//! What a machine needs from whatever reaches other workers.

use crate::failure::{Broken, Cause, Fault};
use gt_protocol::message::{FailureClass, Peer};

/// A worker as an instruction means it. Whoever takes the index of a worker that is gone is the next incarnation: what is said of
/// the one, or sent to it, does not concern the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId {
    pub index: u32,
    /// How many workers have had the index before.
    pub incarnation: u32,
}

/// One message from a worker to another: the tag of its instruction, and which of that instruction's hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId {
    pub tag: u64,
    pub hop: u32,
}

/// How far a message is: of its `total` bytes those `from` and up to `to` can be had now.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub total: usize,
    pub from: usize,
    pub to: usize,
}

/// Copies bytes to as many others: a link knows how its memory is best written to.
pub type CopyBytes = fn(&mut [u8], &[u8]);

/// What is here of a message.
#[derive(Clone, Copy, Debug)]
pub enum Front<'a> {
    Nothing,
    /// The next bytes, and how many the whole message has; none only where it has none.
    Bytes {
        total: u64,
        bytes: &'a [u8],
    },
    /// The sender's part has failed, and this stands in the place of the rest.
    Failure(&'a Cause),
}

/// A worker that nobody can reach any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {} is gone", .0.index)]
pub struct PeerLost(pub PeerId);

/// The other workers. A message goes out and comes in chunk by chunk, so that one side works on what the other has
/// sent so far. Nothing here waits.
pub trait Peers {
    /// The dispatcher says whom instructions mean from now on by an index, and how that one is reached. What is in flight goes
    /// on with the earlier incarnation, whose end it will see.
    fn introduce(&mut self, peer: &Peer<'_>);

    /// An instruction with this tag begins; others may be in flight. What comes under tags that have not begun is kept
    /// aside until their turn: two workers that send each other more than the link between them holds must not wait for
    /// each other.
    fn begin(&mut self, tag: u64);

    /// It is over. Unless it ended `well`, what still comes under the tag is for nobody.
    fn end(&mut self, tag: u64, well: bool);

    /// Nothing is taken under this tag for a while: what comes is kept aside until it begins again.
    fn pause(&mut self, tag: u64);

    /// Takes note of what has come. True if more than chunks: room for what had none, or another worker is there or gone.
    fn poll(&mut self) -> bool;

    /// Whether the next chunk on any link is of an instruction, as of the last [`poll`](Self::poll).
    fn has_come(&self, tag: u64) -> bool;

    /// Sends the next bytes of a message, as many as have room, which `fill` writes where they are to be by the copying
    /// that it is given; how many, or `None` while there is no room. A message without bytes is sent by one call too.
    fn push(
        &mut self,
        peer: PeerId,
        message: MessageId,
        progress: Progress,
        fill: &mut dyn FnMut(&mut [u8], CopyBytes),
    ) -> Result<Option<usize>, PeerLost>;

    /// Ends a message with a failure; false while there is no room.
    fn fail(&mut self, peer: PeerId, message: MessageId, cause: &Cause) -> Result<bool, PeerLost>;

    /// What is here of a message from `peer`, as of the last [`poll`](Self::poll).
    fn front(&self, peer: PeerId, message: MessageId) -> Result<Front<'_>, PeerLost>;

    /// Whether nothing of a worker is to be expected any more.
    fn is_gone(&self, peer: PeerId) -> bool {
        // No instruction has this tag.
        self.front(peer, MessageId { tag: u64::MAX, hop: 0 }).is_err()
    }

    /// Gives up the first `bytes` of what [`front`](Self::front) showed; a failure as a whole.
    fn release(&mut self, peer: PeerId, message: MessageId, bytes: usize);

    /// Nothing moves here, and `message` from `peer` is waited for: keeps aside what stands before it on the link, which is
    /// for instructions that cannot take it now. True if there was anything.
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
