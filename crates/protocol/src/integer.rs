//! Lossless conversions between integers on the machines that GT supports.

const _: () = assert!(size_of::<usize>() == size_of::<u64>());

#[inline]
#[allow(clippy::as_conversions, reason = "usize has 64 bits, asserted above")]
pub const fn to_usize(number: u32) -> usize {
    number as usize
}

#[inline]
#[allow(clippy::as_conversions, reason = "usize has 64 bits, asserted above")]
pub const fn to_u64(number: usize) -> u64 {
    number as u64
}
