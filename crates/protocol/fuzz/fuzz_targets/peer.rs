//! Fuzz target: bytes of another worker are refused, or decode to a message that encodes to the
//! same meaning: `cargo fuzz run peer` in `crates/protocol`.
#![no_main]

use gt_protocol::peer::{DevicePayload, Failures, FirstPayload, GroupPayload, ChunkHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let words: Vec<u32> =
        bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if let Some(head) = words.first_chunk()
        && let Ok(decoded) = ChunkHead::decode(head)
    {
        assert_eq!(&decoded.encode(), head);
    }
    if let Ok(payload) = FirstPayload::decode(bytes) {
        assert_eq!(payload.encode().expect("what was read can be written"), bytes);
    }
    if let Ok(payload) = DevicePayload::decode(bytes) {
        assert_eq!(payload.encode().expect("what was read can be written"), bytes);
    }
    if let Ok(payload) = GroupPayload::decode(bytes) {
        assert_eq!(payload.encode().expect("what was read can be written"), bytes);
    }
    if let Ok(decoded) = Failures::decode(bytes)
        && let Ok(failures) = decoded.read()
    {
        let entries = failures.iter().map(|(index, failure)| {
            (u32::try_from(*index).expect("it was a word"), *failure)
        });
        let again = Failures::encode(entries).expect("what was read can be written");
        let decoded = Failures::decode(&again).expect("valid");
        assert_eq!(decoded.read().expect("valid"), failures);
    }
});
