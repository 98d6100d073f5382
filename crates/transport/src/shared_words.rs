//! Words in memory that a process shares with the processes that it forks, and with nobody else.

#![allow(unsafe_code, reason = "memory shared with another process comes as a raw mapping")]

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

/// A mapping of words, zeros at first. A forked child has the same memory at the same place.
pub struct SharedWords {
    base: NonNull<AtomicU32>,
    count: usize,
}

// SAFETY: the memory is accessed through atomics, or by copies whose places the caller alone writes.
unsafe impl Send for SharedWords {}
// SAFETY: as above; a shared reference gives out atomics.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps this many words; memory is used as they are written.
    ///
    /// # Errors
    /// An error of the kernel: no memory left.
    pub fn new(count: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = count.checked_mul(size_of::<AtomicU32>()).ok_or(Errno::NOMEM)?;
        // SAFETY: a null hint lets the kernel choose a free range, so no existing memory is replaced.
        let base = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::SHARED)
        }?;
        let base = NonNull::new(base.cast::<AtomicU32>()).ok_or(Errno::FAULT)?;
        Ok(Self { base, count })
    }

    /// All words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: `count` aligned words are in the mapping, which lives as long as self; they are
        // atomics, so another process may write them meanwhile.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }

    /// Copies words to a place that nobody reads yet; returns false if they do not fit there.
    #[must_use]
    pub fn copy_in(&self, start: usize, words: &[u32]) -> bool {
        let places = self.words().get(start..).and_then(|rest| rest.get(..words.len()));
        let Some(places) = places else { return false };
        // SAFETY: both ranges have `words.len()` words and do not overlap. Places are written by one
        // process at a time and read by its successor only, which waits for its end.
        unsafe {
            let to = places.as_ptr().cast_mut().cast::<u32>();
            ptr::copy_nonoverlapping(words.as_ptr(), to, words.len());
        }
        true
    }

    /// Copies bytes likewise; the last word is filled up with whatever was there.
    #[must_use]
    pub fn copy_bytes_in(&self, start: usize, bytes: &[u8]) -> bool {
        let count = bytes.len().div_ceil(size_of::<u32>());
        let places = self.words().get(start..).and_then(|rest| rest.get(..count));
        let Some(places) = places else { return false };
        // SAFETY: as above; the range has `bytes.len()` bytes and at most three more.
        unsafe {
            let to = places.as_ptr().cast_mut().cast::<u8>();
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        true
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        let bytes = self.count * size_of::<AtomicU32>();
        // SAFETY: this is exactly the range that new mapped (in a forked child: that it inherited);
        // all references into it borrow from self.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), bytes) };
        debug_assert_eq!(unmapped, Ok(()), "munmap of {bytes} bytes");
    }
}

impl fmt::Debug for SharedWords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedWords").field("count", &self.count).finish_non_exhaustive()
    }
}
