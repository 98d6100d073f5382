//! Simulated time and links. A link keeps its order; messages on different links may overtake each
//! other.

use crate::random::Random;
use crate::worker::PeerPayload;
use gt_worker::{MessageId, PeerId};
use std::collections::BTreeMap;

/// Maximum ordinary delay of a link in ticks.
const LATENCY_MAX: u64 = 20;
/// Maximum delay of a hiccup in ticks.
const HICCUP_MAX: u64 = 300;

/// A one-way link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    FromClient(usize),
    ToClient(usize),
    FromWorker(u32),
    ToWorker(u32),
    /// From one worker to another.
    Peer(u32, u32),
    /// To a worker, news of others that have joined: earlier or later than the instructions that
    /// mean them.
    News(u32),
}

#[derive(Debug)]
pub enum Packet {
    /// A part of a worker's ring of words, split anywhere.
    Words(Vec<u32>),
    /// A part of a client's stream of bytes, split anywhere.
    Bytes(Vec<u8>),
    PeerMessage {
        from: PeerId,
        message: MessageId,
        payload: PeerPayload,
    },
    /// The other end is gone.
    Closed,
    /// The worker at the other end is gone.
    PeerGone(PeerId),
    PeerJoined(PeerId),
}

#[derive(Debug)]
pub enum NetworkEvent {
    Arrive {
        route: Route,
        packet: Packet,
    },
    Connect(usize),
    ClientTurn(usize),
    WorkerTurn(u32),
    /// A client whose connection broke has a new one.
    Resume(usize),
    /// Another worker takes the place of one that is gone, and whose values wait.
    Succeed(u32),
}

#[derive(Debug)]
struct LinkState {
    latency: u64,
    /// Time at which the last packet on it arrives.
    last: u64,
    words: usize,
    /// Number of times that the link was cut; packets sent before a cut do not arrive.
    cuts: u32,
}

/// All links, and all future events.
pub struct Network {
    random: Random,
    now: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), (NetworkEvent, u32)>,
    links: BTreeMap<Route, LinkState>,
}

impl Network {
    pub fn new(random: Random) -> Self {
        Self { random, now: 0, sequence: 0, queue: BTreeMap::new(), links: BTreeMap::new() }
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    /// Sends words or bytes in one or two parts, or any other packet as it is.
    pub fn send(&mut self, route: Route, packet: Packet) {
        match packet {
            Packet::Words(words) => self.send_parts(route, words, Packet::Words),
            Packet::Bytes(bytes) => self.send_parts(route, bytes, Packet::Bytes),
            Packet::PeerMessage { .. }
            | Packet::Closed
            | Packet::PeerGone(_)
            | Packet::PeerJoined(_) => self.transmit(route, packet),
        }
    }

    fn send_parts<T>(&mut self, route: Route, mut all: Vec<T>, packet: fn(Vec<T>) -> Packet) {
        if all.len() > 1 && self.random.percent(20) {
            let rest = all.split_off(1 + self.random.index(all.len() - 1));
            self.transmit(route, packet(all));
            all = rest;
        }
        self.transmit(route, packet(all));
    }

    fn transmit(&mut self, route: Route, packet: Packet) {
        let hiccup = if self.random.percent(2) { self.random.below(HICCUP_MAX) } else { 0 };
        let latency = self.random.between(1, LATENCY_MAX);
        let fresh = LinkState { latency, last: 0, words: 0, cuts: 0 };
        let link = self.links.entry(route).or_insert(fresh);
        let delay = self.random.between(1, link.latency) + hiccup;
        link.last = link.last.max(self.now + delay);
        link.words += length(&packet);
        let (at, cuts) = (link.last, link.cuts);
        self.schedule(at, NetworkEvent::Arrive { route, packet }, cuts);
    }

    /// Drops all packets in flight on a route.
    pub fn cut(&mut self, route: Route) {
        if let Some(link) = self.links.get_mut(&route) {
            link.cuts += 1;
            link.words = 0;
        }
    }

    /// Number of words in flight.
    pub fn in_flight(&self, route: Route) -> usize {
        self.links.get(&route).map_or(0, |link| link.words)
    }

    pub fn after(&mut self, ticks: u64, event: NetworkEvent) {
        self.schedule(self.now + ticks, event, 0);
    }

    fn schedule(&mut self, at: u64, event: NetworkEvent, cuts: u32) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), (event, cuts));
    }

    /// The next event; time advances to it.
    pub fn next(&mut self) -> Option<NetworkEvent> {
        while let Some(((at, _), (event, cuts))) = self.queue.pop_first() {
            self.now = at;
            if let NetworkEvent::Arrive { route, packet } = &event
                && let Some(link) = self.links.get_mut(route)
            {
                if link.cuts != cuts {
                    continue;
                }
                link.words = link.words.saturating_sub(length(packet));
            }
            return Some(event);
        }
        None
    }
}

fn length(packet: &Packet) -> usize {
    match packet {
        Packet::Words(words) => words.len(),
        Packet::Bytes(bytes) => bytes.len() / 4,
        Packet::PeerMessage { .. }
        | Packet::Closed
        | Packet::PeerGone(_)
        | Packet::PeerJoined(_) => 0,
    }
}
