//! The other workers of this host, by a ring each way.
//!
//! A parcel is five words (length in bytes, tag, kind) and its bytes, padded to whole words; a long one goes through
//! the ring in pieces. Workers trust each other: the dispatcher has introduced them.

use gt_protocol::message::{self, Message};
use gt_transport::{Consumer, Producer};
use gt_worker::{Cause, Parcel, PeerLost, Peers, Received};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Words before a parcel's bytes.
const HEADER_WORDS: usize = 5;
const KIND_BYTES: u32 = 0;
const KIND_FAILURE: u32 = 1;
/// A piece is at most this part of the ring, so that one side writes while the other reads.
const PIECES_PER_RING: usize = 4;
/// Words taken from a ring at a time: each link has its turn while a long parcel arrives.
const TAKE_WORDS_MAX: usize = 64 * 1024;
/// How long one wait sleeps: with several rings to look at, none of them can be slept on for long.
const NAP: Duration = Duration::from_millis(1);
/// Polled for so long before the first nap: a peer is mostly a few microseconds late.
const SPIN: Duration = Duration::from_micros(200);
/// A peer that an instruction names is introduced before it, but on another way; after so long it never will be.
const INTRODUCTION_MAX: Duration = Duration::from_mins(1);

/// What the dispatcher says of other workers.
#[derive(Debug)]
pub enum Event {
    /// The ring to write to it, and the ring to read from it.
    Joined(u32, Vec<OwnedFd>),
    Gone(u32),
}

/// One other worker.
#[derive(Debug)]
struct Link {
    to: Producer,
    from: Consumer,
    /// A parcel that is still arriving.
    arriving: Vec<u32>,
    /// Parcels that nobody has asked for yet, by tag. As many as instructions run ahead of ours.
    arrived: BTreeMap<u64, VecDeque<Received>>,
}

/// All other workers.
#[derive(Debug)]
pub struct RingPeers {
    links: BTreeMap<u32, Link>,
    gone: BTreeSet<u32>,
    events: Receiver<Event>,
}

/// A parcel on its way out.
struct Outgoing<'a> {
    peer: u32,
    head: [u32; HEADER_WORDS],
    bytes: &'a [u8],
    begun: bool,
    sent: usize,
}

impl RingPeers {
    pub fn new(events: Receiver<Event>) -> Self {
        Self { links: BTreeMap::new(), gone: BTreeSet::new(), events }
    }

