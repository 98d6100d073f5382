//! Reductions against plain arithmetic.

use crate::{ReduceOp, Shard, reduce};
use gt_protocol::Dtype;

const REDUCE_OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min];

/// Reduces shards of one dtype, `members` of them, by a loop over single elements.
fn check<T: Copy, const SIZE: usize>(
    dtype: Dtype,
    member: impl Fn(usize, usize) -> T,
    bytes: impl Fn(T) -> [u8; SIZE],
    join: impl Fn(ReduceOp, T, T) -> T,
) {
    // A length that is a multiple of no vector, and one beyond a chunk.
    for (members, length) in [(1, 5), (2, 0), (2, 1003), (3, 1003), (7, 61)] {
        let shards: Vec<Vec<u8>> = (0..members)
            .map(|number| (0..length).flat_map(|place| bytes(member(number, place))).collect())
            .collect();
        let apart: Vec<Shard<'_>> = shards.iter().map(|shard| Shard::Bytes(shard)).collect();
        for kind in REDUCE_OPS {
            let mut out = vec![0; length * SIZE];
            reduce(dtype, kind, &apart, &mut out);
            for place in 0..members {
                let (mut in_place, mut shards_of_others) = (shards[place].clone(), apart.clone());
                shards_of_others[place] = Shard::InPlace;
                reduce(dtype, kind, &shards_of_others, &mut in_place);
                assert!(in_place == out, "{dtype:?} {kind:?}: shard {place} of {members} in place");
            }
            let one = |place| {
                let first = member(0, place);
                (1..members).fold(first, |sum, number| join(kind, sum, member(number, place)))
            };
            let expected: Vec<u8> = (0..length).flat_map(|place| bytes(one(place))).collect();
            assert!(out == expected, "{dtype:?} {kind:?} of {members} shards of {length}");
        }
    }
}

