//! The outward direction of a connection as the core's thread uses it: a ring, or a channel to a
//! socket's task.

use crate::backlog::{Backlog, KEPT_WORDS};
use crate::frames::FrameTarget;
use crate::journal::{self, Journal, Sums};
use crate::link::WordTarget;
use gt_protocol::integer::to_u64;
use gt_protocol::wire::cut;
use gt_transport::slab::PAYLOAD_BYTES_MIN;
use gt_transport::{HEAD_WORDS, Producer, SlabWriter};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Duration of a measurement of a peer's speed: some hundred small instructions.
const DRAIN_WINDOW: Duration = Duration::from_millis(1);

/// Words to a peer: a buffer that is emptied into the ring or channel as far as there is room.
#[derive(Debug)]
pub(crate) struct Outbound {
    target: WordTarget,
    backlog: Backlog,
    /// Number of words that may still be sent before the sender should look again. See `Outbox`.
    pub credit: usize,
    /// True if it is in the list of those to flush.
    pub listed: bool,
    /// Number of words sent in total, without the buffer's.
    sent: u64,
    drain: Drain,
    slab_down: Option<SlabWriter>,
    cancel: oneshot::Sender<()>,
    published: Option<SentWords>,
}

/// Words that were published to a peer, as the journal counts them.
#[derive(Debug)]
struct SentWords {
    journal: Arc<Journal>,
    place: usize,
    sums: Sums,
}

/// Reason why a peer cannot be served on by a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RingMismatch {
    #[error("its ring has more words than the standby has for it")]
    Overshoot,
    #[error("its ring's counter is not the one that was stored there")]
    Counter,
    #[error("its slab has other bytes than the standby has for it")]
    Slab,
    #[error("a frame was sent to it that the standby does not have")]
    Frame,
    #[error("the words in its ring are not those that the standby has for it")]
    Words,
}

/// Speed of a peer: the number of words that it took in the last window, and the window's length.
#[derive(Debug, Default)]
struct Drain {
    window: Option<(Instant, u64)>,
    words: u64,
    passed: Duration,
}

impl Drain {
    fn note(&mut self, now: Instant, taken: u64) {
        let (begin, before) = *self.window.get_or_insert((now, taken));
        let passed = now.saturating_duration_since(begin);
        if passed >= DRAIN_WINDOW {
            (self.words, self.passed) = (taken.saturating_sub(before), passed);
            self.window = Some((now, taken));
        }
    }

    fn words_in(&self, window: Duration) -> usize {
        let words = u128::from(self.words) * window.as_nanos() / self.passed.as_nanos().max(1);
        usize::try_from(words).unwrap_or(usize::MAX)
    }
}

impl SentWords {
    /// Publishes whole messages, as far as they fit, once the journal says so; returns the number of
    /// words.
    fn send(&mut self, producer: &mut Producer, waiting: &[u32]) -> usize {
        let all = producer.has_space(waiting.len());
        let words = if all { waiting.len() } else { cut::whole(waiting, producer.space()) };
        let Some(part) = waiting.get(..words).filter(|part| !part.is_empty()) else { return 0 };
        let mut sums = self.sums;
        sums.add(part);
        let published = producer.published().wrapping_add(u32::try_from(words).unwrap_or(0));
        self.journal.publish(self.place, published, &sums);
        if !producer.write(&[part]) {
            return 0;
        }
        self.sums = sums;
        words
    }
}

impl Outbound {
    pub fn new(
        target: WordTarget,
        cancel: oneshot::Sender<()>,
        slab_down: Option<SlabWriter>,
    ) -> Self {
        let (backlog, drain) = (Backlog::default(), Drain::default());
        let (credit, listed, sent) = (0, false, 0);
        let published = None;
        Self { target, backlog, credit, listed, sent, drain, slab_down, cancel, published }
    }

    /// Notes in a journal what is published from now on, at this place.
    pub fn note_in(&mut self, journal: &Arc<Journal>, place: usize) {
        let (journal, sums) = (Arc::clone(journal), Sums::default());
        self.published = Some(SentWords { journal, place, sums });
        self.begin_place();
    }

