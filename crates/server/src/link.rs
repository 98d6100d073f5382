//! The two directions of a connection as the core's thread uses them: a ring, or a channel from a
//! socket's task.

use crate::backlog::{Backlog, KEPT_WORDS};
use crate::death::LastInstruction;
use crate::journal::{Journal, Party, Sums};
use gt_protocol::handshake::FRAME_BYTES_MAX;
use gt_protocol::integer::to_u64;
use gt_protocol::message::count_cancels;
use gt_protocol::wire::{WireError, cut};
use gt_transport::slab::PAYLOAD_BYTES_MIN;
use gt_transport::{Consumer, HEAD_WORDS, Producer, SlabReader, SlabWriter};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
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
    /// Copies of its sockets, for a standby; `None` without one, and for a peer by TCP.
    pub sockets: Option<PeerSockets>,
}

/// Sockets of a peer by rings.
#[derive(Debug)]
pub(crate) struct PeerSockets {
    pub socket: OwnedFd,
    /// TCP connection on which it arrived, if it did.
    pub life_line: Option<OwnedFd>,
}

/// Payloads and chunks of answers that a peer puts into a slab. Each is copied before it is looked
/// at.
#[derive(Debug)]
pub(crate) struct SlabPayloads {
    slab: SlabReader,
    bytes: Vec<u8>,
    /// Number of bytes received in total.
    arrived: u64,
    journal: Option<Arc<Journal>>,
}

impl SlabPayloads {
    pub fn new(slab: SlabReader) -> Self {
        Self { slab, bytes: Vec::new(), arrived: 0, journal: None }
    }

