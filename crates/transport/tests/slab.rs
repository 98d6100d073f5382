//! Slabs: delivery, waiting and waking, and limits of a hostile peer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a failed test is a panic"
)]

mod common;

use common::{HANG, Memory, Random, beside, copy};
use gt_transport::slab::{SLOT_BYTES, SLOTS};
use gt_transport::{CHUNK_BYTES_MAX, HEAD_WORDS, RingError, SlabReader, SlabWriter, create, slab};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::time::Duration;

const TAIL: u64 = 0;
const HEAD: u64 = 128;
const SLOT_START: u64 = 4096;

fn both() -> (SlabWriter, SlabReader, Memory) {
    let memory = slab::create().unwrap();
    let writer = SlabWriter::new(copy(&memory)).unwrap();
    let reader = SlabReader::new(copy(&memory)).unwrap();
    (writer, reader, Memory(File::from(memory)))
}

fn head(first: u32) -> [u32; HEAD_WORDS] {
    std::array::from_fn(|place| first.wrapping_add(u32::try_from(place).unwrap()))
}

fn write(writer: &mut SlabWriter, first: u32, bytes: &[u8]) -> bool {
    let Some(slot) = writer.slot() else { return false };
    slot[..bytes.len()].copy_from_slice(bytes);
    writer.publish(&head(first), bytes.len())
}

#[test]
fn chunks_arrive_in_order_and_in_place() {
    let (mut writer, mut reader, _) = both();
    assert!(!reader.refresh());
    assert!(write(&mut writer, 7, b"first") && write(&mut writer, 9, b""));
    assert!(reader.front().is_none(), "nobody has looked yet");
    assert!(reader.refresh());
    let chunk = reader.front().unwrap();
    assert_eq!((chunk.head, chunk.bytes), (head(7), &b"first"[..]));
    assert_eq!(chunk.bytes.as_ptr().addr() % 64, 0);
    reader.release();
    let chunk = reader.front().unwrap();
    assert_eq!((chunk.head, chunk.bytes), (head(9), &b""[..]));
    reader.release();
    assert!(reader.front().is_none() && !reader.refresh());
}

#[test]
fn what_is_taken_out_is_a_copy_and_gives_its_slot_back() {
    let (mut writer, mut reader, memory) = both();
    let mut bytes = b"what was there before".to_vec();
    assert_eq!(reader.take(&mut bytes), None);
    for number in 0..2 * SLOTS {
        assert!(write(&mut writer, number, &number.to_le_bytes()));
        assert_eq!(reader.take(&mut bytes), Some(head(number)));
        assert_eq!(bytes, number.to_le_bytes());
    }
    // A length beyond the slot is corrupt; the copy stays inside of it.
    assert!(write(&mut writer, 1, b"short"));
    memory.forge(SLOT_START, u32::MAX);
    assert_eq!(reader.take(&mut bytes), Some(head(1)));
    assert_eq!(bytes.len(), CHUNK_BYTES_MAX);
}

#[test]
fn a_full_slab_takes_no_more_until_one_is_given_back() {
    let (mut writer, mut reader, _) = both();
    for number in 0..SLOTS {
        assert!(write(&mut writer, number, &[1]));
    }
    assert!(writer.slot().is_none() && !writer.publish(&head(0), 1));
    assert!(!writer.wait(Duration::ZERO, Duration::from_millis(1)));
    assert!(reader.refresh());
    reader.release();
    assert!(writer.wait(Duration::ZERO, Duration::from_millis(1)));
    assert!(!writer.publish(&head(0), CHUNK_BYTES_MAX + 1));
    assert!(writer.publish(&head(0), CHUNK_BYTES_MAX));
}

#[test]
fn a_long_message_passes_between_two_threads_that_sleep() {
    let (mut writer, mut reader, _) = both();
    let seed = 11;
    let chunks = 40 * SLOTS;
    let sender = beside(move || {
        let mut random = Random(seed);
        for number in 0..chunks {
            let length = usize::try_from(random.up_to(2000)).unwrap();
            let bytes: Vec<u8> = (0..length).map(|_| random.word().to_le_bytes()[0]).collect();
            while !write(&mut writer, number, &bytes) {
                writer.wait(Duration::ZERO, HANG);
            }
        }
    });
    let mut random = Random(seed);
    for number in 0..chunks {
        while !reader.refresh() {
            assert!(reader.wait(Duration::ZERO, HANG));
        }
        let length = usize::try_from(random.up_to(2000)).unwrap();
        let bytes: Vec<u8> = (0..length).map(|_| random.word().to_le_bytes()[0]).collect();
        let chunk = reader.front().unwrap();
        assert_eq!((chunk.head, chunk.bytes), (head(number), &bytes[..]), "seed {seed}");
        reader.release();
    }
    sender.get();
}

#[test]
fn a_sleeping_side_is_woken() {
    let (mut writer, mut reader, memory) = both();
    let reading = beside(move || {
        // It ends early on a signal only.
        while !reader.wait(Duration::ZERO, HANG) {}
        reader
    });
    memory.until_not_zero(256);
    assert!(write(&mut writer, 1, b"x"));
    let mut reader = reading.get();
    reader.release();
    for number in 0..SLOTS {
        assert!(write(&mut writer, number, &[1]));
    }
    let writing = beside(move || while !writer.wait(Duration::ZERO, HANG) {});
    memory.until_not_zero(384);
    reader.refresh();
    // One slot would suffice, but a sleeper is woken for a quarter of them.
    for _ in 0..SLOTS / 4 {
        reader.release();
    }
    writing.get();
}

#[test]
fn only_sealed_memory_of_the_right_size_is_mapped() {
    let plain = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
    assert!(matches!(SlabReader::new(plain), Err(RingError::Seals { .. })));
    let ring = create(1024).unwrap();
    assert!(matches!(SlabWriter::new(copy(&ring)), Err(RingError::Size { .. })));
}

#[test]
fn impossible_counters_and_lengths_do_no_harm() {
    let memory = Memory(File::from(slab::create().unwrap()));
    memory.forge(TAIL, SLOTS + 1);
    let fd = memory.0.try_clone().unwrap();
    assert!(matches!(SlabReader::new(fd.into()), Err(RingError::Counters { .. })));

    let (mut writer, mut reader, memory) = both();
    assert!(write(&mut writer, 1, b"x"));
    assert!(reader.refresh());
    memory.forge(TAIL, 0);
    assert!(!reader.refresh() && reader.is_corrupt() && reader.front().is_none());
    memory.forge(HEAD, 100);
    for _ in 0..SLOTS {
        write(&mut writer, 1, b"x");
    }
    assert!(writer.is_corrupt() && writer.slot().is_none());

    let (mut writer, mut reader, memory) = both();
    assert!(write(&mut writer, 1, b"x"));
    memory.forge(SLOT_START, u32::MAX);
    assert!(reader.refresh());
    assert_eq!(reader.front().unwrap().bytes.len(), CHUNK_BYTES_MAX);
    assert_eq!(SLOT_BYTES - CHUNK_BYTES_MAX, 64);
}
