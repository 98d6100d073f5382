//! One simulation: all events, in an order that follows from the seed.

mod clients;
mod faults;
mod rest;
mod shrink;

use crate::client::{Client, Evidence, ProgramLine};
use crate::framed::FramedEnd;
use crate::mistake::Mistake;
use crate::network::{Network, NetworkEvent, Packet, Route};
use crate::random::Random;
use crate::shell::{Detail, Shell};
use crate::worker::{SimWorker, is_our_mistake};
use faults::Faults;
use gt_dispatcher::{CostModel, SessionId};
use gt_protocol::message::{self, FromWorker};
use gt_protocol::wire::cut;
pub use shrink::shrink;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of steps: a simulation that takes more does not come to rest.
const STEPS_MAX: u64 = 400_000;

/// Participants of a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub enum Scenario<'a> {
    /// Several clients; workers join and leave.
    #[default]
    ManyClients,
    /// One client with layouts on workers that stay. It reads everything at its end.
    OneClient,
    /// One client that runs this program.
    Program(&'a [ProgramLine]),
}

/// Parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Simulation<'a> {
    pub seed: u64,
    /// Steps of each client; drawn if not given.
    pub steps: Option<u64>,
    pub faults: bool,
    /// True if clients cancel what they have queued, at random moments.
    pub cancels: bool,
    pub detail: Detail,
    /// Planted in the core's outputs, to be detected.
    pub mistake: Option<Mistake>,
    pub scenario: Scenario<'a>,
}

/// Counts of a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub steps: u64,
    pub ticks: u64,
    pub instructions: u64,
    pub exchanges: u64,
    pub answers: u64,
    pub failures: u64,
    pub crashes: u64,
    /// Number of answers that told that a value was cancelled.
    pub cancelled: u64,
    /// Number of workers that took the index of a crashed one.
    pub replaced: u64,
    pub breaches: u64,
    /// Number of broken connections that were resumed.
    pub resumed: u64,
    /// Number of instructions that ran together with an earlier one, on the workers at the end.
    pub joined: u64,
    pub sessions: usize,
}

impl Summary {
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.ticks += other.ticks;
        self.instructions += other.instructions;
        self.exchanges += other.exchanges;
        self.answers += other.answers;
        self.failures += other.failures;
        self.crashes += other.crashes;
        self.cancelled += other.cancelled;
        self.replaced += other.replaced;
        self.breaches += other.breaches;
        self.resumed += other.resumed;
        self.joined += other.joined;
        self.sessions += other.sessions;
    }
}

/// A violated rule.
#[derive(Clone, Debug, thiserror::Error)]
#[error("step {step}, tick {tick}: {text}")]
pub struct Violation {
    pub step: u64,
    pub tick: u64,
    pub text: String,
}

pub struct SimulationResult {
    pub result: Result<Summary, Violation>,
    pub trace: Vec<String>,
    /// The program, if there was a single client.
    pub program: Vec<ProgramLine>,
}

/// Runs one seed to its end.
pub fn simulate(config: &Simulation<'_>) -> SimulationResult {
    let mut world = World::new(config);
    let result = world.run();
    let (step, tick) = (world.step, world.network.now());
    let result = match result {
        Ok(()) => Ok(world.summary()),
        Err(text) => Err(Violation { step, tick, text }),
    };
    let program = world.clients.first().map(|connection| connection.client.lines().to_vec());
    let trace = std::mem::take(&mut world.shell.outputs.lines);
    SimulationResult { result, trace, program: program.unwrap_or_default() }
}

/// A client and its connection.
struct ClientConnection {
    client: Client,
    session: Option<SessionId>,
    /// Words from the dispatcher.
    inbox: Vec<u32>,
    /// The connection's two ends, and whether it is broken at present.
    near: FramedEnd,
    far: FramedEnd,
    is_broken: bool,
    turn_due: bool,
}

struct WorkerHost {
    worker: SimWorker,
    turn_due: bool,
    /// It does nothing before this tick.
    busy_until: u64,
}

