//! Stand-ins for functions that no finite field has.
//!
//! Nothing that is simulated relies on more than their being functions that are monotone where `ops.toml` says so: a
//! softmax is `exponential(x - most)` over its sum, whatever `exponential` is.

use crate::arithmetic::tensor::{HALF, PRIME, residue, signed};

pub fn exponential(element: u64) -> u64 {
    rising(element, 3)
}

pub fn logarithm(element: u64) -> u64 {
    rising(element, 5)
}

pub fn root(element: u64) -> u64 {
    rising(element, 11)
}

/// Neither rising nor falling, and linear in nothing: a function that let sums pass would hide a sum that passes it.
pub fn inverse_root(element: u64) -> u64 {
    let base = (element + 17) % PRIME;
    (base * base % PRIME * base + 17) % PRIME
}

/// Monotone in the order of the elements, without a fixed point at 0, and as good as injective: quadratic where numbers
/// are small, then as steep as is room.
fn rising(element: u64, shift: u64) -> u64 {
    const SMALL: u64 = 1024;
    let number = signed(element % PRIME);
    let size = number.unsigned_abs();
    let top = SMALL * (SMALL + shift);
    let risen = if size < SMALL {
        size * (size + shift)
    } else {
        top + (size - SMALL) * (HALF - shift - top) / HALF
    };
    residue(risen.cast_signed() * number.signum() + shift.cast_signed())
}
