//! The ring with valid ends: words in order, a full ring, parking and waking both ways, the
//! eventfd.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a failed test is a panic"
)]

mod common;

use std::os::fd::AsFd;
use std::time::Duration;

use common::{CONSUMER_PARKED, FOREVER, NEVER_SPIN, PRODUCER_PARKED, SMALL, beside, copy, ring};
use gt_transport::{
    CAPACITY_WORDS_MAX, CAPACITY_WORDS_MIN, Consumer, Producer, RingError, create, drain_eventfd,
    eventfd,
};

fn read_all(consumer: &mut Consumer) -> Vec<u32> {
    let mut words = Vec::new();
    consumer.read(&mut words, usize::MAX);
    words
}

#[test]
fn capacity_is_a_power_of_two_within_the_limits() {
    for (asked, made) in [
        (0, CAPACITY_WORDS_MIN),
        (CAPACITY_WORDS_MIN, CAPACITY_WORDS_MIN),
        (CAPACITY_WORDS_MIN + 1, CAPACITY_WORDS_MIN * 2),
        (CAPACITY_WORDS_MAX, CAPACITY_WORDS_MAX),
    ] {
        let (producer, consumer, _memory) = ring(asked);
        assert_eq!(producer.capacity(), usize::try_from(made).unwrap(), "asked for {asked}");
        assert_eq!(consumer.capacity(), producer.capacity(), "asked for {asked}");
    }
    let refused = create(CAPACITY_WORDS_MAX + 1);
    assert!(
        matches!(refused, Err(RingError::Capacity { requested }) if requested > CAPACITY_WORDS_MAX)
    );
}

#[test]
fn words_come_out_as_they_went_in() {
    let (mut producer, mut consumer, _memory) = ring(SMALL);
    assert!(producer.write(&[&[1, 2], &[], &[3]]));
    assert!(producer.write(&[&[4]]));
    assert_eq!(consumer.available(), 4);
    let mut words = vec![0];
    assert_eq!(consumer.read(&mut words, 3), 3);
    assert_eq!(consumer.read(&mut words, 3), 1);
    assert_eq!(consumer.read(&mut words, 3), 0);
    assert_eq!(words, [0, 1, 2, 3, 4]);
    assert!(producer.write(&[]), "nothing always fits");
    assert_eq!(consumer.available(), 0);
}

#[test]
fn groups_survive_the_end_of_the_memory() {
    let (mut producer, mut consumer, _memory) = ring(SMALL);
    let body: Vec<u32> = (1_000..1_063).collect();
    for round in 0..100 {
        assert!(producer.write(&[&[round], &body]));
        assert_eq!(read_all(&mut consumer), [&[round], &body[..]].concat(), "round {round}");
    }
}

#[test]
fn a_full_ring_takes_all_of_a_group_or_nothing() {
    let (mut producer, mut consumer, _memory) = ring(SMALL);
    let most = vec![5; producer.capacity() - 1];
    assert!(producer.write(&[&most]));
    assert!(!producer.write(&[&[1], &[2]]), "one word is free");
    assert_eq!(producer.space(), 1);
    assert!(producer.write(&[&[6]]));
    assert_eq!(producer.space(), 0);
    assert!(!producer.has_space(1));
    assert_eq!(read_all(&mut consumer), [&most[..], &[6]].concat());
    assert!(producer.has_space(producer.capacity()));
    assert!(!producer.has_space(producer.capacity() + 1));
    assert!(!producer.wait_space(producer.capacity() + 1, FOREVER), "it can never fit");
}

#[test]
fn waits_end_with_their_time() {
    let (mut producer, mut consumer, memory) = ring(SMALL);
    assert!(!consumer.wait(NEVER_SPIN, Duration::ZERO));
    assert!(!consumer.wait(Duration::from_micros(1), Duration::from_micros(100)));
    assert_eq!(memory.word(CONSUMER_PARKED), 0);
    assert!(producer.write(&[&vec![1; producer.capacity()]]));
    assert!(!producer.wait_space(1, Duration::ZERO));
    assert!(!producer.wait_space(1, Duration::from_micros(300)));
    assert_eq!(memory.word(PRODUCER_PARKED), 0);
    consumer.read(&mut Vec::new(), 1);
    assert!(producer.wait_space(1, FOREVER), "what fits is not waited for");
}

#[test]
fn a_parked_consumer_is_woken() {
    let (mut producer, mut consumer, memory) = ring(SMALL);
    for round in 0..100 {
        let waiter = beside(move || (consumer.wait(NEVER_SPIN, FOREVER), consumer));
        memory.until_not_zero(CONSUMER_PARKED);
        assert!(producer.write(&[&[round]]));
        let (woken, back) = waiter.get();
        consumer = back;
        assert!(woken);
        assert_eq!(read_all(&mut consumer), [round]);
    }
}

#[test]
fn a_nap_ends_with_many_words_or_where_the_producer_ends_it() {
    const MANY: u32 = 2048;
    let (mut producer, mut consumer, memory) = ring(4 * MANY);
    for ends_it in [Producer::end_nap, |producer: &mut Producer| {
        assert!(producer.write(&[&vec![0; MANY as usize]]));
    }] {
        let waiter = beside(move || (consumer.nap(FOREVER), consumer));
        memory.until_not_zero(CONSUMER_PARKED);
        assert!(producer.write(&[&[1]]));
        assert_ne!(memory.word(CONSUMER_PARKED), 0, "woken for one word");
        ends_it(&mut producer);
        let (has_words, back) = waiter.get();
        consumer = back;
        assert!(has_words);
        assert_eq!(memory.word(CONSUMER_PARKED), 0);
        read_all(&mut consumer);
    }
    producer.end_nap();
    assert!(producer.write(&[&[1]]));
    assert!(consumer.nap(FOREVER), "there are words: no sleep");
}

