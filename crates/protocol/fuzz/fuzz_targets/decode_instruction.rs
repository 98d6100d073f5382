//! Fuzz target: the decoder refuses words, or accepts exactly what the encoder would write: `cargo
//! fuzz run decode_instruction` in `crates/protocol`.
#![no_main]

use gt_protocol::wire;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let words: Vec<u32> =
        bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if let Ok((instruction, used)) = wire::decode(&words) {
        let mut again = Vec::new();
        wire::encode(&instruction, &mut again).expect("what was read can be written");
        assert_eq!(again, words[..used]);
    }
});
