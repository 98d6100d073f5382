//! The shared memory of a ring: checks of the descriptor, the mapping, and the header's layout.
//! All `unsafe` of the ring is in this file; what leaves it are references to atomics.

#![allow(unsafe_code, reason = "memory shared with another process comes as a raw mapping")]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::Pid;

use super::{CAPACITY_WORDS_MAX, CAPACITY_WORDS_MIN, RingError, SEALS};

/// One page on x86-64; the words start here whatever the page size, so the format is one.
const HEADER_BYTES: u32 = 4096;
const WORD_BYTES: u32 = 4;
/// Rings up to this size are faulted in at once: first touches showed as 100 ns on emitted groups.
/// Larger ones are for payloads and would only hold memory that is never used.
const POPULATE_BYTES_MAX: usize = 4 << 20;

const _: () = assert!(size_of::<RingHeader>() <= to_usize(HEADER_BYTES));
const _: () = assert!(size_of::<usize>() >= size_of::<u32>());

/// 128 bytes apart: adjacent-line prefetch makes 64 bytes one false-sharing unit of two.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct CacheLine {
    pub(crate) word: AtomicU32,
}

/// The first bytes of the memfd. Counters only grow, wrapping; a position is a counter modulo capacity.
#[derive(Debug)]
#[repr(C)]
pub(super) struct RingHeader {
    /// Words published. Written by the producer only.
    pub(super) tail: CacheLine,
    /// Words consumed. Written by the consumer only.
    pub(super) head: CacheLine,
    /// How the consumer sleeps (see `park`), 0 while it runs. The producer zeroes it when it wakes.
    pub(super) consumer_parked: CacheLine,
    /// Free words that a sleeping producer waits for, 0 while it runs. The consumer zeroes it.
    pub(super) producer_parked: CacheLine,
    /// One more than the CPU on which the consumer last looked for words, 0 before it has. Only a hint.
    pub(super) consumer_cpu: CacheLine,
}

/// A mapped ring.
pub(super) struct RingMapping {
    base: NonNull<RingHeader>,
    words: NonNull<AtomicU32>,
    capacity: u32,
    /// The process that mapped: in a forked child the range may by now belong to something else.
    owner: Pid,
}

// SAFETY: the memory is shared with another process anyway and only reached through atomics; which
// thread holds the mapping makes no difference. It is not Sync: one thread is one side of the ring.
unsafe impl Send for RingMapping {}

impl RingMapping {
    /// Maps a ring after checking that no peer can resize it.
    pub(super) fn new(fd: BorrowedFd<'_>) -> Result<Self, RingError> {
        let capacity = checked_capacity(fd)?;
        let bytes = mapped_bytes(capacity);
        let mut flags = MapFlags::SHARED;
        flags.set(MapFlags::POPULATE, bytes <= POPULATE_BYTES_MAX);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose a free range, so no existing memory is replaced.
        // The file has `bytes` bytes and the seals keep it so: no access in the range is a SIGBUS.
        let base =
            unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, protection, flags, fd.as_fd(), 0) }
                .map_err(RingError::system("mmap"))?;
        let Some(base) = NonNull::new(base.cast::<RingHeader>()) else {
            return Err(RingError::system("mmap")(Errno::FAULT));
        };
        // SAFETY: HEADER_BYTES is inside the mapping, which is longer than that.
        let words = unsafe { base.byte_add(to_usize(HEADER_BYTES)) }.cast::<AtomicU32>();
        let mapping = Self { base, words, capacity, owner: rustix::process::getpid() };
        // SAFETY: the range is exactly the mapping made above; DontFork changes nothing in this process.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontFork) }
            .map_err(RingError::system("madvise"))?;
        Ok(mapping)
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(super) fn header(&self) -> &RingHeader {
        // SAFETY: the mapping starts with a RingHeader, page aligned, and lives as long as self. All
        // fields are atomics, so writes by the other process are allowed behind a shared reference.
        unsafe { self.base.as_ref() }
    }

    /// Tail and head as the header has them, refused where no honest ring can be in that state.
    pub(super) fn counters(&self) -> Result<(u32, u32), RingError> {
        let tail = self.header().tail.word.load(Ordering::Acquire);
        let head = self.header().head.word.load(Ordering::Acquire);
        if tail.wrapping_sub(head) > self.capacity {
            return Err(RingError::Counters { tail, head, capacity: self.capacity });
        }
        Ok((tail, head))
    }

    /// The `count` words from a counter on: up to the end of the memory, and the rest from its start.
    /// Never more than the capacity.
    pub(super) fn words_at(&self, counter: u32, count: usize) -> (&[AtomicU32], &[AtomicU32]) {
        let start = counter & (self.capacity - 1);
        let (low, high) = self.words().split_at(to_usize(start));
        match high.get(..count) {
            Some(whole) => (whole, &[]),
            None => (high, low.get(..count - high.len()).unwrap_or(low)),
        }
    }

    fn words(&self) -> &[AtomicU32] {
        // SAFETY: `capacity` aligned words are inside the mapping behind the header (see new) and live
        // as long as self; they are atomics, so the other process may write them meanwhile.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), to_usize(self.capacity)) }
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        if rustix::process::getpid() != self.owner {
            return; // After fork: nothing of ours is mapped here (MADV_DONTFORK).
        }
        let bytes = mapped_bytes(self.capacity);
        // SAFETY: exactly the range that new mapped, in the same process; self is going away, and
        // all references into the range borrow from self.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), bytes) };
        debug_assert_eq!(unmapped, Ok(()), "munmap of a ring of {bytes} bytes");
    }
}

