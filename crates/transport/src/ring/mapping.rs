//! The shared memory of a ring: checks of the descriptor, the mapping, and the header's layout. All
//! `unsafe` of the ring is in this file; it gives out references to atomics only.

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

/// Bytes of the header: one page on x86-64; the words start here whatever the page size, so that
/// there is one format.
const HEADER_BYTES: u32 = 4096;
const WORD_BYTES: u32 = 4;
/// Words of a mark.
pub(crate) const MARK_WORDS: usize = 3;
/// Maximum bytes of a ring that is faulted in at once: first touches cost 100 ns on emitted groups.
/// Larger rings are for payloads and would only occupy memory that is never used.
const POPULATE_BYTES_MAX: usize = 4 << 20;

const _: () = assert!(size_of::<RingHeader>() <= to_usize(HEADER_BYTES));
const _: () = assert!(size_of::<usize>() >= size_of::<u32>());

/// Alignment to 128 bytes: adjacent-line prefetch makes pairs of 64-byte lines one unit of false
/// sharing.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct CacheLine {
    pub(crate) word: AtomicU32,
}

/// The header of the memfd. Counters only grow, wrapping; a position is a counter modulo capacity.
#[derive(Debug)]
#[repr(C)]
pub(super) struct RingHeader {
    /// Number of words published. Written by the producer only.
    pub(super) tail: CacheLine,
    /// Number of words consumed. Written by the consumer only.
    pub(super) head: CacheLine,
    /// State of the consumer's sleep (see `park`), 0 while it runs. The producer zeroes it when it
    /// wakes the consumer.
    pub(super) consumer_parked: CacheLine,
    /// Number of free words that a sleeping producer waits for, 0 while it runs. The consumer
    /// zeroes it.
    pub(super) producer_parked: CacheLine,
    /// CPU on which the consumer last looked for words, plus one; 0 before that. Only a hint.
    pub(super) consumer_cpu: CacheLine,
    /// Number of announcements, wrapping. Written by the producer only.
    pub(super) announced: CacheLine,
    /// The last mark of the producer (see [`Producer::mark`](super::Producer::mark)).
    pub(super) producer_mark: MarkLine,
}

/// A mark: three words that one side writes and the other reads, if ever, after that one's death.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct MarkLine {
    pub(super) words: [AtomicU32; MARK_WORDS],
}

/// A mapped ring.
pub(super) struct RingMapping {
    base: NonNull<RingHeader>,
    words: NonNull<AtomicU32>,
    capacity: u32,
    /// The process that mapped it: in a forked child the range may belong to something else by now.
    owner: Pid,
}

// SAFETY: the memory is shared with another process anyway and only accessed through atomics; any
// thread may hold the mapping. It is not Sync: one thread is one side of the ring.
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
        // SAFETY: the range is exactly the mapping made above; DontFork changes nothing in this
        // process.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontFork) }
            .map_err(RingError::system("madvise"))?;
        Ok(mapping)
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Lets children that are forked from now on have the mapping too.
    pub(super) fn keep_in_fork(&self) -> Result<(), RingError> {
        let bytes = mapped_bytes(self.capacity);
        // SAFETY: the range is exactly the mapping; DoFork changes nothing in this process.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), bytes, Advice::LinuxDoFork) }
            .map_err(RingError::system("madvise"))
    }

    pub(super) fn header(&self) -> &RingHeader {
        // SAFETY: the mapping starts with a RingHeader, page aligned, and lives as long as self. All
        // fields are atomics, so writes by the other process are allowed behind a shared reference.
        unsafe { self.base.as_ref() }
    }

    /// Tail and head from the header, refused if no valid ring can be in that state.
    pub(super) fn counters(&self) -> Result<(u32, u32), RingError> {
        let tail = self.header().tail.word.load(Ordering::Acquire);
        let head = self.header().head.word.load(Ordering::Acquire);
        if tail.wrapping_sub(head) > self.capacity {
            return Err(RingError::Counters { tail, head, capacity: self.capacity });
        }
        Ok((tail, head))
    }

    /// The `count` words from a counter on: those up to the end of the memory, and the rest from
    /// its start. At most the capacity.
    pub(super) fn words_at(&self, counter: u32, count: usize) -> (&[AtomicU32], &[AtomicU32]) {
        let start = counter & (self.capacity - 1);
        let (low, high) = self.words().split_at(to_usize(start));
        match high.get(..count) {
            Some(whole) => (whole, &[]),
            None => (high, low.get(..count - high.len()).unwrap_or(low)),
        }
    }

    /// Copies words to a counter's place and the places behind it, which the consumer has given back
    /// and reads only once they are published. At most the capacity.
    pub(super) fn copy_in(&self, counter: u32, words: &[u32]) {
        let (first, second) = self.words_at(counter, words.len());
        let (low, high) = words.split_at(first.len());
        for (places, words) in [(first, low), (second, high)] {
            let count = places.len().min(words.len());
            // SAFETY: both ranges have at least `count` words, and this process's memory does not
            // overlap the mapping. No thread of this process reads these places; a process that
            // reads them before they are published reads any words, as a hostile one may anyway.
            unsafe {
                let to = places.as_ptr().cast_mut().cast::<u32>();
                ptr::copy_nonoverlapping(words.as_ptr(), to, count);
            }
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
            return; // After fork: the mapping may not be in this process (MADV_DONTFORK).
        }
        let bytes = mapped_bytes(self.capacity);
        // SAFETY: this is exactly the range that new mapped, in the same process; self is being
        // dropped, and all references into the range borrow from self.
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

/// Length of the mapping in bytes.
fn mapped_bytes(capacity: u32) -> usize {
    to_usize(HEADER_BYTES) + to_usize(capacity) * to_usize(WORD_BYTES)
}

/// The capacity of a ring from its descriptor, which may come from a hostile peer.
fn checked_capacity(fd: BorrowedFd<'_>) -> Result<u32, RingError> {
    check_seals(fd)?;
    // Checked after the seals, because only then the size can no longer change. A memfd on huge
    // pages, whose faults may SIGBUS, never passes: header plus words is not a multiple of a huge
    // page.
    let status = rustix::fs::fstat(fd).map_err(RingError::system("fstat"))?;
    let bytes = u64::try_from(status.st_size).unwrap_or(0);
    capacity_of(bytes).ok_or(RingError::Size { bytes })
}

/// Checks that the memory of a descriptor cannot be resized any more.
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

/// A number of words that fits into a ring, in the type of its counters.
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "such a count is at most the capacity, a u32"
)]
pub(super) fn to_counter(words: usize) -> u32 {
    debug_assert!(words <= to_usize(CAPACITY_WORDS_MAX), "{words} words in a ring");
    words as u32
}
