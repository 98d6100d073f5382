//! Faults, and peers that join and leave.

use super::{Checked, ClientConnection, WorkerHost, World};
use crate::client::{BreachKind, Client};
use crate::framed::FramedEnd;
use crate::network::{NetworkEvent, Packet, Route};
use crate::random::Random;
use crate::worker::SimWorker;
use gt_worker::PeerId;

/// Maximum number of workers ever; a collective names eight at most.
const WORKERS_MAX: u32 = 12;
const CLIENTS_MAX: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    WorkerCrash,
    WorkerJoin,
    /// A worker crashes, and another one takes the index at once.
    WorkerReplace,
    WorkerStall,
    ClientCrash,
    ConnectionBreak,
    Newcomer,
    Hostile,
    Cancel,
}

/// Faults that may still occur in this simulation: not every seed has every kind.
#[derive(Debug)]
pub struct Faults {
    supply: Vec<FaultKind>,
    /// A fault occurs in one step of this many.
    rarity: u64,
}

impl Faults {
    pub fn draw(random: &mut Random, faults: bool) -> Self {
        let mut supply = Vec::new();
        let kinds = [
            (FaultKind::WorkerCrash, 50, 2),
            (FaultKind::WorkerJoin, 50, 2),
            (FaultKind::WorkerReplace, 40, 3),
            (FaultKind::WorkerStall, 40, 3),
            (FaultKind::ClientCrash, 40, 2),
            (FaultKind::ConnectionBreak, 60, 6),
            (FaultKind::Newcomer, 40, 2),
            (FaultKind::Hostile, 30, 2),
        ];
        for (kind, chance, most) in kinds {
            if random.percent(chance) && faults {
                for _ in 0..random.between(1, most) {
                    supply.insert(random.index(supply.len() + 1), kind);
                }
            }
        }
        Self { supply, rarity: random.between(20, 400) }
    }

    /// Adds cancels of clients.
    pub fn add_cancels(&mut self, random: &mut Random) {
        for _ in 0..random.between(1, 8) {
            self.supply.insert(random.index(self.supply.len() + 1), FaultKind::Cancel);
        }
        self.rarity = self.rarity.min(30);
    }
}

/// Entrance of a new worker.
#[derive(Clone, Copy, Debug)]
enum Entrance {
    /// At a place that is empty.
    Joins,
    /// In the place of one that the dispatcher had until now.
    Succeeds,
}

impl World {
    pub(super) fn maybe_fault(&mut self) -> Checked {
        if self.faults.supply.is_empty() || self.random.below(self.faults.rarity) != 0 {
            return Ok(());
        }
        let Some(fault) = self.faults.supply.pop() else { return Ok(()) };
        match fault {
            FaultKind::WorkerCrash => drop(self.crash_worker()),
            FaultKind::WorkerReplace => {
                let crashed = self.crash_worker();
                self.awaited.extend(crashed);
            }
            FaultKind::WorkerJoin => {
                self.join_worker();
                return self.flush();
            }
            FaultKind::WorkerStall => self.stall_worker(),
            FaultKind::ClientCrash => self.crash_client(),
            FaultKind::ConnectionBreak => self.break_connection(),
            FaultKind::Newcomer => self.add_client(false),
            FaultKind::Hostile => self.add_client(true),
            FaultKind::Cancel => self.cancel(),
        }
        Ok(())
    }

    pub(super) fn join_worker(&mut self) {
        let vacant: Vec<u32> = self.vacant.iter().copied().collect();
        if let Some(&index) = self.random.pick(&vacant)
            && self.random.percent(50)
        {
            return self.replace_worker(index);
        }
        let index = self.next_worker;
        if index < WORKERS_MAX {
            self.next_worker += 1;
            self.incarnations.insert(index, 0);
            self.add_worker(PeerId { index, incarnation: 0 }, Entrance::Joins);
        }
    }

    /// Starts another worker with the index of one that is gone.
    pub(super) fn replace_worker(&mut self, index: u32) {
        let id = self.next_incarnation(index);
        self.add_worker(id, Entrance::Joins);
    }

    /// Starts another worker with the index of one whose end the dispatcher learns at the same
    /// time: it makes the values of that one again.
    pub(super) fn succeed_worker(&mut self, index: u32) {
        let id = self.next_incarnation(index);
        self.add_worker(id, Entrance::Succeeds);
    }

    fn next_incarnation(&mut self, index: u32) -> PeerId {
        self.vacant.remove(&index);
        let incarnation = self.incarnations.entry(index).or_default();
        *incarnation += 1;
        PeerId { index, incarnation: *incarnation }
    }

