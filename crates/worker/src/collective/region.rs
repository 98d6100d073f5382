//! Where a piece of a value lies among its bytes.

use crate::Fault;
use crate::ways::StridedRange;
use gt_protocol::Meta;

/// Rows of bytes at equal distances; read in order they are a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    start: usize,
    rows: usize,
    /// Bytes of a row, and from one row's start to the next's.
    run: usize,
    stride: usize,
}

impl Region {
    /// Bytes without a gap.
    pub const fn span(start: usize, length: usize) -> Self {
        Self { start, rows: 1, run: length, stride: length }
    }

    pub fn whole(meta: &Meta) -> Self {
        Self::span(0, usize::try_from(meta.bytes()).unwrap_or(usize::MAX))
    }

    /// Consecutive pieces of a whole value along `dim`, by their sizes, which must add up to its own.
    pub fn pieces(whole: &Meta, dim: usize, sizes: &[i64]) -> Result<Vec<Self>, Fault> {
        let total = sizes.iter().try_fold(0_i64, |total, &size| total.checked_add(size));
        if total.is_none() || whole.dims.get(dim).copied() != total {
            return Err(Fault::protocol(format!("sizes {sizes:?} along {dim} of a {whole}")));
        }
        let count = |size: &i64| usize::try_from(*size).unwrap_or(0);
        let product = |sizes: &[i64], one| sizes.iter().map(count).fold(one, usize::saturating_mul);
        let (before, after) = whole.dims.as_slice().split_at(dim);
        let element = usize::try_from(whole.dtype.size()).unwrap_or(1);
        let unit = product(after.get(1..).unwrap_or_default(), element);
        let (rows, stride) =
            (product(before, 1), unit.saturating_mul(total.map_or(0, |all| count(&all))));
        let mut start = 0;
        let piece = |size: &i64| {
            let run = unit.saturating_mul(count(size));
            let region = Self { start, rows, run, stride };
            start += run;
            // Pieces that are the whole, or that follow each other without a gap, are one row.
            if run == stride || rows == 1 { Self::span(region.start, rows * run) } else { region }
        };
        Ok(sizes.iter().map(piece).collect())
    }

    /// One piece a member, cut between elements, of a value of so many bytes.
    pub fn even(bytes: usize, element: usize, members: usize) -> Vec<Self> {
        let elements = bytes / element.max(1);
        let end = |member: usize| elements * member / members * element;
        (0..members).map(|member| Self::span(end(member), end(member + 1) - end(member))).collect()
    }

    pub const fn stretch(&self) -> StridedRange {
        let Self { start, rows, run, stride } = *self;
        StridedRange { start, rows, run, stride }
    }

    pub const fn len(&self) -> usize {
        self.rows * self.run
    }

    /// Where it lies, if it has no gaps.
    pub const fn contiguous(&self) -> Option<std::ops::Range<usize>> {
        if self.rows == 1 { Some(self.start..self.start + self.run) } else { None }
    }

    /// Copies the bytes from `offset` on into `into`, which they fill.
    pub fn read(&self, data: &[u8], offset: usize, into: &mut [u8]) {
        let mut done = 0;
        self.runs(offset, into.len(), |place, length| {
            let from = data.get(place..place + length);
            if let (Some(from), Some(to)) = (from, into.get_mut(done..done + length)) {
                to.copy_from_slice(from);
            }
            done += length;
        });
    }

    /// Copies `from` to where the bytes from `offset` on lie.
    pub fn write(&self, data: &mut [u8], offset: usize, from: &[u8]) {
        let mut done = 0;
        self.runs(offset, from.len(), |place, length| {
            let to = data.get_mut(place..place + length);
            if let (Some(from), Some(to)) = (from.get(done..done + length), to) {
                to.copy_from_slice(from);
            }
            done += length;
        });
    }

    /// The stretches without a gap of `length` bytes from `offset` on: place and length of each.
    fn runs(&self, mut offset: usize, length: usize, mut each: impl FnMut(usize, usize)) {
        let end = (offset + length).min(self.len());
        while offset < end {
            let (row, within) = (offset / self.run, offset % self.run);
            let length = (self.run - within).min(end - offset);
            each(self.start + row * self.stride + within, length);
            offset += length;
        }
    }
}

/// How much of the interval of piece `mine` lies in each of the pieces of another cut of the same dimension.
pub(super) fn overlaps(cut: &[i64], mine: usize, other: &[i64]) -> Vec<i64> {
    let start: i64 = cut.iter().take(mine).sum();
    let end = start + cut.get(mine).copied().unwrap_or(0);
    let mut first = 0;
    let overlap = |&size: &i64| {
        let last = first + size;
        let common = last.min(end) - start.max(first);
        first = last;
        common.max(0)
    };
    other.iter().map(overlap).collect()
}
