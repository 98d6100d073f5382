//! The ring with a hostile peer: every false value is an error or a corrupt ring, never a panic or
//! SIGBUS.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a failed test is a panic"
)]

mod common;

use std::fs::File;
use std::os::fd::OwnedFd;

use common::{
    CONSUMER_PARKED, FOREVER, HEAD, NEVER_SPIN, PRODUCER_PARKED, Random, SMALL, TAIL, copy, ring,
};
use gt_transport::{Consumer, Producer, RingError, create};
use rustix::fs::{MemfdFlags, SealFlags};

const NEEDED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
const RING_BYTES: u64 = 4096 + 4 * 1024;

fn memfd(bytes: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("forged", flags).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

/// Result of attaching either end; the two must agree.
fn attach(fd: &OwnedFd) -> Result<(), RingError> {
    let consumer = Consumer::new(copy(fd)).map(drop);
    let producer = Producer::new(copy(fd)).map(drop);
    assert_eq!(format!("{consumer:?}"), format!("{producer:?}"));
    producer
}

#[test]
fn an_unsealed_memfd_is_refused() {
    for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        let answer = attach(&memfd(RING_BYTES, NEEDED.difference(missing)));
        assert!(matches!(answer, Err(RingError::Seals { .. })), "without {missing:?}: {answer:?}");
    }
    attach(&memfd(RING_BYTES, NEEDED)).unwrap();
}

#[test]
fn what_is_no_memfd_is_refused() {
    let (pipe, _other) = std::io::pipe().unwrap();
    let file = File::open("/proc/self/exe").unwrap();
    let device = File::open("/dev/zero").unwrap();
    for fd in [OwnedFd::from(pipe), file.into(), device.into()] {
        let answer = attach(&fd);
        assert!(matches!(answer, Err(RingError::Seals { found: 0, .. })), "{fd:?}: {answer:?}");
    }
}

#[test]
fn a_memfd_of_a_wrong_size_is_refused() {
    let words = |count: u64| 4096 + 4 * count;
    for bytes in [
        0,
        4095,
        4096,
        words(512),
        words(1023),
        words(1024) + 1,
        words(1024) + 4,
        words(1025),
        words(1 << 27),
        words(1 << 32),
    ] {
        let answer = attach(&memfd(bytes, NEEDED));
        assert!(
            matches!(answer, Err(RingError::Size { bytes: seen }) if seen == bytes),
            "{bytes} bytes: {answer:?}"
        );
    }
}

#[test]
fn a_memfd_sealed_against_writing_is_refused() {
    let answer = attach(&memfd(RING_BYTES, NEEDED | SealFlags::WRITE));
    assert!(matches!(answer, Err(RingError::System { call: "mmap", .. })), "{answer:?}");
}

#[test]
fn a_ring_with_impossible_counters_is_refused() {
    let (_producer, _consumer, memory) = ring(SMALL);
    memory.forge(TAIL, 5);
    memory.forge(HEAD, 6);
    let answer = attach(&memory.0.into());
    assert!(
        matches!(answer, Err(RingError::Counters { tail: 5, head: 6, capacity: SMALL })),
        "{answer:?}"
    );
}

#[test]
fn a_made_ring_cannot_be_resized() {
    let fd = create(SMALL).unwrap();
    for bytes in [0, RING_BYTES - 1, RING_BYTES + 1] {
        assert!(rustix::fs::ftruncate(&fd, bytes).is_err(), "resized to {bytes}");
    }
    assert!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE).is_err());
}

#[test]
fn an_impossible_tail_is_corruption() {
    // 100 words were published and seen, 10 of them read.
    for tail in [9, 10 + SMALL + 1, u32::MAX, 1 << 31, 99] {
        let (mut producer, mut consumer, memory) = ring(SMALL);
        assert!(producer.write(&[&[1; 100]]));
        consumer.read(&mut Vec::new(), 10);
        memory.forge(TAIL, tail);
        let mut words = Vec::new();
        assert_eq!(consumer.available(), 0, "tail {tail}");
        assert!(consumer.is_corrupt(), "tail {tail}");
        assert_eq!(consumer.read(&mut words, 5), 0, "tail {tail}");
        assert!(!consumer.wait(NEVER_SPIN, FOREVER), "tail {tail}");
        assert!(!consumer.park_begin(), "tail {tail}");
        memory.forge(TAIL, 100);
        assert_eq!(consumer.read(&mut words, 5), 0, "corruption is for good");
    }
}

#[test]
fn an_impossible_head_is_corruption() {
    for head in [101, u32::MAX, 1 << 31, 9] {
        let (mut producer, mut consumer, memory) = ring(SMALL);
        assert!(producer.write(&[&[1; 100]]));
        consumer.read(&mut Vec::new(), 10);
        assert_eq!(producer.space(), producer.capacity() - 90);
        memory.forge(HEAD, head);
        assert_eq!(producer.space(), 0, "head {head}");
        assert!(producer.is_corrupt(), "head {head}");
        assert!(!producer.write(&[&[1]]), "head {head}");
        assert!(!producer.wait_space(1, FOREVER), "head {head}");
    }
}

#[test]
fn corruption_ends_a_wait_for_space() {
    let (mut producer, _consumer, memory) = ring(SMALL);
    assert!(producer.write(&[&vec![1; producer.capacity()]]));
    memory.forge(HEAD, SMALL + 1);
    assert!(!producer.wait_space(1, FOREVER));
    assert!(producer.is_corrupt());
}

#[test]
fn a_forged_parked_word_costs_a_call_and_no_more() {
    let (mut producer, mut consumer, memory) = ring(SMALL);
    let mut words = Vec::new();
    for forged in [1, 2, 3, u32::MAX] {
        memory.forge(CONSUMER_PARKED, forged);
        memory.forge(PRODUCER_PARKED, forged);
        assert!(producer.write(&[&[forged]]));
        assert_eq!(consumer.read(&mut words, 1), 1);
    }
    assert_eq!(words, [1, 2, 3, u32::MAX]);
}

#[test]
fn an_eventfd_that_cannot_be_rung_is_corruption() {
    let (mut producer, mut consumer, _memory) = ring(SMALL);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    producer.set_waker(writer.into());
    assert!(consumer.park_begin());
    producer.write(&[&[1]]);
    assert!(producer.is_corrupt());
}

/// Random words all over the header, between valid calls: checks only that nothing panics or hangs,
/// and that no call returns more than the ring holds.
#[test]
fn random_headers_never_panic() {
    for seed in 0..500 {
        let mut random = Random(seed);
        let (mut producer, mut consumer, memory) = ring(SMALL);
        let mut words = Vec::new();
        for _ in 0..50 {
            let at = [TAIL, HEAD, CONSUMER_PARKED, PRODUCER_PARKED][random.up_to(4) as usize - 1];
            let shift = random.up_to(32) - 1;
            memory.forge(at, random.word() >> shift);
            let size = random.up_to(SMALL) as usize;
            producer.write(&[&vec![1; size]]);
            words.clear();
            let read = consumer.read(&mut words, usize::MAX);
            assert_eq!(read, words.len(), "seed {seed}");
            assert!(read <= consumer.capacity(), "seed {seed}: {read} words");
        }
    }
}
