//! The work of one collective at one member: messages out, messages in, and a fold between them, piece by piece.

use super::group::Group;
use super::region::Region;
use crate::peers::{Front, PeerLost, Peers, Progress, Stream};
use crate::{Buffers, Cause, Engine, Fault, Fold};
use gt_protocol::{Dtype, Meta};
use smallvec::SmallVec;

/// So many bytes are folded at a time: the sum stays in the first-level cache while the shards are added to it.
const BLOCK_BYTES: usize = 8 * 1024;

/// A collective has at most so many hops.
const HOPS_MAX: u32 = 2;

/// Which of our bytes a message is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Operand,
    /// What the fold has made, as far as it is.
    Folded,
}

struct Outgoing {
    peer: u32,
    hop: u32,
    source: Source,
    region: Region,
    sent: usize,
    done: bool,
}

struct Incoming {
    peer: u32,
    hop: u32,
    /// Where in the result.
    region: Region,
    received: usize,
    done: bool,
}

/// One message from every other member, folded with a part of our operand into a part of the result.
struct Folding {
    fold: Fold,
    dtype: Dtype,
    own: Region,
    result: Region,
    done_bytes: usize,
    done: bool,
}

/// Why an exchange ends early.
pub(super) enum Broken {
    /// Another member's part has failed.
    Failed(Cause),
    Fault(Fault),
    /// The attempt is broken off, and nobody must hear of it.
    Off,
}

impl From<PeerLost> for Broken {
    fn from(lost: PeerLost) -> Self {
        Self::Fault(lost.into())
    }
}

/// What is to go out, to come in and to be folded; then how far that is.
pub(super) struct Exchange<'g> {
    group: &'g Group,
    tag: u64,
    /// For an error's text.
    result: Meta,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    folding: Option<Folding>,
    /// From our operand to our result, without any message.
    kept: Option<(Region, Region)>,
}

impl<'g> Exchange<'g> {
    pub fn new(group: &'g Group, tag: u64, result: Meta) -> Self {
        let (outgoing, incoming) = (Vec::new(), Vec::new());
        Self { group, tag, result, outgoing, incoming, folding: None, kept: None }
    }

    pub fn send(&mut self, peer: u32, hop: u32, source: Source, region: Region) {
        self.outgoing.push(Outgoing { peer, hop, source, region, sent: 0, done: false });
    }

    pub fn receive(&mut self, peer: u32, hop: u32, region: Region) {
        self.incoming.push(Incoming { peer, hop, region, received: 0, done: false });
    }

    /// The first hop of all others is folded with `own` into `result`, which has no gaps.
    pub fn fold(&mut self, fold: Fold, own: Region, result: Region) {
        let dtype = self.result.dtype;
        self.folding = Some(Folding { fold, dtype, own, result, done_bytes: 0, done: false });
    }

    pub fn keep(&mut self, own: Region, result: Region) {
        self.kept = Some((own, result));
    }

    /// Runs to the end. On a failure the others hear of it in the place of what they wait for.
    pub fn run<E: Engine>(
        &mut self,
        mut buffers: Buffers<'_>,
        peers: &mut impl Peers,
    ) -> Result<(), Broken> {
        if let Some((from, to)) = self.kept {
            copy(&mut buffers, from, to);
        }
        loop {
            peers.poll();
            let mut moved = self.push(Source::Operand, &buffers, peers)?;
            moved |= self.fold_what_came::<E>(&mut buffers, peers)?;
            moved |= self.push(Source::Folded, &buffers, peers)?;
            moved |= self.pull(&mut buffers, peers)?;
            if self.is_done() {
                return Ok(());
            }
            if !moved {
                let (from, to) = self.awaited(peers);
                if !peers.wait(from, to) {
                    return Err(Broken::Off);
                }
            }
        }
    }

    /// Members whose own part has failed. They may have left, and take nothing in any more.
    pub fn failed(&self, peers: &impl Peers) -> SmallVec<[u32; 4]> {
        let failed = |peer: u32| (0..HOPS_MAX).any(|hop| has_failed(peer, self.stream(hop), peers));
        self.outgoing.iter().map(|outgoing| outgoing.peer).filter(|&peer| failed(peer)).collect()
    }

