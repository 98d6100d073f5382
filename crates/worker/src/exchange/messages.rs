//! The work of one collective at one member: outgoing messages, incoming messages, and a reduction
//! between them, chunk by chunk. It can be suspended after each step.
//!
//! Every element is reduced once, in the group's order, independent of the division of the whole
//! among the members and of the other values in its bucket: so all members get the same bits, and
//! the same as in a reduction of the value alone.

use super::bucket::{BucketMemory, MessageBytes, ReducedRange};
use super::group::Group;
use super::header::Headers;
use crate::buffers::BorrowedBuffers;
use crate::failure::Broken;
use crate::peers::{CopyBytes, Front, MessageId, PeerId, Peers, Progress};
use crate::reduce_op::ReduceBytes;
use crate::strided_range::{StridedRange, bytes_of};
use gt_protocol::placement::ONE_HOP_BYTES_MAX;
use gt_protocol::placement::ReduceOp;
use gt_protocol::{Dtype, Meta};
use smallvec::SmallVec;

#[derive(Debug)]
pub(super) struct Outgoing {
    pub peer: PeerId,
    pub hop: u32,
    pub source: MessageBytes,
    pub range: StridedRange,
    /// Number of bytes sent of the message, with its header.
    sent_bytes: usize,
    is_done: bool,
}

#[derive(Debug)]
pub(super) struct Incoming {
    pub peer: PeerId,
    pub hop: u32,
    /// Range in the result.
    pub range: StridedRange,
    received_bytes: usize,
    is_done: bool,
}

/// The first message from every other member, reduced with a part of our operand into a part of the
/// result.
#[derive(Debug)]
pub(super) struct RangeReduction {
    pub range: ReducedRange,
    done_bytes: usize,
    is_done: bool,
}

/// Copy from our operand to our result, without any message.
#[derive(Debug)]
pub(super) struct OwnRange {
    pub from: StridedRange,
    pub to: StridedRange,
    done_bytes: usize,
}

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeStep {
    Done,
    Moved,
    /// Nothing can be done until other members have sent, or received.
    Stuck,
}

/// Messages to send, to receive and to reduce, with the progress of each.
#[derive(Debug)]
pub struct Exchange {
    tag: u64,
    /// The first hop's number on the wire; rounds of a negotiation may have come before it.
    hop_first: u32,
    /// Bytes that are never split: of an element, or the alignment of several values.
    unit: usize,
    /// The result, for a single value.
    pub(super) result: Option<Meta>,
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) incoming: Vec<Incoming>,
    pub(super) reduction: Option<RangeReduction>,
    pub(super) kept: Option<OwnRange>,
    /// Failures of several values, sent before the operands' bytes.
    headers: Option<Headers>,
}

impl Exchange {
    pub fn new(tag: u64, unit: usize, result: Option<Meta>) -> Self {
        Self {
            tag,
            hop_first: 0,
            unit,
            result,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            reduction: None,
            kept: None,
            headers: None,
        }
    }

    /// Dtype of the single value.
    pub fn dtype(&self) -> Dtype {
        self.result.expect("several values have a dtype each").dtype
    }

    /// Bytes of the single result.
    pub fn result_bytes(&self) -> usize {
        bytes_of(&self.result.expect("several values have a length each"))
    }

    pub fn send(&mut self, peer: PeerId, hop: u32, source: MessageBytes, range: StridedRange) {
        self.outgoing.push(Outgoing { peer, hop, source, range, sent_bytes: 0, is_done: false });
    }

    pub fn receive(&mut self, peer: PeerId, hop: u32, range: StridedRange) {
        self.incoming.push(Incoming { peer, hop, range, received_bytes: 0, is_done: false });
    }

    /// Reduces the first hop of all others with `own` into `result`, which has no gaps.
    pub fn reduce(&mut self, reduce_op: ReduceOp, own: StridedRange, result: StridedRange) {
        assert!(result.rows == 1 && own.bytes() == result.bytes(), "{own:?} into {result:?}");
        let range = ReducedRange { reduce_op, own, result };
        self.reduction = Some(RangeReduction { range, done_bytes: 0, is_done: false });
    }

