//! The word ring: a pipe of 32-bit words from one producer to one consumer in a sealed memfd.
//!
//! There is no framing. The producer publishes a group of words by one store of the tail, so the
//! consumer sees all of a group or none of it. The words themselves tell the end of a group.
//!
//! Layout: one page of header (see `mapping`), then a power-of-two number of words. The capacity is
//! not stored: both sides derive it from the size of the memfd, which the seals fix.
//!
//! Wake-ups: every publication stores the tail, fences, and loads the consumer's parked word. A
//! consumer that parks stores that word, fences, and re-reads the tail. So one of the two always
//! sees the other (likewise for the head and a parked producer), and while the consumer runs, the
//! producer makes no system call: the ring itself is the batch.
//!
//! After `fork` the mapping does not exist in the child (`MADV_DONTFORK`): a child that touches an
//! inherited [`Producer`] or [`Consumer`] dies by SIGSEGV instead of moving its parent's counters.
//! A caller that may be forked must check that first. Dropping one in a child is harmless.

mod consumer;
mod mapping;
mod producer;

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use thiserror::Error;

pub use consumer::Consumer;
pub(crate) use mapping::{CacheLine, check_seals, to_usize};
pub use producer::Producer;

/// The smallest ring: one page of words, so that a hysteresis of a quarter still covers many
/// groups.
pub const CAPACITY_WORDS_MIN: u32 = 1 << 10;
/// The largest ring, 256 MiB: the maximum that one peer can make another map. Larger payloads go
/// through a slab.
pub const CAPACITY_WORDS_MAX: u32 = 1 << 26;

/// Seals without which a peer could shrink the file below the mapping: SIGBUS at the next access.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Reason why a ring could not be made or attached to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RingError {
    /// The caller asked for a ring larger than the limit.
    #[error("ring of {requested} words: at most {CAPACITY_WORDS_MAX} are allowed")]
    Capacity {
        /// Number of words requested.
        requested: u32,
    },
    /// The descriptor is no memfd, or a peer could still resize it.
    #[error("ring descriptor has seals {found:#x}, needed are {needed:#x}")]
    Seals {
        /// Seals of the descriptor, as in `F_GET_SEALS`; 0 for a file that cannot have any.
        found: u32,
        /// Seals that must be set.
        needed: u32,
    },
    /// The file's size is not that of a header page with a power of two of words within the limits
    /// (or, for a slab, of its slots).
    #[error("ring descriptor of {bytes} bytes: not a header and an allowed power of two of words")]
    Size {
        /// Size of the file.
        bytes: u64,
    },
    /// The counters in the header claim more words than the ring holds.
    #[error("ring header has tail {tail} and head {head}, more than {capacity} words apart")]
    Counters {
        /// Number of words published, wrapping.
        tail: u32,
        /// Number of words consumed, wrapping.
        head: u32,
        /// Capacity of the ring in words.
        capacity: u32,
    },
    /// A system call failed.
    #[error("{call} for a ring failed: {source}")]
    System {
        /// Name of the call.
        call: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}

impl RingError {
    pub(crate) fn system(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::System { call, source: errno.into() }
    }
}

/// Makes an empty ring of at least `capacity_words` words, rounded up to a power of two.
///
/// # Errors
/// [`RingError::Capacity`] above [`CAPACITY_WORDS_MAX`]; [`RingError::System`] if the kernel refuses.
pub fn create(capacity_words: u32) -> Result<OwnedFd, RingError> {
    if capacity_words > CAPACITY_WORDS_MAX {
        return Err(RingError::Capacity { requested: capacity_words });
    }
    let capacity = capacity_words.max(CAPACITY_WORDS_MIN).next_power_of_two();
    sealed_memfd("gt-ring", mapping::bytes_of(capacity))
}

/// Memory of this many bytes that cannot be resized.
pub(crate) fn sealed_memfd(name: &str, bytes: u64) -> Result<OwnedFd, RingError> {
    let fd = memfd(name)?;
    rustix::fs::ftruncate(&fd, bytes).map_err(RingError::system("ftruncate"))?;
    rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(RingError::system("fcntl_add_seals"))?;
    Ok(fd)
}

/// Creates a memfd; kernels before 6.3 do not know `NOEXEC_SEAL`, hardened newer ones require it.
fn memfd(name: &str) -> Result<OwnedFd, RingError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
    .map_err(RingError::system("memfd_create"))
}