struct World {
    random: Random,
    network: Network,
    shell: Shell,
    clients: Vec<ClientConnection>,
    workers: BTreeMap<u32, WorkerHost>,
    /// Words of workers that are incomplete so far.
    worker_words: BTreeMap<u32, Vec<u32>>,
    crashed: BTreeSet<u32>,
    /// Indices of crashed workers whose end the dispatcher knows: another worker may take them.
    vacant: BTreeSet<u32>,
    /// Indices of crashed workers that another worker is to take as soon as they are vacant.
    awaited: BTreeSet<u32>,
    /// Number of workers that had an index before the one that has it now, or had it last.
    incarnations: BTreeMap<u32, u32>,
    next_worker: u32,
    faults: Faults,
    steps_per_client: Option<u64>,
    /// True if collectives are negotiated before their bytes are sent.
    negotiates: bool,
    step: u64,
    exchanges: u64,
    breaches: u64,
    /// Number of broken connections that were resumed.
    resumed: u64,
}

/// [`Evidence`] for one session.
struct SessionEvidence<'a> {
    world: (&'a Shell, &'a BTreeSet<u32>),
    session: SessionId,
}

impl Evidence for SessionEvidence<'_> {
    fn lost(&self, number: u64) -> bool {
        self.world.0.accounts.was_on(self.session, number, self.world.1)
    }

    fn homeless(&self, number: u64) -> bool {
        self.world.0.accounts.was_homeless(self.session, number)
    }
}

type Checked = Result<(), String>;

impl World {
    fn new(config: &Simulation<'_>) -> Self {
        let mut random = Random::new(config.seed);
        let network = Network::new(random.fork());
        let many_clients = matches!(config.scenario, Scenario::ManyClients);
        let faults = Faults::draw(&mut random, config.faults && many_clients);
        let defaults = gt_dispatcher::Config::default();
        let core = gt_dispatcher::Config {
            // All tensors here are small: by default none would be deferred.
            defer_bytes_min: if config.seed.is_multiple_of(2) {
                0
            } else {
                defaults.defer_bytes_min
            },
            // Reduces partial values early for every third seed, else as the history expects.
            reduce_early: config.seed.is_multiple_of(3),
            fast_path: !config.seed.is_multiple_of(5),
        };
        let mut world = Self {
            network,
            shell: Shell::new(config.detail, core, config.mistake),
            clients: Vec::new(),
            workers: BTreeMap::new(),
            worker_words: BTreeMap::new(),
            crashed: BTreeSet::new(),
            vacant: BTreeSet::new(),
            awaited: BTreeSet::new(),
            incarnations: BTreeMap::new(),
            next_worker: 0,
            faults,
            steps_per_client: config.steps,
            negotiates: config.seed % 3 == 1,
            step: 0,
            exchanges: 0,
            breaches: 0,
            resumed: 0,
            random,
        };
        world.shell.dispatcher.set_cost_model(drawn_cost_model(config.seed));
        if config.cancels {
            world.faults.add_cancels(&mut world.random);
        }
        // Sometimes there are more workers than a collective can name.
        let many = world.random.percent(3);
        let most = if many_clients { 4 } else { 8 };
        let workers = if many { 10 } else { world.random.between(1, most) };
        for _ in 0..workers {
            world.join_worker();
        }
        if config.cancels && !many_clients && world.random.percent(70) {
            world.shell.alone = Some(world.next_worker);
        }
        let clients = if many_clients { world.random.between(1, 3) } else { 1 };
        for _ in 0..clients {
            world.add_client(false);
        }
        if let Some(connection) = world.clients.first_mut().filter(|_| !many_clients) {
            connection.client.keep_script(match config.scenario {
                Scenario::Program(lines) => Some(lines),
                Scenario::ManyClients | Scenario::OneClient => None,
            });
        }
        world
    }

    fn run(&mut self) -> Checked {
        self.flush()?;
        self.until_rest(true)?;
        self.check_rest()?;
        self.free_some();
        self.until_rest(false)?;
        self.check_rest()?;
        self.close_all();
        self.until_rest(false)?;
        self.check_end()
    }

