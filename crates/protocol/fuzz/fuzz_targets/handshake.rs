//! Fuzz target: bytes are refused, or decode to a message that encodes to the same meaning: `cargo
//! fuzz run handshake` in `crates/protocol`.
#![no_main]

use gt_protocol::handshake::{FrameHeader, Handshake};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = bytes.first_chunk().and_then(|bytes| FrameHeader::decode(bytes).ok()) {
        let again = header.encode().expect("what was read can be written");
        assert!(bytes.starts_with(&again));
    }
    if let Ok(Some((message, used))) = Handshake::decode(bytes) {
        assert!(used <= bytes.len());
        let again = message.encode().expect("what was read can be written");
        let (decoded, length) = Handshake::decode(&again).expect("valid").expect("whole");
        assert_eq!((decoded, length), (message, again.len()));
    }
});
