//! The work of one collective at one member: messages out, messages in, and a reduction between them, piece by piece. It can
//! be left after each step and taken up again.

mod pulled;

pub(crate) use pulled::engines_word;

use super::group::Group;
use super::region::Region;
use crate::lane::Origin;
use crate::peers::{Front, PeerLost, Peers, Progress, Stream};
use crate::{Buffers, Cause, Fault, ReduceBytes, ReduceOp};
use gt_protocol::{Dtype, Meta};
use smallvec::SmallVec;

/// So many bytes are reduced at a time: the sum stays in the first-level cache while the shards are added to it.
pub(super) const BLOCK_BYTES: usize = 8 * 1024;

/// So many bytes of our own are copied in one step: as many as a message's piece has.
const KEPT_STEP_BYTES: usize = 64 * 1024;

/// Which of our bytes a message is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Operand,
    /// What the reduction has made, as far as it is.
    Folded,
}

#[derive(Debug)]
struct Outgoing {
    peer: u32,
    hop: u32,
    source: Source,
    region: Region,
    sent: usize,
    done: bool,
}

#[derive(Debug)]
struct Incoming {
    peer: u32,
    hop: u32,
    /// Where in the result.
    region: Region,
    received: usize,
    done: bool,
}

/// One message from every other member, reduced with a part of our operand into a part of the result.
#[derive(Debug)]
struct Reducing {
    reduce_op: ReduceOp,
    dtype: Dtype,
    own: Region,
    result: Region,
    done_bytes: usize,
    done: bool,
}

/// From our operand to our result, without any message.
#[derive(Debug)]
struct Kept {
    from: Region,
    to: Region,
    done_bytes: usize,
}

/// Why an exchange ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Another member's part has failed.
    Failed(Cause),
    Fault(Fault),
}

/// What a step has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    Moved,
    /// Nothing can be done until other members have sent, or taken in.
    Stuck,
}

impl Broken {
    pub(crate) fn cause(&self, origin: &Origin) -> Cause {
        match self {
            Self::Failed(cause) => cause.clone(),
            Self::Fault(fault) => origin.cause(fault.clone()),
        }
    }
}

impl From<PeerLost> for Broken {
    fn from(lost: PeerLost) -> Self {
        Self::Fault(lost.into())
    }
}

/// What is to go out, to come in and to be reduced; then how far that is.
#[derive(Debug)]
pub(crate) struct Exchange {
    tag: u64,
    /// The first hop's number on the wire; rounds may have been before it.
    hop_first: u32,
    /// For an error's text.
    result: Meta,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    folding: Option<Reducing>,
    kept: Option<Kept>,
}

impl Exchange {
    pub(super) fn new(tag: u64, result: Meta) -> Self {
        let (outgoing, incoming) = (Vec::new(), Vec::new());
        Self { tag, hop_first: 0, result, outgoing, incoming, folding: None, kept: None }
    }

    pub(super) fn send(&mut self, peer: u32, hop: u32, source: Source, region: Region) {
        self.outgoing.push(Outgoing { peer, hop, source, region, sent: 0, done: false });
    }

    pub(super) fn receive(&mut self, peer: u32, hop: u32, region: Region) {
        self.incoming.push(Incoming { peer, hop, region, received: 0, done: false });
    }

    /// The first hop of all others is reduced with `own` into `result`, which has no gaps.
    pub(super) fn reduce(&mut self, reduce_op: ReduceOp, own: Region, result: Region) {
        let dtype = self.result.dtype;
        self.folding = Some(Reducing { reduce_op, dtype, own, result, done_bytes: 0, done: false });
    }

    pub(super) fn keep(&mut self, from: Region, to: Region) {
        self.kept = Some(Kept { from, to, done_bytes: 0 });
    }

    /// Moves each message on by a piece, where that is possible now.
    pub fn step(
        &mut self,
        group: &Group,
        reduce: ReduceBytes,
        buffers: &mut Buffers<'_>,
        peers: &mut impl Peers,
    ) -> Result<Step, Broken> {
        let mut moved = self.push(Source::Operand, buffers, peers)?;
        moved |= self.copy_kept(buffers);
        moved |= self.reduce_what_came(group, reduce, buffers, peers)?;
        moved |= self.push(Source::Folded, buffers, peers)?;
        moved |= self.pull(buffers, peers)?;
        Ok(match (self.is_done(), moved) {
            (true, _) => Step::Done,
            (false, true) => Step::Moved,
            (false, false) => Step::Stuck,
        })
    }

    pub const fn tag(&self) -> u64 {
        self.tag
    }

