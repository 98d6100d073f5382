//! Lossy codecs for slow links: the operands of a reduction between hosts are rounded first, ours
//! included, to numbers that links can send in fewer bytes. So all members reduce the same numbers,
//! whatever codec each of them uses, and no link has to know of the codec (`gt_transport::packing`
//! leaves out the bits that are redundant in rounded numbers).
//!
//! Used only on a user's request, for float32 sums with members on other hosts; it does not depend
//! on measurements.

use crate::reduce_op::single_to_brain;

/// Count of numbers that share a scale.
const BLOCK: usize = 256;
const MULTIPLE_MAX: f32 = 127.0;
/// Range of a block's largest magnitude; other blocks are left as they are, because their scale, or
/// a multiple of it, would not be a normal number.
const LARGEST_MIN: f32 = 1e-30;
const LARGEST_MAX: f32 = 1e38;
/// Low bits of a scale that stay zero, so that each of its multiples is exact.
const SCALE_BITS_FREE: u32 = 7;

/// Target of the rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// The nearest bfloat16; relative error up to 2^-8.
    Bf16,
    /// The nearest multiple of 1/127 of the largest magnitude in blocks of 256; error up to half of
    /// that step. With more than two members the sums are returned in bfloat16.
    Int8,
}

/// Sums of squares of the rounded numbers, and of their errors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundingError {
    squares: f64,
    lost: f64,
}

impl RoundingError {
    /// Root mean square error, relative to the root mean square of the numbers.
    pub fn relative(self) -> f64 {
        if self.lost == 0.0 { 0.0 } else { (self.lost / self.squares).sqrt() }
    }

    pub fn add(&mut self, other: Self) {
        self.squares += other.squares;
        self.lost += other.lost;
    }

    /// Adds one number; numbers that are not finite count as exact.
    fn count(&mut self, number: f32, rounded: f32) {
        if number.is_finite() && rounded.is_finite() {
            let (number, lost) = (f64::from(number), f64::from(number) - f64::from(rounded));
            self.squares += number * number;
            self.lost += lost * lost;
        }
    }
}

impl Codec {
    /// Returns true if the error is to be compensated in the next reduction.
    pub const fn keeps_residual(self) -> bool {
        match self {
            Self::Int8 => true,
            Self::Bf16 => false,
        }
    }

    /// Rounds float32 numbers in place. `residual`, of the same length or empty, is added first,
    /// and holds the rounding errors afterwards.
    pub fn round(self, bytes: &mut [u8], residual: &mut [f32]) -> RoundingError {
        let mut error = RoundingError::default();
        let mut residuals = residual.chunks_mut(BLOCK);
        for block in bytes.as_chunks_mut::<4>().0.chunks_mut(BLOCK) {
            let mut numbers = [0.0; BLOCK];
            let numbers = &mut numbers[..block.len()];
            for (number, bytes) in numbers.iter_mut().zip(&*block) {
                *number = f32::from_le_bytes(*bytes);
            }
            let residual = residuals.next().unwrap_or_default();
            for (number, residual) in numbers.iter_mut().zip(&*residual) {
                *number += residual;
            }
            self.round_block(numbers, block);
            let mut left = residual.iter_mut();
            for (&number, bytes) in numbers.iter().zip(&*block) {
                let rounded = f32::from_le_bytes(*bytes);
                error.count(number, rounded);
                if let Some(left) = left.next() {
                    let lost = number - rounded;
                    *left = if lost.is_finite() { lost } else { 0.0 };
                }
            }
        }
        error
    }

    fn round_block(self, numbers: &[f32], out: &mut [[u8; 4]]) {
        let scale = match self {
            Self::Bf16 => None,
            Self::Int8 => Some(scale(numbers)),
        };
        for (&number, to) in numbers.iter().zip(out) {
            let rounded = match scale {
                None => f32::from_bits(u32::from(single_to_brain(number)) << 16),
                Some(scale) if scale > 0.0 => {
                    let multiple = (number / scale).round_ties_even();
                    // Zeros are made positive: a negative one would take four bytes.
                    multiple.clamp(-MULTIPLE_MAX, MULTIPLE_MAX) * scale + 0.0
                }
                Some(_) => number,
            };
            *to = rounded.to_le_bytes();
        }
    }
}

/// The scale of a block; 0 where it is left as it is.
fn scale(numbers: &[f32]) -> f32 {
    let larger = |largest: f32, number: &f32| {
        if number.is_finite() { largest.max(number.abs()) } else { f32::INFINITY }
    };
    let largest = numbers.iter().fold(0.0, larger);
    if !(LARGEST_MIN..=LARGEST_MAX).contains(&largest) {
        return 0.0;
    }
    let bits = (largest / MULTIPLE_MAX).to_bits() + (1 << (SCALE_BITS_FREE - 1));
    f32::from_bits(bits >> SCALE_BITS_FREE << SCALE_BITS_FREE)
}