    /// The next payload, and the offset that it was sent for; `None` if none has arrived.
    pub fn take(&mut self) -> Option<(u64, &[u8])> {
        if let Some(journal) = self.journal.as_ref().filter(|journal| journal.is_replaying())
            && let Some(offset) = journal.take_payload(&mut self.bytes)
        {
            self.slab.skip();
            self.arrived += to_u64(self.bytes.len());
            return Some((offset, &self.bytes));
        }
        let [low, high, ..] = self.slab.copy(&mut self.bytes)?;
        let offset = u64::from(low) | u64::from(high) << 32;
        if let Some(journal) = &self.journal {
            journal.payload(offset, &self.bytes);
        }
        self.slab.release();
        self.arrived += to_u64(self.bytes.len());
        Some((offset, &self.bytes))
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
    /// A connection of the dispatcher before this one.
    Gone,
}

/// Destination of words.
#[derive(Debug)]
pub(crate) enum WordTarget {
    Ring(Producer),
    Socket(mpsc::Sender<Vec<u32>>),
    /// A connection of the dispatcher before this one: words for it are dropped.
    Gone,
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
    journal: Option<(Arc<Journal>, Party)>,
    sockets: Option<PeerSockets>,
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
            journal: None,
            sockets: None,
        }
    }

    /// Notes in a journal what arrives from now on, and keeps the sockets for a standby.
    pub fn note_in(&mut self, journal: &Arc<Journal>, party: Party, sockets: Option<PeerSockets>) {
        self.journal = Some((Arc::clone(journal), party));
        self.sockets = sockets;
        if let Some(slab) = &mut self.slab {
            slab.journal = Some(Arc::clone(journal));
        }
    }

    /// Descriptors that a standby needs.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let waker = self.waker().map(|waker| waker.as_raw_fd());
        let sockets = self.sockets.as_ref().into_iter();
        let sockets = sockets.flat_map(|PeerSockets { socket, life_line }| {
            [Some(socket), life_line.as_ref()].into_iter().flatten().map(AsRawFd::as_raw_fd)
        });
        waker.into_iter().chain(sockets)
    }

    /// Copies of the sockets, for a new thread of sockets; `None` for a peer that is gone.
    pub fn sockets(&self) -> Option<std::io::Result<PeerSockets>> {
        let PeerSockets { socket, life_line } = self.sockets.as_ref()?;
        let life_line = life_line.as_ref().map(OwnedFd::try_clone).transpose();
        let copies = socket.try_clone().and_then(|socket| Ok((socket, life_line?)));
        Some(copies.map(|(socket, life_line)| PeerSockets { socket, life_line }))
    }

    /// Forgets the channel of a socket's task, which the standby does not have; returns true if
    /// there was one. It is not dropped: another thread may have held its lock at the fork.
    pub fn forget_channel(&mut self) -> bool {
        let is_socket = matches!(self.source, WordSource::Socket(_));
        if is_socket {
            std::mem::forget(std::mem::replace(&mut self.source, WordSource::Gone));
        }
        is_socket
    }

    /// Adds words that the process before this one has taken.
    pub fn replay(&mut self, words: &[u32]) {
        if let WordSource::Ring { consumer, .. } = &mut self.source {
            consumer.skip(words.len());
        }
        self.words.extend_from_slice(words);
        self.arrived += to_u64(words.len());
    }

    /// Goes on where the process before this one was: gives back what was taken.
    pub fn resume(&mut self) {
        if let WordSource::Ring { consumer, .. } = &mut self.source {
            consumer.release(0);
            consumer.park_end();
        }
        if let Some(slab) = &mut self.slab {
            slab.slab.resume();
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
            WordSource::Socket(_) | WordSource::Gone => None,
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
            WordSource::Gone => self.cancels_consumed,
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
            WordSource::Ring { consumer, .. } => {
                let before = self.words.len();
                let taken = consumer.copy(&mut self.words, REFILL_WORDS);
                if taken == 0 {
                    return false;
                }
                // Before their place is given back: a standby takes them from the journal.
                if let Some((journal, party)) = &self.journal {
                    journal.words(*party, self.words.get(before..).unwrap_or_default());
                }
                consumer.release(taken);
                true
            }
            WordSource::Gone => false,
            WordSource::Socket(receiver) => match receiver.try_recv() {
                Ok(words) => {
                    if let Some((journal, party)) = &self.journal {
                        journal.words(*party, &words);
                    }
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
            WordSource::Socket(_) | WordSource::Gone => false,
        }
    }

    pub fn waker(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            WordSource::Ring { waker, .. } => Some(waker.as_fd()),
            WordSource::Socket(_) | WordSource::Gone => None,
        }
    }

    /// Prepares a sleep: returns false if words are there already.
    pub fn sleep_begin(&mut self) -> bool {
        match &mut self.source {
            WordSource::Ring { consumer, .. } => consumer.park_begin(),
            WordSource::Socket(receiver) => receiver.is_empty(),
            WordSource::Gone => true,
        }
    }

    pub fn sleep_end(&mut self) {
        match &mut self.source {
            WordSource::Ring { consumer, .. } => consumer.park_end(),
            WordSource::Socket(_) | WordSource::Gone => {}
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
    cancel: oneshot::Sender<()>,
    published: Option<Published>,
}

/// Words that were published to a peer, as the journal counts them.
#[derive(Debug)]
struct Published {
    journal: Arc<Journal>,
    place: usize,
    sums: Sums,
}

/// Reason why a peer cannot be served on by a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mismatch {
    #[error("its ring has more words than the standby has for it")]
    Overshoot,
    #[error("its ring's counter is not the one that was stored there")]
    Counter,
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

impl Published {
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
        self.published = Some(Published { journal, place, sums });
        self.begin_place();
    }

    /// Place in the journal.
    pub fn place(&self) -> Option<usize> {
        self.published.as_ref().map(|published| published.place)
    }

    /// Writes down what has been published, whatever the journal has.
    pub fn begin_place(&self) {
        if let (WordTarget::Ring(producer), Some(published)) = (&self.target, &self.published) {
            let Published { journal, place, sums } = published;
            journal.begin_place(*place, producer.published(), sums);
        }
    }

    /// Takes a new end of the task that serves the peer's sockets. The one before is not dropped:
    /// its task's thread may have held a lock at the fork.
    pub fn replace_cancel(&mut self, cancel: oneshot::Sender<()>) {
        std::mem::forget(std::mem::replace(&mut self.cancel, cancel));
    }

    /// Forgets the channel of a socket's task, as [`Inbound::forget_channel`] does.
    pub fn forget_channel(&mut self) {
        if matches!(self.target, WordTarget::Socket(_)) {
            std::mem::forget(std::mem::replace(&mut self.target, WordTarget::Gone));
        }
    }

    /// Goes on where the process before this one was: leaves out what that has published.
    pub fn resume(&mut self) -> Result<(), Mismatch> {
        let WordTarget::Ring(producer) = &mut self.target else { return Ok(()) };
        let ahead = producer.published_in_header().wrapping_sub(producer.published());
        let mut ahead = usize::try_from(ahead).unwrap_or(usize::MAX);
        if ahead > self.backlog.len() {
            return Err(Mismatch::Overshoot);
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
                return Err(Mismatch::Counter);
            }
            known.sums = sums;
        }
        if !are_equal {
            return Err(Mismatch::Words);
        }
        if self.slab_down.as_mut().is_some_and(|slab| !slab.resume()) {
            return Err(Mismatch::Counter);
        }
        producer.wake();
        self.begin_place();
        Ok(())
    }

    /// Sends nothing more to a peer that cannot be served on.
    pub fn abandon(&mut self) {
        self.target = WordTarget::Gone;
        self.slab_down = None;
    }

    /// Puts bytes into the slab if they are many and there is room; returns true if so, and the
    /// words that name them must be sent next.
    pub fn send_beside(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some(slab) = self.slab_down.as_mut().filter(|_| bytes.len() >= PAYLOAD_BYTES_MIN)
        else {
            return false;
        };
        let journal = self.published.as_ref().map(|published| &published.journal);
        let is_replay = journal.is_some_and(|journal| journal.is_replaying());
        if is_replay && !journal.is_some_and(|journal| journal.take_beside()) {
            return false;
        }
        if is_replay && slab.skip() {
            return true;
        }
        let slot = slab.slot().and_then(|slot| slot.get_mut(..bytes.len()));
        let Some(slot) = slot else { return false };
        if let Some(journal) = journal.filter(|_| !is_replay) {
            journal.beside();
        }
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
            WordTarget::Socket(sender) => sender.is_closed(),
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
