//! Values whose bytes are concatenated, as if they were one: the memory that an exchange reads and
//! writes. Most buckets hold one value.

use crate::buffers::{BorrowedBuffers, Buffers};
use crate::codec::Codec;
use crate::failure::{Broken, Cause};
use crate::peers::CopyBytes;
use crate::reduce_op::{ReduceBytes, Shard};
use crate::strided_range::StridedRange;
use gt_protocol::Dtype;
use gt_protocol::placement::ReduceOp;
use smallvec::SmallVec;
use std::ops::Range;

/// Alignment in bytes of each of several values: that of the largest element, so that no element is
/// split between two chunks of a message.
pub const ALIGNMENT: usize = 8;

/// Bytes that are reduced or copied at a time where our shard has gaps, or none of the others' has:
/// they fit into the first-level cache.
const BLOCK_BYTES: usize = 8 * 1024;

/// Bytes of our own that are copied in one step: as many as a message's chunk has.
const COPIED_BYTES: usize = 64 * 1024;

/// Source of a message's bytes in our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageBytes {
    Operand,
    /// Reduced bytes, as far as the reduction has come.
    Reduced,
}

/// One of the values: its range in the bucket, and its memory, unless it has failed here.
#[derive(Debug)]
struct BucketValue<M> {
    places: Range<usize>,
    dtype: Dtype,
    memory: Option<M>,
    failure: Option<Cause>,
    rounding: ValueRounding,
}

/// Rounding of a value's numbers before they are sent.
#[derive(Clone, Copy, Debug, Default)]
struct ValueRounding {
    /// True if our contribution is rounded, and stored where its result will be.
    is_operand: bool,
    /// Codec of our part of the sum.
    sums: Option<Codec>,
}

/// A value after the others have received theirs, or its failure.
#[derive(Debug)]
pub struct ReturnedValue<M> {
    pub memory: Option<M>,
    pub failure: Option<Cause>,
}

#[derive(Debug)]
pub struct BucketMemory<M> {
    values: SmallVec<[BucketValue<M>; 1]>,
    /// Bytes of the bucket, including gaps between the values; unbounded where operand and result
    /// of one value differ in length.
    length: usize,
}

/// A reduction of all members' shards: a range of our operands, and a range of our results.
#[derive(Clone, Copy, Debug)]
pub struct ReducedRange {
    pub reduce_op: ReduceOp,
    pub own: StridedRange,
    /// Range of the result, without gaps.
    pub result: StridedRange,
}

impl<M> BucketMemory<M> {
    /// A bucket of one operand and result, which may differ in length, so that every range is
    /// checked by itself.
    pub fn of_one(dtype: Dtype, memory: M) -> Self {
        let places = 0..usize::MAX;
        let (failure, rounding) = (None, ValueRounding::default());
        let value = BucketValue { places, dtype, memory: Some(memory), failure, rounding };
        Self { values: SmallVec::from_iter([value]), length: usize::MAX }
    }

    /// A bucket of operands that are as long as their results: of each its dtype, its length in
    /// bytes, and its memory or failure.
    pub fn of_several(several: impl IntoIterator<Item = (Dtype, usize, Result<M, Cause>)>) -> Self {
        let mut values = SmallVec::new();
        let mut start = 0;
        for (dtype, length, memory) in several {
            let (memory, failure) = match memory {
                Ok(memory) => (Some(memory), None),
                Err(cause) => (None, Some(cause)),
            };
            let (places, rounding) = (start..start + length, ValueRounding::default());
            values.push(BucketValue { places, dtype, memory, failure, rounding });
            start += length.next_multiple_of(ALIGNMENT);
        }
        Self { values, length: start }
    }

    pub const fn length(&self) -> usize {
        self.length
    }

    pub fn failures(&self) -> impl Iterator<Item = Option<&Cause>> {
        self.values.iter().map(|value| value.failure.as_ref())
    }