    /// Reduces this many bytes of all members for all of them.
    pub fn all_reduce(&mut self, reduce_op: ReduceOp, bytes: usize, group: &Group) {
        let whole = StridedRange::contiguous(0, bytes);
        let is_small = u64::try_from(bytes).is_ok_and(|bytes| bytes <= ONE_HOP_BYTES_MAX);
        if is_small || group.len() <= 2 {
            for (_, peer) in group.others() {
                self.send(peer, 0, MessageBytes::Operand, whole);
            }
            self.reduce(reduce_op, whole, whole);
            return;
        }
        // Each member reduces one shard of all operands and shares the result.
        let units = bytes / self.unit;
        let cut = |place: usize| units * place / group.len() * self.unit;
        let shard =
            |place: usize| StridedRange::contiguous(cut(place), cut(place + 1) - cut(place));
        let mine = shard(group.me);
        let others: SmallVec<[_; 8]> =
            group.others().map(|(place, peer)| (peer, shard(place))).collect();
        self.reduce(reduce_op, mine, mine);
        for (peer, shard) in others {
            self.send(peer, 0, MessageBytes::Operand, shard);
            self.send(peer, 1, MessageBytes::Reduced, mine);
            self.receive(peer, 1, shard);
        }
    }

    /// Adds headers: the values of a bucket fail independently, and the failed ones are named
    /// before the bytes.
    pub fn add_headers<M>(&mut self, bucket: &BucketMemory<M>, group: &Group) {
        self.headers = Some(Headers::new(bucket.failures(), group));
    }

    pub fn keep(&mut self, from: StridedRange, to: StridedRange) {
        assert_eq!(from.bytes(), to.bytes(), "{from:?} to {to:?}");
        self.kept = Some(OwnRange { from, to, done_bytes: 0 });
    }

    pub const fn tag(&self) -> u64 {
        self.tag
    }

    /// Starts with this hop, after rounds under the same tag.
    pub const fn begin_at(&mut self, hop: u32) {
        self.hop_first = hop;
    }

    /// Number of bytes that have not been sent, or not received.
    pub fn bytes_left(&self, group: &Group) -> usize {
        let outgoing = self.outgoing.iter().filter(|one| !one.is_done);
        let out: usize = outgoing.map(|one| self.message_bytes(one) - one.sent_bytes).sum();
        let left = |one: &Incoming| one.range.bytes() - one.received_bytes;
        let incoming: usize = self.incoming.iter().map(left).sum();
        let unreduced = |one: &RangeReduction| one.range.result.bytes() - one.done_bytes;
        let reduced = self.reduction.as_ref().map_or(0, unreduced) * (group.len() - 1);
        out + incoming + reduced
    }

    /// Messages that have not been sent: receiver and hop.
    pub fn unsent(&self) -> impl Iterator<Item = (PeerId, u32)> + '_ {
        let unsent = self.outgoing.iter().filter(|outgoing| !outgoing.is_done);
        unsent.map(|outgoing| (outgoing.peer, self.hop_first + outgoing.hop))
    }

    /// Messages that have not been received completely: sender, hop, and number of bytes received.
    pub fn missing(&self, group: &Group) -> SmallVec<[(PeerId, u32, usize); 8]> {
        let mut missing = SmallVec::new();
        if let Some(reduction) = self.reduction.as_ref().filter(|reduction| !reduction.is_done) {
            missing.extend(group.others().map(|(_, peer)| {
                let header = self.headers.as_ref().map_or(0, |headers| headers.taken_bytes(peer));
                (peer, self.hop_first, header + reduction.done_bytes)
            }));
        }
        let incoming = self.incoming.iter().filter(|incoming| !incoming.is_done);
        missing
            .extend(incoming.map(|one| (one.peer, self.hop_first + one.hop, one.received_bytes)));
        missing
    }

    pub fn is_two_hops(&self) -> bool {
        self.outgoing.iter().any(|outgoing| outgoing.source == MessageBytes::Reduced)
    }

    /// Our header before the bytes of a message, if it has one.
    fn header(&self, source: MessageBytes) -> &[u8] {
        match (source, &self.headers) {
            (MessageBytes::Operand, Some(headers)) => headers.ours(),
            (MessageBytes::Operand, None) | (MessageBytes::Reduced, _) => &[],
        }
    }

    fn message_bytes(&self, outgoing: &Outgoing) -> usize {
        self.header(outgoing.source).len() + outgoing.range.bytes()
    }

    const fn message(&self, hop: u32) -> MessageId {
        MessageId { tag: self.tag, hop: self.hop_first + hop }
    }

    fn is_done(&self) -> bool {
        self.outgoing.iter().all(|outgoing| outgoing.is_done)
            && self.incoming.iter().all(|incoming| incoming.is_done)
            && self.reduction.as_ref().is_none_or(|reduction| reduction.is_done)
            && self.kept.is_none()
    }
}

