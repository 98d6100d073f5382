//! The shared memory of a slab. All `unsafe` of the slab is in this file.

#![allow(unsafe_code, reason = "memory shared with another process comes as a raw mapping")]

use super::{HEAD_WORDS, SLOT_BYTES, SLOTS};
use crate::ring::{CacheLine, RingError, check_seals, to_usize};
use crate::sleep::ParkedWord;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::Pid;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const HEADER_BYTES: usize = 4096;
/// Bytes of a slot's first line, which has its length and head; the payload follows.
pub(super) const LINE_BYTES: usize = 64;
const MAPPED_BYTES: usize = HEADER_BYTES + to_usize(SLOTS) * SLOT_BYTES;
/// Size of a slab's file.
#[allow(clippy::as_conversions, reason = "usize has at most 64 bits")]
pub(super) const FILE_BYTES: u64 = MAPPED_BYTES as u64;

const _: () = assert!(size_of::<SlabHeader>() <= HEADER_BYTES);
const _: () = assert!(SLOTS.is_power_of_two(), "a slot's place is its counter's low bits");
const _: () = assert!(size_of::<SlotHead>() <= LINE_BYTES);

/// The header of the memfd. Counters only grow, wrapping; a slot's index is a counter modulo
/// [`SLOTS`].
#[derive(Debug)]
#[repr(C)]
pub(super) struct SlabHeader {
    /// Number of slots published. Written by the writer only.
    pub(super) tail: CacheLine,
    /// Number of slots given back. Written by the reader only.
    pub(super) head: CacheLine,
    /// State of the reader's sleep, 0 while it runs. The writer zeroes it when it wakes the reader.
    pub(super) reader_parked: CacheLine,
    /// Number of free slots that a sleeping writer waits for, 0 while it runs. The reader zeroes
    /// it.
    pub(super) writer_parked: CacheLine,
}

#[derive(Debug)]
#[repr(C)]
struct SlotHead {
    length: AtomicU32,
    words: [AtomicU32; HEAD_WORDS],
}

/// The mapped range of a slab. A shared reference gives access to the header's atomics only.
struct SlabRegion {
    base: NonNull<u8>,
    /// The process that mapped it: in a forked child the range may belong to something else by now.
    owner: Pid,
}

// SAFETY: the memory is shared with another process anyway; any thread may hold the region.
unsafe impl Send for SlabRegion {}
// SAFETY: a shared reference gives out the header, whose fields are all atomics, and the address, which is only read.
unsafe impl Sync for SlabRegion {}

impl SlabRegion {
    fn header(&self) -> &SlabHeader {
        // SAFETY: the mapping starts with a SlabHeader, page aligned, and lives as long as self. All fields are atomics, so
        // writes by the other process are allowed behind a shared reference.
        unsafe { self.base.cast::<SlabHeader>().as_ref() }
    }
}

/// A mapped slab; its owner knows which side of it this is. One thread at a time is that side;
/// others may hold a [`Parked`] word of it.
pub(super) struct SlabMapping {
    region: Arc<SlabRegion>,
    not_sync: PhantomData<Cell<()>>,
}

/// One of the words on which a side of a slab sleeps. It keeps the slab mapped.
struct SlabWord {
    region: Arc<SlabRegion>,
    is_reader: bool,
}

impl ParkedWord for SlabWord {
    fn word(&self) -> &AtomicU32 {
        let header = self.region.header();
        if self.is_reader { &header.reader_parked.word } else { &header.writer_parked.word }
    }
}

impl fmt::Debug for SlabWord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parked = &mut formatter.debug_struct("SlabWord");
        parked.field("is_reader", &self.is_reader).finish_non_exhaustive()
    }
}

impl SlabMapping {
    /// Maps a slab after checking that no peer can resize it.
    pub(super) fn new(fd: BorrowedFd<'_>) -> Result<Self, RingError> {
        check_seals(fd)?;
        // Checked after the seals, because only then the size can no longer change.
        let status = rustix::fs::fstat(fd).map_err(RingError::system("fstat"))?;
        let bytes = u64::try_from(status.st_size).unwrap_or(0);
        if bytes != FILE_BYTES {
            return Err(RingError::Size { bytes });
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose a free range, so no existing memory is replaced. The file has
        // MAPPED_BYTES bytes and the seals keep it so: no access in the range is a SIGBUS.
        let base = unsafe {
            rustix::mm::mmap(ptr::null_mut(), MAPPED_BYTES, protection, MapFlags::SHARED, fd, 0)
        }
        .map_err(RingError::system("mmap"))?;
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(RingError::system("mmap")(Errno::FAULT));
        };
        let region = Arc::new(SlabRegion { base, owner: rustix::process::getpid() });
        let mapping = Self { region, not_sync: PhantomData };
        // SAFETY: the range is exactly the mapping made above; DontFork changes nothing in this process.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), MAPPED_BYTES, Advice::LinuxDontFork) }
            .map_err(RingError::system("madvise"))?;
        Ok(mapping)
    }

