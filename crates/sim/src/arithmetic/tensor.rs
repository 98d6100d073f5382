//! Toy tensors: integers modulo a prime, so that every order of a sum has the same bits and a mean
//! is exact.
//!
//! The dtype is carried along and determines the number of bytes of an element on the wire; it
//! changes no value.

use crate::exact::exact;
use gt_protocol::{Dims, Dtype, Scalar};
use std::iter::repeat;

/// Modulus of the elements: the largest prime that fits the four bytes of a signed integer.
pub const PRIME: u64 = (1 << 31) - 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToyTensor {
    pub dims: Vec<usize>,
    pub dtype: Dtype,
    /// Elements in row-major order.
    pub data: Vec<u64>,
}

impl ToyTensor {
    /// A tensor with each element computed from its index.
    pub fn from_fn(dims: &[usize], dtype: Dtype, mut element: impl FnMut(&[usize]) -> u64) -> Self {
        let count = dims.iter().product();
        let mut data = Vec::with_capacity(count);
        let mut index = vec![0; dims.len()];
        for _ in 0..count {
            data.push(element(&index) % PRIME);
            for (place, &size) in index.iter_mut().zip(dims).rev() {
                *place += 1;
                if *place < size {
                    break;
                }
                *place = 0;
            }
        }
        Self { dims: dims.to_vec(), dtype, data }
    }

    /// The element at an index of at least as many dimensions; leading ones are ignored and a size
    /// of 1 is broadcast.
    pub fn at(&self, index: &[usize]) -> u64 {
        let own = &index[index.len() - self.dims.len()..];
        let stretched =
            |(&size, &place): (&usize, &usize)| (size, if size == 1 { 0 } else { place });
        let places = self.dims.iter().zip(own).map(stretched);
        self.data[places.fold(0, |offset, (size, place)| offset * size + place)]
    }

    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self.dtype, &self.data)
    }

    pub fn from_bytes(dtype: Dtype, dims: &[usize], bytes: &[u8]) -> Self {
        Self { dims: dims.to_vec(), dtype, data: elements(dtype, bytes) }
    }
}

pub fn to_bytes(dtype: Dtype, elements: &[u64]) -> Vec<u8> {
    let size = element_bytes(dtype);
    // Complex numbers, which nonsense may request, have 16 bytes.
    let bytes = |element: &u64| element.to_le_bytes().into_iter().chain(repeat(0)).take(size);
    elements.iter().flat_map(bytes).collect()
}

pub fn elements(dtype: Dtype, bytes: &[u8]) -> Vec<u64> {
    let element =
        |chunk: &[u8]| chunk.iter().rev().fold(0, |element, &byte| element << 8 | u64::from(byte));
    bytes.chunks(element_bytes(dtype)).map(element).collect()
}

fn element_bytes(dtype: Dtype) -> usize {
    exact::<_, usize>(dtype.size())
}

/// The inverse: `a * inverse(a) = 1`; 0 for 0, so that a division is total.
pub fn inverse(element: u64) -> u64 {
    let (mut result, mut base, mut exponent) = (1, element % PRIME, PRIME - 2);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * base % PRIME;
        }
        base = base * base % PRIME;
        exponent >>= 1;
    }
    result
}

/// The elements represent the integers from `-HALF` to `HALF`, in their order: a negation reverses
/// it, as the rules of monotone operators assume.
pub const HALF: u64 = PRIME / 2;

/// The smallest of all elements in that order.
pub const LEAST: u64 = PRIME - HALF;

pub const fn signed(element: u64) -> i64 {
    let number = element.cast_signed();
    if element > HALF { number.wrapping_sub(PRIME.cast_signed()) } else { number }
}

pub const fn larger(a: u64, b: u64) -> u64 {
    if signed(b) > signed(a) { b } else { a }
}

pub const fn smaller(a: u64, b: u64) -> u64 {
    if signed(b) < signed(a) { b } else { a }
}

/// The element that represents an integer.
pub fn residue(number: i64) -> u64 {
    number.rem_euclid(PRIME.cast_signed()).cast_unsigned()
}

/// The element of a scalar operand; the simulator writes integers only.
pub fn element_of(scalar: Scalar) -> u64 {
    match scalar {
        Scalar::Bool(value) => u64::from(value),
        Scalar::Int(value) => residue(value),
        Scalar::Float(f64::INFINITY) => HALF,
        Scalar::Float(f64::NEG_INFINITY) => LEAST,
        #[allow(
            clippy::as_conversions,
            clippy::cast_possible_truncation,
            reason = "a whole number below 2^53"
        )]
        Scalar::Float(value) => residue(value as i64),
    }
}

pub fn wide(size: usize) -> i64 {
    exact::<_, i64>(size)
}

/// A size that is known not to be negative.
pub fn narrow(size: i64) -> usize {
    exact::<_, usize>(size)
}

pub fn to_dims(sizes: &[usize]) -> Dims {
    let sizes: Vec<i64> = sizes.iter().map(|&size| wide(size)).collect();
    Dims::new(&sizes).unwrap_or_else(|| panic!("too many: {sizes:?}"))
}

pub fn from_dims(dims: &[i64]) -> Vec<usize> {
    dims.iter().map(|&size| narrow(size)).collect()
}