    /// Marks a value as failed because another member's contribution has failed; a failure of our
    /// own comes first.
    pub fn fail(&mut self, index: usize, cause: Cause) -> Result<(), Broken> {
        let Some(value) = self.values.get_mut(index) else {
            return Err(Broken::protocol(format!("no value {index} to fail")));
        };
        value.failure.get_or_insert(cause);
        Ok(())
    }

    pub fn into_values(self) -> impl Iterator<Item = ReturnedValue<M>> {
        let values = self.values.into_iter();
        values.map(|value| ReturnedValue { memory: value.memory, failure: value.failure })
    }

    /// The values that have bytes in this range.
    fn overlapping(&mut self, places: Range<usize>) -> impl Iterator<Item = &mut BucketValue<M>> {
        let first = self.values.partition_point(|value| value.places.end <= places.start);
        self.values[first..].iter_mut().take_while(move |value| value.places.start < places.end)
    }
}

impl<M: BorrowedBuffers> BucketMemory<M> {
    /// Copies bytes of a range, from `offset` on, into a message; zeros where there are none.
    pub fn read(
        &mut self,
        source: MessageBytes,
        range: &StridedRange,
        offset: usize,
        into: &mut [u8],
        copy: CopyBytes,
    ) {
        if self.length != usize::MAX {
            self.clear_gaps(range, offset, into);
        }
        for value in self.overlapping(range.hull(offset, into.len())) {
            let BucketValue { places, memory, rounding, .. } = value;
            let Some(memory) = memory else { continue };
            memory.show(&mut |buffers| {
                let bytes = match source {
                    MessageBytes::Operand => operand(&buffers, *rounding),
                    MessageBytes::Reduced => buffers.result(),
                };
                range.runs(offset, into.len(), |place, done, run| {
                    let (from, to) = (place.max(places.start), (place + run).min(places.end));
                    if from < to {
                        let bytes = &bytes[from - places.start..to - places.start];
                        copy(&mut into[done + from - place..done + to - place], bytes);
                    }
                });
            });
        }
    }

    /// Writes zeros into a message of several values where none has bytes: between them, and in
    /// place of failed ones.
    fn clear_gaps(&mut self, range: &StridedRange, offset: usize, into: &mut [u8]) {
        assert_eq!(range.rows, 1, "a range of several values");
        let hull = range.hull(offset, into.len());
        let mut done = 0;
        for value in self.overlapping(hull.clone()) {
            let BucketValue { places, memory, .. } = value;
            if memory.is_some() {
                into[done..places.start.max(hull.start) - hull.start].fill(0);
                done = places.end.min(hull.end) - hull.start;
            }
        }
        into[done..].fill(0);
    }

    /// Rounds our float32 contributions, each by its index, before anything is sent: into the
    /// results' memory, because others may read the operands. Our part of their sums is rounded by
    /// `sums`.
    pub fn round(&mut self, sums: Option<Codec>, round: &mut dyn FnMut(usize, &mut [u8])) {
        for (index, value) in self.values.iter_mut().enumerate() {
            let Some(memory) = value.memory.as_mut().filter(|_| value.dtype == Dtype::F32) else {
                continue;
            };
            memory.show(&mut |mut buffers| {
                if let Buffers::Two(operand, result) = &mut buffers {
                    result.copy_from_slice(operand);
                }
                round(index, buffers.result_mut());
            });
            value.rounding = ValueRounding { is_operand: true, sums };
        }
    }

    /// Copies a message's bytes into a range, from `offset` on.
    pub fn write(&mut self, range: &StridedRange, offset: usize, from: &[u8]) {
        for value in self.overlapping(range.hull(offset, from.len())) {
            let BucketValue { places, memory, .. } = value;
            let Some(memory) = memory else { continue };
            memory.show(&mut |mut buffers| {
                let bytes = buffers.result_mut();
                range.runs(offset, from.len(), |place, done, run| {
                    let (first, end) = (place.max(places.start), (place + run).min(places.end));
                    if first < end {
                        let from = &from[done + first - place..done + end - place];
                        bytes[first - places.start..end - places.start].copy_from_slice(from);
                    }
                });
            });
        }
    }