    /// Takes in what the dispatcher has said since. A ring that cannot be mapped is a peer that cannot be reached.
    fn listen(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::Joined(peer, descriptors) => match Link::new(descriptors) {
                    Some(link) => {
                        self.gone.remove(&peer);
                        self.links.insert(peer, link);
                    }
                    None => {
                        self.gone.insert(peer);
                    }
                },
                Event::Gone(peer) => {
                    self.links.remove(&peer);
                    self.gone.insert(peer);
                }
            }
        }
    }

    /// Writes and reads what goes without waiting; true if anything moved.
    fn step(&mut self, outgoing: &mut [Outgoing<'_>]) -> bool {
        let mut moved = false;
        for parcel in outgoing.iter_mut().filter(|parcel| !parcel.is_done()) {
            if let Some(link) = self.links.get_mut(&parcel.peer) {
                moved |= parcel.push(&mut link.to);
            }
        }
        for link in self.links.values_mut() {
            moved |= link.pull();
        }
        moved
    }

    /// Whether nothing more is to be expected: everything is sent to, or here from, whoever is not gone.
    fn is_done(&self, tag: u64, outgoing: &[Outgoing<'_>], from: &[u32]) -> bool {
        let sent = |parcel: &Outgoing<'_>| parcel.is_done() || self.gone.contains(&parcel.peer);
        let here = |peer: &u32| {
            let link = self.links.get(peer);
            link.is_some_and(|link| link.arrived.contains_key(&tag)) || self.gone.contains(peer)
        };
        outgoing.iter().all(sent) && from.iter().all(here)
    }

    fn wait(&mut self, since: Instant, tag: u64, from: &[u32]) {
        if since.elapsed() < SPIN {
            gt_transport::yield_now();
            return;
        }
        let awaited = from
            .iter()
            .find(|peer| self.links.get(peer).is_some_and(|link| !link.arrived.contains_key(&tag)));
        match awaited.and_then(|peer| self.links.get_mut(peer)) {
            Some(link) => {
                link.from.wait(Duration::ZERO, NAP);
            }
            None => std::thread::sleep(NAP),
        }
        if since.elapsed() > INTRODUCTION_MAX {
            let unknown = from.iter().filter(|peer| !self.links.contains_key(peer));
            self.gone.extend(unknown);
        }
    }

    fn take(&mut self, peer: u32, tag: u64) -> Result<Received, PeerLost> {
        let link = self.links.get_mut(&peer).ok_or(PeerLost(peer))?;
        let waiting = link.arrived.get_mut(&tag).ok_or(PeerLost(peer))?;
        let received = waiting.pop_front().ok_or(PeerLost(peer))?;
        if waiting.is_empty() {
            link.arrived.remove(&tag);
        }
        Ok(received)
    }
}

impl Peers for RingPeers {
    fn exchange(
        &mut self,
        tag: u64,
        parcels: &[(u32, Parcel<'_>)],
        from: &[u32],
    ) -> Result<Vec<Received>, PeerLost> {
        let failures: Vec<Vec<u8>> = parcels.iter().map(|(_, parcel)| failure(parcel)).collect();
        let mut outgoing: Vec<Outgoing<'_>> = parcels
            .iter()
            .zip(&failures)
            .map(|((peer, parcel), failure)| Outgoing::new(*peer, tag, parcel, failure))
            .collect();
        let mut since = Instant::now();
        loop {
            self.listen();
            let moved = self.step(&mut outgoing);
            if self.is_done(tag, &outgoing, from) {
                break;
            }
            if moved {
                since = Instant::now();
            } else {
                self.wait(since, tag, from);
            }
        }
        // What has arrived is taken even if one peer is lost, or it would answer a later question under this tag.
        let received: Vec<_> = from.iter().map(|&peer| self.take(peer, tag)).collect();
        let unsent = outgoing.iter().find(|parcel| !parcel.is_done());
        match unsent {
            Some(parcel) => Err(PeerLost(parcel.peer)),
            None => received.into_iter().collect(),
        }
    }
}

impl Link {
    fn new(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let to = Producer::new(descriptors.next()?).ok()?;
        let from = Consumer::new(descriptors.next()?).ok()?;
        Some(Self { to, from, arriving: Vec::new(), arrived: BTreeMap::new() })
    }

    /// Takes what has come; true if there was anything.
    fn pull(&mut self) -> bool {
        let wanted = match frame_words(&self.arriving) {
            Some(words) => words - self.arriving.len(),
            None => HEADER_WORDS - self.arriving.len(),
        };
        let taken = self.from.read(&mut self.arriving, wanted.min(TAKE_WORDS_MAX));
        if frame_words(&self.arriving) == Some(self.arriving.len()) {
            if let Some((tag, received)) = parcel(&self.arriving) {
                self.arrived.entry(tag).or_default().push_back(received);
            }
            self.arriving.clear();
        }
        taken > 0
    }
}

impl<'a> Outgoing<'a> {
    fn new(peer: u32, tag: u64, parcel: &Parcel<'a>, failure: &'a [u8]) -> Self {
        let (kind, bytes) = match parcel {
            Parcel::Bytes(bytes) => (KIND_BYTES, *bytes),
            Parcel::Failure(_) => (KIND_FAILURE, failure),
        };
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let ([a, b], [c, d]) = (halves(length), halves(tag));
        Self { peer, head: [a, b, c, d, kind], bytes, begun: false, sent: 0 }
    }

    fn is_done(&self) -> bool {
        self.begun && self.sent == self.bytes.len()
    }

    /// Writes the next piece if it fits; true if it did.
    fn push(&mut self, ring: &mut Producer) -> bool {
        // Whole words, so that only the last piece is padded.
        let piece_max = ring.capacity() / PIECES_PER_RING * size_of::<u32>();
        let rest = self.bytes.get(self.sent..).unwrap_or_default();
        let piece = rest.get(..piece_max).unwrap_or(rest);
        let head: &[u32] = if self.begun { &[] } else { &self.head };
        let written = ring.write_with_bytes(head, piece);
        if written {
            self.begun = true;
            self.sent += piece.len();
        }
        written
    }
}

/// The words of a failure's message, as bytes; nothing for other parcels.
fn failure(parcel: &Parcel<'_>) -> Vec<u8> {
    let mut words = Vec::new();
    if let Parcel::Failure(cause) = parcel {
        // A cause has a form: its text is clipped.
        let _ = message::encode(&Message::Failure(cause.message()), &mut words);
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Words of the parcel that begins here, once its header is complete.
fn frame_words(words: &[u32]) -> Option<usize> {
    let (&[a, b, _, _, _], _) = words.split_first_chunk::<HEADER_WORDS>()?;
    let bytes = usize::try_from(joined(a, b)).ok()?;
    Some(HEADER_WORDS + bytes.div_ceil(size_of::<u32>()))
}

fn parcel(words: &[u32]) -> Option<(u64, Received)> {
    let (&[a, b, c, d, kind], body) = words.split_first_chunk::<HEADER_WORDS>()?;
    let tag = joined(c, d);
    if kind == KIND_FAILURE {
        return match message::decode(body) {
            Ok((Message::Failure(failure), _)) => Some((tag, Err(Cause::from(&failure)))),
            Ok(_) | Err(_) => None,
        };
    }
    let bytes: &[u8] = bytemuck::cast_slice(body);
    let length = usize::try_from(joined(a, b)).ok()?;
    Some((tag, Ok(bytes.get(..length)?.to_vec())))
}

/// Low word, high word.
fn halves(value: u64) -> [u32; 2] {
    let bytes = value.to_le_bytes();
    let (words, _) = bytes.as_chunks::<4>();
    let word = |place: usize| words.get(place).map_or(0, |word| u32::from_le_bytes(*word));
    [word(0), word(1)]
}

fn joined(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}
