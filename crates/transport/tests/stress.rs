//! Two threads at full speed: groups of random sizes over many wraps, and parking at every turn.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a failed test is a panic"
)]

mod common;

use std::hint;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use common::{FOREVER, NEVER_SPIN, Random, SMALL, copy, ring};
use gt_transport::{Consumer, Producer, drain_eventfd, eventfd, yield_now};

const SPIN: Duration = Duration::from_micros(20);
const GROUPS: u32 = 20_000;

/// A group: its length, its number, random words, and the sum of all before.
fn group(number: u32, random: &mut Random) -> Vec<u32> {
    let body = random.up_to(200);
    let mut words = vec![body + 3, number];
    words.extend((0..body).map(|_| random.word()));
    words.push(sum(&words));
    words
}

fn sum(words: &[u32]) -> u32 {
    words.iter().fold(0, |sum: u32, word| sum.rotate_left(5) ^ word)
}

fn produce(producer: &mut Producer, seed: u64) {
    let mut random = Random(seed);
    for number in 0..GROUPS {
        let words = group(number, &mut random);
        let cut = random.up_to(u32::try_from(words.len()).unwrap()) as usize;
        let (low, high) = words.split_at(cut);
        while !producer.write(&[low, high]) {
            producer.wait_space(words.len(), FOREVER);
        }
    }
}

/// Takes every whole group from the front of `words`; a group is published whole, so a read of
/// everything never ends inside one.
fn check(words: &mut Vec<u32>, next: &mut u32, seed: u64) {
    let mut rest = &words[..];
    while let Some(&length) = rest.first() {
        let Some((group, behind)) = rest.split_at_checked(length as usize) else {
            break;
        };
        let (last, before) = group.split_last().unwrap();
        assert_eq!(group[1], *next, "seed {seed}");
        assert_eq!(*last, sum(before), "seed {seed}, group {next}");
        *next += 1;
        rest = behind;
    }
    *words = rest.to_vec();
}

fn consume(consumer: &mut Consumer, seed: u64) {
    let mut random = Random(!seed);
    let (mut words, mut next) = (Vec::new(), 0);
    while next < GROUPS {
        consumer.wait(if random.up_to(2) == 1 { SPIN } else { NEVER_SPIN }, FOREVER);
        let whole = random.up_to(4) == 1;
        let most = if whole { usize::MAX } else { random.up_to(600) as usize };
        consumer.read(&mut words, most);
        check(&mut words, &mut next, seed);
        assert!(!whole || words.is_empty(), "seed {seed}: part of a group after group {next}");
    }
    assert_eq!(consumer.available(), 0, "seed {seed}");
}

#[test]
fn random_groups_arrive_whole_and_in_order() {
    for seed in 1..=4 {
        let (mut producer, mut consumer, _memory) = ring(SMALL);
        let writer = thread::spawn(move || produce(&mut producer, seed));
        consume(&mut consumer, seed);
        writer.join().unwrap();
    }
}

/// The counters pass 2^32, as they do after some minutes of real work.
#[test]
fn counters_may_overflow() {
    let (producer, consumer, memory) = ring(SMALL);
    drop((producer, consumer));
    memory.forge(common::TAIL, u32::MAX - 5000);
    memory.forge(common::HEAD, u32::MAX - 5000);
    let fd = memory.0.into();
    let mut producer = Producer::new(common::copy(&fd)).unwrap();
    let mut consumer = Consumer::new(fd).unwrap();
    let writer = thread::spawn(move || produce(&mut producer, 9));
    consume(&mut consumer, 9);
    writer.join().unwrap();
}

/// Every turn parks, so that every order of parking and publishing occurs. A lost wake-up is a
/// hang.
#[test]
fn no_wake_up_is_lost() {
    const TURNS: u32 = 5000;
    let (mut request, mut request_end, _one) = ring(SMALL);
    let (mut reply, mut reply_end, _two) = ring(SMALL);
    let echo = thread::spawn(move || {
        let mut words = Vec::new();
        for _ in 0..TURNS {
            while !request_end.wait(NEVER_SPIN, FOREVER) {}
            words.clear();
            request_end.read(&mut words, 6);
            assert!(reply.write(&[&words]));
        }
    });
    let mut words = Vec::new();
    for turn in 0..TURNS {
        assert!(request.write(&[&[turn; 6]]));
        while !reply_end.wait(NEVER_SPIN, FOREVER) {}
        words.clear();
        reply_end.read(&mut words, 6);
        assert_eq!(words, [turn; 6]);
    }
    echo.join().unwrap();
}

/// Starts both sides of one meeting at the same time, with a random lag each.
fn meet(turn: &AtomicU32, arrivals: u32, random: &mut Random) {
    turn.fetch_add(1, Ordering::AcqRel);
    for polls in 1_u32.. {
        if turn.load(Ordering::Acquire) >= arrivals {
            break;
        }
        // Yielding at once would desynchronise the two, never yielding takes the peer's CPU.
        if polls % 1000 == 0 { yield_now() } else { hint::spin_loop() }
    }
    for _ in 0..random.up_to(30) {
        hint::spin_loop();
    }
}

/// The critical case: a publication and a parking at the same time. Either the consumer sees the
/// word, or the producer sees it parked and wakes it. Without either of the two fences this failed
/// within 2000 turns in a release build; the unoptimised producer is too slow to show that its own
/// is missing.
#[test]
fn parking_and_publishing_never_miss_each_other() {
    const TURNS: u32 = 50_000;
    let (mut producer, mut consumer, _memory) = ring(SMALL);
    let waker = eventfd().unwrap();
    producer.set_waker(copy(&waker));
    let turn = Arc::new(AtomicU32::new(0));
    let producers_turn = Arc::clone(&turn);
    let writer = thread::spawn(move || {
        let mut random = Random(1);
        for number in 0..TURNS {
            meet(&producers_turn, number * 4 + 2, &mut random);
            assert!(producer.write(&[&[number]]));
            meet(&producers_turn, number * 4 + 4, &mut random);
        }
    });
    let (mut random, mut words) = (Random(2), Vec::new());
    for number in 0..TURNS {
        meet(&turn, number * 4 + 2, &mut random);
        let parked = consumer.park_begin();
        meet(&turn, number * 4 + 4, &mut random);
        let rung = drain_eventfd(waker.as_fd()).unwrap();
        assert!(!parked || rung == 1, "turn {number}: parked for ever");
        consumer.park_end();
        consumer.read(&mut words, 1);
        assert_eq!(words.pop(), Some(number));
    }
    writer.join().unwrap();
}
