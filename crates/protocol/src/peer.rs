//! What workers send each other: chunk heads, the failures before a bucket's bytes, and the payloads by which the
//! backends of collectives negotiate.
//!
//! Bytes in and out only, little-endian. All workers of a dispatcher are of one version, but a peer may be broken or mean
//! harm: what is read is checked against the limits here, borrows from its bytes, and never ends the process.

mod bytes;
mod chunk;
mod device;
mod failures;
mod group;
mod readable;
#[cfg(test)]
mod tests;

pub use chunk::{CHUNK_HEAD_WORDS, ChunkHead, ChunkKind};
pub use device::{DeviceBuffer, DeviceBuffers, DevicePayload, KernelOffer};
pub use failures::{FAILURES_LENGTH_BYTES, Failures};
pub use group::GroupPayload;
pub use readable::{ByteRows, FirstPayload};

/// Longest payload of a round: handles, addresses, offsets.
pub const PAYLOAD_BYTES_MAX: usize = 4096;
/// Name of an allocation or of an event.
pub const HANDLE_BYTES_MAX: usize = 256;
/// Entries of a group's store that one member makes.
pub const GROUP_ENTRIES_MAX: usize = 64;
/// Failures of a bucket's values: far more than a bucket has values, of the longest texts.
pub const FAILURES_BYTES_MAX: usize = 64 << 20;

/// Why bytes of another worker cannot be read, or ours not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    #[error("{0} is cut off")]
    Truncated(&'static str),
    #[error("{0} has {1} bytes or entries, more than its limit")]
    Limit(&'static str, usize),
    #[error("{0} is {1}")]
    Value(&'static str, u64),
    #[error("{0} is not UTF-8")]
    Utf8(&'static str),
    #[error("{0} bytes stand behind the end")]
    Trailing(usize),
}
