use crate::{Cause, CopyBytes, Front, MessageId, PeerId, PeerLost, Peers, Progress};
use gt_protocol::message::Peer;

/// The peers of a worker without other workers.
#[derive(Debug)]
pub struct Nobody;

impl Peers for Nobody {
    fn introduce(&mut self, _peer: &Peer<'_>) {}

    fn begin(&mut self, _tag: u64) {}
    fn end(&mut self, _tag: u64, _well: bool) {}
    fn pause(&mut self, _tag: u64) {}

    fn poll(&mut self) -> bool {
        false
    }

    fn has_come(&self, _tag: u64) -> bool {
        false
    }

    fn push(
        &mut self,
        peer: PeerId,
        _message: MessageId,
        _progress: Progress,
        _fill: &mut dyn FnMut(&mut [u8], CopyBytes),
    ) -> Result<Option<usize>, PeerLost> {
        Err(PeerLost(peer))
    }

    fn fail(
        &mut self,
        peer: PeerId,
        _message: MessageId,
        _cause: &Cause,
    ) -> Result<bool, PeerLost> {
        Err(PeerLost(peer))
    }

    fn front(&self, peer: PeerId, _message: MessageId) -> Result<Front<'_>, PeerLost> {
        Err(PeerLost(peer))
    }

    fn release(&mut self, _peer: PeerId, _message: MessageId, _bytes: usize) {}

    fn clear(&mut self, _peer: PeerId, _message: MessageId) -> bool {
        false
    }
}