    /// Ends every message that is not out yet with a failure, but for those who need not hear of it.
    pub fn tell(&self, cause: &Cause, failed: &[u32], peers: &mut impl Peers) {
        let waiting = |outgoing: &&Outgoing| !outgoing.done && !failed.contains(&outgoing.peer);
        for outgoing in self.outgoing.iter().filter(waiting) {
            tell(outgoing.peer, self.stream(outgoing.hop), cause, peers);
        }
    }

    const fn stream(&self, hop: u32) -> Stream {
        Stream { tag: self.tag, hop }
    }

    fn is_done(&self) -> bool {
        self.outgoing.iter().all(|outgoing| outgoing.done)
            && self.incoming.iter().all(|incoming| incoming.done)
            && self.folding.as_ref().is_none_or(|folding| folding.done)
    }

    /// One piece to everybody who has room; true if anything moved.
    fn push(
        &mut self,
        source: Source,
        buffers: &Buffers<'_>,
        peers: &mut impl Peers,
    ) -> Result<bool, Broken> {
        let (ready, data) = match source {
            Source::Operand => (usize::MAX, buffers.operand()),
            Source::Folded => (self.folded(), buffers.result()),
        };
        let mut moved = false;
        for outgoing in self.outgoing.iter_mut().filter(|one| !one.done && one.source == source) {
            let (region, from) = (outgoing.region, outgoing.sent);
            let total = region.len();
            let progress = Progress { total, from, to: ready.min(total) };
            if progress.from == progress.to && total > 0 {
                continue;
            }
            let stream = Stream { tag: self.tag, hop: outgoing.hop };
            let mut fill = |slot: &mut [u8]| region.read(data, from, slot);
            if let Some(taken) = peers.push(outgoing.peer, stream, progress, &mut fill)? {
                outgoing.sent += taken;
                outgoing.done = outgoing.sent == total;
                moved = true;
            }
        }
        Ok(moved)
    }

    fn folded(&self) -> usize {
        self.folding.as_ref().map_or(0, |folding| folding.done_bytes)
    }

    /// Folds as far as all others have sent; true if anything was.
    fn fold_what_came<E: Engine>(
        &mut self,
        buffers: &mut Buffers<'_>,
        peers: &mut impl Peers,
    ) -> Result<bool, Broken> {
        let Some(folding) = &self.folding else { return Ok(false) };
        if folding.done {
            return Ok(false);
        }
        let mut length = folding.result.len() - folding.done_bytes;
        if buffers.is_one() {
            // The fold goes over our operand, so no further than everybody has it.
            let unsent =
                |outgoing: &&Outgoing| outgoing.source == Source::Operand && outgoing.hop == 0;
            let sent = self
                .outgoing
                .iter()
                .filter(unsent)
                .map(|outgoing| if self.is_two_hops() { usize::MAX } else { outgoing.sent });
            length =
                length.min(sent.min().unwrap_or(usize::MAX).saturating_sub(folding.done_bytes));
        }
        let mut shards: Shards<'_> = SmallVec::new();
        let mut missing = false;
        for (place, &member) in self.group.members.iter().enumerate() {
            if place == self.group.me {
                shards.push(None);
                continue;
            }
            match self.next(peers, member, 0, folding.result.len())? {
                None => missing = true,
                Some(bytes) => {
                    length = length.min(bytes.len());
                    shards.push(Some(bytes));
                }
            }
        }
        let element = usize::try_from(folding.dtype.size()).unwrap_or(1);
        length -= length % element;
        let empty = folding.result.len() == 0;
        if missing || (length == 0 && !empty) {
            return Ok(false);
        }
        folding.blocks::<E>(buffers, &shards, length);
        drop(shards);
        for (_, member) in self.group.others() {
            peers.release(member, self.stream(0), length);
        }
        if let Some(folding) = &mut self.folding {
            folding.done_bytes += length;
            folding.done = folding.done_bytes == folding.result.len();
        }
        Ok(true)
    }

    fn is_two_hops(&self) -> bool {
        self.outgoing.iter().any(|outgoing| outgoing.source == Source::Folded)
    }

    /// Takes in what has come of each message that is not folded; true if anything was.
    fn pull(&mut self, buffers: &mut Buffers<'_>, peers: &mut impl Peers) -> Result<bool, Broken> {
        let mut moved = false;
        for place in 0..self.incoming.len() {
            let Some(&Incoming { peer, hop, region, received, done }) = self.incoming.get(place)
            else {
                break;
            };
            if done {
                continue;
            }
            let Some(bytes) = self.next(peers, peer, hop, region.len())? else { continue };
            let length = bytes.len().min(region.len() - received);
            region.write(buffers.result_mut(), received, bytes.get(..length).unwrap_or_default());
            peers.release(peer, self.stream(hop), length);
            if let Some(incoming) = self.incoming.get_mut(place) {
                incoming.received += length;
                incoming.done = incoming.received == region.len();
            }
            moved = true;
        }
        Ok(moved)
    }

