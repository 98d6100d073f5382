//! Words are refused, or are what would be written: `cargo fuzz run decode_message` in `crates/protocol`.
#![no_main]

use gt_protocol::message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let words: Vec<u32> =
        bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if let Ok((message, used)) = message::decode(&words) {
        let mut again = Vec::new();
        message::encode(&message, &mut again).expect("what was read can be written");
        assert_eq!(again, words[..used]);
    }
});
