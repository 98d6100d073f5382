//! A simulated worker: the real machine, a queue of words before it, and exchanges that take time.
//!
//! The machine's [`Peers`] returns when everything has arrived, and there are no threads here to wait in. So an
//! instruction that exchanges is *attempted*: at an exchange whose parcels are not there, the parcels it sends are
//! noted, the attempt is broken off and its results are freed; when the parcels have come, it is attempted anew with
//! the answers known so far. Machines are deterministic, so that each attempt gets one exchange further.

use crate::engine::Toy;
use gt_protocol::message::{self, Failure, Message};
use gt_protocol::wire::{self, MESSAGE_CODE_FIRST};
use gt_protocol::{Family, Instruction, Op, Operand};
use gt_worker::{Cause, Machine, Parcel, PeerLost, Peers, Received, Replies};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What one worker sends another, as it travels.
#[derive(Clone, Debug)]
pub enum Freight {
    Bytes(Vec<u8>),
    /// The words of a failure message.
    Failure(Vec<u32>),
}

impl Freight {
    fn pack(parcel: &Parcel<'_>) -> Self {
        match parcel {
            Parcel::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            Parcel::Failure(cause) => {
                let mut words = Vec::new();
                if let Err(error) = message::encode(&Message::Failure(cause.message()), &mut words)
                {
                    unreachable!("a cause has no binary form: {error}");
                }
                Self::Failure(words)
            }
        }
    }

    fn unpack(self) -> Received {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Failure(words) => match message::decode(&words) {
                Ok((Message::Failure(failure), _)) => Err(Cause::from(&failure)),
                other => unreachable!("a failure came back as {other:?}"),
            },
        }
    }
}

/// What a turn sends out.
#[derive(Default)]
pub struct Effects {
    /// To the dispatcher.
    pub words: Vec<u32>,
    /// To other workers: whom, tag, what.
    pub parcels: Vec<(u32, u64, Freight)>,
    pub progress: bool,
    /// What must not happen to a worker.
    pub violation: Option<String>,
}

pub struct SimWorker {
    pub index: u32,
    machine: Machine<Toy>,
    /// Words that the dispatcher has sent.
    inbox: Vec<u32>,
    waiting: Option<Waiting>,
    mail: BTreeMap<(u64, u32), VecDeque<Freight>>,
    gone: BTreeSet<u32>,
    /// Ticks for a turn: some workers are slow.
    pub ticks: u64,
    pub exchanges: u64,
}

/// An instruction in the middle of an exchange.
struct Waiting {
    frame: Vec<u32>,
    /// How its earlier exchanges ended.
    history: Vec<Result<Vec<Received>, PeerLost>>,
    asked: Asked,
}

/// What an exchange waits for.
#[derive(Clone, Debug)]
struct Asked {
    tag: u64,
    from: Vec<u32>,
    to: Vec<u32>,
}

impl SimWorker {
    pub fn new(index: u32, ticks: u64) -> Self {
        let mut machine = Machine::new(Toy);
        machine.set_index(index);
        Self {
            index,
            machine,
            inbox: Vec::new(),
            waiting: None,
            mail: BTreeMap::new(),
            gone: BTreeSet::new(),
            ticks,
            exchanges: 0,
        }
    }

    pub fn receive(&mut self, words: &[u32]) {
        self.inbox.extend_from_slice(words);
    }

    pub fn receive_parcel(&mut self, from: u32, tag: u64, freight: Freight) {
        self.mail.entry((tag, from)).or_default().push_back(freight);
    }

    pub fn peer_gone(&mut self, peer: u32) {
        self.gone.insert(peer);
    }

    /// Words not yet executed.
    pub fn backlog(&self) -> usize {
        self.inbox.len() + self.waiting.as_ref().map_or(0, |waiting| waiting.frame.len())
    }

    pub fn is_idle(&self) -> bool {
        self.backlog() == 0
    }

    /// Values and bytes that it holds.
    pub fn held(&self) -> (u64, u64) {
        let stats = self.machine.stats(0);
        (stats.values, stats.bytes)
    }

    pub fn describe(&self) -> String {
        match &self.waiting {
            Some(waiting) => format!("worker {} waits for {:?}", self.index, waiting.asked),
            None => format!("worker {}: {} words", self.index, self.inbox.len()),
        }
    }

    /// Executes up to `frames_max` instructions, or the exchange that it waits in once that can go on.
    pub fn turn(&mut self, frames_max: usize) -> Effects {
        let mut effects = Effects::default();
        if let Some(mut waiting) = self.waiting.take() {
            match self.arrived(&waiting.asked) {
                None => {
                    self.waiting = Some(waiting);
                    return effects;
                }
                Some(result) => waiting.history.push(result),
            }
            self.attempt(waiting.frame, waiting.history, &mut effects);
            return effects;
        }
        let (length, exchanges) = self.next_frames(frames_max);
        if length == 0 {
            return effects;
        }
        let frames: Vec<u32> = self.inbox.drain(..length).collect();
        if exchanges {
            self.exchanges += 1;
            self.attempt(frames, Vec::new(), &mut effects);
        } else {
            effects.progress = true;
            self.run(&frames, &mut effects);
        }
        effects
    }

