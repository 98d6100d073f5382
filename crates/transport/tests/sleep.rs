//! One sleep on several words: a wake-up of any of them ends it, and so does a change before the
//! sleep. A lost wake-up shows as a test that does not end: each limit is far above the time that a
//! test may take.

#![allow(clippy::unwrap_used, reason = "tests")]

use gt_transport::slab::{SLOTS, create};
use gt_transport::{
    FutexWaker, HEAD_WORDS, Parked, SlabReader, SlabWriter, Sleeping, sleep_on_any,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_mins(30);
const ROUNDS: u32 = 2_000;

fn sleeping(words: &[Parked]) -> Vec<Sleeping<'_>> {
    words.iter().map(Parked::sleeping).collect()
}

fn slab() -> (SlabWriter, SlabReader) {
    let memory = create().unwrap();
    let writer = SlabWriter::new(memory.try_clone().unwrap()).unwrap();
    (writer, SlabReader::new(memory).unwrap())
}

#[test]
fn any_of_several_wakers_wakes_every_sleeper() {
    let wakers = [FutexWaker::default(), FutexWaker::default()];
    let rung = Arc::new(AtomicU32::new(0));
    let sleepers: Vec<_> = (0..2)
        .map(|_| {
            let (wakers, rung) = (wakers.clone(), Arc::clone(&rung));
            thread::spawn(move || {
                while rung.load(Ordering::SeqCst) < ROUNDS {
                    let seen = rung.load(Ordering::SeqCst);
                    wakers.iter().for_each(FutexWaker::park);
                    let words = wakers.each_ref().map(FutexWaker::parked);
                    if rung.load(Ordering::SeqCst) == seen && seen < ROUNDS {
                        sleep_on_any(&sleeping(&words), LONG);
                    }
                }
            })
        })
        .collect();
    for round in 0..ROUNDS {
        rung.fetch_add(1, Ordering::SeqCst);
        wakers.get(usize::from(round % 2 == 0)).unwrap().wake();
    }
    // A sleeper that parked after the last wake-up has seen its number.
    for sleeper in sleepers {
        sleeper.join().unwrap();
    }
}

#[test]
fn a_reader_of_two_slabs_sleeps_on_both() {
    let (mut one, mut first) = slab();
    let (mut two, mut second) = slab();
    let reader = thread::spawn(move || {
        let mut found = 0;
        while found < 2 * ROUNDS {
            for slab in [&mut first, &mut second] {
                while slab.refresh() {
                    slab.release();
                    found += 1;
                }
            }
            if first.park() {
                if second.park() && found < 2 * ROUNDS {
                    sleep_on_any(&sleeping(&[first.parked(), second.parked()]), LONG);
                }
                second.unpark();
            }
            first.unpark();
        }
    });
    let head = [0; HEAD_WORDS];
    for _ in 0..ROUNDS {
        for slab in [&mut one, &mut two] {
            while slab.slot().is_none() {
                if slab.park() {
                    sleep_on_any(&sleeping(&[slab.parked()]), LONG);
                }
                slab.unpark();
            }
            assert!(slab.publish(&head, 8));
        }
    }
    reader.join().unwrap();
}

#[test]
fn nobody_sleeps_who_has_something_to_do() {
    let (mut writer, mut reader) = slab();
    let head = [0; HEAD_WORDS];
    assert!(!writer.park(), "there is room");
    assert!(reader.park(), "there is nothing");
    reader.unpark();
    assert!(writer.slot().is_some() && writer.publish(&head, 8));
    assert!(!reader.park(), "a chunk has come");
    assert!(reader.park(), "and nothing since");
    let parked = reader.parked();
    assert!(writer.slot().is_some() && writer.publish(&head, 8));
    assert!(sleep_on_any(&sleeping(&[parked]), LONG), "a wake-up before the sleep counts");
    while writer.slot().is_some() {
        assert!(writer.publish(&head, 8));
    }
    assert!(writer.park(), "there is no room");
    reader.refresh();
    for _ in 0..SLOTS {
        reader.release();
    }
    assert!(sleep_on_any(&sleeping(&[writer.parked()]), LONG));
    let silent = FutexWaker::default();
    silent.park();
    let two = [silent.parked(), silent.parked()];
    assert!(!sleep_on_any(&sleeping(&two), Duration::from_millis(1)), "nobody rings");
}
