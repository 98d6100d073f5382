//! Pieces of a value along one dimension, as bytes: where they lie in the whole, cut out of it and joined to it.

use crate::Fault;
use gt_protocol::Meta;

/// Consecutive pieces of a whole value along `dim`, by their sizes, in the order of a group's members.
pub(super) struct Pieces {
    /// How often the pieces alternate in the whole: the sizes of the dimensions before, multiplied.
    rows: usize,
    /// Bytes of one row of each piece.
    runs: Vec<usize>,
}

impl Pieces {
    /// `whole` must be as long along `dim` as the pieces are together.
    pub fn new(whole: &Meta, dim: usize, sizes: &[i64]) -> Result<Self, Fault> {
        let total = sizes.iter().try_fold(0_i64, |total, &size| total.checked_add(size));
        if total.is_none() || whole.dims.get(dim).copied() != total {
            return Err(Fault::protocol(format!("sizes {sizes:?} along {dim} of a {whole}")));
        }
        let product = |sizes: &[i64], start: usize| {
            let sizes = sizes.iter().map(|&size| usize::try_from(size).unwrap_or(0));
            sizes.fold(start, usize::saturating_mul)
        };
        let (before, after) = whole.dims.as_slice().split_at(dim);
        let element = usize::try_from(whole.dtype.size()).unwrap_or(1);
        let run = product(after.get(1..).unwrap_or_default(), element);
        let runs = sizes.iter().map(|&size| run.saturating_mul(usize::try_from(size).unwrap_or(0)));
        Ok(Self { rows: product(before, 1), runs: runs.collect() })
    }

    /// The bytes of each piece, in order.
    pub fn cut(&self, whole: &[u8]) -> Vec<Vec<u8>> {
        let width: usize = self.runs.iter().sum();
        let mut start = 0;
        let piece = |&run: &usize| {
            let mut bytes = Vec::with_capacity(self.rows * run);
            for row in 0..self.rows {
                let first = row * width + start;
                bytes.extend_from_slice(whole.get(first..first + run).unwrap_or_default());
            }
            start += run;
            bytes
        };
        self.runs.iter().map(piece).collect()
    }

    /// The whole's bytes.
    pub fn joined(&self, pieces: &[&[u8]]) -> Result<Vec<u8>, Fault> {
        let expected: Vec<usize> = self.runs.iter().map(|run| self.rows * run).collect();
        if pieces.iter().zip(&expected).any(|(piece, &expected)| piece.len() != expected) {
            let lengths: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
            let text = format!("pieces of {lengths:?} bytes in place of {expected:?}");
            return Err(Fault::protocol(text));
        }
        let mut bytes = Vec::with_capacity(expected.iter().sum());
        for row in 0..self.rows {
            for (piece, &run) in pieces.iter().zip(&self.runs) {
                bytes.extend_from_slice(piece.get(row * run..(row + 1) * run).unwrap_or_default());
            }
        }
        Ok(bytes)
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