    /// Place in the journal.
    pub fn place(&self) -> Option<usize> {
        self.published.as_ref().map(|published| published.place)
    }

    /// Writes down what has been published, whatever the journal has.
    pub fn begin_place(&self) {
        if let (WordTarget::Ring(producer), Some(published)) = (&self.target, &self.published) {
            let SentWords { journal, place, sums } = published;
            journal.begin_place(*place, producer.published(), sums);
        }
    }

    /// Takes a new end of the task that serves the peer's sockets. The one before is not dropped:
    /// its task's thread may have held a lock at the fork.
    pub fn replace_cancel(&mut self, cancel: oneshot::Sender<()>) {
        std::mem::forget(std::mem::replace(&mut self.cancel, cancel));
    }

    /// Frames to a socket's task; `None` for rings, and a peer that cannot be served on.
    pub fn frames(&mut self) -> Option<&mut FrameTarget> {
        match &mut self.target {
            WordTarget::Socket(frames) => Some(frames),
            WordTarget::Ring(_) | WordTarget::Gone => None,
        }
    }

    /// Sends a frame again, into memory alone, that the process before this one has sent: so many
    /// words, of this sum.
    pub fn replay_frame(&mut self, words: usize, sum: u32) -> Result<(), RingMismatch> {
        let Self { target: WordTarget::Socket(frames), backlog, .. } = self else { return Ok(()) };
        let mut left = words;
        let mut are_equal = true;
        self.sent += to_u64(backlog.hand_on(|waiting| {
            let Some(frame) = waiting.get(..left).filter(|frame| !frame.is_empty()) else {
                return 0;
            };
            are_equal &= journal::sum_of(frame) == sum;
            frames.replay(frame);
            left -= frame.len();
            frame.len()
        }));
        if left == 0 && are_equal { Ok(()) } else { Err(RingMismatch::Frame) }
    }

    /// Goes on where the process before this one was: leaves out what that has published.
    pub fn resume(&mut self) -> Result<(), RingMismatch> {
        let WordTarget::Ring(producer) = &mut self.target else { return Ok(()) };
        let ahead = producer.published_in_header().wrapping_sub(producer.published());
        let mut ahead = usize::try_from(ahead).unwrap_or(usize::MAX);
        if ahead > self.backlog.len() {
            return Err(RingMismatch::Overshoot);
        }
        let mut sums = self.published.as_ref().map_or_else(Sums::default, |known| known.sums);
        let mut are_equal = true;
        self.sent += to_u64(self.backlog.hand_on(|waiting| {
            let skipped = waiting.get(..ahead.min(waiting.len())).unwrap_or_default();
            sums.add(skipped);
            are_equal &= producer.skip(skipped);
            ahead -= skipped.len();
            skipped.len()
        }));
        if let Some(known) = &mut self.published {
            if !known.journal.was_published(known.place, producer.published(), &sums) {
                return Err(RingMismatch::Counter);
            }
            known.sums = sums;
        }
        if !are_equal {
            return Err(RingMismatch::Words);
        }
        if self.slab_down.as_mut().is_some_and(|slab| !slab.resume()) {
            return Err(RingMismatch::Slab);
        }
        producer.wake();
        self.begin_place();
        Ok(())
    }

    fn is_replaying(&self) -> bool {
        self.published.as_ref().is_some_and(|published| published.journal.is_replaying())
    }

    /// Sends nothing more to a peer that cannot be served on.
    pub fn abandon(&mut self) {
        // Not dropped: another thread may have held the lock of a channel at the fork.
        std::mem::forget(std::mem::replace(&mut self.target, WordTarget::Gone));
        self.slab_down = None;
    }

