//! Reductions of shards, compiled for each set of vector instructions that this processor has:
//! bit-identical to the loop over single elements.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test is a panic")]

use gt_protocol::Dtype;
use gt_transport::vectors::{VectorLoop, Vectors, widest};
use gt_worker::{ReduceOp, Shard, reduce};

const REDUCE_OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min];
const DTYPES: [Dtype; 12] = [
    Dtype::Bool,
    Dtype::U8,
    Dtype::I8,
    Dtype::I16,
    Dtype::I32,
    Dtype::I64,
    Dtype::F16,
    Dtype::Bf16,
    Dtype::F32,
    Dtype::F64,
    Dtype::C64,
    Dtype::C128,
];
/// Element counts around one vector, several vectors, and a chunk of sums.
const COUNTS: [usize; 12] = [0, 1, 2, 7, 16, 31, 33, 64, 67, 200, 513, 1030];

/// Bytes of `count` elements of a member, `offset` bytes behind an aligned one: arbitrary bits,
/// mixed with special ones.
fn bytes(dtype: Dtype, member: usize, count: usize, offset: usize) -> Vec<u8> {
    let size = usize::try_from(dtype.size()).unwrap();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ u64::try_from(member * 7919 + count).unwrap();
    let mut bytes = vec![0; offset];
    for place in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let element: [u8; 16] = (u128::from(state) * 0x0001_0000_0000_0001_0003).to_le_bytes();
        let special = special(dtype);
        let rare = usize::try_from(state >> 40).unwrap();
        match special.get(rare % (8 * special.len().max(1))) {
            _ if dtype == Dtype::Bool => bytes.push(element[0] & 1),
            Some(bits) => bytes.extend(&bits.to_le_bytes().repeat(2)[..size]),
            None => bytes.extend(&element[..size]),
        }
        debug_assert_eq!(bytes.len(), offset + (place + 1) * size);
    }
    bytes
}

/// Bits of -0.0, infinities, quiet and signalling NaNs, and the smallest numbers: repeated as often
/// in one element as they fit.
fn special(dtype: Dtype) -> Vec<u64> {
    let repeated = |bits: &[u64], width: u32| {
        let ones = (0..64 / width).fold(0_u64, |all, place| all | 1 << (place * width));
        bits.iter().map(|bits| bits * ones).collect()
    };
    match dtype {
        Dtype::F16 => {
            repeated(&[0x8000, 0x7c00, 0xfc00, 0x7e00, 0x7d01, 0xfe03, 0x0001, 0x7bff], 16)
        }
        Dtype::Bf16 => {
            repeated(&[0x8000, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffc3, 0x0001, 0x7f7f], 16)
        }
        Dtype::F32 | Dtype::C64 => {
            repeated(&[0x8000_0000, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0x7f80_0001, 1], 32)
        }
        Dtype::F64 | Dtype::C128 => {
            vec![1 << 63, 0x7ff0 << 48, 0xfff0 << 48, 0x7ff8 << 48, 0x7ff0_0000_0000_0001, 1]
        }
        Dtype::Bool | Dtype::U8 | Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => Vec::new(),
    }
}

