//! The other workers, each by a link of its own: what goes to them chunk by chunk, and what comes.

mod chunk;
mod early_chunks;
mod link;
mod slab;
mod tcp;

use chunk::{bytes_head, failure_head, message_of};
use early_chunks::EarlyChunks;
use gt_protocol::handshake::Secret;
use gt_protocol::message::{Peer, Reach};
use gt_transport::calls::{self, Callers};
use gt_transport::packing::PackingPolicy;
use gt_transport::tcp::Probes;
use gt_transport::{FutexWaker, Parked};
use gt_worker::{
    Cause, CopyBytes, Front, Incarnations, MessageId, PeerId, PeerLost, Peers, Progress,
};
use link::WorkerLink;
use slab::SlabLink;
use std::collections::{BTreeMap, VecDeque};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tcp::{PackedBytes, TcpLink, may_pack};

/// How long a sleep lasts at most: everything that could end it rings, so this only bounds what a lost wake-up would cost.
const PARK: Duration = Duration::from_millis(500);
/// The same while a worker of another host is to call, which is seen at a look only.
const NAP: Duration = Duration::from_millis(1);
/// A peer that an instruction names is introduced before it, but on another way; after so long it never will be.
const INTRODUCTION_MAX: Duration = Duration::from_mins(1);
/// Failed collectives whose stragglers are still thrown away. A straggler comes within the peers' next collectives; a
/// tag costs 8 bytes.
const ENDED_MAX: usize = 1024;
/// Bytes that are put aside before anybody waits for what is behind them. More stay on their way, and their sender waits.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// What the dispatcher says of other workers beside the instructions, and so earlier or later than those that mean them.
#[derive(Debug)]
pub enum PeerEvent {
    /// The slab to write to it, and the slab to read from it.
    Joined(PeerId, Vec<OwnedFd>),
    Gone(PeerId),
}

/// All other workers.
#[derive(Debug)]
pub struct WorkerPeers {
    links: BTreeMap<PeerId, WorkerLink>,
    incarnations: Incarnations,
    events: Receiver<PeerEvent>,
    /// Chunks that came before the instruction that they are for.
    kept: EarlyChunks,
    /// The tags of the instructions that are in flight.
    active: Vec<u64>,
    /// Those of them whose chunks stand first.
    heads: Vec<u64>,
    ended: VecDeque<u64>,
    /// Peers that are asked for and have not been introduced, and since when.
    unknown: BTreeMap<PeerId, Instant>,
    /// The dispatcher has introduced somebody since the last poll.
    is_changed: bool,
    /// Rung by threads that have something for us.
    waker: FutexWaker,
    index: u32,
    callers: Callers<Secret>,
    packing: PackingPolicy,
    packed: Arc<PackedBytes>,
    /// Of connections to workers of other hosts.
    probes: Probes,
}

impl WorkerPeers {
    /// The peers of the worker `index`, who takes connections of other hosts' workers at `listener`. Whoever sends an event
    /// wakes it.
    pub fn new(
        index: u32,
        events: Receiver<PeerEvent>,
        listener: Option<TcpListener>,
        waker: FutexWaker,
        packing: PackingPolicy,
        probes: Probes,
    ) -> Self {
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
            packing,
            probes,
            packed: Arc::default(),
        }
    }

    /// Bytes that have left for other hosts packed: before it, and as they left.
    pub fn packed_bytes(&self) -> [u64; 2] {
        self.packed.counts()
    }

    /// Whether what goes to a worker may be packed. Known from the moment that it is introduced, so that no number depends on
    /// when a connection is there.
    pub fn is_packed(&self, peer: PeerId) -> bool {
        match self.links.get(&peer) {
            Some(WorkerLink::Slab(_)) => false,
            Some(WorkerLink::Tcp(link)) => link.is_packed(),
            None => {
                let is_one_host = self.callers.is_loopback();
                self.callers.expects(peer.index) && may_pack(self.packing, is_one_host)
            }
        }
    }

    fn tcp(&self, socket: TcpStream) -> Option<WorkerLink> {
        let packed = Arc::clone(&self.packed);
        let link = TcpLink::new(socket, &self.waker, self.packing, packed, self.probes);
        link.ok().map(WorkerLink::Tcp)
    }

    /// Whether it has been introduced to no other worker.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Takes in what the dispatcher has said since; whether that was anything. A link that cannot be mapped is a peer that
    /// cannot be reached.
    fn listen(&mut self) -> bool {
        let mut has_events = false;
        while let Ok(event) = self.events.try_recv() {
            has_events = true;
            match event {
                PeerEvent::Joined(peer, descriptors) => {
                    self.join(peer, SlabLink::new(descriptors).map(WorkerLink::Slab));
                }
                // What it has sent is still read.
                PeerEvent::Gone(peer) => {
                    self.incarnations.lose(peer);
                }
            }
        }
        has_events
    }

    /// A new worker. Whoever had its index before is gone; what it has sent is still read.
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

    /// The link to a peer that lives; `None` while it is not introduced.
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

    /// The same to send something.
    fn outward(&mut self, peer: PeerId) -> Result<Option<&mut WorkerLink>, PeerLost> {
        match self.link(peer)? {
            Some(link) if link.is_cut() => Err(PeerLost(peer)),
            link => Ok(link),
        }
    }

    /// First half of a sleep: where it will be noticed that something comes, or that there is room where there was none, and
    /// how long the sleep may last; `None` where there is something already. Then, and after the sleep, call
    /// [`unpark`](Self::unpark).
    pub fn park(&mut self, words: &mut Vec<Parked>) -> Option<Duration> {
        self.waker.park();
        words.push(self.waker.parked());
        if self.listen() {
            return None;
        }
        // From one that breaks the rules nothing more is expected.
        for link in self.links.values_mut().filter(|link| !link.is_broken()) {
            if !link.park(words) {
                return None;
            }
        }
        Some(if self.callers.is_expecting() { NAP } else { PARK })
    }

    /// Second half.
    pub fn unpark(&mut self) {
        self.waker.unpark();
        self.links.values_mut().for_each(WorkerLink::unpark);
    }

    /// Puts the first chunk of a link aside.
    fn keep(&mut self, peer: PeerId) {
        let Some(link) = self.links.get_mut(&peer) else { return };
        if let Some((head, bytes)) = link.front() {
            self.kept.add(peer, &head, bytes);
            link.release_all();
        }
    }
}

/// Whether a chunk is of an instruction that will never begin here: it meant a worker that no new instruction means.
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
                let socket = calls::call(address, self.index, &secret.0);
                let link = socket.ok().and_then(|socket| self.tcp(socket));
                self.join(id, link);
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
        for (index, socket) in self.callers.arrived() {
            let link = self.tcp(socket);
            self.join(self.incarnations.current(index), link);
            is_news = true;
        }
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
        // Its memory and threads; one at each look.
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
            // Room aside for what was left on its way.
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
