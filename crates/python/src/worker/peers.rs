//! The other workers, each by a link of its own: what goes to them piece by piece, and what comes.

mod callers;
mod link;
mod piece;
mod slab;
mod tcp;

use callers::Callers;
use gt_protocol::message::Peer;
use gt_worker::{Cause, Front, PeerLost, Peers, Progress, Stream};
use link::Link;
use piece::{Head, Kept};
use slab::SlabLink;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tcp::TcpLink;

/// How long one wait sleeps: with several links to look at, none of them can be slept on for long. The peer's life is
/// looked at after each.
const NAP: Duration = Duration::from_millis(1);
/// Polled for so long before the first nap: a peer is mostly a few microseconds late.
const SPIN: Duration = Duration::from_micros(200);
/// A peer that an instruction names is introduced before it, but on another way; after so long it never will be.
const INTRODUCTION_MAX: Duration = Duration::from_mins(1);
/// Failed collectives whose stragglers are still thrown away. A straggler comes within the peers' next collectives; a
/// tag costs 8 bytes.
const ENDED_MAX: usize = 1024;

/// What the dispatcher says of other workers.
#[derive(Debug)]
pub enum Event {
    /// The slab to write to it, and the slab to read from it.
    Joined(u32, Vec<OwnedFd>),
    Gone(u32),
}

/// All other workers.
#[derive(Debug)]
pub struct WorkerPeers {
    links: BTreeMap<u32, Link>,
    gone: BTreeSet<u32>,
    events: Receiver<Event>,
    /// Pieces that came before the instruction that they are for. As many as other workers run ahead of us.
    kept: BTreeMap<(u32, Stream), VecDeque<Kept>>,
    /// The tag of the instruction that runs.
    current: Option<u64>,
    ended: VecDeque<u64>,
    idle_since: Option<Instant>,
    index: u32,
    callers: Callers,
}

impl WorkerPeers {
    /// The peers of the worker `index`, who takes connections of other hosts' workers at `listener`.
    pub fn new(index: u32, events: Receiver<Event>, listener: Option<TcpListener>) -> Self {
        Self {
            index,
            callers: Callers::new(listener),
            links: BTreeMap::new(),
            gone: BTreeSet::new(),
            events,
            kept: BTreeMap::new(),
            current: None,
            ended: VecDeque::new(),
            idle_since: None,
        }
    }

    /// Takes in what the dispatcher has said since. A link that cannot be mapped is a peer that cannot be reached.
    fn listen(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::Joined(peer, descriptors) => {
                    self.join(peer, SlabLink::new(descriptors).map(Link::Slab));
                }
                // What it has sent is still read.
                Event::Gone(peer) => {
                    self.gone.insert(peer);
                }
            }
        }
    }

    /// A new worker of this index; whatever is left of an earlier one is nobody's.
    fn join(&mut self, peer: u32, link: Option<Link>) {
        self.kept.retain(|(from, _), _| *from != peer);
        match link {
            Some(link) => {
                self.gone.remove(&peer);
                self.links.insert(peer, link);
            }
            None => {
                self.gone.insert(peer);
            }
        }
    }

    /// The link to a peer that lives; `None` while it is not introduced.
    fn link(&mut self, peer: u32) -> Result<Option<&mut Link>, PeerLost> {
        if self.gone.contains(&peer) {
            return Err(PeerLost(peer));
        }
        Ok(self.links.get_mut(&peer))
    }
}

impl Peers for WorkerPeers {
    fn introduce(&mut self, peer: &Peer<'_>) {
        if peer.address.is_empty() {
            self.gone.remove(&peer.index);
            self.links.remove(&peer.index);
            self.callers.expect(peer.index, peer.secret);
            return;
        }
        let stream = tcp::call(peer.address, self.index, &peer.secret);
        let link = stream.and_then(TcpLink::new).ok();
        self.join(peer.index, link.map(Link::Tcp));
    }

    fn begin(&mut self, tag: u64) {
        self.current = Some(tag);
        self.idle_since = None;
    }

    fn end(&mut self, tag: u64, well: bool) {
        self.current = None;
        if !well && !self.ended.contains(&tag) {
            self.kept.retain(|(_, stream), _| stream.tag != tag);
            if self.ended.len() == ENDED_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back(tag);
        }
    }

    fn poll(&mut self) {
        self.listen();
        for (peer, stream) in self.callers.arrived() {
            self.join(peer, TcpLink::new(stream).ok().map(Link::Tcp));
        }
        for (&peer, link) in &mut self.links {
            link.refresh();
            while let Some((head, bytes)) = link.front() {
                if self.current == Some(head.stream.tag) {
                    break;
                }
                if !self.ended.contains(&head.stream.tag) {
                    let kept = Kept::new(&head, bytes);
                    self.kept.entry((peer, head.stream)).or_default().push_back(kept);
                }
                link.release_all();
            }
            if link.is_broken() {
                self.gone.insert(peer);
            }
        }
    }

    fn push(
        &mut self,
        peer: u32,
        stream: Stream,
        progress: Progress,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Option<usize>, PeerLost> {
        let Some(link) = self.link(peer)? else { return Ok(None) };
        let total = u64::try_from(progress.total).unwrap_or(u64::MAX);
        let taken = link.push(&Head::bytes(stream, total), progress.to - progress.from, fill);
        if taken.is_some() {
            self.idle_since = None;
        }
        Ok(taken)
    }

    fn fail(&mut self, peer: u32, stream: Stream, cause: &Cause) -> Result<bool, PeerLost> {
        let words = piece::failure(cause);
        let Some(link) = self.link(peer)? else { return Ok(false) };
        let mut fill = |slot: &mut [u8]| slot.copy_from_slice(&words);
        Ok(link.push(&Head::failure(stream), words.len(), &mut fill).is_some())
    }

    fn front(&self, peer: u32, stream: Stream) -> Result<Front<'_>, PeerLost> {
        if let Some(kept) = self.kept.get(&(peer, stream)).and_then(VecDeque::front) {
            return Ok(kept.front());
        }
        let front = self.links.get(&peer).and_then(Link::current);
        match front {
            Some((head, front)) if head.stream == stream => Ok(front),
            _ if self.gone.contains(&peer) => Err(PeerLost(peer)),
            _ => Ok(Front::Nothing),
        }
    }

    fn release(&mut self, peer: u32, stream: Stream, bytes: usize) {
        self.idle_since = None;
        if let Some(pieces) = self.kept.get_mut(&(peer, stream)) {
            if pieces.front_mut().is_some_and(|first| first.release(bytes)) {
                pieces.pop_front();
            }
            if pieces.is_empty() {
                self.kept.remove(&(peer, stream));
            }
        } else if let Some(link) = self.links.get_mut(&peer) {
            link.release(bytes);
        }
    }

    fn wait(&mut self, from: Option<u32>, to: Option<u32>) -> bool {
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        if since.elapsed() < SPIN {
            gt_transport::yield_now();
            return true;
        }
        if let Some(link) = from.and_then(|peer| self.links.get_mut(&peer)) {
            link.wait_for_piece(NAP);
        } else if let Some(link) = to.and_then(|peer| self.links.get_mut(&peer)) {
            link.wait_for_room(NAP);
        } else {
            std::thread::sleep(NAP);
        }
        if since.elapsed() > INTRODUCTION_MAX {
            let unknown = from.into_iter().chain(to).filter(|peer| !self.links.contains_key(peer));
            self.gone.extend(unknown);
        }
        true
    }
}
