//! Helpers of the ring's tests: a pair of ends, a way to read and forge the header, and seeds.
//! Waiting here never sleeps: it polls the header and yields.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gt_transport::{Consumer, Producer, WAIT_MAX, create, yield_now};

/// Offsets of the header's words. The format is fixed: two processes of one build share it, and the
/// tests forge it as a hostile peer could.
pub const TAIL: u64 = 0;
pub const HEAD: u64 = 128;
pub const CONSUMER_PARKED: u64 = 256;
pub const PRODUCER_PARKED: u64 = 384;

pub const SMALL: u32 = 1024;
/// A wait that ends only when something is there: a lost wake-up shows as a test that hangs, never
/// as a slow one.
pub const FOREVER: Duration = WAIT_MAX;
pub const NEVER_SPIN: Duration = Duration::ZERO;
/// Time far above any wake-up on a loaded machine.
pub const HANG: Duration = Duration::from_mins(1);

/// Both ends of a ring and its memory as a file.
pub fn ring(capacity: u32) -> (Producer, Consumer, Memory) {
    let memory = create(capacity).unwrap();
    let producer = Producer::new(copy(&memory)).unwrap();
    let consumer = Consumer::new(copy(&memory)).unwrap();
    (producer, consumer, Memory(File::from(memory)))
}

pub fn copy(fd: &OwnedFd) -> OwnedFd {
    fd.try_clone().unwrap()
}

pub struct Memory(pub File);

impl Memory {
    pub fn word(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, at).unwrap();
        u32::from_le_bytes(bytes)
    }

    pub fn forge(&self, at: u64, word: u32) {
        self.0.write_all_at(&word.to_le_bytes(), at).unwrap();
    }

    pub fn until_not_zero(&self, at: u64) {
        while self.word(at) == 0 {
            yield_now();
        }
    }
}

/// Runs `work` on a thread; returns its answer, or a failure if it hangs.
pub fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    Answer(receiver)
}

pub struct Answer<T>(mpsc::Receiver<T>);

impl<T> Answer<T> {
    pub fn get(self) -> T {
        self.0.recv_timeout(HANG).expect("the other thread answers")
    }
}

/// `SplitMix64`: the same numbers for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `1..=most`.
    pub fn up_to(&mut self, most: u32) -> u32 {
        u32::try_from(self.next() % u64::from(most)).unwrap() + 1
    }

    pub fn word(&mut self) -> u32 {
        u32::try_from(self.next() >> 32).unwrap()
    }
}