    /// Puts bytes into the slab if they are many and there is room; returns true if so, and the
    /// words that name them must be sent next.
    pub fn send_beside(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let is_replay = self.is_replaying();
        let Some(slab) = self.slab_down.as_mut().filter(|_| bytes.len() >= PAYLOAD_BYTES_MIN)
        else {
            return false;
        };
        let journal = self.published.as_ref().map(|published| &published.journal);
        if is_replay && !journal.is_some_and(|journal| journal.take_room_beside()) {
            return false;
        }
        if is_replay && slab.skip() {
            return true;
        }
        let slot = slab.slot().and_then(|slot| slot.get_mut(..bytes.len()));
        if let Some(journal) = journal.filter(|_| !is_replay) {
            journal.room_beside(slot.is_some());
        }
        let Some(slot) = slot else { return false };
        slot.copy_from_slice(bytes);
        let mut head = [0; HEAD_WORDS];
        let words = [offset & u64::from(u32::MAX), offset >> 32];
        for (place, word) in head.iter_mut().zip(words) {
            *place = u32::try_from(word).unwrap_or(0);
        }
        slab.publish(&head, bytes.len())
    }

    /// Returns true if bytes for the slab would have to wait.
    pub fn is_full(&mut self) -> bool {
        // In a replay the reader may be further than this side.
        if self.is_replaying() {
            return false;
        }
        self.slab_down.as_mut().is_some_and(|slab| slab.slot().is_none() && !slab.is_corrupt())
    }

    /// The buffer to append whole frames to.
    pub fn buffer(&mut self) -> &mut Vec<u32> {
        self.backlog.buffer()
    }

    /// Number of words in the buffer.
    pub fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// Number of words that the ring or channel can take in addition to those in the buffer.
    pub fn room(&mut self) -> usize {
        let space = match &mut self.target {
            WordTarget::Ring(producer) => producer.space(),
            WordTarget::Socket(frames) => frames.capacity() * KEPT_WORDS,
            WordTarget::Gone => KEPT_WORDS,
        };
        space.saturating_sub(self.waiting())
    }

    /// Number of words that the peer has not taken yet.
    pub fn in_flight(&mut self) -> usize {
        self.inside() + self.waiting()
    }

    /// Number of words in the ring. For a socket the number that its task holds is unknown here,
    /// and counts as 0.
    fn inside(&mut self) -> usize {
        match &mut self.target {
            WordTarget::Ring(producer) => producer.capacity() - producer.space(),
            WordTarget::Socket(_) | WordTarget::Gone => 0,
        }
    }

    /// Number of words that the peer takes in a window, at its recent speed; to be called often.
    pub fn drained_in(&mut self, window: Duration, now: Instant) -> usize {
        let inside = to_u64(self.inside());
        self.drain.note(now, self.sent.saturating_sub(inside));
        self.drain.words_in(window)
    }

    /// Returns true if the peer took its last words on the CPU of the calling thread.
    pub fn shares_cpu(&self) -> bool {
        match &self.target {
            WordTarget::Ring(producer) => producer.shares_cpu(),
            WordTarget::Socket(_) | WordTarget::Gone => false,
        }
    }

    /// Returns true if the counters of the peer's ring were impossible, or its socket's task is
    /// gone.
    pub fn is_broken(&self) -> bool {
        match &self.target {
            WordTarget::Ring(producer) => producer.is_corrupt(),
            WordTarget::Socket(frames) => frames.is_closed(),
            WordTarget::Gone => false,
        }
    }

    /// Sends whole frames, as far as they fit; returns true if anything moved.
    pub fn flush(&mut self) -> bool {
        let moved = match &mut self.target {
            WordTarget::Ring(producer) => match &mut self.published {
                None => self.backlog.flush(producer),
                Some(published) => {
                    self.backlog.hand_on(|waiting| published.send(producer, waiting))
                }
            },
            WordTarget::Gone => self.backlog.hand_on(<[u32]>::len),
            WordTarget::Socket(frames) => self.backlog.hand_on(|waiting| {
                frames.send(waiting, |words| {
                    if let Some(published) = &self.published {
                        published.journal.sent(published.place, words);
                    }
                })
            }),
        };
        self.sent += to_u64(moved);
        moved > 0
    }

    /// Sends what waits in the middle of a turn, so that the peer starts while the rest is planned.
    /// Frames wait for the turn's end beside a standby: their records in the journal must not come
    /// between an instruction and its bytes.
    pub fn flush_early(&mut self) {
        if self.published.is_none() || matches!(self.target, WordTarget::Ring(_)) {
            self.flush();
        }
    }
}