    /// Begins with this hop, after rounds under the same tag.
    pub const fn begin_at(&mut self, hop: u32) {
        self.hop_first = hop;
    }

    /// Bytes that have not gone out, or not come in.
    pub fn bytes_left(&self, group: &Group) -> usize {
        let out: usize = self.outgoing.iter().map(|one| one.region.len() - one.sent).sum();
        let incoming: usize = self.incoming.iter().map(|one| one.region.len() - one.received).sum();
        let folded = |folding: &Reducing| {
            (folding.result.len() - folding.done_bytes).saturating_mul(group.len() - 1)
        };
        out.saturating_add(incoming).saturating_add(self.folding.as_ref().map_or(0, folded))
    }

    /// Messages that are not out yet: to whom, and in which hop.
    pub fn unsent(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let unsent = self.outgoing.iter().filter(|outgoing| !outgoing.done);
        unsent.map(|outgoing| (outgoing.peer, self.hop_first + outgoing.hop))
    }

    /// Messages that have not come in whole: from whom, in which hop, and the bytes that we have had of each.
    pub fn missing(&self, group: &Group) -> SmallVec<[(u32, u32, usize); 8]> {
        let mut missing = SmallVec::new();
        if let Some(folding) = self.folding.as_ref().filter(|folding| !folding.done) {
            missing.extend(
                group.others().map(|(_, member)| (member, self.hop_first, folding.done_bytes)),
            );
        }
        let incoming = self.incoming.iter().filter(|incoming| !incoming.done);
        missing.extend(incoming.map(|one| (one.peer, self.hop_first + one.hop, one.received)));
        missing
    }

    const fn stream(&self, hop: u32) -> Stream {
        Stream { tag: self.tag, hop: self.hop_first + hop }
    }

    fn is_done(&self) -> bool {
        self.outgoing.iter().all(|outgoing| outgoing.done)
            && self.incoming.iter().all(|incoming| incoming.done)
            && self.folding.as_ref().is_none_or(|folding| folding.done)
            && self.kept.is_none()
    }

    /// Copies the next bytes of our own part; true if any were left.
    fn copy_kept(&mut self, buffers: &mut Buffers<'_>) -> bool {
        let Some(kept) = &mut self.kept else { return false };
        let end = kept.from.len().min(kept.done_bytes + KEPT_STEP_BYTES);
        let mut scratch = [0_u8; BLOCK_BYTES];
        for offset in (kept.done_bytes..end).step_by(BLOCK_BYTES) {
            let size = BLOCK_BYTES.min(end - offset);
            let block = scratch.get_mut(..size).unwrap_or_default();
            kept.from.read(buffers.operand(), offset, block);
            kept.to.write(buffers.result_mut(), offset, block);
        }
        kept.done_bytes = end;
        if end == kept.from.len() {
            self.kept = None;
        }
        true
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
            let stream = Stream { tag: self.tag, hop: self.hop_first + outgoing.hop };
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

    /// Reduces as far as all others have sent; true if anything was.
    fn reduce_what_came(
        &mut self,
        group: &Group,
        reduce: ReduceBytes,
        buffers: &mut Buffers<'_>,
        peers: &mut impl Peers,
    ) -> Result<bool, Broken> {
        let Some(folding) = &self.folding else { return Ok(false) };
        if folding.done {
            return Ok(false);
        }
        let mut length = folding.result.len() - folding.done_bytes;
        if buffers.is_one() {
            // The reduction goes over our operand, so no further than everybody has it.
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
        for (place, &member) in group.members.iter().enumerate() {
            if place == group.me {
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
        folding.blocks(reduce, buffers, &shards, length);
        drop(shards);
        for (_, member) in group.others() {
            peers.release(member, self.stream(0), length);
        }
        if let Some(folding) = &mut self.folding {
            folding.done_bytes += length;
            folding.done = folding.done_bytes == folding.result.len();
        }
        Ok(true)
    }

    pub fn is_two_hops(&self) -> bool {
        self.outgoing.iter().any(|outgoing| outgoing.source == Source::Folded)
    }

    /// Takes in what has come of each message that is not reduced; true if anything was.
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
}

/// Bytes of every member, in the group's order; `None` stands for our own.
type Shards<'p> = SmallVec<[Option<&'p [u8]>; 8]>;

impl Reducing {
    /// Reduces the next `length` bytes.
    fn blocks<'a>(
        &self,
        reduce: ReduceBytes,
        buffers: &mut Buffers<'_>,
        shards: &Shards<'a>,
        length: usize,
    ) {
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
            reduce(self.dtype, self.reduce_op, &blocks, to.unwrap_or_default());
        }
    }
}
