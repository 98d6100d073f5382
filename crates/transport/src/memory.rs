//! What a process tells the kernel of its own memory.

#![allow(unsafe_code, reason = "std has no madvise")]

use rustix::mm::Advice;

/// Smaller blocks have few pages of 2 MiB, or none.
pub const HUGE_BYTES_MIN: u64 = 4 << 20;

const PAGE_BYTES: usize = 4096;

/// Asks for large pages for these bytes, for when they are touched for the first time: 100 MB in pages of 4 KiB take
/// 34 ms to touch, in pages of 2 MiB less than a third of that. What is there stays as it is; a kernel that has no large
/// pages goes on with small ones.
pub fn prefer_huge_pages(address: usize, length: usize) {
    let start = address.checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX);
    let length = address.saturating_add(length).saturating_sub(start) / PAGE_BYTES * PAGE_BYTES;
    if length == 0 {
        return;
    }
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: this advice changes how pages are backed, never what is in them or who may touch them; for a range that is
    // not mapped it is an error, which nobody needs to hear of.
    let _ = unsafe { rustix::mm::madvise(start, length, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::prefer_huge_pages;

    #[test]
    fn what_is_there_stays() {
        let bytes: Vec<u8> = (0..=255).cycle().take(9 << 20).collect();
        let twin = bytes.clone();
        prefer_huge_pages(bytes.as_ptr().expose_provenance(), bytes.len());
        prefer_huge_pages(bytes.as_ptr().expose_provenance() + 1, 10);
        prefer_huge_pages(usize::MAX - 10, 20);
        assert!(bytes == twin);
    }
}
