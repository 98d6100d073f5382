//! Position of a shard's bytes among those of a value.

use crate::failure::Fault;
use gt_protocol::Meta;
use gt_protocol::peer::ByteRows;
use std::ops::Range;

/// Rows of bytes at equal distances in a value's contiguous memory; concatenated they form a
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedRange {
    pub start: usize,
    pub rows: usize,
    /// Bytes of a row, and distance in bytes between the starts of two rows.
    pub run: usize,
    pub stride: usize,
}

impl StridedRange {
    /// A range of bytes without a gap.
    pub const fn contiguous(start: usize, length: usize) -> Self {
        Self { start, rows: 1, run: length, stride: length }
    }

    pub fn whole(meta: &Meta) -> Self {
        Self::contiguous(0, bytes_of(meta))
    }

    /// Consecutive shards of a value along `dim`, by their sizes, which must add up to its own.
    pub fn shards(whole: &Meta, dim: usize, sizes: &[i64]) -> Result<Vec<Self>, Fault> {
        let total = sizes.iter().try_fold(0_i64, |total, &size| total.checked_add(size));
        let is_negative = |size: &i64| *size < 0;
        let Some(total) = total
            .filter(|total| whole.dims.get(dim) == Some(total))
            .filter(|_| !sizes.iter().chain(whole.dims.as_slice()).any(is_negative))
        else {
            return Err(Fault::protocol(format!("sizes {sizes:?} along {dim} of a {whole}")));
        };
        // Saturating: a size that does not fit cannot be allocated.
        let product =
            |dims: &[i64], one| dims.iter().copied().map(count).fold(one, usize::saturating_mul);
        let (before, after) = whole.dims.as_slice().split_at(dim);
        let unit = product(&after[1..], element_bytes(whole));
        let (rows, stride) = (product(before, 1), unit.saturating_mul(count(total)));
        let mut start = 0_usize;
        let shard = |&size: &i64| {
            let run = unit.saturating_mul(count(size));
            let shard = Self { start, rows, run, stride };
            start = start.saturating_add(run);
            // Shards that are the whole, or that follow each other without a gap, are one row.
            let is_contiguous = run == stride || rows == 1;
            if is_contiguous { Self::contiguous(shard.start, shard.bytes()) } else { shard }
        };
        Ok(sizes.iter().map(shard).collect())
    }

    /// Number of bytes; saturating, because another worker may have written the numbers.
    pub const fn bytes(&self) -> usize {
        self.rows.saturating_mul(self.run)
    }

    /// The range from the first to the last of `length` bytes, the first at `offset`.
    pub const fn hull(&self, offset: usize, length: usize) -> Range<usize> {
        if length == 0 {
            return self.start..self.start;
        }
        let last = offset + length - 1;
        self.place(offset)..self.place(last) + 1
    }

    const fn place(&self, offset: usize) -> usize {
        self.start + offset / self.run * self.stride + offset % self.run
    }

    /// The position of the first of `length` bytes, at `offset`, if there is no gap between them.
    pub const fn place_of(&self, offset: usize, length: usize) -> Option<usize> {
        if self.run == 0 || length > self.run - offset % self.run {
            return None;
        }
        Some(self.place(offset))
    }

    /// The runs without a gap of `length` bytes, the first at `offset`: the position of each, the
    /// number of bytes before it, and its length.
    pub fn runs(&self, offset: usize, length: usize, mut each: impl FnMut(usize, usize, usize)) {
        let mut done = 0;
        while done < length {
            let at = offset + done;
            let run = (self.run - at % self.run).min(length - done);
            each(self.place(at), done, run);
            done += run;
        }
    }
}

impl From<StridedRange> for ByteRows {
    fn from(range: StridedRange) -> Self {
        let number = |one: usize| u64::try_from(one).expect("usize has 64 bits");
        let StridedRange { start, rows, run, stride } = range;
        let [start, rows, run, stride] = [start, rows, run, stride].map(number);
        Self { start, rows, run, stride }
    }
}

/// Conversion of another worker's numbers: one that does not fit is clamped, and has more bytes
/// than any expected message.
impl From<ByteRows> for StridedRange {
    fn from(rows: ByteRows) -> Self {
        let number = |one: u64| usize::try_from(one).unwrap_or(usize::MAX);
        let ByteRows { start, rows, run, stride } = rows;
        let [start, rows, run, stride] = [start, rows, run, stride].map(number);
        Self { start, rows, run, stride }
    }
}

/// Sizes of the intersections of shard `mine` with each shard of another cut of the same dimension.
pub fn overlaps(cut: &[i64], mine: usize, other: &[i64]) -> Vec<i64> {
    let start: i64 = cut[..mine].iter().sum();
    let end = start + cut[mine];
    let mut first = 0;
    let overlap = |&size: &i64| {
        let last = first + size;
        let common = last.min(end) - start.max(first);
        first = last;
        common.max(0)
    };
    other.iter().map(overlap).collect()
}

pub fn bytes_of(meta: &Meta) -> usize {
    usize::try_from(meta.bytes()).expect("usize has 64 bits")
}

pub fn element_bytes(meta: &Meta) -> usize {
    usize::try_from(meta.dtype.size()).expect("an element has a few bytes")
}

/// A size that is checked not to be negative.
fn count(size: i64) -> usize {
    usize::try_from(size).unwrap_or_else(|_| panic!("size {size} is negative"))
}