/// Bits that are spread over the whole range, and the same for the same index.
fn bits(number: usize, place: usize) -> u64 {
    let seed = u64::try_from(number * 1_000_003 + place).unwrap();
    let mixed = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

macro_rules! integers {
    ($($type:ty, $dtype:ident;)*) => {$(
        check(
            Dtype::$dtype,
            |number, place| <$type>::from_le_bytes(*bits(number, place).to_le_bytes().first_chunk().unwrap()),
            <$type>::to_le_bytes,
            |kind, left, right| match kind {
                ReduceOp::Sum => left.wrapping_add(right),
                ReduceOp::Prod => left.wrapping_mul(right),
                ReduceOp::Max => left.max(right),
                ReduceOp::Min => left.min(right),
            },
        );
    )*};
}

#[test]
fn integers_wrap() {
    integers! { u8, U8; i8, I8; i16, I16; i32, I32; i64, I64; }
}

#[test]
fn bools_have_one_bit() {
    check(
        Dtype::Bool,
        |number, place| bits(number, place) & 1 == 1,
        |value| [u8::from(value)],
        |kind, left, right| match kind {
            ReduceOp::Sum | ReduceOp::Max => left || right,
            ReduceOp::Prod | ReduceOp::Min => left && right,
        },
    );
}

macro_rules! floats {
    ($($type:ty, $dtype:ident;)*) => {$(
        check(
            Dtype::$dtype,
            |number, place| <$type>::from(u16::try_from(bits(number, place) >> 50).unwrap()) / 7.0 - 900.0,
            <$type>::to_le_bytes,
            |kind, left, right| match kind {
                ReduceOp::Sum => left + right,
                ReduceOp::Prod => left * right,
                ReduceOp::Max => left.max(right),
                ReduceOp::Min => left.min(right),
            },
        );
    )*};
}

#[test]
fn floats_are_rounded_at_each_step_in_the_group_s_order() {
    floats! { f32, F32; f64, F64; }
}

/// A half-precision number by its definition; `fraction` bits of fraction.
fn half_value(pattern: u16, fraction: u32, bias: i32) -> f64 {
    let sign = if pattern >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from((pattern & 0x7fff) >> fraction);
    let mantissa = f64::from(pattern & ((1 << fraction) - 1)) / f64::from(1_u32 << fraction);
    let special = (1 << (15 - fraction)) - 1;
    sign * match exponent {
        0 => mantissa * 2_f64.powi(1 - bias),
        _ if exponent == special && mantissa == 0.0 => f64::INFINITY,
        _ if exponent == special => f64::NAN,
        _ => (1.0 + mantissa) * 2_f64.powi(exponent - bias),
    }
}

/// Checks every number of a half format, as a reduction of one shard; then numbers between two of
/// them.
fn check_half(dtype: Dtype, fraction: u32, bias: i32, write: impl Fn(f32) -> u16) {
    let infinity = (0x7fff >> fraction) << fraction;
    for bits in 0..=u16::MAX {
        let mut out = [0; 2];
        reduce(dtype, ReduceOp::Max, &[Shard::Bytes(&bits.to_le_bytes())], &mut out);
        let out = u16::from_le_bytes(out);
        let exact = half_value(bits, fraction, bias);
        if exact.is_nan() {
            assert!(half_value(out, fraction, bias).is_nan(), "{dtype:?} {bits:#x} is {out:#x}");
            continue;
        }
        assert_eq!(out, bits, "{dtype:?}");
        if bits & 0x7fff >= infinity - 1 {
            continue;
        }
        // Towards the next one away from 0: nearer to this one, in the middle, and nearer to the
        // other.
        let (next, even) = (bits + 1, if bits & 1 == 0 { bits } else { bits + 1 });
        let middle = f64::midpoint(exact, half_value(next, fraction, bias));
        #[allow(clippy::cast_possible_truncation, reason = "it has 12 bits")]
        let middle = middle as f32;
        let nearer = f32::from_bits(middle.to_bits() - 1);
        let farther = f32::from_bits(middle.to_bits() + 1);
        let rounded = [nearer, middle, farther].map(&write);
        assert_eq!(rounded, [bits, even, next], "{dtype:?} around {middle}");
    }
    assert_eq!(write(f32::MAX), infinity);
    assert_eq!(write(f32::NEG_INFINITY), infinity | 0x8000);
}

#[test]
fn half_precision_is_rounded_to_nearest_even() {
    check_half(Dtype::F16, 10, 15, crate::reduce_op::single_to_half);
    check_half(Dtype::Bf16, 7, 127, crate::reduce_op::single_to_brain);
}

#[test]
fn half_precision_is_rounded_once_at_the_end() {
    // 2048 + 1 is no half; three shards make 2050.
    let half = |value: f32| crate::reduce_op::single_to_half(value).to_le_bytes();
    let mut out = [0; 2];
    let halves = [half(2048.0), half(1.0), half(1.0)];
    reduce(Dtype::F16, ReduceOp::Sum, &halves.each_ref().map(|half| Shard::Bytes(half)), &mut out);
    assert_eq!(out, half(2050.0));
}

#[test]
fn no_number_stays_no_number() {
    let reduced = |kind, left: f32, right: f32| {
        let mut out = [0; 4];
        let shards = [left.to_le_bytes(), right.to_le_bytes()];
        reduce(Dtype::F32, kind, &shards.each_ref().map(|shard| Shard::Bytes(shard)), &mut out);
        f32::from_le_bytes(out)
    };
    assert!(
        reduced(ReduceOp::Max, f32::NAN, 1.0).is_nan()
            && reduced(ReduceOp::Max, 1.0, f32::NAN).is_nan()
    );
    assert!(
        reduced(ReduceOp::Min, f32::NAN, 1.0).is_nan()
            && reduced(ReduceOp::Min, 1.0, f32::NAN).is_nan()
    );
    assert_eq!(reduced(ReduceOp::Max, f32::NEG_INFINITY, -3.0).to_bits(), (-3.0_f32).to_bits());
    assert_eq!(reduced(ReduceOp::Min, f32::INFINITY, 3.0).to_bits(), 3.0_f32.to_bits());
}