    pub(super) fn header(&self) -> &SlabHeader {
        self.region.header()
    }

    /// Lets children that are forked from now on have the mapping too.
    pub(super) fn keep_in_fork(&self) -> Result<(), RingError> {
        let base = self.region.base.as_ptr().cast();
        // SAFETY: the range is exactly the mapping; DoFork changes nothing in this process.
        unsafe { rustix::mm::madvise(base, MAPPED_BYTES, Advice::LinuxDoFork) }
            .map_err(RingError::system("madvise"))
    }

    /// The word on which the reader sleeps, or the writer.
    pub(super) fn parked(&self, is_reader: bool) -> Arc<dyn ParkedWord> {
        Arc::new(SlabWord { region: Arc::clone(&self.region), is_reader })
    }

    /// Tail and head from the header, refused if no valid slab can be in that state.
    pub(super) fn counters(&self) -> Result<(u32, u32), RingError> {
        let tail = self.header().tail.word.load(Ordering::Acquire);
        let head = self.header().head.word.load(Ordering::Acquire);
        if tail.wrapping_sub(head) > SLOTS {
            return Err(RingError::Counters { tail, head, capacity: SLOTS });
        }
        Ok((tail, head))
    }

    /// Head and length of the slot of a counter; the length is as the peer wrote it.
    pub(super) fn head(&self, counter: u32) -> ([u32; HEAD_WORDS], u32) {
        let slot = self.slot_head(counter);
        let words = slot.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        (words, slot.length.load(Ordering::Relaxed))
    }

    pub(super) fn set_head(&self, counter: u32, head: &[u32; HEAD_WORDS], length: u32) {
        let slot = self.slot_head(counter);
        slot.length.store(length, Ordering::Relaxed);
        for (word, value) in slot.words.iter().zip(head) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// The bytes of a published slot.
    pub(super) fn bytes(&self, counter: u32) -> &[u8] {
        // SAFETY: the bytes of a slot are inside the mapping and live as long as self. The slot is published: by the
        // protocol, which the introduced peer keeps to, it writes there again only after the slot was given back, and
        // the reader gives it back by `&mut self` of its owner, after this borrow.
        unsafe { std::slice::from_raw_parts(self.data(counter), SLOT_BYTES - LINE_BYTES) }
    }

    /// Copies the first `length` bytes of a slot, at most a whole one, over the content of `bytes`.
    pub(super) fn copy_out(&self, counter: u32, length: usize, bytes: &mut Vec<u8>) {
        let length = length.min(SLOT_BYTES - LINE_BYTES);
        bytes.clear();
        bytes.reserve(length);
        // SAFETY: the source is inside the mapping, which lives as long as self; the target has room for `length`, and is
        // another allocation. No reference to the source is made: whatever a peer writes there meanwhile, these are bytes.
        unsafe {
            ptr::copy_nonoverlapping(self.data(counter), bytes.as_mut_ptr(), length);
            bytes.set_len(length);
        }
    }

    /// The bytes of a free slot.
    pub(super) fn bytes_mut(&mut self, counter: u32) -> &mut [u8] {
        // SAFETY: as in `bytes`; a free slot belongs to the writer alone until it publishes it, by
        // `&mut self` of its owner.
        unsafe { std::slice::from_raw_parts_mut(self.data(counter), SLOT_BYTES - LINE_BYTES) }
    }

    fn data(&self, counter: u32) -> *mut u8 {
        // SAFETY: the line at the front of a slot is inside it.
        unsafe { self.slot(counter).add(LINE_BYTES) }.as_ptr()
    }

    fn slot_head(&self, counter: u32) -> &SlotHead {
        // SAFETY: a slot begins with its head, aligned to a page; all fields are atomics; it lives as long as self.
        unsafe { self.slot(counter).cast::<SlotHead>().as_ref() }
    }

    fn slot(&self, counter: u32) -> NonNull<u8> {
        let place = to_usize(counter & (SLOTS - 1));
        // SAFETY: `place` is below SLOTS, so the slot is inside the mapping.
        unsafe { self.region.base.add(HEADER_BYTES + place * SLOT_BYTES) }
    }
}

impl Drop for SlabRegion {
    fn drop(&mut self) {
        if rustix::process::getpid() != self.owner {
            return; // After fork: the mapping may not be in this process (MADV_DONTFORK).
        }
        // SAFETY: this is exactly the range that new mapped, in the same process; self is being
        // dropped, and all references into the range borrow from self.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), MAPPED_BYTES) };
        debug_assert_eq!(unmapped, Ok(()), "munmap of a slab");
    }
}

impl fmt::Debug for SlabMapping {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SlabMapping")
            .field("base", &self.region.base)
            .finish_non_exhaustive()
    }
}