impl Exchange {
    /// Advances each message by a chunk, where that is possible now.
    pub fn step<M: BorrowedBuffers>(
        &mut self,
        group: &Group,
        reduce: ReduceBytes,
        bucket: &mut BucketMemory<M>,
        peers: &mut impl Peers,
    ) -> Result<ExchangeStep, Broken> {
        let mut has_moved = self.push(MessageBytes::Operand, bucket, peers)?;
        has_moved |= self.copy_kept(bucket);
        has_moved |= self.take_headers(bucket, peers)?;
        has_moved |= self.reduce_arrived(group, reduce, bucket, peers)?;
        has_moved |= self.push(MessageBytes::Reduced, bucket, peers)?;
        has_moved |= self.pull(bucket, peers)?;
        Ok(match (self.is_done(), has_moved) {
            (true, _) => ExchangeStep::Done,
            (false, true) => ExchangeStep::Moved,
            (false, false) => ExchangeStep::Stuck,
        })
    }

    /// Copies the next bytes of our own part; returns true if any were left.
    fn copy_kept<M: BorrowedBuffers>(&mut self, bucket: &mut BucketMemory<M>) -> bool {
        let Some(kept) = &mut self.kept else { return false };
        kept.done_bytes = bucket.copy(&kept.from, &kept.to, kept.done_bytes);
        if kept.done_bytes == kept.from.bytes() {
            self.kept = None;
        }
        true
    }

    /// Sends one chunk to every member that has room; returns true if anything moved.
    fn push<M: BorrowedBuffers>(
        &mut self,
        source: MessageBytes,
        bucket: &mut BucketMemory<M>,
        peers: &mut impl Peers,
    ) -> Result<bool, Broken> {
        let ready = match source {
            MessageBytes::Operand => usize::MAX,
            MessageBytes::Reduced => self.reduction.as_ref().map_or(0, |one| one.done_bytes),
        };
        let mut outgoing = std::mem::take(&mut self.outgoing);
        let mut has_moved = false;
        let mut outcome = Ok(());
        for one in outgoing.iter_mut().filter(|one| !one.is_done && one.source == source) {
            match self.push_one(one, ready, bucket, peers) {
                Ok(moved) => has_moved |= moved,
                Err(broken) => {
                    outcome = Err(broken);
                    break;
                }
            }
        }
        self.outgoing = outgoing;
        outcome.map(|()| has_moved)
    }

    fn push_one<M: BorrowedBuffers>(
        &self,
        one: &mut Outgoing,
        ready: usize,
        bucket: &mut BucketMemory<M>,
        peers: &mut impl Peers,
    ) -> Result<bool, Broken> {
        let (from, header, total) =
            (one.sent_bytes, self.header(one.source), self.message_bytes(one));
        let progress = Progress { total, from, to: ready.min(total) };
        if progress.from == progress.to && total > 0 {
            return Ok(false);
        }
        let mut fill = |slot: &mut [u8], copy: CopyBytes| {
            let unsent = &header[from.min(header.len())..];
            let (of_header, rest) = slot.split_at_mut(unsent.len().min(slot.len()));
            of_header.copy_from_slice(&unsent[..of_header.len()]);
            let offset = from.saturating_sub(header.len());
            bucket.read(one.source, &one.range, offset, rest, copy);
        };
        let Some(taken) = peers.push(one.peer, self.message(one.hop), progress, &mut fill)? else {
            return Ok(false);
        };
        one.sent_bytes += taken;
        one.is_done = one.sent_bytes == total;
        Ok(true)
    }

    /// Receives the others' headers, until all are complete; returns true if anything arrived.
    fn take_headers<M>(
        &mut self,
        bucket: &mut BucketMemory<M>,
        peers: &mut impl Peers,
    ) -> Result<bool, Broken> {
        let message = self.message(0);
        let (Some(headers), Some(reduction)) = (&mut self.headers, &self.reduction) else {
            return Ok(false);
        };
        headers.take(message, reduction.range.result.bytes(), bucket, peers)
    }