impl fmt::Debug for RingMapping {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RingMapping")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// Size in bytes of a memfd with this many words.
pub(super) fn bytes_of(capacity: u32) -> u64 {
    u64::from(HEADER_BYTES) + u64::from(capacity) * u64::from(WORD_BYTES)
}

/// The same as a length in memory.
fn mapped_bytes(capacity: u32) -> usize {
    to_usize(HEADER_BYTES) + to_usize(capacity) * to_usize(WORD_BYTES)
}

/// The capacity of a ring behind a descriptor that may come from a hostile peer.
fn checked_capacity(fd: BorrowedFd<'_>) -> Result<u32, RingError> {
    check_seals(fd)?;
    // After the seals: only now can the size no longer change. A memfd on huge pages, whose faults
    // may SIGBUS, never passes: header plus words is not a multiple of a huge page.
    let status = rustix::fs::fstat(fd).map_err(RingError::system("fstat"))?;
    let bytes = u64::try_from(status.st_size).unwrap_or(0);
    capacity_of(bytes).ok_or(RingError::Size { bytes })
}

/// Whether nobody can resize the memory behind a descriptor any more.
pub(crate) fn check_seals(fd: BorrowedFd<'_>) -> Result<(), RingError> {
    let seals = match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) => seals,
        Err(Errno::INVAL) => SealFlags::empty(), // Not a memfd: it cannot have seals.
        Err(errno) => return Err(RingError::system("fcntl_get_seals")(errno)),
    };
    if !seals.contains(SEALS) {
        return Err(RingError::Seals { found: seals.bits(), needed: SEALS.bits() });
    }
    Ok(())
}

fn capacity_of(bytes: u64) -> Option<u32> {
    let words_bytes = bytes.checked_sub(u64::from(HEADER_BYTES))?;
    let capacity = u32::try_from(words_bytes / u64::from(WORD_BYTES)).ok()?;
    let allowed = (CAPACITY_WORDS_MIN..=CAPACITY_WORDS_MAX).contains(&capacity);
    (allowed && capacity.is_power_of_two() && bytes_of(capacity) == bytes).then_some(capacity)
}

#[allow(clippy::as_conversions, reason = "usize has at least 32 bits, asserted above")]
pub(crate) const fn to_usize(words: u32) -> usize {
    words as usize
}

/// A count of words that fit into a ring, as what to add to a counter.
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "such a count is at most the capacity, a u32"
)]
pub(super) fn to_counter(words: usize) -> u32 {
    debug_assert!(words <= to_usize(CAPACITY_WORDS_MAX), "{words} words in a ring");
    words as u32
}