    fn until_rest(&mut self, faults: bool) -> Checked {
        while let Some(event) = self.network.next() {
            self.step += 1;
            if self.step > STEPS_MAX {
                return Err(format!("no rest after {STEPS_MAX} steps"));
            }
            self.handle(event)?;
            if faults {
                self.maybe_fault()?;
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: NetworkEvent) -> Checked {
        match event {
            NetworkEvent::Connect(client) => self.connect(client),
            NetworkEvent::ClientTurn(client) => self.client_turn(client),
            NetworkEvent::WorkerTurn(index) => return self.worker_turn(index),
            NetworkEvent::Resume(client) => return self.resume_client(client),
            NetworkEvent::Succeed(index) => {
                self.succeed_worker(index);
                return self.after_death();
            }
            NetworkEvent::Arrive { route: Route::FromClient(client), packet } => {
                return self.receive_from_client(client, packet);
            }
            NetworkEvent::Arrive { route: Route::ToClient(client), packet } => {
                return self.receive_at_client(client, packet);
            }
            NetworkEvent::Arrive { route: Route::FromWorker(index), packet } => {
                return self.receive_from_worker(index, packet);
            }
            NetworkEvent::Arrive { route: Route::ToWorker(index), packet } => {
                if let (Some(host), Packet::Words(words)) = (self.workers.get_mut(&index), packet) {
                    host.worker.receive(&words);
                }
                self.wake_worker(index);
            }
            NetworkEvent::Arrive { route: Route::Peer(_, to) | Route::News(to), packet } => {
                if let Some(host) = self.workers.get_mut(&to) {
                    match packet {
                        Packet::PeerMessage { from, message, payload } => {
                            host.worker.receive_from_peer(from, message, payload);
                        }
                        Packet::PeerGone(peer) => host.worker.peer_gone(peer),
                        Packet::PeerJoined(peer) => host.worker.peer_joined(peer),
                        Packet::Words(_) | Packet::Bytes(_) | Packet::Closed => {
                            return Err("words between workers".to_owned());
                        }
                    }
                }
                self.wake_worker(to);
            }
        }
        Ok(())
    }

    fn wake_worker(&mut self, index: u32) {
        let now = self.network.now();
        let Some(host) = self.workers.get_mut(&index) else { return };
        if !host.turn_due && !host.worker.is_idle() {
            host.turn_due = true;
            let wait = host.busy_until.saturating_sub(now);
            self.network.after(host.worker.ticks + wait, NetworkEvent::WorkerTurn(index));
        }
    }

    /// Sends the core's outputs.
    fn flush(&mut self) -> Checked {
        if let Some(error) = self.shell.outputs.error.take() {
            return Err(error);
        }
        for _ in 0..std::mem::take(&mut self.shell.outputs.cancels) {
            self.workers.values_mut().for_each(|host| host.worker.announce_cancel());
        }
        for (worker, words) in std::mem::take(&mut self.shell.outputs.to_workers) {
            if self.workers.contains_key(&worker) {
                self.network.send(Route::ToWorker(worker), Packet::Words(words));
            }
        }
        for (session, words) in std::mem::take(&mut self.shell.outputs.to_sessions) {
            let Some(client) = self.shell.client_of(session) else {
                return Err(format!("a message for session {}, which is closed", session.0));
            };
            let connection = &mut self.clients[client];
            if !connection.client.closed {
                let bytes = connection.far.send(words);
                if !connection.is_broken {
                    self.network.send(Route::ToClient(client), Packet::Bytes(bytes));
                }
            }
        }
        Ok(())
    }

    fn receive_from_worker(&mut self, index: u32, packet: Packet) -> Checked {
        let Packet::Words(words) = packet else {
            self.worker_words.remove(&index);
            let is_awaited = self.awaited.remove(&index);
            if is_awaited && self.shell.alone.is_none() && self.step.is_multiple_of(4) {
                self.shell.worker_vacant(index);
                let ticks = self.random.between(1, 300);
                self.network.after(ticks, NetworkEvent::Succeed(index));
                return self.flush();
            }
            self.vacant.insert(index);
            if is_awaited && self.step.is_multiple_of(2) {
                self.succeed_worker(index);
            } else {
                self.shell.worker_left(index)?;
                if is_awaited {
                    self.replace_worker(index);
                }
            }
            return self.after_death();
        };
        let mut rest = self.worker_words.remove(&index).unwrap_or_default();
        rest.extend_from_slice(&words);
        let mut start = 0;
        let mut has_recovered = false;
        while let Some(length) = whole_length(&rest[start..])? {
            let (message, _) =
                message::decode(&rest[start..start + length]).map_err(|error| error.to_string())?;
            if let FromWorker::Failure(failure) | FromWorker::FailedReply { failure, .. } = &message
                && is_our_mistake(failure)
                && !self.is_nonsense(failure.session)
            {
                return Err(format!("worker {index} reports {failure:?}"));
            }
            self.shell.worker_says(index, message);
            has_recovered |= self.shell.finish_recovery()?;
            self.flush()?;
            start += length;
        }
        self.worker_words.insert(index, rest.split_off(start));
        if has_recovered {
            self.check_accounts()?;
            return self.take_in_all();
        }
        Ok(())
    }

    /// Goes on after a worker has left or come.
    fn after_death(&mut self) -> Checked {
        self.shell.finish_recovery()?;
        self.flush()?;
        self.check_accounts()?;
        self.take_in_all()
    }

    /// Returns true if this session's instructions have no meaning: its workers may report that.
    fn is_nonsense(&self, session: u32) -> bool {
        let client = self.shell.client_of(SessionId(session));
        client.is_none_or(|client| self.clients[client].client.emits_nonsense())
    }

    fn worker_turn(&mut self, index: u32) -> Checked {
        let (frames, lags) = (1 + self.random.index(8), self.random.percent(40));
        let Some(host) = self.workers.get_mut(&index) else { return Ok(()) };
        host.turn_due = false;
        let (from, effects) = (host.worker.id, host.worker.turn(frames, lags));
        if let Some(violation) = effects.violation {
            return Err(violation);
        }
        for (peer, message, payload) in effects.peer_messages {
            self.exchanges += 1;
            if self.workers.get(&peer.index).is_some_and(|host| host.worker.id == peer) {
                let packet = Packet::PeerMessage { from, message, payload };
                self.network.send(Route::Peer(index, peer.index), packet);
            }
        }
        if !effects.words.is_empty() {
            self.network.send(Route::FromWorker(index), Packet::Words(effects.words));
        }
        if effects.progress {
            self.wake_worker(index);
            return self.take_in_all();
        }
        Ok(())
    }

    /// Serves the sessions that waited for room, each in its turn.
    fn take_in_all(&mut self) -> Checked {
        for session in self.shell.sessions() {
            self.take_in(session)?;
        }
        Ok(())
    }
}

/// Prices drawn from the seed, for two seeds of three: every strategy is the cheapest under some of
/// them, so that each meets random operands and attributes.
fn drawn_cost_model(seed: u64) -> CostModel {
    let usual = CostModel::default();
    // Maximum bytes of a bucket.
    let bucket = [0, 64, 4096, usual.bucket]
        [usize::try_from(seed / 6 % 4).expect("a remainder of 4 fits usize")];
    if seed.is_multiple_of(3) {
        return CostModel { bucket, ..usual };
    }
    let mut random = Random::new(!seed);
    let mut drawn = |usual: f64| usual * [0.0, 1e-3, 1.0, 1e3][random.index(4)];
    CostModel {
        message: drawn(usual.message),
        byte: drawn(usual.byte),
        flop: drawn(usual.flop),
        touch: drawn(usual.touch),
        kernel: drawn(usual.kernel),
        bucket,
        ..usual
    }
}

/// Number of words of the first message, if it is complete.
fn whole_length(words: &[u32]) -> Result<Option<usize>, String> {
    let first = cut::first(words).map_err(|error| error.to_string())?;
    Ok(first.map(<[u32]>::len))
}
