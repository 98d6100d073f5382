//! Stand-ins for functions that do not exist in a finite field.
//!
//! Nothing that is simulated relies on more than that these are functions, monotone where
//! `ops.toml` says so: a softmax is `exponential(x - most)` over its sum, whatever `exponential`
//! is.

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

/// Neither rising nor falling, and not linear: a linear function would hide that a sum wrongly
/// passed through it.
pub fn inverse_root(element: u64) -> u64 {
    let base = (element + 17) % PRIME;
    (base * base % PRIME * base + 17) % PRIME
}

/// Monotone in the order of the elements, without a fixed point at 0, and practically injective:
/// quadratic for small numbers, then as steep as there is room.
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
