//! A connection as the core's thread uses it: rings, or channels of a socket's task; and its inward
//! direction.

use crate::death::LastInstruction;
use crate::frames::{FrameSource, FrameTarget};
use crate::journal::{Journal, Party};
use crate::tokens::TokenLine;
use gt_protocol::handshake::{Capabilities, Secret};
use gt_protocol::integer::to_u64;
use gt_protocol::message::count_cancels;
use gt_protocol::wire::{WireError, cut};
use gt_transport::{Consumer, Producer, SlabReader, SlabWriter};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Words of a ring between the dispatcher and a client or worker: 256 KiB stay in the second-level cache.
pub(crate) const RING_WORDS: u32 = 1 << 16;
/// Words read from a ring at a time: one chunk of an upload and a few hundred small instructions.
const REFILL_WORDS: usize = 16 * 1024;
/// Words of a client on a socket that are taken while it is held back (16 MiB), so that a `cancel`
/// behind them is seen: some 500,000 instructions.
const AHEAD_WORDS_MAX: usize = 4 << 20;

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
    /// Whatever a standby needs besides; `None` without one.
    pub inherited: Option<InheritedPeer>,
}

/// Whatever a standby needs of a peer besides its rings or frames: copies that the core's thread
/// keeps.
#[derive(Debug)]
pub(crate) struct InheritedPeer {
    pub connection: InheritedConnection,
    /// Line of the token file that admits it, where there is such a file.
    pub line: Option<TokenLine>,
}

#[derive(Debug)]
pub(crate) enum InheritedConnection {
    Rings {
        socket: OwnedFd,
        /// TCP connection on which it arrived, if it did.
        life_line: Option<OwnedFd>,
    },
    /// A connection of TCP ends with its process, and the peer resumes it.
    Frames(Resumption),
}

/// Data by which a peer by frames resumes its link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumption {
    pub secret: Secret,
    pub capabilities: Capabilities,
    /// Address at which a worker accepts connections of other workers.
    pub data: Option<SocketAddr>,
}

impl InheritedPeer {
    /// Copies for a new thread of sockets.
    fn try_clone(&self) -> io::Result<Self> {
        let connection = match &self.connection {
            InheritedConnection::Rings { socket, life_line } => InheritedConnection::Rings {
                socket: socket.try_clone()?,
                life_line: life_line.as_ref().map(OwnedFd::try_clone).transpose()?,
            },
            InheritedConnection::Frames(resumption) => InheritedConnection::Frames(*resumption),
        };
        Ok(Self { connection, line: self.line.clone() })
    }

    /// Descriptors that a standby keeps.
    fn descriptors(&self) -> impl Iterator<Item = RawFd> + use<> {
        let pair = match &self.connection {
            InheritedConnection::Rings { socket, life_line } => {
                [Some(socket.as_raw_fd()), life_line.as_ref().map(AsRawFd::as_raw_fd)]
            }
            InheritedConnection::Frames(_) => [None, None],
        };
        pair.into_iter().flatten()
    }
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
    Socket(FrameSource),
}

/// Destination of words.
#[derive(Debug)]
pub(crate) enum WordTarget {
    Ring(Producer),
    Socket(FrameTarget),
    /// A peer that cannot be served on: words for it are dropped.
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
    inherited: Option<InheritedPeer>,
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
            inherited: None,
        }
    }

    /// Notes in a journal what arrives from now on, and keeps the rest for a standby.
    pub fn note_in(
        &mut self,
        journal: &Arc<Journal>,
        party: Party,
        inherited: Option<InheritedPeer>,
    ) {
        self.journal = Some((Arc::clone(journal), party));
        self.inherited = inherited;
        if let Some(slab) = &mut self.slab {
            slab.journal = Some(Arc::clone(journal));
        }
    }

    /// Descriptors that a standby needs.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let waker = self.waker().map(|waker| waker.as_raw_fd());
        let sockets = self.inherited.iter().flat_map(InheritedPeer::descriptors);
        waker.into_iter().chain(sockets)
    }

    /// Copies for a new thread of sockets; `None` for a peer that is gone.
    pub fn inherited(&self) -> Option<io::Result<InheritedPeer>> {
        self.inherited.as_ref().map(InheritedPeer::try_clone)
    }

    /// Frames of a socket's task; `None` for rings.
    pub fn frames(&mut self) -> Option<&mut FrameSource> {
        match &mut self.source {
            WordSource::Ring { .. } => None,
            WordSource::Socket(frames) => Some(frames),
        }
    }

    /// Adds words that the process before this one has taken.
    pub fn replay(&mut self, words: &[u32]) {
        match &mut self.source {
            WordSource::Ring { consumer, .. } => consumer.skip(words.len()),
            WordSource::Socket(frames) => {
                frames.replay();
                self.cancels_arrived = self.cancels_arrived.wrapping_add(count_cancels(words));
            }
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
        let is_low = |journal: &Option<(Arc<Journal>, Party)>| {
            journal.as_ref().is_some_and(|(journal, _)| journal.is_low())
        };
        // The loop ends: each round takes a frame of words.
        while self.words.len() - self.start < AHEAD_WORDS_MAX
            && !is_low(&self.journal)
            && self.refill()
        {}
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
            WordSource::Socket(frames) => {
                let note = |words: &[u32]| {
                    if let Some((journal, party)) = &self.journal {
                        journal.words(*party, words);
                    }
                };
                if let Some(words) = frames.take(note) {
                    self.cancels_arrived = self.cancels_arrived.wrapping_add(count_cancels(&words));
                    if self.words.is_empty() {
                        self.words = words;
                    } else {
                        self.words.extend_from_slice(&words);
                    }
                    return true;
                }
                false
            }
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
            WordSource::Socket(frames) => frames.is_empty(),
        }
    }

    pub fn sleep_end(&mut self) {
        match &mut self.source {
            WordSource::Ring { consumer, .. } => consumer.park_end(),
            WordSource::Socket(_) => {}
        }
    }
}