    /// The next bytes of a message that must have `expected` in all.
    fn next<'p>(
        &self,
        peers: &'p impl Peers,
        peer: u32,
        hop: u32,
        expected: usize,
    ) -> Result<Option<&'p [u8]>, Broken> {
        match peers.front(peer, self.stream(hop))? {
            Front::Nothing => Ok(None),
            Front::Failure(cause) => Err(Broken::Failed(cause.clone())),
            Front::Bytes { total, bytes } if usize::try_from(total) == Ok(expected) => {
                Ok(Some(bytes))
            }
            Front::Bytes { total, .. } => {
                let text =
                    format!("{total} bytes arrived, {expected} are a part of a {}", self.result);
                Err(Broken::Fault(Fault::protocol(text)))
            }
        }
    }

    /// A worker whose bytes we wait for, or else one that we wait for to take ours.
    fn awaited(&self, peers: &impl Peers) -> (Option<u32>, Option<u32>) {
        let is_missing =
            |peer: u32, hop: u32| matches!(peers.front(peer, self.stream(hop)), Ok(Front::Nothing));
        let folded = self.folding.as_ref().filter(|folding| !folding.done).and_then(|_| {
            self.group.others().map(|(_, member)| member).find(|&member| is_missing(member, 0))
        });
        let incoming = self.incoming.iter().filter(|incoming| !incoming.done);
        let incoming =
            || incoming.map(|one| (one.peer, one.hop)).find(|&(peer, hop)| is_missing(peer, hop));
        let from = folded.or_else(|| incoming().map(|(peer, _)| peer));
        let to = self.outgoing.iter().find(|outgoing| !outgoing.done);
        (from, to.map(|outgoing| outgoing.peer))
    }
}

/// Bytes of every member, in the group's order; `None` stands for our own.
type Shards<'p> = SmallVec<[Option<&'p [u8]>; 8]>;

impl Folding {
    /// Folds the next `length` bytes.
    fn blocks<'a, E: Engine>(&self, buffers: &mut Buffers<'_>, shards: &Shards<'a>, length: usize) {
        let mut scratch = [0_u8; BLOCK_BYTES];
        let start = self.result.contiguous().map_or(0, |range| range.start) + self.done_bytes;
        for offset in (0..length).step_by(BLOCK_BYTES) {
            let size = BLOCK_BYTES.min(length - offset);
            // Where operand and result are one, this also frees the place for the sum.
            let own = scratch.get_mut(..size).unwrap_or_default();
            self.own.read(buffers.operand(), self.done_bytes + offset, own);
            let own: &[u8] = own;
            let within = offset..offset + size;
            let block = |bytes: &'a [u8]| bytes.get(within.clone()).unwrap_or_default();
            let blocks: SmallVec<[&[u8]; 8]> =
                shards.iter().map(|shard| shard.map_or(own, block)).collect();
            let to = buffers.result_mut().get_mut(start + offset..start + offset + size);
            E::fold(self.dtype, self.fold, &blocks, to.unwrap_or_default());
        }
    }
}

/// Says to one worker that it need not wait for a message.
pub(super) fn tell(peer: u32, stream: Stream, cause: &Cause, peers: &mut impl Peers) {
    // A worker that is gone need not be told.
    while let Ok(false) = peers.fail(peer, stream, cause) {
        peers.poll();
        if !peers.wait(None, Some(peer)) {
            return;
        }
    }
}

fn has_failed(peer: u32, stream: Stream, peers: &impl Peers) -> bool {
    matches!(peers.front(peer, stream), Ok(Front::Failure(_)))
}

fn copy(buffers: &mut Buffers<'_>, from: Region, to: Region) {
    let mut scratch = [0_u8; BLOCK_BYTES];
    for offset in (0..from.len()).step_by(BLOCK_BYTES) {
        let size = BLOCK_BYTES.min(from.len() - offset);
        let block = scratch.get_mut(..size).unwrap_or_default();
        from.read(buffers.operand(), offset, block);
        to.write(buffers.result_mut(), offset, block);
    }
}