    /// How many words the next frames have that run together, and whether it is one that exchanges.
    fn next_frames(&self, frames_max: usize) -> (usize, bool) {
        let mut length = 0;
        for frames in 0..frames_max {
            let rest = &self.inbox[length..];
            let Some(&first) = rest.first() else { break };
            let (code, words) = wire::halves(first);
            if usize::from(words) > rest.len() {
                break;
            }
            let exchanges = code < MESSAGE_CODE_FIRST
                && Op::from_code(code).is_some_and(|op| op.info().family == Family::Collective);
            if exchanges {
                return if frames == 0 { (usize::from(words), true) } else { (length, false) };
            }
            length += usize::from(words);
        }
        (length, false)
    }

    fn run(&mut self, frames: &[u32], effects: &mut Effects) {
        let mut peers = Replay { history: &[], next: 0, asked: None, parcels: Vec::new() };
        let mut outbox = Outbox::default();
        self.execute(frames, &mut outbox, &mut peers, effects);
        effects.words.append(&mut outbox.0);
    }

    fn execute(
        &mut self,
        frames: &[u32],
        outbox: &mut Outbox,
        peers: &mut Replay<'_>,
        effects: &mut Effects,
    ) {
        match self.machine.run(frames, outbox, peers) {
            Ok(length) if length == frames.len() => {}
            other => effects.violation = Some(format!("worker {} stopped: {other:?}", self.index)),
        }
    }

    fn attempt(
        &mut self,
        frame: Vec<u32>,
        history: Vec<Result<Vec<Received>, PeerLost>>,
        effects: &mut Effects,
    ) {
        effects.progress = true;
        let mut peers = Replay { history: &history, next: 0, asked: None, parcels: Vec::new() };
        let mut outbox = Outbox::default();
        self.execute(&frame, &mut outbox, &mut peers, effects);
        let Replay { asked, parcels, .. } = peers;
        let Some(asked) = asked else {
            effects.words.append(&mut outbox.0);
            return;
        };
        effects.parcels =
            parcels.into_iter().map(|(peer, freight)| (peer, asked.tag, freight)).collect();
        self.take_back(&frame, effects);
        self.waiting = Some(Waiting { frame, history, asked });
    }

    /// Frees what the attempt has left in its results' slots.
    fn take_back(&mut self, frame: &[u32], effects: &mut Effects) {
        let Ok((instruction, _)) = wire::decode(frame) else { return };
        if instruction.outputs.is_empty() {
            return;
        }
        let mut free = Instruction::new(Op::Free);
        free.operands.extend(instruction.outputs.iter().map(|&id| Operand::Value(id)));
        let mut words = Vec::new();
        if wire::encode(&free, &mut words).is_ok() {
            self.run(&words, effects);
        }
    }

    /// How the exchange ends, if everything is there or will never come.
    fn arrived(&mut self, asked: &Asked) -> Option<Result<Vec<Received>, PeerLost>> {
        let here =
            |peer: &u32| self.mail.get(&(asked.tag, *peer)).is_some_and(|mail| !mail.is_empty());
        let lost = |peer: &&u32| self.gone.contains(*peer) && !here(peer);
        let unreachable = asked.to.iter().find(|peer| self.gone.contains(*peer));
        if let Some(&peer) = asked.from.iter().find(lost).or(unreachable) {
            return Some(Err(PeerLost(peer)));
        }
        if !asked.from.iter().all(here) {
            return None;
        }
        let mut received = Vec::new();
        for peer in &asked.from {
            let key = (asked.tag, *peer);
            let mail = self.mail.get_mut(&key)?;
            received.push(mail.pop_front()?.unpack());
            if mail.is_empty() {
                self.mail.remove(&key);
            }
        }
        Some(Ok(received))
    }
}

#[derive(Default)]
struct Outbox(Vec<u32>);

impl Replies for Outbox {
    fn send(&mut self, message: &Message<'_>) {
        if let Err(error) = message::encode(message, &mut self.0) {
            unreachable!("a worker's message has no binary form: {error}");
        }
    }
}

/// Exchanges that have ended before, and the first that has not.
struct Replay<'a> {
    history: &'a [Result<Vec<Received>, PeerLost>],
    next: usize,
    asked: Option<Asked>,
    parcels: Vec<(u32, Freight)>,
}

impl Peers for Replay<'_> {
    fn exchange(
        &mut self,
        tag: u64,
        parcels: &[(u32, Parcel<'_>)],
        from: &[u32],
    ) -> Result<Vec<Received>, PeerLost> {
        if self.asked.is_none() {
            if let Some(result) = self.history.get(self.next) {
                self.next += 1;
                return result.clone();
            }
            let to = parcels.iter().map(|(peer, _)| *peer).collect();
            self.asked = Some(Asked { tag, from: from.to_vec(), to });
            self.parcels =
                parcels.iter().map(|(peer, parcel)| (*peer, Freight::pack(parcel))).collect();
        }
        Err(PeerLost(u32::MAX))
    }
}

/// Whether a worker's failure is one that no client can cause.
pub fn is_our_mistake(failure: &Failure<'_>) -> bool {
    use gt_protocol::message::FailureClass::{Internal, Protocol};
    matches!(failure.class, Internal | Protocol)
}
