//! What found no room in a ring yet. An instruction may be as long as a ring, and what goes before it longer, so words
//! move on message by message: as one group they might never fit.

use gt_protocol::wire::cut;
use gt_transport::Producer;

/// Words kept allocated once all of them have moved on.
const KEPT_WORDS: usize = 16 * 1024;

/// Words on their way into a ring, in order.
#[derive(Debug, Default)]
pub struct Backlog {
    words: Vec<u32>,
    /// Of those, the words that have moved on.
    start: usize,
}

impl Backlog {
    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Sends whole messages behind those that wait; what does not fit waits too.
    pub fn send(&mut self, producer: &mut Producer, parts: &[&[u32]]) {
        if self.is_empty() && producer.write(parts) {
            return;
        }
        for part in parts {
            self.words.extend_from_slice(part);
        }
        self.flush(producer);
    }

    /// Moves what fits, in whole messages; says whether nothing waits any more.
    pub fn flush(&mut self, producer: &mut Producer) -> bool {
        while let Some(waiting) = self.words.get(self.start..).filter(|words| !words.is_empty()) {
            let length = cut::whole(waiting, producer.space());
            let group = waiting.get(..length).unwrap_or_default();
            if group.is_empty() || !producer.write(&[group]) {
                return false;
            }
            self.start += length;
        }
        if !self.words.is_empty() {
            self.words.clear();
            self.words.shrink_to(KEPT_WORDS);
            self.start = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Backlog;
    use gt_protocol::integer::to_usize;
    use gt_transport::{Consumer, Producer, create};

    /// A message of so many words, by its first one.
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
