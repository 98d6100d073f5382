//! Fuzz target: the decoder refuses words, or accepts exactly what the encoder would write: `cargo
//! fuzz run decode_message` in `crates/protocol`.
#![no_main]

use gt_protocol::message::{self, FromClient, FromWorker, Message, ToClient, ToWorker};
use libfuzzer_sys::fuzz_target;

fn read_back<'a, M: Message<'a>>(words: &'a [u32]) {
    if let Ok((message, used)) = message::decode::<M>(words) {
        let mut again = Vec::new();
        message::encode(&message, &mut again).expect("what was read can be written");
        assert_eq!(again, words[..used]);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let words: Vec<u32> =
        bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    read_back::<ToWorker<'_>>(&words);
    read_back::<FromWorker<'_>>(&words);
    read_back::<ToClient<'_>>(&words);
    read_back::<FromClient<'_>>(&words);
});