    fn add_worker(&mut self, id: PeerId, arrival: Entrance) {
        let index = id.index;
        let slow = self.random.percent(15);
        let ticks = if slow { self.random.between(20, 60) } else { self.random.between(1, 4) };
        let mut worker = SimWorker::new(id, ticks, self.negotiates);
        for &gone in self.crashed.iter().filter(|gone| !self.workers.contains_key(gone)) {
            worker.peer_gone(PeerId { index: gone, incarnation: self.incarnations[&gone] });
        }
        let others: Vec<PeerId> = self.workers.values().map(|host| host.worker.id).collect();
        for &other in &others {
            self.network.send(Route::News(other.index), Packet::PeerJoined(id));
            self.network.send(Route::News(index), Packet::PeerJoined(other));
        }
        self.workers.insert(index, WorkerHost { worker, turn_due: false, busy_until: 0 });
        let now = self.network.now();
        self.shell.outputs.note(|| format!("# tick {now}: worker {index} joins"));
        match arrival {
            Entrance::Joins => self.shell.worker_joined(id, &others),
            Entrance::Succeeds => self.shell.worker_replaced(id, &others),
        }
    }

    pub(super) fn add_client(&mut self, hostile: bool) {
        let index = self.clients.len();
        if index >= CLIENTS_MAX {
            return;
        }
        let nonsense = self.random.percent(30);
        let breach = BreachKind::ALL[self.random.index(BreachKind::ALL.len())];
        let breach = if nonsense { BreachKind::Nonsense } else { breach };
        let steps = self.steps_per_client;
        let client = Client::new(
            index,
            &mut self.random,
            self.next_worker,
            steps,
            hostile.then_some(breach),
        );
        self.clients.push(ClientConnection {
            client,
            session: None,
            inbox: Vec::new(),
            near: FramedEnd::default(),
            far: FramedEnd::default(),
            is_broken: false,
            turn_due: false,
        });
        let ticks = self.random.below(200);
        self.network.after(ticks, NetworkEvent::Connect(index));
    }

    /// Crashes a worker; its packets in flight may still arrive, or not. Each peer learns of it at
    /// a different time.
    fn crash_worker(&mut self) -> Option<u32> {
        let indexes: Vec<u32> = self.workers.keys().copied().collect();
        let index = *self.random.pick(&indexes)?;
        let lost = self.workers.remove(&index)?.worker.id;
        self.crashed.insert(index);
        let now = self.network.now();
        self.shell.outputs.note(|| format!("# tick {now}: worker {index} crashes"));
        self.network.cut(Route::ToWorker(index));
        self.network.cut(Route::News(index));
        self.hang_up(Route::FromWorker(index), Packet::Closed);
        for peer in indexes.into_iter().filter(|&peer| peer != index) {
            self.network.cut(Route::Peer(peer, index));
            self.hang_up(Route::Peer(index, peer), Packet::PeerGone(lost));
        }
        Some(index)
    }

    fn hang_up(&mut self, route: Route, end: Packet) {
        if self.random.percent(50) {
            self.network.cut(route);
            if let Route::FromWorker(index) = route {
                // The rest of a message that was split in two.
                self.worker_words.remove(&index);
            }
        }
        self.network.send(route, end);
    }

    fn stall_worker(&mut self) {
        let indexes: Vec<u32> = self.workers.keys().copied().collect();
        let until = self.network.now() + self.random.between(100, 2000);
        if let Some(index) = self.random.pick(&indexes)
            && let Some(host) = self.workers.get_mut(index)
        {
            host.busy_until = until;
        }
    }

    /// Breaks a client's connection: everything in flight to and from it is lost; it comes back.
    fn break_connection(&mut self) {
        let client = self.random.index(self.clients.len());
        let connection = &mut self.clients[client];
        if connection.session.is_none() || connection.client.closed || connection.is_broken {
            return;
        }
        connection.is_broken = true;
        let now = self.network.now();
        self.shell
            .outputs
            .note(|| format!("# tick {now}: the connection of client {client} breaks"));
        self.network.cut(Route::FromClient(client));
        self.network.cut(Route::ToClient(client));
        let ticks = self.random.between(1, 400);
        self.network.after(ticks, NetworkEvent::Resume(client));
    }

    /// A client cancels what it has queued, and what it sends with the cancel.
    fn cancel(&mut self) {
        let client = self.random.index(self.clients.len());
        let connection = &mut self.clients[client];
        if connection.session.is_none() || connection.client.closed || connection.is_broken {
            return;
        }
        let mut words = connection.client.turn();
        words.extend(connection.client.cancel());
        let bytes = connection.near.send(words);
        let now = self.network.now();
        self.shell.outputs.note(|| format!("# tick {now}: client {client} cancels"));
        self.network.send(Route::FromClient(client), Packet::Bytes(bytes));
    }

    fn crash_client(&mut self) {
        let client = self.random.index(self.clients.len());
        let connection = &mut self.clients[client];
        if connection.session.is_none() || connection.client.closed {
            return;
        }
        connection.client.closed = true;
        let now = self.network.now();
        self.shell.outputs.note(|| format!("# tick {now}: client {client} crashes"));
        self.network.cut(Route::ToClient(client));
        self.hang_up(Route::FromClient(client), Packet::Closed);
        if self.random.percent(60) {
            // It comes back with a new session, because the old one's values are gone.
            self.add_client(false);
        }
    }
}
