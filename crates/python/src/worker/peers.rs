//! The other workers, each with its own link: chunks go out and come in over the links.

mod chunk;
mod early_chunks;
mod link;
mod slab;
mod tcp;

use chunk::{bytes_head, failure_head, message_of};
use early_chunks::EarlyChunks;
use gt_protocol::handshake::Secret;
use gt_protocol::message::{Peer, Reach};
use gt_transport::calls::{Callee, Callers, WorkerCall};
use gt_transport::packing::PackingPolicy;
use gt_transport::tcp::LinkLimits;
use gt_transport::{FutexWaker, Parked};
use gt_worker::{
    Cause, CopyBytes, Front, Incarnations, MessageId, PeerId, PeerLost, Peers, Progress,
};
use link::WorkerLink;
use slab::SlabLink;
use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tcp::{DataCaller, TcpLink, TcpSettings, may_pack};

/// Maximum duration of a sleep: everything that could end it wakes the sleeper, so this only bounds
/// the cost of a lost wake-up.
const PARK: Duration = Duration::from_millis(500);
/// Maximum duration of a sleep while a worker of another host is expected to connect, which only a
/// look at the listener shows.
const NAP: Duration = Duration::from_millis(1);
/// Interval between two looks at the listener while no worker is expected to call: one may have
/// found its connection broken that is sound on this side.
const LISTENER_LOOK: Duration = Duration::from_millis(100);
/// Time limit for the introduction of a peer that an instruction names. It is sent before the
/// instruction, but over another connection.
const INTRODUCTION_MAX: Duration = Duration::from_mins(1);
/// Maximum number of failed collectives whose late chunks are dropped. A late chunk arrives within
/// the peers' next collectives; a tag costs 8 bytes.
const ENDED_MAX: usize = 1024;
/// Maximum bytes that are set aside because nobody waits for them yet. Further chunks stay in the
/// link, and their sender waits.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// Events about other workers from the dispatcher. They come beside the instructions, and so may be
/// earlier or later than the instructions that name the workers.
#[derive(Debug)]
pub enum PeerEvent {
    /// A worker has joined: with the slab to write to it and the slab to read from it.
    Joined(PeerId, Vec<OwnedFd>),
    Gone(PeerId),
}

/// All other workers.
#[derive(Debug)]
pub struct WorkerPeers {
    links: BTreeMap<PeerId, WorkerLink>,
    incarnations: Incarnations,
    events: Receiver<PeerEvent>,
    /// Chunks that arrived before their instruction.
    kept: EarlyChunks,
    /// The tags of the instructions that are in flight.
    active: Vec<u64>,
    /// Tags among `active` whose chunks are first in a link.
    heads: Vec<u64>,
    ended: VecDeque<u64>,
    /// Peers that instructions named before their introduction, and the time of the first such
    /// instruction.
    unknown: BTreeMap<PeerId, Instant>,
    /// True if the dispatcher has introduced a worker since the last poll.
    is_changed: bool,
    /// Woken by threads that have an event or a chunk.
    waker: FutexWaker,
    index: u32,
    callers: Callers<Secret>,
    /// Settings of the links to workers of other hosts.
    settings: TcpSettings,
    /// Time of the last look at the listener.
    looked: Instant,
}

impl WorkerPeers {
    /// The peers of the worker `index`, which accepts connections of workers of other hosts at
    /// `listener`. The sender of an event must wake it.
    pub fn new(
        index: u32,
        events: Receiver<PeerEvent>,
        listener: Option<TcpListener>,
        waker: FutexWaker,
        packing: PackingPolicy,
        limits: LinkLimits,
    ) -> Self {
        let settings =
            TcpSettings { packing, packed: Arc::default(), limits, waker: waker.clone() };
        Self {
            index,
            callers: Callers::new(listener),
            links: BTreeMap::new(),
            incarnations: Incarnations::default(),
            events,
            kept: EarlyChunks::default(),
            active: Vec::new(),
            heads: Vec::new(),
            is_changed: false,
            ended: VecDeque::new(),
            unknown: BTreeMap::new(),
            waker,
            settings,
            looked: Instant::now(),
        }
    }

    /// Bytes of chunks to other hosts that were packed: before and after packing.
    pub fn packed_bytes(&self) -> [u64; 2] {
        self.settings.packed.counts()
    }

    /// Returns true if bytes to a worker may be packed. Known as soon as the worker is introduced,
    /// so that no result depends on the time of the connection.
    pub fn is_packed(&self, peer: PeerId) -> bool {
        match self.links.get(&peer) {
            Some(WorkerLink::Slab(_)) => false,
            Some(WorkerLink::Tcp(link)) => link.is_packed(),
            None => {
                let is_one_host = self.callers.is_loopback();
                self.callers.expects(peer.index) && may_pack(self.settings.packing, is_one_host)
            }
        }
    }

