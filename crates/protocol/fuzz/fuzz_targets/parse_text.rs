//! Fuzz target: a line is refused, or its printed form parses to the same instruction: `cargo fuzz
//! run parse_text` in `crates/protocol`.
#![no_main]

use gt_protocol::text::{NoNames, PayloadText, format, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    let mut bytes = Vec::new();
    if let Ok(Some(instruction)) = parse(line, &mut NoNames, &mut bytes) {
        let line = format(&instruction, &NoNames, PayloadText::Full);
        let mut bytes = Vec::new();
        let again =
            parse(&line, &mut NoNames, &mut bytes).expect("printed").expect("not a comment");
        assert_eq!(format(&again, &NoNames, PayloadText::Full), line);
    }
});
