//! Words waiting for room in a ring or a channel. An instruction may be as long as a ring, and the
//! words before it longer, so they are sent message by message: as one group they might never fit.

use gt_protocol::wire::cut;
use gt_transport::Producer;

/// Number of waiting words up to which the buffer's allocation is kept once all of them have been
/// sent.
pub(crate) const KEPT_WORDS: usize = 64 * 1024;

/// Whole instructions and messages, in order.
#[derive(Debug, Default)]
pub struct Backlog {
    words: Vec<u32>,
    /// Number of words at the front that have been sent.
    start: usize,
}

impl Backlog {
    /// Buffer to which whole instructions and messages are appended.
    pub fn buffer(&mut self) -> &mut Vec<u32> {
        &mut self.words
    }

    /// Number of words that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() - self.start
    }

    /// Returns true if nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends whole messages behind those that wait; messages that do not fit wait too.
    pub fn send(&mut self, producer: &mut Producer, parts: &[&[u32]]) {
        if self.is_empty() && producer.write(parts) {
            return;
        }
        for part in parts {
            self.words.extend_from_slice(part);
        }
        self.flush(producer);
    }

    /// Moves whole messages into a ring, as far as they fit; returns the number of words moved.
    #[inline]
    pub fn flush(&mut self, producer: &mut Producer) -> usize {
        self.hand_on(|waiting| {
            let all = producer.has_space(waiting.len());
            let words = if all { waiting.len() } else { cut::whole(waiting, producer.space()) };
            let part = waiting.get(..words).unwrap_or_default();
            if producer.write(&[part]) { words } else { 0 }
        })
    }

    /// Passes the waiting words to `take` until it takes no more; returns the number of words
    /// taken.
    #[inline]
    pub fn hand_on(&mut self, mut take: impl FnMut(&[u32]) -> usize) -> usize {
        let before = self.start;
        while let Some(waiting) = self.words.get(self.start..).filter(|words| !words.is_empty()) {
            let taken = take(waiting);
            if taken == 0 {
                break;
            }
            self.start += taken;
        }
        let moved = self.start - before;
        if moved > 0 {
            self.forget_moved();
        }
        moved
    }

    fn forget_moved(&mut self) {
        if self.is_empty() {
            self.start = 0;
            self.words.clear();
            self.words.shrink_to(KEPT_WORDS);
        } else if self.start > self.words.len() / 2 {
            // This moves fewer words than have been sent, so that a long answer is moved twice at
            // most.
            self.words.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Backlog;
    use gt_protocol::integer::to_usize;
    use gt_transport::{Consumer, Producer, create};

    /// A message with this many words.
    fn message(words: u32, fill: u32) -> Vec<u32> {
        let mut message = vec![fill; to_usize(words)];
        message[0] = 1 | words << 16;
        message
    }

    #[test]
    fn a_backlog_longer_than_the_ring_goes_through_it() {
        let ring = create(1 << 10).unwrap();
        let mut producer = Producer::new(ring.try_clone().unwrap()).unwrap();
        let mut consumer = Consumer::new(ring).unwrap();
        let mut backlog = Backlog::default();
        let sent: Vec<Vec<u32>> = (0..9).map(|n| message([1024, 700, 3][n % 3], 7)).collect();
        // Frees before an instruction as long as the ring: together they never fit.
        backlog.send(&mut producer, &[&sent[2], &sent[0]]);
        for words in &sent {
            backlog.send(&mut producer, &[words]);
        }
        assert!(!backlog.is_empty());
        let mut received = Vec::new();
        for _ in 0..100 {
            let before = received.len();
            consumer.read(&mut received, 1 << 10);
            let mut rest = &received[before..];
            while let Some(first) = gt_protocol::wire::cut::first(rest).unwrap() {
                rest = &rest[first.len()..];
            }
            assert!(rest.is_empty(), "only whole messages arrive");
            backlog.flush(&mut producer);
        }
        assert!(backlog.is_empty());
        let expected: Vec<u32> =
            [&sent[2], &sent[0]].into_iter().chain(&sent).flatten().copied().collect();
        assert_eq!(received, expected);
    }
}
