//! Whether to pack: what a user says of it, and what was measured of a link.

use std::time::Duration;

/// Unsent until so much is known of a link.
const MEASURED_BYTES_MIN: u128 = 1 << 20;
/// What was measured before so many bytes counts for half.
const REMEMBERED_BYTES: u128 = 32 << 20;
/// Where packing does not pay, one chunk in so many is tried: values change, and so do links.
const TRIAL_ONE_IN: u32 = 64;

/// Whether bytes are packed that leave for another worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackingPolicy {
    /// They go as they are.
    Never,
    /// Where the link has been measured to be slower than packing.
    #[default]
    Measured,
    /// Whatever gets shorter by it.
    Always,
}

/// Bytes, and the time that they took.
#[derive(Clone, Copy, Debug, Default)]
struct Throughput {
    bytes: u128,
    nanoseconds: u128,
    saved: u128,
}

impl Throughput {
    fn add(&mut self, bytes: usize, saved: usize, time: Duration) {
        self.bytes += u128::try_from(bytes).unwrap_or(0);
        self.saved += u128::try_from(saved).unwrap_or(0);
        self.nanoseconds += time.as_nanos();
        if self.bytes > REMEMBERED_BYTES {
            self.bytes /= 2;
            self.saved /= 2;
            self.nanoseconds /= 2;
        }
    }
}

/// Decides for one link, chunk by chunk, by what the last ones have taken. It has no clock.
#[derive(Debug, Default)]
pub struct PackingChoice {
    packing: PackingPolicy,
    link: Throughput,
    packer: Throughput,
    chunks: u32,
}

impl PackingChoice {
    /// Nothing has been measured yet.
    #[must_use]
    pub fn new(packing: PackingPolicy) -> Self {
        Self { packing, ..Self::default() }
    }

    /// Whether to try to pack the next chunk: what that saves on the link takes longer than packing, as far as is known.
    pub fn tries(&mut self) -> bool {
        match self.packing {
            PackingPolicy::Never => false,
            PackingPolicy::Always => true,
            PackingPolicy::Measured if self.link.bytes < MEASURED_BYTES_MIN => false,
            PackingPolicy::Measured => {
                self.chunks = self.chunks.wrapping_add(1);
                let pays = self.packer.saved * self.link.nanoseconds
                    > self.packer.nanoseconds * self.link.bytes;
                pays || self.chunks % TRIAL_ONE_IN == 1
            }
        }
    }

    /// So many bytes went over the link.
    pub fn sent(&mut self, bytes: usize, time: Duration) {
        self.link.add(bytes, 0, time);
    }

    /// Trying to pack so many saved some, or none.
    pub fn packed(&mut self, bytes: usize, saved: usize, time: Duration) {
        self.packer.add(bytes, saved, time);
    }
}
