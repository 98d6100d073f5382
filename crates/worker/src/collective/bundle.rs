//! The reduction of several values by one message to each member: their bytes one after the other, as if they were one
//! value. What has failed somewhere is said at the head of each message, so that it spoils none of its neighbours.
//!
//! Every element is reduced once, in the group's order, wherever the whole is cut among the members: its bits are those
//! of a reduction of its own.

use super::exchange::{BLOCK_BYTES, Broken, Step};
use super::group::Group;
use super::head::{self, Head, Heads};
use crate::peers::{Front, Peers, Progress, Stream};
use crate::{Buffers, Cause, Fault, Loan, ReduceBytes, ReduceOp};
use gt_protocol::Dtype;
use gt_protocol::placement::ONE_HOP_BYTES_MAX;
use smallvec::SmallVec;
use std::ops::Range;

/// Values begin at multiples of the largest element, so that no element lies in two pieces of a message.
const ALIGNMENT: usize = 8;

/// One of the values: where it lies among all, and its memory, unless it has failed here.
#[derive(Debug)]
pub(crate) struct Span<M> {
    start: usize,
    length: usize,
    dtype: Dtype,
    memory: Option<M>,
    failure: Option<Cause>,
}

/// A value as it is when the others have got theirs, or why it is not.
#[derive(Debug)]
pub(crate) struct Spent<M> {
    pub memory: Option<M>,
    pub failure: Option<Cause>,
}

/// Another member, and how far the messages to and from it are.
#[derive(Debug)]
struct Other {
    place: usize,
    peer: u32,
    /// What it reduces of the whole.
    piece: Range<usize>,
    sent: usize,
    /// Of what we have reduced for it.
    sent_folded: usize,
    head: Head,
    received_folded: usize,
}

#[derive(Debug)]
pub(crate) struct Bundle<M> {
    tag: u64,
    reduce_op: ReduceOp,
    spans: Vec<Span<M>>,
    others: SmallVec<[Other; 4]>,
    /// What has failed here, as the others are told.
    told: Vec<u8>,
    /// What we reduce of the whole, and how much of that is done.
    mine: Range<usize>,
    folded: usize,
    is_two_hops: bool,
    /// What has failed elsewhere is entered.
    is_told: bool,
}

impl<M> Bundle<M> {
    /// Of each value its dtype, its length in bytes, and its memory or why there is none.
    pub fn new(
        tag: u64,
        reduce_op: ReduceOp,
        group: &Group,
        values: impl IntoIterator<Item = (Dtype, usize, Result<M, Cause>)>,
    ) -> Self {
        let mut spans = Vec::new();
        let mut end = 0_usize;
        for (dtype, length, memory) in values {
            let (memory, failure) = match memory {
                Ok(memory) => (Some(memory), None),
                Err(cause) => (None, Some(cause)),
            };
            spans.push(Span { start: end, length, dtype, memory, failure });
            end = end.saturating_add(length.next_multiple_of(ALIGNMENT));
        }
        let limit = usize::try_from(ONE_HOP_BYTES_MAX).unwrap_or(usize::MAX);
        let is_two_hops = group.len() > 2 && end > limit;
        let piece = |place: usize| {
            let cut = |place: usize| end / ALIGNMENT * place / group.len() * ALIGNMENT;
            if is_two_hops { cut(place)..cut(place + 1) } else { 0..end }
        };
        let other = |(place, peer)| Other {
            place,
            peer,
            piece: piece(place),
            sent: 0,
            sent_folded: 0,
            head: Head::default(),
            received_folded: 0,
        };
        Self {
            tag,
            reduce_op,
            told: head::written(spans.iter().map(|span| span.failure.as_ref())),
            spans,
            others: group.others().map(other).collect(),
            mine: piece(group.me),
            folded: 0,
            is_two_hops,
            is_told: false,
        }
    }

    pub const fn tag(&self) -> u64 {
        self.tag
    }

    /// Bytes that have not gone out, or not come in.
    pub fn bytes_left(&self) -> usize {
        let folded = self.mine.len() - self.folded;
        let of_other = |other: &Other| {
            let again = if self.is_two_hops {
                self.mine.len() - other.sent_folded + other.piece.len() - other.received_folded
            } else {
                0
            };
            self.told.len() + other.piece.len() - other.sent + folded + again
        };
        self.others.iter().map(of_other).sum()
    }