    /// Copies the next bytes of our operand to our result, from `offset` on; returns the new
    /// offset.
    pub fn copy(&mut self, from: &StridedRange, to: &StridedRange, offset: usize) -> usize {
        let end = from.bytes().min(offset + COPIED_BYTES);
        let mut scratch = [0; BLOCK_BYTES];
        for start in (offset..end).step_by(BLOCK_BYTES) {
            let block = &mut scratch[..BLOCK_BYTES.min(end - start)];
            self.read(MessageBytes::Operand, from, start, block, <[u8]>::copy_from_slice);
            self.write(to, start, block);
        }
        end
    }

    /// Reduces `length` bytes, from `offset` on, of all members' shards, in the group's order;
    /// `None` stands for our own.
    pub fn reduce(
        &mut self,
        reduced: &ReducedRange,
        reduce: ReduceBytes,
        shards: &[Option<&[u8]>],
        offset: usize,
        length: usize,
    ) {
        let first = reduced.result.start + offset;
        for value in self.overlapping(first..first + length) {
            let BucketValue { places, dtype, memory, failure, rounding } = value;
            let Some(memory) = memory.as_mut().filter(|_| failure.is_none()) else { continue };
            let within = first.max(places.start)..(first + length).min(places.end);
            // A shard without gaps is reduced in place.
            let block_bytes = if reduced.own.rows == 1 { length.max(1) } else { BLOCK_BYTES };
            memory.show(&mut |buffers| {
                let (operand, result) = match buffers {
                    Buffers::Two(operand, result) if !rounding.is_operand => {
                        (Some(operand), result)
                    }
                    Buffers::Two(_, both) | Buffers::One(both) => (None, both),
                };
                for start in within.clone().step_by(block_bytes) {
                    let block = start..within.end.min(start + block_bytes);
                    let of_shards = block.start - first..block.end - first;
                    let mut scratch = Scratch::default();
                    let at = offset + of_shards.start;
                    let own = match operand {
                        None => {
                            assert_eq!(reduced.own, reduced.result, "the operand is the result");
                            Shard::InPlace
                        }
                        Some(operand) => {
                            let start = places.start;
                            Shard::Bytes(scratch.own(operand, reduced.own, at, start, block.len()))
                        }
                    };
                    let shards = shards.iter().map(|shard| match shard {
                        Some(all) => Shard::Bytes(&all[of_shards.clone()]),
                        None => own,
                    });
                    let shards: SmallVec<[Shard<'_>; 8]> = shards.collect();
                    let out = &mut result[block.start - places.start..block.end - places.start];
                    reduce(*dtype, reduced.reduce_op, &shards, out);
                    if let Some(codec) = rounding.sums {
                        codec.round(out, &mut []);
                    }
                }
            });
        }
    }
}

/// Our contribution to a value.
const fn operand<'a>(buffers: &'a Buffers<'_>, rounding: ValueRounding) -> &'a [u8] {
    if rounding.is_operand { buffers.result() } else { buffers.operand() }
}

/// Buffer for a block of our shard where it has gaps.
#[derive(Default)]
struct Scratch(Option<[u8; BLOCK_BYTES]>);

impl Scratch {
    /// `length` bytes of our shard, from `offset` on, in our contribution to the value that begins
    /// at `start`.
    fn own<'a>(
        &'a mut self,
        operand: &'a [u8],
        own: StridedRange,
        offset: usize,
        start: usize,
        length: usize,
    ) -> &'a [u8] {
        if let Some(place) = own.place_of(offset, length) {
            return &operand[place - start..place - start + length];
        }
        let block = &mut self.0.insert([0; BLOCK_BYTES])[..length];
        own.runs(offset, length, |place, done, run| {
            block[done..done + run].copy_from_slice(&operand[place - start..place - start + run]);
        });
        block
    }
}
