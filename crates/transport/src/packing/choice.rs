//! The decision to pack: a user's policy, and measurements of a link.

use std::time::Duration;

/// Bytes that must have been sent on a link before packing is tried.
const MEASURED_BYTES_MIN: u128 = 1 << 20;
/// Bytes after which an earlier measurement's weight is halved.
const REMEMBERED_BYTES: u128 = 32 << 20;
/// Chunks of which one is tried where packing does not pay: values change, and so do links.
const TRIAL_ONE_IN: u32 = 64;

/// Policy of packing bytes for another worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackingPolicy {
    /// Bytes are never packed.
    Never,
    /// Bytes are packed if the link has been measured to be slower than packing.
    #[default]
    Measured,
    /// Bytes are packed whenever they get shorter.
    Always,
}

/// A number of bytes, and the time that they took.
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

/// Decides for one link, chunk by chunk, by measurements of the last ones. It has no clock.
#[derive(Debug, Default)]
pub struct PackingChoice {
    packing: PackingPolicy,
    link: Throughput,
    packer: Throughput,
    chunks: u32,
}

impl PackingChoice {
    /// A choice without measurements.
    #[must_use]
    pub fn new(packing: PackingPolicy) -> Self {
        Self { packing, ..Self::default() }
    }

    /// Returns true if the next chunk is to be packed: as far as is known, the saved bytes take
    /// longer on the link than packing.
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

    /// Adds a measurement of the link: this many bytes were sent.
    pub fn sent(&mut self, bytes: usize, time: Duration) {
        self.link.add(bytes, 0, time);
    }

    /// Adds a measurement of packing: this many bytes were tried, with this saving, possibly none.
    pub fn packed(&mut self, bytes: usize, saved: usize, time: Duration) {
        self.packer.add(bytes, saved, time);
    }
}
