//! Filling of a slot: by ordinary stores, or by streaming stores that bypass the caches.
//!
//! An ordinary store first takes the line from the cache that has it. A slot was last read by the
//! other side: if both share a cache, that costs next to nothing, and the reader then finds the
//! bytes there. Between cores that share none (two chiplets, two sockets, and in a virtual machine
//! any cores that it happens to have) each line is fetched for nothing, which takes some eight
//! times as long as streaming stores and the detour through memory.

use std::time::Duration;

/// Bytes from which a chunk's time is measured: shorter ones say little about the rate.
const MEASURED_BYTES_MIN: usize = 16 * 1024;
/// Bytes from which streaming may pay: shorter chunks are copied by ordinary stores.
const STREAMED_BYTES_MIN: usize = 2 * 1024;
/// Ratio of times from which streaming pays: ordinary stores must take two and a half times as
/// long, because the reader then reads from memory and has to wait for it.
const PAYS_FROM: (u64, u64) = (5, 2);
/// Number of chunks of which one is filled the other way, because threads move between cores.
const TRIAL_ONE_IN: u32 = 128;
/// Number of chunks of which one is filled the other way at the beginning, when the slab's new
/// pages distort the times.
const FIRST_TRIAL_ONE_IN: u32 = 8;
/// Bytes that the times refer to.
const UNIT_BYTES: u128 = 64 * 1024;

/// Nanoseconds for a unit, averaged over the last chunks.
#[derive(Clone, Copy, Debug, Default)]
struct AverageTime(Option<u64>);

impl AverageTime {
    /// Falls at once and rises slowly, by a quarter at most: the time of a thread that lost its
    /// core meanwhile is worthless.
    fn add(&mut self, one: u64) {
        self.0 = Some(match self.0 {
            None => one,
            Some(average) if one <= average => u64::midpoint(average, one),
            Some(average) => average.saturating_add((one - average).min(average) / 4),
        });
    }
}

/// Decides for one slab, chunk by chunk, by measurements of the last ones. It has no clock.
#[derive(Debug, Default)]
pub struct StoreChoice {
    ordinary: AverageTime,
    streaming: AverageTime,
    chunks: u32,
}

impl StoreChoice {
    /// Returns true if the next chunk, of so many bytes, is to be filled by streaming stores.
    pub fn streams(&mut self, length: usize) -> bool {
        if length < STREAMED_BYTES_MIN {
            return false;
        }
        let pays = match (self.ordinary.0, self.streaming.0) {
            (Some(ordinary), Some(streaming)) => {
                let (times, of) = PAYS_FROM;
                ordinary.saturating_mul(of) > streaming.saturating_mul(times)
            }
            (None, _) | (_, None) => false,
        };
        if length < MEASURED_BYTES_MIN {
            return pays;
        }
        self.chunks = self.chunks.wrapping_add(1);
        let is_new = self.chunks < TRIAL_ONE_IN;
        let trial_one_in = if is_new { FIRST_TRIAL_ONE_IN } else { TRIAL_ONE_IN };
        pays ^ (self.chunks % trial_one_in == 2)
    }

    /// Adds the measured time of a chunk.
    pub fn filled(&mut self, streamed: bool, length: usize, time: Duration) {
        if length < MEASURED_BYTES_MIN {
            return;
        }
        let nanoseconds = time.as_nanos().saturating_mul(UNIT_BYTES);
        let length = u128::try_from(length).unwrap_or(u128::MAX);
        let nanoseconds = u64::try_from(nanoseconds / length).unwrap_or(u64::MAX);
        let average = if streamed { &mut self.streaming } else { &mut self.ordinary };
        average.add(nanoseconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of chunks among `count` that are streamed, where chunks of either kind take so many
    /// microseconds.
    fn streamed(choice: &mut StoreChoice, count: usize, ordinary: u64, streaming: u64) -> usize {
        let length = 64 * 1024;
        let chunk = |_: &usize| {
            let streams = choice.streams(length);
            let time = if streams { streaming } else { ordinary };
            choice.filled(streams, length, Duration::from_micros(time));
            streams
        };
        (0..count).filter(chunk).count()
    }

    #[test]
    fn what_takes_far_longer_is_left() {
        let mut choice = StoreChoice::default();
        assert_eq!(streamed(&mut choice, 128, 4, 5), 16, "one in 8 is tried at the beginning");
        assert_eq!(streamed(&mut choice, 1280, 4, 5), 10, "one in 128 is tried");
        // The cores share no cache any more: after a few chunks, all but the trials are streamed.
        assert!(streamed(&mut choice, 1280, 26, 5) > 1250);
        // The cores share a cache again: it takes a few trials.
        streamed(&mut choice, 1280, 4, 5);
        assert_eq!(streamed(&mut choice, 1280, 4, 5), 10);
    }

    #[test]
    fn who_lost_its_core_says_nothing() {
        for (ordinary, streaming, streamed_at_least) in [(4, 5, 0), (26, 5, 95)] {
            let mut choice = StoreChoice::default();
            streamed(&mut choice, 1280, ordinary, streaming);
            streamed(&mut choice, 1, 3000, 3000);
            let count = streamed(&mut choice, 100, ordinary, streaming);
            assert!((streamed_at_least..streamed_at_least + 6).contains(&count), "{count}");
        }
    }

    #[test]
    fn new_pages_are_nobody_s_time() {
        let mut choice = StoreChoice::default();
        streamed(&mut choice, 16, 60, 40);
        assert!(streamed(&mut choice, 112, 26, 5) > 60);
    }

    #[test]
    fn what_is_short_follows_and_is_not_measured() {
        let mut choice = StoreChoice::default();
        for length in [1, 4096] {
            assert!(!choice.streams(length));
            choice.filled(false, length, Duration::from_secs(1));
        }
        streamed(&mut choice, 64, 26, 4);
        assert!(choice.streams(4096) && !choice.streams(1000));
    }
}