/// The bits, with every NaN replaced by one pattern: the result of combining two of them depends on
/// the processor.
fn comparable(dtype: Dtype, bytes: &[u8]) -> Vec<u64> {
    let parts: Vec<u64> = match dtype {
        Dtype::Bool | Dtype::U8 | Dtype::I8 => bytes.iter().map(|&byte| byte.into()).collect(),
        Dtype::I16 | Dtype::F16 | Dtype::Bf16 => {
            bytes.as_chunks().0.iter().map(|two| u16::from_le_bytes(*two).into()).collect()
        }
        Dtype::I32 | Dtype::F32 | Dtype::C64 => {
            bytes.as_chunks().0.iter().map(|four| u32::from_le_bytes(*four).into()).collect()
        }
        Dtype::I64 | Dtype::F64 | Dtype::C128 => {
            bytes.as_chunks().0.iter().map(|eight| u64::from_le_bytes(*eight)).collect()
        }
    };
    let (magnitude, infinity) = match dtype {
        Dtype::F16 => (0x7fff, 0x7c00),
        Dtype::Bf16 => (0x7fff, 0x7f80),
        Dtype::F32 | Dtype::C64 => (u64::from(u32::MAX) >> 1, 0x7f80_0000),
        Dtype::F64 | Dtype::C128 => (u64::MAX >> 1, 0x7ff0 << 48),
        Dtype::Bool | Dtype::U8 | Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => (0, 1),
    };
    let is_number = |part: u64| part & magnitude <= infinity;
    parts.into_iter().map(|part| if is_number(part) { part } else { magnitude }).collect()
}

struct ReductionLoop<'a, 's> {
    dtype: Dtype,
    reduce_op: ReduceOp,
    shards: &'a [Shard<'s>],
    out: &'a mut [u8],
}

impl VectorLoop for ReductionLoop<'_, '_> {
    #[allow(clippy::inline_always, reason = "it is compiled for each set of vector instructions")]
    #[inline(always)]
    fn run(self) {
        reduce(self.dtype, self.reduce_op, self.shards, self.out);
    }
}

/// Reduces element by element, so that no vector is ever used.
fn single_elements(dtype: Dtype, reduce_op: ReduceOp, shards: &[&[u8]]) -> Vec<u8> {
    let size = usize::try_from(dtype.size()).unwrap();
    let mut out = vec![0; shards[0].len()];
    for (place, out) in out.chunks_mut(size).enumerate() {
        let range = place * size..(place + 1) * size;
        let element: Vec<_> =
            shards.iter().map(|shard| Shard::Bytes(&shard[range.clone()])).collect();
        reduce(dtype, reduce_op, &element, out);
    }
    out
}

fn check(dtype: Dtype, reduce_op: ReduceOp, members: usize, count: usize) {
    let offset = |member: usize| (member * 5 + count) % 19;
    let all: Vec<Vec<u8>> =
        (0..members).map(|member| bytes(dtype, member, count, offset(member))).collect();
    let shards: Vec<&[u8]> =
        all.iter().enumerate().map(|(member, bytes)| &bytes[offset(member)..]).collect();
    let expected = comparable(dtype, &single_elements(dtype, reduce_op, &shards));
    for vectors in Vectors::available() {
        for own in 0..=members {
            let mut out = vec![0; shards[0].len() + 3];
            let out = &mut out[3..];
            let mut given: Vec<_> = shards.iter().map(|shard| Shard::Bytes(shard)).collect();
            if let Some(in_place) = given.get_mut(own) {
                *in_place = Shard::InPlace;
                out.copy_from_slice(shards[own]);
            }
            vectors.run(ReductionLoop { dtype, reduce_op, shards: &given, out });
            let name =
                format!("{vectors:?}: {reduce_op:?} of {members} shards of {count} {dtype:?}");
            assert!(comparable(dtype, out) == expected, "{name}, {own} in place");
        }
    }
}

#[test]
fn every_set_of_vectors_has_the_same_bits() {
    for dtype in DTYPES {
        for reduce_op in REDUCE_OPS {
            for count in COUNTS {
                (2..=5).for_each(|members| check(dtype, reduce_op, members, count));
            }
        }
    }
}

#[test]
fn the_widest_set_is_one_that_is_there() {
    assert_eq!(Vectors::available().next(), Some(Vectors::Baseline));
    let mut out = [1];
    widest(ReductionLoop {
        dtype: Dtype::U8,
        reduce_op: ReduceOp::Sum,
        shards: &[Shard::InPlace, Shard::Bytes(&[6])],
        out: &mut out,
    });
    assert_eq!(out, [7]);
}