    /// Messages that are not out yet: to whom, and in which hop.
    pub fn unsent(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.others.iter().flat_map(|other| {
            let first = other.sent < self.told.len() + other.piece.len();
            let second = self.is_two_hops && other.sent_folded < self.mine.len();
            let hops = [(first, 0), (second, 1)].into_iter().filter(|(is_left, _)| *is_left);
            hops.map(|(_, hop)| (other.peer, hop))
        })
    }

    /// Messages that have not come in whole: from whom, in which hop, and the bytes that we have had of each.
    pub fn missing(&self) -> SmallVec<[(u32, u32, usize); 8]> {
        let mut missing = SmallVec::new();
        for other in &self.others {
            if !other.head.is_whole() || self.folded < self.mine.len() {
                missing.push((other.peer, 0, other.head.taken() + self.folded));
            }
            if self.is_two_hops && other.received_folded < other.piece.len() {
                missing.push((other.peer, 1, other.received_folded));
            }
        }
        missing
    }

    pub fn into_spent(self) -> Vec<Spent<M>> {
        let spent = |span: Span<M>| Spent { memory: span.memory, failure: span.failure };
        self.spans.into_iter().map(spent).collect()
    }

    fn is_done(&self) -> bool {
        self.is_told
            && self.folded == self.mine.len()
            && self.others.iter().all(|other| {
                other.sent == self.told.len() + other.piece.len()
                    && (!self.is_two_hops
                        || other.sent_folded == self.mine.len()
                            && other.received_folded == other.piece.len())
            })
    }
}

impl<M: Loan> Bundle<M> {
    /// Moves each message on by a piece, where that is possible now.
    pub fn step(
        &mut self,
        group: &Group,
        reduce: ReduceBytes,
        peers: &mut impl Peers,
    ) -> Result<Step, Broken> {
        let mut moved = self.push(peers)?;
        moved |= self.take_heads(group, peers)?;
        moved |= self.reduce_what_came(group, reduce, peers)?;
        if self.is_two_hops {
            moved |= self.push_folded(peers)?;
            moved |= self.pull(peers)?;
        }
        Ok(match (self.is_done(), moved) {
            (true, _) => Step::Done,
            (false, true) => Step::Moved,
            (false, false) => Step::Stuck,
        })
    }

