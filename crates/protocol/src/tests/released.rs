//! Frames of released versions, kept as files in `frames`: a frame that could be read once
//! must stay readable.
//!
//! A line is a frame in words (a handshake: in bytes), then `|` and its meaning. Lines are added at
//! a release and never changed; [`frames_of_today`] writes those of the present version.

use crate::handshake::Handshake;
use crate::tests::arbitrary::{every_op_once, sample};
use crate::text::{NoNames, PayloadText, format, parse};
use crate::{handshake, message, wire};
use proptest::test_runner::TestRunner;
use std::fmt::Write;

const INSTRUCTIONS: &str = include_str!("frames/version_1/instructions.txt");
const MESSAGES: &str = include_str!("frames/version_1/messages.txt");
const HANDSHAKES: &str = include_str!("frames/version_1/handshakes.txt");

/// Maximum length of a line: longer ones test nothing more than shorter ones.
const LINE_MAX: usize = 400;
/// Number of samples of messages and handshakes: enough for every kind and optional field.
const SAMPLES: usize = 12;

/// The frames and names of a file, from the hexadecimal digits of numbers.
fn lines<T>(file: &str, read: impl Fn(&str) -> T) -> Vec<(Vec<T>, &str)> {
    let lines: Vec<_> = file
        .lines()
        .map(|line| {
            let (frame, name) = line.split_once(" | ").unwrap();
            (frame.split(' ').map(&read).collect(), name)
        })
        .collect();
    assert!(!lines.is_empty(), "a file of frames is empty");
    lines
}

fn word(digits: &str) -> u32 {
    u32::from_str_radix(digits, 16).unwrap()
}

fn byte(digits: &str) -> u8 {
    u8::from_str_radix(digits, 16).unwrap()
}

#[test]
fn instructions_are_what_they_were() {
    for (frame, line) in lines(INSTRUCTIONS, word) {
        let (instruction, used) = wire::decode(&frame).unwrap();
        assert_eq!(used, frame.len(), "{line}");
        assert_eq!(format(&instruction, &NoNames, PayloadText::Full), line);
        let mut payload = Vec::new();
        let read = parse(line, &mut NoNames, &mut payload).unwrap().unwrap();
        let mut again = Vec::new();
        wire::encode(&read, &mut again).unwrap();
        assert_eq!(again, frame, "{line}");
    }
}

#[test]
fn messages_are_what_they_were() {
    for (frame, name) in lines(MESSAGES, word) {
        let directions = message::tests::read_back(&frame).unwrap();
        assert_eq!((directions.is_empty(), name_of_code(&frame)), (false, Some(name)));
    }
}

#[test]
fn handshakes_are_what_they_were() {
    for (frame, name) in lines(HANDSHAKES, byte) {
        let (message, used) = Handshake::decode(&frame).unwrap().unwrap();
        assert_eq!((used, kind(&message)), (frame.len(), name));
        if handshake::VERSION == 1 {
            assert_eq!(message.encode().unwrap(), frame, "{name}");
        }
    }
}

fn name_of_code(frame: &[u32]) -> Option<&'static str> {
    message::name_of(wire::halves(frame[0]).0)
}

fn kind(message: &Handshake) -> &'static str {
    match message {
        Handshake::Hello(_) => "hello",
        Handshake::Welcome(_) => "welcome",
        Handshake::Refusal(_) => "refusal",
    }
}

fn hex<T: std::fmt::LowerHex>(numbers: &[T]) -> String {
    let mut out = String::new();
    for number in numbers {
        let gap = if out.is_empty() { "" } else { " " };
        write!(out, "{gap}{number:0width$x}", width = 2 * size_of::<T>()).unwrap();
    }
    out
}

#[test]
#[ignore = "at a release: cargo test -p gt-protocol frames_of_today -- --ignored --nocapture"]
#[allow(clippy::print_stdout, reason = "its output is the files of the next release")]
fn frames_of_today() {
    let mut runner = TestRunner::deterministic();
    for owned in every_op_once(&mut runner, LINE_MAX) {
        let instruction = owned.instruction();
        let mut frame = Vec::new();
        wire::encode(&instruction, &mut frame).unwrap();
        println!("{} | {}", hex(&frame), format(&instruction, &NoNames, PayloadText::Full));
    }
    for _ in 0..SAMPLES {
        for frame in sample(&mut runner, message::tests::frames()) {
            println!("{} | {}", hex(&frame), name_of_code(&frame).unwrap());
        }
        let message = sample(&mut runner, handshake::tests::message());
        println!("{} | {}", hex(&message.encode().unwrap()), kind(&message));
    }
}