#[test]
fn a_nap_ends_by_itself() {
    let (_producer, mut consumer, memory) = ring(SMALL);
    assert!(!consumer.nap(Duration::from_millis(1)));
    assert_eq!(memory.word(CONSUMER_PARKED), 0);
}

#[test]
fn a_parked_producer_is_woken_by_a_quarter_free() {
    let (mut producer, mut consumer, memory) = ring(SMALL);
    let quarter = producer.capacity() / 4;
    for round in 0..100 {
        let free = vec![round; producer.space()];
        assert!(producer.write(&[&free]));
        let waiter = beside(move || (producer.wait_space(6, FOREVER), producer));
        memory.until_not_zero(PRODUCER_PARKED);
        let mut words = Vec::new();
        assert_eq!(consumer.read(&mut words, quarter - 1), quarter - 1);
        assert_ne!(memory.word(PRODUCER_PARKED), 0, "woken for less than a quarter");
        assert_eq!(consumer.read(&mut words, 1), 1);
        let (woken, back) = waiter.get();
        producer = back;
        assert!(woken);
        assert_eq!(producer.space(), quarter);
    }
}

#[test]
fn a_producer_with_an_large_group_is_woken_when_it_fits() {
    let (mut producer, mut consumer, memory) = ring(SMALL);
    let all = producer.capacity();
    assert!(producer.write(&[&vec![1; all]]));
    let waiter = beside(move || producer.wait_space(all, FOREVER));
    memory.until_not_zero(PRODUCER_PARKED);
    let mut words = Vec::new();
    consumer.read(&mut words, all - 1);
    assert_ne!(memory.word(PRODUCER_PARKED), 0, "woken before the group fits");
    consumer.read(&mut words, 1);
    assert!(waiter.get());
}

#[test]
fn the_eventfd_rings_once_for_a_consumer_parked_in_epoll() {
    let (mut producer, mut consumer, _memory) = ring(SMALL);
    let waker = eventfd().unwrap();
    producer.set_waker(copy(&waker));
    let rung = || drain_eventfd(waker.as_fd()).unwrap();

    assert!(producer.write(&[&[1]]));
    assert_eq!(rung(), 0, "the consumer runs");
    assert!(!consumer.park_begin(), "there are words");
    assert_eq!(read_all(&mut consumer), [1]);

    assert!(consumer.park_begin());
    assert!(producer.write(&[&[2]]));
    assert!(producer.write(&[&[3]]));
    assert_eq!(rung(), 1, "once a sleep");
    consumer.park_end();
    assert_eq!(read_all(&mut consumer), [2, 3]);

    assert!(consumer.park_begin());
    consumer.park_end();
    assert!(producer.write(&[&[4]]));
    assert_eq!(rung(), 0, "awake again");
}

#[test]
fn an_eventfd_that_comes_late_rings_for_what_was_written() {
    let (mut producer, mut consumer, _memory) = ring(SMALL);
    assert!(consumer.park_begin());
    assert!(producer.write(&[&[1]]));
    let waker = eventfd().unwrap();
    producer.set_waker(copy(&waker));
    assert_eq!(drain_eventfd(waker.as_fd()).unwrap(), 1);
}

#[test]
fn a_producer_with_an_eventfd_still_wakes_a_futex() {
    let (mut producer, mut consumer, memory) = ring(SMALL);
    producer.set_waker(eventfd().unwrap());
    let waiter = beside(move || consumer.wait(NEVER_SPIN, FOREVER));
    memory.until_not_zero(CONSUMER_PARKED);
    assert!(producer.write(&[&[1]]));
    assert!(waiter.get());
}

#[test]
fn ends_attach_where_the_counters_are() {
    let (mut producer, mut consumer, memory) = ring(SMALL);
    assert!(producer.write(&[&[1, 2, 3]]));
    consumer.read(&mut Vec::new(), 1);
    let fd = copy(&memory.0.into());
    drop((producer, consumer));
    let mut producer = gt_transport::Producer::new(copy(&fd)).unwrap();
    let mut consumer = Consumer::new(fd).unwrap();
    assert!(producer.write(&[&[4]]));
    assert_eq!(read_all(&mut consumer), [2, 3, 4]);
}

#[test]
fn a_forked_child_would_not_have_the_mapping() {
    let (_producer, _consumer, _memory) = ring(SMALL);
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    let mut seen = 0;
    for line in maps.lines() {
        if line.contains("/memfd:") {
            inside = line.contains("gt-ring");
        } else if inside && line.starts_with("VmFlags:") {
            assert!(line.contains(" dc "), "a ring without MADV_DONTFORK: {line}");
            (inside, seen) = (false, seen + 1);
        }
    }
    assert!(seen >= 2, "both ends are mapped");
}

#[test]
fn an_announcement_overtakes_the_words() {
    let (mut producer, mut consumer, _memory) = ring(SMALL);
    assert!(producer.write(&[&[1, 2, 3]]));
    assert_eq!(consumer.announced(), 0);
    producer.announce();
    producer.announce();
    assert_eq!(consumer.announced(), 2);
    assert_eq!(read_all(&mut consumer), [1, 2, 3]);
    assert_eq!(consumer.announced(), 2);
}
