//! Messages between workers: chunk heads, the failures before a bucket's bytes, and the payloads by
//! which the backends of collectives negotiate.
//!
//! Bytes in and out only, little-endian. All workers of a dispatcher have the same version, but a
//! peer may be broken or malicious: decoders check the limits below, borrow from the bytes, and
//! never panic.

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

/// Maximum bytes of a round's payload: handles, addresses, offsets.
pub const PAYLOAD_BYTES_MAX: usize = 4096;
/// Maximum bytes of the name of an allocation or of an event.
pub const HANDLE_BYTES_MAX: usize = 256;
/// Maximum number of entries that one member adds to a group's store.
pub const GROUP_ENTRIES_MAX: usize = 64;
/// Maximum bytes of the failures of a bucket: far more values than a bucket has, with the longest
/// texts.
pub const FAILURES_BYTES_MAX: usize = 64 << 20;

/// Reason why bytes of another worker cannot be read, or ours not be written.
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