    /// Reduces as far as all others have sent; returns true if any bytes were reduced.
    fn reduce_arrived<M: BorrowedBuffers>(
        &mut self,
        group: &Group,
        reduce: ReduceBytes,
        bucket: &mut BucketMemory<M>,
        peers: &mut impl Peers,
    ) -> Result<bool, Broken> {
        let Some(reduction) = self.reduction.as_ref().filter(|reduction| !reduction.is_done) else {
            return Ok(false);
        };
        if self.headers.as_ref().is_some_and(|headers| !headers.are_entered()) {
            return Ok(false);
        }
        let (range, done) = (reduction.range, reduction.done_bytes);
        let total = range.result.bytes();
        if total == 0 && self.headers.is_some() {
            // The messages consisted of their headers only.
            self.reduction = Some(RangeReduction { range, done_bytes: 0, is_done: true });
            return Ok(true);
        }
        let mut length = (total - done).min(self.sent_to_all().saturating_sub(done));
        let mut shards: SmallVec<[Option<&[u8]>; 8]> = SmallVec::new();
        for &member in &group.members {
            if member == group.members[group.me] {
                shards.push(None);
                continue;
            }
            let Some(bytes) = self.next(peers, member, 0, total)? else { return Ok(false) };
            length = length.min(bytes.len());
            shards.push(Some(bytes));
        }
        length -= length % self.unit;
        if length == 0 && total > 0 {
            return Ok(false);
        }
        bucket.reduce(&range, reduce, &shards, done, length);
        drop(shards);
        for (_, member) in group.others() {
            peers.release(member, self.message(0), length);
        }
        let is_done = done + length == total;
        self.reduction = Some(RangeReduction { range, done_bytes: done + length, is_done });
        Ok(true)
    }

    /// Number of bytes of our operand that all members have received: with one hop the reduction
    /// may overwrite these. With two hops it overwrites only bytes that no other member reduces.
    fn sent_to_all(&self) -> usize {
        if self.is_two_hops() {
            return usize::MAX;
        }
        let header = self.header(MessageBytes::Operand).len();
        let unsent = self.outgoing.iter().filter(|one| !one.is_done);
        unsent.map(|one| one.sent_bytes.saturating_sub(header)).min().unwrap_or(usize::MAX)
    }

    /// Receives messages that are not reduced; returns true if anything arrived.
    fn pull<M: BorrowedBuffers>(
        &mut self,
        bucket: &mut BucketMemory<M>,
        peers: &mut impl Peers,
    ) -> Result<bool, Broken> {
        let mut has_moved = false;
        for place in 0..self.incoming.len() {
            let Incoming { peer, hop, range, received_bytes, is_done } = self.incoming[place];
            if is_done {
                continue;
            }
            let total = range.bytes();
            let Some(bytes) = self.next(peers, peer, hop, total)? else { continue };
            let length = bytes.len().min(total - received_bytes);
            bucket.write(&range, received_bytes, &bytes[..length]);
            peers.release(peer, self.message(hop), length);
            let incoming = &mut self.incoming[place];
            incoming.received_bytes += length;
            incoming.is_done = incoming.received_bytes == total;
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// The next bytes of a message with this many bytes behind its header.
    fn next<'p>(
        &self,
        peers: &'p impl Peers,
        peer: PeerId,
        hop: u32,
        bytes_expected: usize,
    ) -> Result<Option<&'p [u8]>, Broken> {
        let of_header = |headers: &Headers| if hop == 0 { headers.taken_bytes(peer) } else { 0 };
        let header = self.headers.as_ref().map_or(0, of_header);
        match peers.front(peer, self.message(hop))? {
            Front::Nothing => Ok(None),
            Front::Failure(cause) => Err(Broken::Failed(cause.clone())),
            Front::Bytes { total, bytes }
                if usize::try_from(total) == Ok(header + bytes_expected) =>
            {
                Ok(Some(bytes))
            }
            Front::Bytes { total, .. } => Err(self.unexpected(total, header + bytes_expected)),
        }
    }

    pub(super) fn unexpected(&self, total: u64, expected: usize) -> Broken {
        let whole = match &self.result {
            Some(meta) => format!("a {meta}"),
            None => "several values".to_owned(),
        };
        Broken::protocol(format!("{total} bytes arrived, {expected} are a part of {whole}"))
    }
}
