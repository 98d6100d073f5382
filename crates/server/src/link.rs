//! The two directions of a connection as the core's thread uses them: a ring, or a channel from a
//! socket's task.

use crate::backlog::{Backlog, KEPT_WORDS};
use crate::death::LastInstruction;
use gt_protocol::handshake::FRAME_BYTES_MAX;
use gt_protocol::integer::to_u64;
use gt_protocol::message::count_cancels;
use gt_protocol::wire::{WireError, cut};
use gt_transport::slab::PAYLOAD_BYTES_MIN;
use gt_transport::{Consumer, HEAD_WORDS, Producer, SlabReader, SlabWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Words of a ring between the dispatcher and a client or worker: 256 KiB stay in the second-level cache.
pub(crate) const RING_WORDS: u32 = 1 << 16;
/// Number of frames in the channel between a socket's task and the core's thread, 1 MiB each at
/// most: enough that neither waits for the other at every frame.
pub(crate) const CHANNEL_FRAMES: usize = 8;
/// Words read from a ring at a time: one chunk of an upload and a few hundred small instructions.
const REFILL_WORDS: usize = 16 * 1024;
/// Words of a client on a socket that are taken while it is held back (16 MiB), so that a `cancel`
/// behind them is seen: some 500,000 instructions.
const AHEAD_WORDS_MAX: usize = 4 << 20;
/// Duration of a measurement of a peer's speed: some hundred small instructions.
const DRAIN_WINDOW: Duration = Duration::from_millis(1);

/// A connection that the sockets' thread passes to the core's thread.
#[derive(Debug)]
pub(crate) struct PeerLink {
    pub source: WordSource,
    pub target: WordTarget,
    /// Dropped with the link: the sockets' thread then closes the connection.
    pub cancel: oneshot::Sender<()>,
    /// Slab with payloads from the peer, and the one for ours.
    pub slab: Option<SlabPayloads>,
    pub slab_down: Option<SlabWriter>,
    /// The peer's process, if that is on this host.
    pub process: Option<u32>,
}

/// Payloads and chunks of answers that a peer puts into a slab. Each is copied before it is looked
/// at.
#[derive(Debug)]
pub(crate) struct SlabPayloads {
    slab: SlabReader,
    bytes: Vec<u8>,
    /// Number of bytes received in total.
    arrived: u64,
}

impl SlabPayloads {
    pub fn new(slab: SlabReader) -> Self {
        Self { slab, bytes: Vec::new(), arrived: 0 }
    }

    /// The next payload, and the offset that it was sent for; `None` if none has arrived.
    pub fn take(&mut self) -> Option<(u64, &[u8])> {
        let [low, high, ..] = self.slab.take(&mut self.bytes)?;
        self.arrived += to_u64(self.bytes.len());
        Some((u64::from(low) | u64::from(high) << 32, &self.bytes))
    }
}

/// Source of words.
#[derive(Debug)]
pub(crate) enum WordSource {
    /// A ring, whose peer writes to the waker when it writes words while the core's thread sleeps.
    /// There is one waker for each peer: a shared one could be silenced or filled by any of them.
    Ring {
        consumer: Consumer,
        waker: OwnedFd,
    },
    Socket(mpsc::Receiver<Vec<u32>>),
}

/// Destination of words.
#[derive(Debug)]
pub(crate) enum WordTarget {
    Ring(Producer),
    Socket(mpsc::Sender<Vec<u32>>),
}

/// Words from a peer, copied out of its ring once.
#[derive(Debug)]
pub(crate) struct Inbound {
    source: WordSource,
    words: Vec<u32>,
    start: usize,
    /// Number of words received in total.
    arrived: u64,
    slab: Option<SlabPayloads>,
    /// Numbers of `cancel` messages, wrapping: those among the words from a socket, and those that
    /// were consumed.
    cancels_arrived: u32,
    cancels_consumed: u32,
}

impl Inbound {
    pub fn new(source: WordSource, slab: Option<SlabPayloads>) -> Self {
        let (cancels_arrived, cancels_consumed) = (0, 0);
        Self {
            source,
            words: Vec::new(),
            start: 0,
            arrived: 0,
            slab,
            cancels_arrived,
            cancels_consumed,
        }
    }

    /// Words that have arrived and were not consumed, and the payloads beside them.
    pub fn unread_and_slab(&mut self) -> (&mut [u32], Option<&mut SlabPayloads>) {
        (self.words.get_mut(self.start..).unwrap_or_default(), self.slab.as_mut())
    }

    /// Words that have arrived and were not consumed.
    pub fn unread(&self) -> &[u32] {
        self.words.get(self.start..).unwrap_or_default()
    }

    /// Instruction that the peer, a worker, was at when it was last heard of; `None` where it
    /// waited, and for a socket.
    pub fn last_instruction(&self) -> Option<LastInstruction> {
        match &self.source {
            WordSource::Ring { consumer, .. } => LastInstruction::of_mark(consumer.mark()),
            WordSource::Socket(_) => None,
        }
    }

    /// Number of bytes received in total. Payloads between workers do not pass here: of a worker's
    /// bytes only answers do.
    pub fn arrived_bytes(&self) -> u64 {
        self.arrived * 4 + self.slab.as_ref().map_or(0, |slab| slab.arrived)
    }

    pub fn consume(&mut self, words: usize) {
        self.start += words;
        if self.start >= self.words.len() {
            self.words.clear();
            self.start = 0;
        }
    }

    /// Returns true if a `cancel` is behind the words that have not been consumed. A ring tells it
    /// in its header; from a socket the words of a client that is held back are taken, up to a
    /// limit.
    pub fn is_cancelled(&mut self, is_held_back: bool) -> bool {
        let announced = match &self.source {
            WordSource::Ring { consumer, .. } => consumer.announced(),
            WordSource::Socket(_) => {
                if is_held_back {
                    self.look_ahead();
                }
                self.cancels_arrived
            }
        };
        announced.wrapping_sub(self.cancels_consumed).cast_signed() > 0
    }

    /// Counts a `cancel` that was consumed.
    pub fn cancel_consumed(&mut self) {
        self.cancels_consumed = self.cancels_consumed.wrapping_add(1);
    }

    fn look_ahead(&mut self) {
        // The loop ends: each round takes a frame of words.
        while self.words.len() - self.start < AHEAD_WORDS_MAX && self.refill() {}
    }

    /// Reads until a whole frame is there, if one has arrived.
    ///
    /// # Errors
    /// The peer's words cannot be split into frames, or its ring's counters are
    /// impossible.
    pub fn fill(&mut self) -> Result<bool, WireError> {
        // The loop ends: a frame has at most 64 Ki words, and each round adds some.
        loop {
            if cut::first(self.unread())?.is_some() {
                return Ok(true);
            }
            if !self.refill() {
                return Ok(false);
            }
        }
    }

    fn refill(&mut self) -> bool {
        // Looking ahead, words are moved only when as many have been consumed.
        if self.start > self.words.len() / 2 {
            self.words.drain(..self.start);
            self.start = 0;
        }
        let before = self.words.len();
        let some = self.take();
        self.arrived += to_u64(self.words.len() - before);
        some
    }

    fn take(&mut self) -> bool {
        match &mut self.source {
            WordSource::Ring { consumer, .. } => consumer.read(&mut self.words, REFILL_WORDS) > 0,
            WordSource::Socket(receiver) => match receiver.try_recv() {
                Ok(words) => {
                    self.cancels_arrived = self.cancels_arrived.wrapping_add(count_cancels(&words));
                    if self.words.is_empty() {
                        self.words = words;
                    } else {
                        self.words.extend_from_slice(&words);
                    }
                    true
                }
                Err(_) => false,
            },
        }
    }

    /// Returns true if the counters of the peer's ring were impossible.
    pub fn is_corrupt(&self) -> bool {
        match &self.source {
            WordSource::Ring { consumer, .. } => consumer.is_corrupt(),
            WordSource::Socket(_) => false,
        }
    }

    pub fn waker(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            WordSource::Ring { waker, .. } => Some(waker.as_fd()),
            WordSource::Socket(_) => None,
        }
    }

    /// Prepares a sleep: returns false if words are there already.
    pub fn sleep_begin(&mut self) -> bool {
        match &mut self.source {
            WordSource::Ring { consumer, .. } => consumer.park_begin(),
            WordSource::Socket(receiver) => receiver.is_empty(),
        }
    }

    pub fn sleep_end(&mut self) {
        match &mut self.source {
            WordSource::Ring { consumer, .. } => consumer.park_end(),
            WordSource::Socket(_) => {}
        }
    }
}

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
    _cancel: oneshot::Sender<()>,
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

