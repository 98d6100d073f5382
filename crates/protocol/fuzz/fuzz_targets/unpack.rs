//! Fuzz target: packed bytes from another host are unpacked to the input of `pack`, or refused, in
//! the memory of one chunk.

#![no_main]

use gt_transport::packing::unpack;

const BYTES_MAX: usize = 256 * 1024;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut out = Vec::new();
    let length = unpack(bytes, BYTES_MAX, &mut out);
    assert!(out.len() <= BYTES_MAX);
    assert!(length.is_none_or(|length| length <= out.len()));
});
