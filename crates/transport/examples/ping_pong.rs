//! Benchmark of the ring: ns per published group of 6 words, and the round trip between two threads.
//!
//! `cargo run --release -p gt-transport --example ping_pong`; pin to two cores with `taskset -c 0,1`.
#![allow(clippy::print_stdout, reason = "a program whose result is its output")]

use std::error::Error;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use gt_transport::{Consumer, Producer, RingError, create};

/// Words of the embedded client's ring: 256 KiB stay in the second-level cache.
const RING_WORDS: u32 = 1 << 16;
/// An instruction of the hot path.
const GROUP: [u32; 6] = [7, 1, 2, 3, 4, 5];
const GROUPS: u32 = 2_000_000;
const ROUNDS: usize = 9;
const ROUND_TRIPS: usize = 20_000;
const SPIN: Duration = Duration::from_micros(200);
const PATIENCE: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    println!("alone, groups of 6 words       {:8.1} ns/group", median_ns(alone)?);
    for batch in [1, 8, 64] {
        let cost = median_ns(|| beside_a_consumer(batch))?;
        println!("with a consumer, {batch:2} at a time  {cost:8.1} ns/group");
    }
    for (name, spin) in [("spinning", SPIN), ("parking", Duration::ZERO)] {
        let (median, high) = round_trip(spin)?;
        println!("ping-pong {name:9} p50 {median:?} p99 {high:?}");
    }
    Ok(())
}

fn ring() -> Result<(Producer, Consumer), RingError> {
    let memory = create(RING_WORDS)?;
    let copy = memory.try_clone().map_err(|source| RingError::System { call: "dup", source })?;
    Ok((Producer::new(memory)?, Consumer::new(copy)?))
}

fn median_ns(mut measure: impl FnMut() -> Result<Duration, RingError>) -> Result<f64, RingError> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        times.push(measure()?);
    }
    times.sort_unstable();
    let median = times.get(ROUNDS / 2).copied().unwrap_or_default();
    Ok(median.as_secs_f64() * 1e9 / f64::from(GROUPS))
}

/// One thread runs both sides: the cost of the instructions, without any cache line moving.
fn alone() -> Result<Duration, RingError> {
    let (mut producer, mut consumer) = ring()?;
    let mut words = Vec::new();
    let mut spent = Duration::ZERO;
    let groups_a_pass = RING_WORDS / 8;
    for _ in 0..GROUPS / groups_a_pass {
        let start = Instant::now();
        for _ in 0..groups_a_pass {
            black_box(producer.write(&[black_box(&GROUP)]));
        }
        spent += start.elapsed();
        words.clear();
        consumer.read(&mut words, usize::MAX);
    }
    Ok(spent)
}

/// The producer's time for all groups while a consumer reads them as fast as it can.
fn beside_a_consumer(batch: usize) -> Result<Duration, RingError> {
    let (mut producer, mut consumer) = ring()?;
    let parts = vec![&GROUP[..]; batch];
    let groups = usize::try_from(GROUPS).unwrap_or(0) / batch * batch;
    let reader = thread::spawn(move || {
        let (mut words, mut left) = (Vec::new(), groups * GROUP.len());
        while left > 0 && !consumer.is_corrupt() {
            consumer.wait(SPIN, PATIENCE);
            words.clear();
            left -= consumer.read(&mut words, usize::MAX);
            black_box(&words);
        }
    });
    let start = Instant::now();
    for _ in 0..groups / batch {
        while !producer.write(black_box(&parts)) {
            producer.wait_space(batch * GROUP.len(), PATIENCE);
        }
    }
    let spent = start.elapsed();
    assert!(reader.join().is_ok(), "the reader failed");
    Ok(spent)
}

/// Median and 99th percentile of one group's round trip.
fn round_trip(spin: Duration) -> Result<(Duration, Duration), RingError> {
    let (mut request, mut request_end) = ring()?;
    let (mut reply, mut reply_end) = ring()?;
    let echo = thread::spawn(move || {
        let mut words = Vec::new();
        for _ in 0..ROUND_TRIPS {
            while !request_end.wait(spin, PATIENCE) {}
            words.clear();
            request_end.read(&mut words, GROUP.len());
            reply.write(&[&words]);
        }
    });
    let (mut words, mut times) = (Vec::new(), Vec::with_capacity(ROUND_TRIPS));
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        request.write(&[&GROUP]);
        while !reply_end.wait(spin, PATIENCE) {}
        words.clear();
        reply_end.read(&mut words, GROUP.len());
        times.push(start.elapsed());
    }
    assert!(echo.join().is_ok(), "the echo failed");
    times.sort_unstable();
    let at = |hundredths: usize| times.get(times.len() * hundredths / 100).copied();
    Ok((at(50).unwrap_or_default(), at(99).unwrap_or_default()))
}