    /// Takes a call of another host's worker: its first, or one after its connection broke.
    fn answer(&mut self, call: WorkerCall) {
        let peer = self.incarnations.current(call.peer);
        match self.links.get_mut(&peer) {
            Some(WorkerLink::Tcp(link)) => {
                // A link that cannot go on has ended, and is lost as such.
                let _ = link.call_again(call.stream, call.received);
            }
            // Dropped: what it has received was sent by a link that is gone.
            _ if self.incarnations.is_gone(peer) || call.received > 0 => {}
            _ => {
                let link = TcpLink::called(call.stream, &self.settings);
                self.join(peer, link.ok().map(WorkerLink::Tcp));
            }
        }
    }

    /// Looks at the listener, if a worker may call; returns true if one has.
    fn look_for_calls(&mut self) -> bool {
        let mut is_expecting = self.callers.is_expecting();
        for link in self.links.values_mut() {
            is_expecting |= link.awaits_call();
        }
        let may_look = self.callers.has_admitted() && self.looked.elapsed() >= LISTENER_LOOK;
        if !is_expecting && !may_look {
            return false;
        }
        self.looked = Instant::now();
        let calls = self.callers.arrived();
        let has_calls = !calls.is_empty();
        for call in calls {
            self.answer(call);
        }
        has_calls
    }

    /// Returns true if no other worker has been introduced.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Takes in the dispatcher's events since the last call; returns true if there were any. A peer
    /// whose slab cannot be mapped is treated as unreachable.
    fn listen(&mut self) -> bool {
        let mut has_events = false;
        while let Ok(event) = self.events.try_recv() {
            has_events = true;
            match event {
                PeerEvent::Joined(peer, descriptors) => {
                    self.join(peer, SlabLink::new(descriptors).map(WorkerLink::Slab));
                }
                // Chunks that it has sent are still read.
                PeerEvent::Gone(peer) => {
                    self.incarnations.lose(peer);
                }
            }
        }
        has_events
    }

    /// Adds a new worker. The worker that had its index before is gone; chunks that it has sent are
    /// still read.
    fn join(&mut self, peer: PeerId, link: Option<WorkerLink>) {
        self.unknown.remove(&peer);
        self.incarnations.lose_earlier(peer);
        match link {
            Some(link) => {
                self.links.insert(peer, link);
            }
            None => {
                self.incarnations.lose(peer);
            }
        }
    }

    /// The link to a live peer; `None` while it is not introduced.
    fn link(&mut self, peer: PeerId) -> Result<Option<&mut WorkerLink>, PeerLost> {
        if self.incarnations.is_gone(peer) {
            return Err(PeerLost(peer));
        }
        let link = self.links.get_mut(&peer);
        if link.is_none() {
            self.unknown.entry(peer).or_insert_with(Instant::now);
        }
        Ok(link)
    }

    /// The link to a live peer that can still be written to.
    fn outward(&mut self, peer: PeerId) -> Result<Option<&mut WorkerLink>, PeerLost> {
        match self.link(peer)? {
            Some(link) if link.is_cut() => Err(PeerLost(peer)),
            link => Ok(link),
        }
    }

    /// First half of a sleep: adds the words at which a new chunk, or new room, will be noticed,
    /// and returns the maximum duration; `None` where there is something already. Then, and after
    /// the sleep, call [`unpark`](Self::unpark).
    pub fn park(&mut self, words: &mut Vec<Parked>) -> Option<Duration> {
        self.waker.park();
        words.push(self.waker.parked());
        if self.listen() {
            return None;
        }
        // Nothing more is expected from a peer that broke the protocol.
        for link in self.links.values_mut().filter(|link| !link.is_broken()) {
            if !link.park(words) {
                return None;
            }
        }
        let awaits_call = self.links.values_mut().any(WorkerLink::awaits_call);
        Some(if awaits_call || self.callers.is_expecting() { NAP } else { PARK })
    }

    /// Second half of a sleep.
    pub fn unpark(&mut self) {
        self.waker.unpark();
        self.links.values_mut().for_each(WorkerLink::unpark);
    }

    /// Sets the first chunk of a link aside.
    fn keep(&mut self, peer: PeerId) {
        let Some(link) = self.links.get_mut(&peer) else { return };
        if let Some((head, bytes)) = link.front() {
            self.kept.add(peer, &head, bytes);
            link.release_all();
        }
    }
}

/// Returns true if a chunk belongs to an instruction that will never begin here: it meant an
/// earlier worker of this index, which no new instruction means.
fn is_late(incarnations: &Incarnations, active: &[u64], from: PeerId, tag: u64) -> bool {
    incarnations.is_past(from) && !active.contains(&tag)
}

