//! Digests of a table's keys: cheap, and the same on every machine.

use std::hash::Hasher;

/// Multiplies and rotates: keys come from one program, which would only slow its own plans by
/// making them collide.
#[derive(Default)]
pub struct Digest(u64);

impl Digest {
    pub fn write_sizes(&mut self, sizes: &[i64]) {
        for &size in sizes {
            self.write_i64(size);
        }
    }
}

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(8) {
            let mut word = [0; 8];
            for (place, byte) in word.iter_mut().zip(bytes) {
                *place = *byte;
            }
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_i64(&mut self, value: i64) {
        self.write_u64(value.cast_unsigned());
    }

    fn write_usize(&mut self, value: usize) {
        self.write(&value.to_le_bytes());
    }

    fn finish(&self) -> u64 {
        // The table takes an entry's index from the low bits and its tag from the high ones.
        self.0 ^ self.0 >> 32
    }
}

/// A digest is its own hash.
#[derive(Default)]
pub struct Same(u64);

impl Hasher for Same {
    fn write(&mut self, bytes: &[u8]) {
        unreachable!("a digest is hashed as one number, not as {bytes:?}");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