impl Outbound {
    pub fn new(
        target: WordTarget,
        cancel: oneshot::Sender<()>,
        slab_down: Option<SlabWriter>,
    ) -> Self {
        let (backlog, drain) = (Backlog::default(), Drain::default());
        let (credit, listed, sent) = (0, false, 0);
        Self { target, backlog, credit, listed, sent, drain, slab_down, _cancel: cancel }
    }

    /// Puts bytes into the slab if they are many and there is room; returns true if so, and the
    /// words that name them must be sent next.
    pub fn send_beside(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some(slab) = self.slab_down.as_mut().filter(|_| bytes.len() >= PAYLOAD_BYTES_MIN)
        else {
            return false;
        };
        let slot = slab.slot().and_then(|slot| slot.get_mut(..bytes.len()));
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
            WordTarget::Socket(sender) => sender.capacity() * KEPT_WORDS,
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
            WordTarget::Socket(_) => 0,
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
            WordTarget::Socket(_) => false,
        }
    }

    /// Returns true if the counters of the peer's ring were impossible, or its socket's task is
    /// gone.
    pub fn is_broken(&self) -> bool {
        match &self.target {
            WordTarget::Ring(producer) => producer.is_corrupt(),
            WordTarget::Socket(sender) => sender.is_closed(),
        }
    }

    /// Sends whole frames, as far as they fit; returns true if anything moved.
    pub fn flush(&mut self) -> bool {
        let moved = match &mut self.target {
            WordTarget::Ring(producer) => self.backlog.flush(producer),
            WordTarget::Socket(sender) => self.backlog.hand_on(|waiting| {
                let Ok(permit) = sender.try_reserve() else { return 0 };
                let words = cut::whole(waiting, FRAME_WORDS);
                permit.send(waiting.get(..words).unwrap_or_default().to_vec());
                words
            }),
        };
        self.sent += to_u64(moved);
        moved > 0
    }
}

#[allow(clippy::as_conversions, reason = "a constant that fits; TryFrom is not const")]
const FRAME_WORDS: usize = FRAME_BYTES_MAX as usize / 4;