    /// Our contributions, behind what has failed of them; true if anything moved.
    fn push(&mut self, peers: &mut impl Peers) -> Result<bool, Broken> {
        let Self { tag, spans, others, told, .. } = self;
        let mut moved = false;
        for other in others {
            let (from, total) = (other.sent, told.len() + other.piece.len());
            if from == total {
                continue;
            }
            let start = other.piece.start;
            let mut fill = |slot: &mut [u8]| {
                let head = told.get(from..).unwrap_or_default();
                let (of_head, rest) = slot.split_at_mut(head.len().min(slot.len()));
                of_head.copy_from_slice(head.get(..of_head.len()).unwrap_or_default());
                read(spans, start + from.saturating_sub(told.len()), rest, Which::Operand);
            };
            let progress = Progress { total, from, to: total };
            let stream = Stream { tag: *tag, hop: 0 };
            if let Some(taken) = peers.push(other.peer, stream, progress, &mut fill)? {
                other.sent += taken;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Takes in what the others say of failures, until all have said it; true if anything came.
    fn take_heads(&mut self, group: &Group, peers: &mut impl Peers) -> Result<bool, Broken> {
        if self.is_told {
            return Ok(false);
        }
        let mut moved = false;
        for other in &mut self.others {
            let stream = Stream { tag: self.tag, hop: 0 };
            while !other.head.is_whole() {
                let (total, taken) = match peers.front(other.peer, stream)? {
                    Front::Nothing => break,
                    Front::Failure(cause) => return Err(Broken::Failed(cause.clone())),
                    Front::Bytes { total, bytes } => (total, other.head.take(bytes)),
                };
                let expected = other.head.length().map(|length| length + self.mine.len());
                let fits = |expected| u64::try_from(expected) == Ok(total);
                if taken == 0 || !expected.is_none_or(fits) {
                    return Err(unexpected(total, self.mine.len()));
                }
                peers.release(other.peer, stream, taken);
                moved = true;
            }
        }
        if self.others.iter().all(|other| other.head.is_whole()) {
            self.enter_failures(group)?;
            self.is_told = true;
        }
        Ok(moved)
    }

    /// What failed at several members failed at the first of them, in the group's order; what failed here, here.
    fn enter_failures(&mut self, group: &Group) -> Result<(), Broken> {
        let heads: Heads<'_> = self.others.iter().map(|other| (other.place, &other.head)).collect();
        for (index, cause) in head::failures(group, &heads)? {
            let Some(span) = self.spans.get_mut(index) else {
                return Err(Broken::Fault(Fault::protocol(format!("no value {index} to fail"))));
            };
            span.failure.get_or_insert(cause);
        }
        Ok(())
    }

    /// Reduces as far as all others have sent; true if anything was.
    fn reduce_what_came(
        &mut self,
        group: &Group,
        reduce: ReduceBytes,
        peers: &mut impl Peers,
    ) -> Result<bool, Broken> {
        let mut length = self.mine.len() - self.folded;
        if !self.is_told || length == 0 {
            return Ok(false);
        }
        if !self.is_two_hops {
            // The reduction may go over our operands, so no further than everybody has them.
            let sent = |other: &Other| other.sent.saturating_sub(self.told.len());
            let sent = self.others.iter().map(sent).min().unwrap_or(usize::MAX);
            length = length.min(sent.saturating_sub(self.folded));
        }
        let stream = Stream { tag: self.tag, hop: 0 };
        let mut shards: SmallVec<[Option<&[u8]>; 8]> = SmallVec::new();
        for (place, &member) in group.members.iter().enumerate() {
            if place == group.me {
                shards.push(None);
                continue;
            }
            match peers.front(member, stream)? {
                Front::Nothing => return Ok(false),
                Front::Failure(cause) => return Err(Broken::Failed(cause.clone())),
                Front::Bytes { bytes, .. } => {
                    length = length.min(bytes.len());
                    shards.push(Some(bytes));
                }
            }
        }
        length -= length % ALIGNMENT;
        if length == 0 {
            return Ok(false);
        }
        let from = self.mine.start + self.folded;
        let how = self.reduce_op;
        each(&mut self.spans, from..from + length, |span, within, offset| {
            span.reduce((reduce, how), &shards, within, offset);
        });
        drop(shards);
        for other in &self.others {
            peers.release(other.peer, stream, length);
        }
        self.folded += length;
        Ok(true)
    }

    /// What we have reduced, to all others, as far as it is; true if anything moved.
    fn push_folded(&mut self, peers: &mut impl Peers) -> Result<bool, Broken> {
        let Self { tag, spans, others, mine, folded, .. } = self;
        let mut moved = false;
        for other in others.iter_mut().filter(|other| other.sent_folded < *folded) {
            let from = other.sent_folded;
            let mut fill = |slot: &mut [u8]| read(spans, mine.start + from, slot, Which::Result);
            let progress = Progress { total: mine.len(), from, to: *folded };
            let stream = Stream { tag: *tag, hop: 1 };
            if let Some(taken) = peers.push(other.peer, stream, progress, &mut fill)? {
                other.sent_folded += taken;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// What the others have reduced; true if anything came.
    fn pull(&mut self, peers: &mut impl Peers) -> Result<bool, Broken> {
        let Self { tag, spans, others, .. } = self;
        let stream = Stream { tag: *tag, hop: 1 };
        let mut moved = false;
        for other in others.iter_mut().filter(|other| other.received_folded < other.piece.len()) {
            let (total, bytes) = match peers.front(other.peer, stream)? {
                Front::Nothing => continue,
                Front::Failure(cause) => return Err(Broken::Failed(cause.clone())),
                Front::Bytes { total, bytes } => (total, bytes),
            };
            if usize::try_from(total) != Ok(other.piece.len()) {
                return Err(unexpected(total, other.piece.len()));
            }
            let from = other.piece.start + other.received_folded;
            let length = bytes.len().min(other.piece.end - from);
            each(spans, from..from + length, |span, within, offset| {
                span.write(within.start, bytes.get(offset..offset + within.len()));
            });
            peers.release(other.peer, stream, length);
            other.received_folded += length;
            moved = true;
        }
        Ok(moved)
    }
}

/// Which of a value's bytes.
#[derive(Clone, Copy)]
enum Which {
    Operand,
    Result,
}

impl<M: Loan> Span<M> {
    fn end(&self) -> usize {
        self.start + self.length.next_multiple_of(ALIGNMENT)
    }

    /// Our contribution, or the reduction, to a message; nothing where it has failed.
    fn read(&mut self, which: Which, within: Range<usize>, into: &mut [u8]) {
        let Some(memory) = &mut self.memory else { return };
        memory.show(&mut |buffers| {
            let bytes = match which {
                Which::Operand => buffers.operand(),
                Which::Result => buffers.result(),
            };
            if let Some(bytes) = bytes.get(within.clone()) {
                into.copy_from_slice(bytes);
            }
        });
    }

    fn write(&mut self, start: usize, bytes: Option<&[u8]>) {
        let (Some(memory), Some(bytes)) = (&mut self.memory, bytes) else { return };
        memory.show(&mut |mut buffers| {
            let to = buffers.result_mut().get_mut(start..start + bytes.len());
            if let Some(to) = to {
                to.copy_from_slice(bytes);
            }
        });
    }

    /// Reduces the bytes `within` of the value; they lie at `offset` in the others' shards.
    fn reduce(
        &mut self,
        (reduce, how): (ReduceBytes, ReduceOp),
        shards: &[Option<&[u8]>],
        within: Range<usize>,
        offset: usize,
    ) {
        let (dtype, failed) = (self.dtype, self.failure.is_some());
        let Some(memory) = self.memory.as_mut().filter(|_| !failed) else { return };
        memory.show(&mut |mut buffers| {
            blocks(&mut buffers, within.clone(), offset, shards, &mut |shards, out| {
                reduce(dtype, how, shards, out);
            });
        });
    }
}

/// Reduces all members' bytes of a block into where they go.
type ReduceBlock<'f> = dyn FnMut(&[&[u8]], &mut [u8]) + 'f;

/// One call a block that fits the first-level cache: all members' bytes of it, in the group's order, and where their reduction
/// goes.
fn blocks<'s>(
    buffers: &mut Buffers<'_>,
    within: Range<usize>,
    offset: usize,
    shards: &[Option<&'s [u8]>],
    reduce: &mut ReduceBlock<'_>,
) {
    let mut scratch = [0_u8; BLOCK_BYTES];
    for start in within.clone().step_by(BLOCK_BYTES) {
        let end = within.end.min(start + BLOCK_BYTES);
        // Where operand and result are one, this also frees the place for the reduction.
        let own = scratch.get_mut(..end - start).unwrap_or_default();
        own.copy_from_slice(buffers.operand().get(start..end).unwrap_or_default());
        let own: &[u8] = own;
        let first = offset + start - within.start;
        let block = |bytes: &'s [u8]| bytes.get(first..first + end - start).unwrap_or_default();
        let all: SmallVec<[&[u8]; 8]> =
            shards.iter().map(|shard| shard.map_or(own, block)).collect();
        reduce(&all, buffers.result_mut().get_mut(start..end).unwrap_or_default());
    }
}

/// Every value of which bytes lie in `range` of the whole: which of its bytes, and where in the range.
fn each<M: Loan>(
    spans: &mut [Span<M>],
    range: Range<usize>,
    mut work: impl FnMut(&mut Span<M>, Range<usize>, usize),
) {
    let first = spans.partition_point(|span| span.end() <= range.start);
    for span in spans.iter_mut().skip(first) {
        if span.start >= range.end {
            break;
        }
        let from = range.start.max(span.start);
        let to = range.end.min(span.start + span.length);
        if from < to {
            let start = span.start;
            work(span, from - start..to - start, from - range.start);
        }
    }
}

/// The bytes from `start` of the whole on; zeros where there are none.
fn read<M: Loan>(spans: &mut [Span<M>], start: usize, into: &mut [u8], which: Which) {
    into.fill(0);
    let range = start..start + into.len();
    each(spans, range, |span, within, offset| {
        let length = within.len();
        span.read(which, within, into.get_mut(offset..offset + length).unwrap_or_default());
    });
}

fn unexpected(total: u64, expected: usize) -> Broken {
    let text = format!("{total} bytes arrived, {expected} and a head are a part of several values");
    Broken::Fault(Fault::protocol(text))
}