impl Peers for WorkerPeers {
    fn introduce(&mut self, peer: &Peer<'_>) {
        self.is_changed = true;
        let id = PeerId { index: peer.index, incarnation: peer.incarnation };
        self.incarnations.set_current(id);
        self.callers.forget(id.index);
        let Self { incarnations, active, .. } = self;
        self.kept.forget(|from, message| is_late(incarnations, active, from, message.tag));
        match peer.reach {
            Reach::Memory => {}
            Reach::Calls { secret } => self.callers.expect(id.index, secret),
            Reach::Listens { secret, address } => {
                let callee =
                    Callee { address: address.to_owned(), index: self.index, secret: secret.0 };
                let caller = DataCaller::new(callee, self.settings.limits);
                let link = caller.and_then(|caller| TcpLink::calling(caller, &self.settings));
                self.join(id, link.ok().map(WorkerLink::Tcp));
            }
        }
    }

    fn begin(&mut self, tag: u64) {
        self.active.push(tag);
    }

    fn pause(&mut self, tag: u64) {
        self.active.retain(|&active| active != tag);
    }

    fn end(&mut self, tag: u64, well: bool) {
        self.active.retain(|&active| active != tag);
        if !well && !self.ended.contains(&tag) {
            self.kept.forget(|_, message| message.tag == tag);
            if self.ended.len() == ENDED_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back(tag);
        }
    }

    fn poll(&mut self) -> bool {
        let mut is_news = self.listen() | std::mem::take(&mut self.is_changed);
        is_news |= self.look_for_calls();
        self.heads.clear();
        let mut drained = None;
        for (&peer, link) in &mut self.links {
            is_news |= link.has_room_again();
            link.refresh();
            while let Some((head, bytes)) = link.front() {
                let tag = message_of(&head).tag;
                if self.active.contains(&tag) {
                    self.heads.push(tag);
                    break;
                }
                let is_late = is_late(&self.incarnations, &self.active, peer, tag);
                if !is_late && !self.ended.contains(&tag) {
                    if self.kept.bytes() >= KEPT_BYTES_MAX {
                        break;
                    }
                    self.kept.add(peer, &head, bytes);
                }
                link.release_all();
            }
            if link.is_broken() {
                is_news |= self.incarnations.lose(peer);
            }
            if link.is_drained() && self.incarnations.is_gone(peer) {
                drained = Some(peer);
            }
        }
        // Removes its memory and threads; one link at each look.
        drained.and_then(|peer| self.links.remove(&peer));
        if !self.unknown.is_empty() {
            let late = |since: &Instant| since.elapsed() > INTRODUCTION_MAX;
            let late: Vec<PeerId> = self
                .unknown
                .iter()
                .filter(|(_, since)| late(since))
                .map(|(&peer, _)| peer)
                .collect();
            self.unknown.retain(|peer, _| !late.contains(peer));
            is_news |= !late.is_empty();
            for peer in late {
                self.incarnations.lose(peer);
            }
        }
        is_news
    }

    fn has_come(&self, tag: u64) -> bool {
        self.heads.contains(&tag)
    }

    fn push(
        &mut self,
        peer: PeerId,
        message: MessageId,
        progress: Progress,
        fill: &mut dyn FnMut(&mut [u8], CopyBytes),
    ) -> Result<Option<usize>, PeerLost> {
        let Some(link) = self.outward(peer)? else { return Ok(None) };
        let total = u64::try_from(progress.total).expect("usize has 64 bits");
        Ok(link.push(&bytes_head(message, total), progress.to - progress.from, fill))
    }

    fn fail(&mut self, peer: PeerId, message: MessageId, cause: &Cause) -> Result<bool, PeerLost> {
        let words = chunk::failure(cause);
        let Some(link) = self.outward(peer)? else { return Ok(false) };
        let mut fill = |slot: &mut [u8], copy: CopyBytes| copy(slot, &words);
        Ok(link.push(&failure_head(message), words.len(), &mut fill).is_some())
    }

    fn front(&self, peer: PeerId, message: MessageId) -> Result<Front<'_>, PeerLost> {
        if let Some(kept) = self.kept.first(peer, message) {
            return Ok(kept.front());
        }
        let front = self.links.get(&peer).and_then(WorkerLink::current);
        match front {
            Some((head, front)) if message_of(&head) == message => Ok(front),
            _ if self.incarnations.is_gone(peer) => Err(PeerLost(peer)),
            _ => Ok(Front::Nothing),
        }
    }

    fn release(&mut self, peer: PeerId, message: MessageId, bytes: usize) {
        if self.kept.release(peer, message, bytes) {
            // Its room is free for chunks that are still in the link.
            return;
        }
        if let Some(link) = self.links.get_mut(&peer) {
            link.release(bytes);
        }
    }

    fn clear(&mut self, peer: PeerId, message: MessageId) -> bool {
        if self.kept.first(peer, message).is_some() || !matches!(self.link(peer), Ok(Some(_))) {
            return false;
        }
        let mut moved = false;
        while let Some((head, _)) = self.links.get(&peer).and_then(WorkerLink::front)
            && message_of(&head) != message
        {
            self.keep(peer);
            moved = true;
        }
        moved
    }
}
