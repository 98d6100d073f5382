//! Advice to the kernel about a process's own memory, and copying past the caches.

#![allow(unsafe_code, reason = "std has no madvise and no streaming stores")]

use rustix::mm::Advice;

/// Bytes below which a block has few pages of 2 MiB, or none.
pub const HUGE_BYTES_MIN: u64 = 4 << 20;

const PAGE_BYTES: usize = 4096;
/// Bytes of a cache line; streaming stores that fill a whole line need not read it.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Asks for large pages for these bytes when they are first touched: 100 MB in pages of 4 KiB take
/// 34 ms to touch, in pages of 2 MiB less than a third of that. Existing pages stay; a kernel
/// without large pages uses small ones.
pub fn prefer_huge_pages(address: usize, length: usize) {
    let start = address.checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX);
    let length = address.saturating_add(length).saturating_sub(start) / PAGE_BYTES * PAGE_BYTES;
    if length == 0 {
        return;
    }
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: this advice changes the pages' size, never their content or access rights; for a
    // range that is not mapped it fails without effect.
    let _ = unsafe { rustix::mm::madvise(start, length, Advice::LinuxHugepage) };
}

/// Copies `from` to `to`, of the same length, by stores that bypass the caches, so that no line is
/// taken from another core's. When it returns, the bytes are visible before anything written
/// afterwards.
///
/// # Panics
/// The lengths differ.
#[cfg(target_arch = "x86_64")]
#[allow(clippy::cast_ptr_alignment, reason = "loads may be unaligned, stores are aligned")]
pub fn copy_streaming(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    assert_eq!(to.len(), from.len(), "source and target have different lengths");
    let before = to.as_ptr().align_offset(LINE_BYTES).min(to.len());
    let (head, rest) = to.split_at_mut(before);
    let (from_head, from_rest) = from.split_at(before);
    head.copy_from_slice(from_head);
    let (lines, tail) = rest.as_chunks_mut::<LINE_BYTES>();
    let (from_lines, from_tail) = from_rest.as_chunks::<LINE_BYTES>();
    for (line, from) in lines.iter_mut().zip(from_lines) {
        let (line, from) = (line.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
        // SAFETY: both are LINE_BYTES bytes, four vectors; `line` is aligned to them, because
        // `before` bytes precede the first.
        unsafe {
            let vectors = [0, 1, 2, 3].map(|place| _mm_loadu_si128(from.add(place)));
            _mm_stream_si128(line, vectors[0]);
            _mm_stream_si128(line.add(1), vectors[1]);
            _mm_stream_si128(line.add(2), vectors[2]);
            _mm_stream_si128(line.add(3), vectors[3]);
        }
    }
    tail.copy_from_slice(from_tail);
    // Streaming stores are not ordered: without this a counter could become visible before the
    // bytes that it counts. SAFETY: every processor of this architecture has it.
    unsafe { _mm_sfence() };
}

/// Copies normally on processors without such stores.
///
/// # Panics
/// The lengths differ.
#[cfg(not(target_arch = "x86_64"))]
pub fn copy_streaming(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::{copy_streaming, prefer_huge_pages};

    #[test]
    fn streamed_bytes_are_those_that_were_copied() {
        let from: Vec<u8> = (0..=255).cycle().take(700).collect();
        for (to_start, from_start) in (0..70).flat_map(|to| [0, 1, 7, 64].map(|from| (to, from))) {
            for length in [0, 1, 15, 16, 63, 64, 65, 127, 128, 200, 511, 600] {
                let mut to = vec![99; 700];
                let from = &from[from_start..from_start + length];
                copy_streaming(&mut to[to_start..to_start + length], from);
                let mut expected = vec![99; 700];
                expected[to_start..to_start + length].copy_from_slice(from);
                assert!(to == expected, "{length} bytes from {from_start} to {to_start}");
            }
        }
    }

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
