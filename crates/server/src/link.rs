//! The two directions of a connection as the core's thread sees them: a ring, or a channel from a socket's task.

use crate::backlog::{Backlog, KEPT_WORDS};
use gt_protocol::handshake::FRAME_BYTES_MAX;
use gt_protocol::integer::to_u64;
use gt_protocol::wire::{WireError, cut};
use gt_transport::slab::PAYLOAD_BYTES_MIN;
use gt_transport::{Consumer, HEAD_WORDS, Producer, SlabReader, SlabWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Words of a ring between the dispatcher and a client or worker: 256 KiB stay in the second-level cache.
pub(crate) const RING_WORDS: u32 = 1 << 16;
/// Frames in the channel between a socket's task and the core's thread, 1 MiB each at most: enough that neither waits
/// for the other at every frame.
pub(crate) const CHANNEL_FRAMES: usize = 8;
/// Words taken from a ring at a time: one chunk of an upload and a few hundred small instructions.
const REFILL_WORDS: usize = 16 * 1024;
/// How long a look at a peer's speed takes: some hundred small instructions.
const DRAIN_WINDOW: Duration = Duration::from_millis(1);

/// A connection that the sockets' thread hands to the core's thread.
#[derive(Debug)]
pub(crate) struct PeerLink {
    pub source: WordSource,
    pub target: WordTarget,
    /// Dropped with the link: the sockets' thread then closes the connection.
    pub cancel: oneshot::Sender<()>,
    /// What the peer lays beside its words, and where we do.
    pub slab: Option<SlabPayloads>,
    pub slab_down: Option<SlabWriter>,
    /// The peer's process, where that is on this host.
    pub process: Option<u32>,
}

/// Payloads and chunks of answers that a peer puts into a slab. Each is copied out before anybody looks at it.
#[derive(Debug)]
pub(crate) struct SlabPayloads {
    slab: SlabReader,
    bytes: Vec<u8>,
    /// Bytes that have come in all.
    arrived: u64,
}

impl SlabPayloads {
    pub fn new(slab: SlabReader) -> Self {
        Self { slab, bytes: Vec::new(), arrived: 0 }
    }

    /// The next one, and the offset that it was sent for; nothing where none has come.
    pub fn take(&mut self) -> Option<(u64, &[u8])> {
        let [low, high, ..] = self.slab.take(&mut self.bytes)?;
        self.arrived += to_u64(self.bytes.len());
        Some((u64::from(low) | u64::from(high) << 32, &self.bytes))
    }
}

/// Where words come from.
#[derive(Debug)]
pub(crate) enum WordSource {
    /// The peer writes to the waker when it writes words while the core's thread sleeps. One waker a peer: a shared one could be
    /// silenced or filled by any of them.
    Ring {
        consumer: Consumer,
        waker: OwnedFd,
    },
    Socket(mpsc::Receiver<Vec<u32>>),
}

/// Where words go.
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
    /// Words that the peer has sent in all.
    arrived: u64,
    slab: Option<SlabPayloads>,
}

impl Inbound {
    pub fn new(source: WordSource, slab: Option<SlabPayloads>) -> Self {
        Self { source, words: Vec::new(), start: 0, arrived: 0, slab }
    }

    /// What has arrived and was not consumed, and what was put beside it.
    pub fn unread_and_slab(&mut self) -> (&mut [u32], Option<&mut SlabPayloads>) {
        (self.words.get_mut(self.start..).unwrap_or_default(), self.slab.as_mut())
    }

    /// What has arrived and was not consumed.
    pub fn unread(&self) -> &[u32] {
        self.words.get(self.start..).unwrap_or_default()
    }

    /// Bytes that the peer has sent in all. Between workers no payload passes here: of a worker's, only answers do.
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

    /// Makes sure that a whole frame is there, if one has come.
    ///
    /// # Errors
    /// The peer's words cannot be cut into frames, or its ring's counters are impossible.
    pub fn fill(&mut self) -> Result<bool, WireError> {
        // Ends: a frame has at most 64 Ki words, and each round adds some.
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
        self.words.drain(..self.start);
        self.start = 0;
        let before = self.words.len();
        let some = self.take();
        self.arrived += to_u64(self.words.len() - before);
        some
    }

    fn take(&mut self) -> bool {
        match &mut self.source {
            WordSource::Ring { consumer, .. } => consumer.read(&mut self.words, REFILL_WORDS) > 0,
            WordSource::Socket(receiver) => match receiver.try_recv() {
                Ok(words) if self.words.is_empty() => {
                    self.words = words;
                    true
                }
                Ok(words) => {
                    self.words.extend_from_slice(&words);
                    true
                }
                Err(_) => false,
            },
        }
    }

    /// The peer's ring claims the impossible.
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

    /// Before a sleep: false if words are there already.
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

/// Words to a peer: a buffer, emptied into the ring or channel as far as that has room.
#[derive(Debug)]
pub(crate) struct Outbound {
    target: WordTarget,
    backlog: Backlog,
    /// Words that may still be sent before the sender should look again. See `Outbox`.
    pub credit: usize,
    /// It stands in the list of those to flush.
    pub listed: bool,
    /// Words that were sent in all, the buffer's not counted.
    sent: u64,
    drain: Drain,
    slab_down: Option<SlabWriter>,
    _cancel: oneshot::Sender<()>,
}

/// How fast a peer takes its words: how many in the last window, and how long that was.
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

    /// Puts bytes into the slab beside the words, if they are many and there is room: what names them is to be sent next.
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

    /// Whether bytes beside the words would have to wait.
    pub fn is_full(&mut self) -> bool {
        self.slab_down.as_mut().is_some_and(|slab| slab.slot().is_none() && !slab.is_corrupt())
    }

    /// The buffer to append whole frames to.
    pub fn buffer(&mut self) -> &mut Vec<u32> {
        self.backlog.buffer()
    }

    /// Words in the buffer.
    pub fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// Words that the ring or channel can take beside those in the buffer.
    pub fn room(&mut self) -> usize {
        let space = match &mut self.target {
            WordTarget::Ring(producer) => producer.space(),
            WordTarget::Socket(sender) => sender.capacity() * KEPT_WORDS,
        };
        space.saturating_sub(self.waiting())
    }

    /// Words that the peer has not taken yet.
    pub fn in_flight(&mut self) -> usize {
        self.inside() + self.waiting()
    }

    /// Of those, the words in the ring. What a socket's task has taken in, nobody here knows.
    fn inside(&mut self) -> usize {
        match &mut self.target {
            WordTarget::Ring(producer) => producer.capacity() - producer.space(),
            WordTarget::Socket(_) => 0,
        }
    }

    /// Words that the peer takes in a time, as it has lately; asked often by whoever wants to know.
    pub fn drained_in(&mut self, window: Duration, now: Instant) -> usize {
        let inside = to_u64(self.inside());
        self.drain.note(now, self.sent.saturating_sub(inside));
        self.drain.words_in(window)
    }

    /// Whether the peer took its last words on the CPU of the calling thread.
    pub fn shares_cpu(&self) -> bool {
        match &self.target {
            WordTarget::Ring(producer) => producer.shares_cpu(),
            WordTarget::Socket(_) => false,
        }
    }

    /// The peer's ring claims the impossible, or its socket's task is gone.
    pub fn is_broken(&self) -> bool {
        match &self.target {
            WordTarget::Ring(producer) => producer.is_corrupt(),
            WordTarget::Socket(sender) => sender.is_closed(),
        }
    }

    /// Moves what fits, in whole frames; says whether anything moved.
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
