//! Reduction of the shards of a group, element by element in the group's order.
//!
//! Loops over fixed-size chunks of bytes, so that the compiler vectorises them and no alignment is
//! needed. Half precision is added in single precision and rounded once, at the end, as in a kernel
//! on one device.

#![allow(clippy::inline_always, reason = "the caller's vector instructions are to be used")]

use gt_protocol::Dtype;
use gt_protocol::placement::ReduceOp;
use std::marker::PhantomData;

/// Reduction function: [`Engine::reduce`](crate::Engine::reduce) of the engine in use.
pub type ReduceBytes = fn(Dtype, ReduceOp, &[Shard<'_>], &mut [u8]);

/// One member's contribution to a reduction.
#[derive(Clone, Copy, Debug)]
pub enum Shard<'a> {
    Bytes(&'a [u8]),
    /// Contribution in the result's memory: it is read before it is overwritten.
    InPlace,
}

impl<'a> Shard<'a> {
    /// Its bytes, before anything is written to `out`.
    pub const fn of(self, out: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::InPlace => out,
        }
    }
}

/// An element: read from bytes, reduced in a type that may be wider, written back.
trait Element<const SIZE: usize> {
    type Wide: Copy;
    fn read(bytes: [u8; SIZE]) -> Self::Wide;
    fn write(value: Self::Wide) -> [u8; SIZE];
    fn sum(left: Self::Wide, right: Self::Wide) -> Self::Wide;
    fn product(left: Self::Wide, right: Self::Wide) -> Self::Wide;
    fn max(left: Self::Wide, right: Self::Wide) -> Self::Wide;
    fn min(left: Self::Wide, right: Self::Wide) -> Self::Wide;
}

/// Reduces `shards`, each as long as `out`, in their order into `out`. Integers wrap, a NaN stays,
/// bools are one-bit numbers: their sum is "any".
///
/// Inlined, so that the caller chooses the vector instructions to which its loops are compiled.
#[inline(always)]
pub fn reduce(dtype: Dtype, reduce_op: ReduceOp, shards: &[Shard<'_>], out: &mut [u8]) {
    match dtype {
        Dtype::Bool => by_op::<Bit, 1>(reduce_op, shards, out),
        Dtype::U8 => by_op::<u8, 1>(reduce_op, shards, out),
        Dtype::I8 => by_op::<i8, 1>(reduce_op, shards, out),
        Dtype::I16 => by_op::<i16, 2>(reduce_op, shards, out),
        Dtype::I32 => by_op::<i32, 4>(reduce_op, shards, out),
        Dtype::I64 => by_op::<i64, 8>(reduce_op, shards, out),
        Dtype::F16 => by_op::<Half, 2>(reduce_op, shards, out),
        Dtype::Bf16 => by_op::<Brain, 2>(reduce_op, shards, out),
        Dtype::F32 => by_op::<f32, 4>(reduce_op, shards, out),
        Dtype::F64 => by_op::<f64, 8>(reduce_op, shards, out),
        Dtype::C64 => by_op::<Complex<f32>, 8>(reduce_op, shards, out),
        Dtype::C128 => by_op::<Complex<f64>, 16>(reduce_op, shards, out),
    }
}

#[inline(always)]
fn by_op<T: Element<SIZE>, const SIZE: usize>(
    reduce_op: ReduceOp,
    shards: &[Shard<'_>],
    out: &mut [u8],
) {
    match reduce_op {
        ReduceOp::Sum => all::<T, SIZE>(shards, out, T::sum),
        ReduceOp::Prod => all::<T, SIZE>(shards, out, T::product),
        ReduceOp::Max => all::<T, SIZE>(shards, out, T::max),
        ReduceOp::Min => all::<T, SIZE>(shards, out, T::min),
    }
}

/// Number of elements whose wide sums are kept at a time, in the first-level cache.
const CHUNK: usize = 512;

#[inline(always)]
fn all<T: Element<SIZE>, const SIZE: usize>(
    shards: &[Shard<'_>],
    out: &mut [u8],
    join: impl Fn(T::Wide, T::Wide) -> T::Wide,
) {
    let out = out.as_chunks_mut::<SIZE>().0;
    match *shards {
        [] => {}
        [Shard::InPlace] => out.iter_mut().for_each(|to| *to = T::write(T::read(*to))),
        [Shard::Bytes(only)] => {
            for (to, &only) in out.iter_mut().zip(elements(only)) {
                *to = T::write(T::read(only));
            }
        }
        [Shard::Bytes(left), Shard::Bytes(right)] => {
            let pairs = elements::<SIZE>(left).iter().zip(elements::<SIZE>(right));
            for (to, (&left, &right)) in out.iter_mut().zip(pairs) {
                *to = T::write(join(T::read(left), T::read(right)));
            }
        }
        [Shard::InPlace, Shard::Bytes(right)] => {
            for (to, &right) in out.iter_mut().zip(elements::<SIZE>(right)) {
                *to = T::write(join(T::read(*to), T::read(right)));
            }
        }
        [Shard::Bytes(left), Shard::InPlace] => {
            for (to, &left) in out.iter_mut().zip(elements::<SIZE>(left)) {
                *to = T::write(join(T::read(left), T::read(*to)));
            }
        }
        [Shard::InPlace, Shard::InPlace] => {
            unreachable!("two of the shards are in the result's memory")
        }
        [first, second, ref middle @ .., last] => {
            several::<T, SIZE>([first, second, last], middle, out, join);
        }
    }
}

/// Reduces three shards or more: `middle` has those between the first two and the last.
#[inline(always)]
fn several<T: Element<SIZE>, const SIZE: usize>(
    [first, second, last]: [Shard<'_>; 3],
    middle: &[Shard<'_>],
    out: &mut [[u8; SIZE]],
    join: impl Fn(T::Wide, T::Wide) -> T::Wide,
) {
    let mut start = 0;
    let mut sums = [T::read([0; SIZE]); CHUNK];
    for out in out.chunks_mut(CHUNK) {
        let part = |shard| match shard {
            Shard::Bytes(bytes) => &elements::<SIZE>(bytes)[start..start + out.len()],
            Shard::InPlace => &*out,
        };
        let pairs = part(first).iter().zip(part(second));
        for (sum, (&left, &right)) in sums.iter_mut().zip(pairs) {
            *sum = join(T::read(left), T::read(right));
        }
        for &shard in middle {
            for (sum, &element) in sums.iter_mut().zip(part(shard)) {
                *sum = join(*sum, T::read(element));
            }
        }
        match last {
            Shard::Bytes(last) => {
                let last = elements::<SIZE>(last)[start..start + out.len()].iter();
                for (to, (&sum, &element)) in out.iter_mut().zip(sums.iter().zip(last)) {
                    *to = T::write(join(sum, T::read(element)));
                }
            }
            Shard::InPlace => {
                for (to, &sum) in out.iter_mut().zip(&sums) {
                    *to = T::write(join(sum, T::read(*to)));
                }
            }
        }
        start += out.len();
    }
}

#[inline(always)]
fn elements<const SIZE: usize>(bytes: &[u8]) -> &[[u8; SIZE]] {
    bytes.as_chunks::<SIZE>().0
}

macro_rules! integer {
    ($($type:ty, $size:literal;)*) => {$(
        impl Element<$size> for $type {
            type Wide = Self;
            #[inline(always)]
            fn read(bytes: [u8; $size]) -> Self {
                Self::from_le_bytes(bytes)
            }
            #[inline(always)]
            fn write(value: Self) -> [u8; $size] {
                value.to_le_bytes()
            }
            #[inline(always)]
            fn sum(left: Self, right: Self) -> Self {
                left.wrapping_add(right)
            }
            #[inline(always)]
            fn product(left: Self, right: Self) -> Self {
                left.wrapping_mul(right)
            }
            #[inline(always)]
            fn max(left: Self, right: Self) -> Self {
                Ord::max(left, right)
            }
            #[inline(always)]
            fn min(left: Self, right: Self) -> Self {
                Ord::min(left, right)
            }
        }
    )*};
}

integer! { u8, 1; i8, 1; i16, 2; i32, 4; i64, 8; }

struct Bit;

impl Element<1> for Bit {
    type Wide = u8;
    #[inline(always)]
    fn read([byte]: [u8; 1]) -> u8 {
        u8::from(byte != 0)
    }
    fn write(value: u8) -> [u8; 1] {
        [value]
    }
    fn sum(left: u8, right: u8) -> u8 {
        left | right
    }
    fn product(left: u8, right: u8) -> u8 {
        left & right
    }
    fn max(left: u8, right: u8) -> u8 {
        left | right
    }
    fn min(left: u8, right: u8) -> u8 {
        left & right
    }
}

/// The larger of two, or the first NaN.
#[inline(always)]
fn larger<T: PartialOrd + Copy>(left: T, right: T) -> T {
    #[allow(
        clippy::neg_cmp_op_on_partial_ord,
        reason = "a comparison with NaN is false, as it must be"
    )]
    let right_wins = !(left >= right) && is_number(&left);
    if right_wins { right } else { left }
}

#[inline(always)]
fn smaller<T: PartialOrd + Copy>(left: T, right: T) -> T {
    #[allow(
        clippy::neg_cmp_op_on_partial_ord,
        reason = "a comparison with NaN is false, as it must be"
    )]
    let right_wins = !(left <= right) && is_number(&left);
    if right_wins { right } else { left }
}

#[inline(always)]
fn is_number<T: PartialOrd>(value: &T) -> bool {
    value.partial_cmp(value).is_some()
}

macro_rules! float {
    ($($name:ty, $wide:ty, $size:literal, $read:expr, $write:expr;)*) => {$(
        impl Element<$size> for $name {
            type Wide = $wide;
            #[inline(always)]
            fn read(bytes: [u8; $size]) -> $wide {
                ($read)(bytes)
            }
            #[inline(always)]
            fn write(value: $wide) -> [u8; $size] {
                ($write)(value)
            }
            #[inline(always)]
            fn sum(left: $wide, right: $wide) -> $wide {
                left + right
            }
            #[inline(always)]
            fn product(left: $wide, right: $wide) -> $wide {
                left * right
            }
            #[inline(always)]
            fn max(left: $wide, right: $wide) -> $wide {
                larger(left, right)
            }
            #[inline(always)]
            fn min(left: $wide, right: $wide) -> $wide {
                smaller(left, right)
            }
        }
    )*};
}

/// A complex number: real part, then imaginary part. Complex numbers have no order, and the rules
/// refuse their extrema.
struct Complex<T>(PhantomData<T>);

macro_rules! complex {
    ($($part:ty, $size:literal, $half:literal;)*) => {$(
        impl Element<$size> for Complex<$part> {
            type Wide = [$part; 2];
            #[inline(always)]
            fn read(bytes: [u8; $size]) -> Self::Wide {
                let (parts, _) = bytes.as_chunks::<$half>();
                let [real, imag] = parts else { unreachable!("{} parts", parts.len()) };
                [<$part>::from_le_bytes(*real), <$part>::from_le_bytes(*imag)]
            }
            #[inline(always)]
            fn write([real, imag]: Self::Wide) -> [u8; $size] {
                let mut bytes = [0; $size];
                bytes[..$half].copy_from_slice(&real.to_le_bytes());
                bytes[$half..].copy_from_slice(&imag.to_le_bytes());
                bytes
            }
            #[inline(always)]
            fn sum(left: Self::Wide, right: Self::Wide) -> Self::Wide {
                [left[0] + right[0], left[1] + right[1]]
            }
            #[inline(always)]
            fn product(left: Self::Wide, right: Self::Wide) -> Self::Wide {
                let ([a, b], [c, d]) = (left, right);
                [a * c - b * d, a * d + b * c]
            }
            #[inline(always)]
            fn max(left: Self::Wide, _: Self::Wide) -> Self::Wide {
                left.map(|_| <$part>::NAN)
            }
            #[inline(always)]
            fn min(left: Self::Wide, right: Self::Wide) -> Self::Wide {
                Self::max(left, right)
            }
        }
    )*};
}

complex! { f32, 8, 4; f64, 16, 8; }

struct Half;
struct Brain;

float! {
    f32, f32, 4, f32::from_le_bytes, f32::to_le_bytes;
    f64, f64, 8, f64::from_le_bytes, f64::to_le_bytes;
    Half, f32, 2, |bytes| half_to_single(u16::from_le_bytes(bytes)), |value| single_to_half(value).to_le_bytes();
    Brain, f32, 2, |bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16),
        |value| single_to_brain(value).to_le_bytes();
}

/// 2^112: the difference of the two formats' exponent biases.
const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
const SIGN: u32 = 0x8000_0000;

/// Conversion without branches: shifted into place, a half is too small by 2^112, subnormal or not.
#[inline(always)]
fn half_to_single(half: u16) -> f32 {
    let bits = u32::from(half);
    let magnitude = (bits & 0x7fff) << 13;
    let scaled = (f32::from_bits(magnitude) * REBIAS).to_bits();
    // Infinities and NaNs keep the largest exponent.
    let scaled = if magnitude >= 0x0f80_0000 { magnitude | 0x7f80_0000 } else { scaled };
    f32::from_bits(scaled | (bits & 0x8000) << 16)
}

/// Rounds to nearest, ties to even.
#[inline(always)]
pub(crate) fn single_to_half(single: f32) -> u16 {
    let bits = single.to_bits();
    let magnitude = bits & !SIGN;
    // A number that is a normal half: rebias, and round the bits that are shifted out.
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    // A number that is not: adding 0.5 leaves the rounded bits at the end of the fraction.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    let finite = if magnitude < 113 << 23 { small } else { normal };
    let overflown = if magnitude >= 0x477f_f000 { 0x7c00 } else { finite };
    let half = if magnitude > 0x7f80_0000 { 0x7e00 } else { overflown };
    low(half | (bits & SIGN) >> 16)
}

/// Rounds to nearest, ties to even.
#[inline(always)]
pub(crate) fn single_to_brain(single: f32) -> u16 {
    let bits = single.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    low(if bits & !SIGN > 0x7f80_0000 { bits >> 16 | 0x40 } else { rounded })
}

#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "only the low half is needed"
)]
const fn low(bits: u32) -> u16 {
    bits as u16
}
