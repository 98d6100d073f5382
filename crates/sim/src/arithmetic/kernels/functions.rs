//! Stand-ins for functions that no finite field has.
//!
//! Any function of an element will do, for nothing that is simulated relies on more than their being functions: a
//! softmax is `exponential(x - most)` over its sum, whatever `exponential` is.

use crate::arithmetic::tensor::PRIME;

pub fn exponential(element: u64) -> u64 {
    cubed(element, 3)
}

pub fn logarithm(element: u64) -> u64 {
    cubed(element, 5)
}

pub fn root(element: u64) -> u64 {
    cubed(element, 11)
}

pub fn inverse_root(element: u64) -> u64 {
    cubed(element, 17)
}

/// Linear in nothing: a function that let sums pass would hide a sum that passes it.
fn cubed(element: u64, shift: u64) -> u64 {
    let base = (element + shift) % PRIME;
    (base * base % PRIME * base + shift) % PRIME
}
