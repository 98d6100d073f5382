//! A simulated worker: the real machine, a queue of words before it, and messages between workers that take time.
//!
//! The machine waits inside a collective until everything has arrived, and there are no threads here to wait in. So a
//! collective is *attempted*: where it would wait, the attempt is broken off, the messages that it has sent are noted and
//! its results are freed; when something has come, it is attempted anew. Machines are deterministic, so that each
//! attempt gets as far as the last one and then further.

use crate::engine::Toy;
use gt_protocol::message::{self, Failure, Message};
use gt_protocol::wire::{self, MESSAGE_CODE_FIRST};
use gt_protocol::{Family, Instruction, Op, Operand};
use gt_worker::{Cause, Front, Machine, PeerLost, Peers, Progress, Replies, Stream};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A message from one worker to another.
#[derive(Clone, Debug)]
pub enum Freight {
    Bytes(Vec<u8>),
    /// The sender's part has failed: the words of a failure message.
    Failure(Vec<u32>),
}

impl Freight {
    fn failure(cause: &Cause) -> Self {
        let mut words = Vec::new();
        if let Err(error) = message::encode(&Message::Failure(cause.message()), &mut words) {
            unreachable!("a cause has no binary form: {error}");
        }
        Self::Failure(words)
    }

    fn unpack(self) -> Result<Vec<u8>, Cause> {
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
    /// To other workers: whom, which message, what.
    pub parcels: Vec<(u32, Stream, Freight)>,
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
    mail: Mail,
    gone: BTreeSet<u32>,
    /// Tags of collectives that have failed here: what still comes under them is for nobody.
    ended: BTreeSet<u64>,
    /// Something has come since the last attempt.
    stirred: bool,
    /// Ticks for a turn: some workers are slow.
    pub ticks: u64,
    pub exchanges: u64,
}

/// Messages that have come, by sender.
type Mail = BTreeMap<(u32, Stream), VecDeque<Result<Vec<u8>, Cause>>>;

/// A collective that has begun, and what it has sent so far.
struct Waiting {
    frame: Vec<u32>,
    tag: Option<u64>,
    sent: BTreeSet<(u32, Stream)>,
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
            mail: Mail::new(),
            gone: BTreeSet::new(),
            ended: BTreeSet::new(),
            stirred: false,
            ticks,
            exchanges: 0,
        }
    }

    pub fn receive(&mut self, words: &[u32]) {
        self.inbox.extend_from_slice(words);
    }

    pub fn receive_parcel(&mut self, from: u32, stream: Stream, freight: Freight) {
        if !self.ended.contains(&stream.tag) {
            self.mail.entry((from, stream)).or_default().push_back(freight.unpack());
            let awaited = self.waiting.as_ref().and_then(|waiting| waiting.tag);
            self.stirred |= awaited == Some(stream.tag);
        }
    }

    pub fn peer_gone(&mut self, peer: u32) {
        self.gone.insert(peer);
        self.stirred = true;
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
            Some(waiting) => format!("worker {} waits in {:x?}", self.index, waiting.frame),
            None => format!("worker {}: {} words", self.index, self.inbox.len()),
        }
    }

    /// Executes up to `frames_max` instructions, or the exchange that it waits in once that can go on.
    pub fn turn(&mut self, frames_max: usize) -> Effects {
        let mut effects = Effects::default();
        if let Some(waiting) = self.waiting.take() {
            if !self.stirred {
                self.waiting = Some(waiting);
                return effects;
            }
            self.attempt(waiting, &mut effects);
            return effects;
        }
        let (length, exchanges) = self.next_frames(frames_max);
        if length == 0 {
            return effects;
        }
        let frames: Vec<u32> = self.inbox.drain(..length).collect();
        if exchanges {
            self.exchanges += 1;
            self.attempt(Waiting { frame: frames, tag: None, sent: BTreeSet::new() }, &mut effects);
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
        let mut outbox = Outbox::default();
        let mut peers = Attempt::new(&self.mail, &self.gone, BTreeSet::new());
        execute(&mut self.machine, frames, &mut outbox, &mut peers, effects);
        effects.words.append(&mut outbox.0);
    }

    fn attempt(&mut self, waiting: Waiting, effects: &mut Effects) {
        let Waiting { frame, sent, .. } = waiting;
        self.stirred = false;
        let mut outbox = Outbox::default();
        let mut peers = Attempt::new(&self.mail, &self.gone, sent);
        execute(&mut self.machine, &frame, &mut outbox, &mut peers, effects);
        let Attempt { sent, parcels, read, failed, off, tag, .. } = peers;
        effects.progress = !off || !parcels.is_empty();
        effects.parcels = parcels;
        if off {
            self.take_back(&frame, effects);
            self.waiting = Some(Waiting { frame, tag, sent });
            return;
        }
        effects.words.append(&mut outbox.0);
        for key in read.into_keys() {
            let emptied = self.mail.get_mut(&key).is_some_and(|mail| {
                mail.pop_front();
                mail.is_empty()
            });
            if emptied {
                self.mail.remove(&key);
            }
        }
        if let Some(tag) = failed {
            self.ended.insert(tag);
            self.mail.retain(|(_, stream), _| stream.tag != tag);
        }
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
}

fn execute(
    machine: &mut Machine<Toy>,
    frames: &[u32],
    outbox: &mut Outbox,
    peers: &mut Attempt<'_>,
    effects: &mut Effects,
) {
    match machine.run(frames, outbox, peers) {
        Ok(length) if length == frames.len() => {}
        other => effects.violation = Some(format!("a worker stopped: {other:?}")),
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

/// One attempt at a collective: what has come so far, and what went out in this attempt and in those before.
struct Attempt<'a> {
    mail: &'a Mail,
    gone: &'a BTreeSet<u32>,
    sent: BTreeSet<(u32, Stream)>,
    parcels: Vec<(u32, Stream, Freight)>,
    /// How much of each first message has been read; it stays where it is until the attempt is the last.
    read: BTreeMap<(u32, Stream), usize>,
    tag: Option<u64>,
    failed: Option<u64>,
    off: bool,
}

impl<'a> Attempt<'a> {
    fn new(mail: &'a Mail, gone: &'a BTreeSet<u32>, sent: BTreeSet<(u32, Stream)>) -> Self {
        let (parcels, read) = (Vec::new(), BTreeMap::new());
        Self { mail, gone, sent, parcels, read, tag: None, failed: None, off: false }
    }

    /// Sends a message, unless an earlier attempt has.
    fn put(&mut self, peer: u32, stream: Stream, freight: Freight) -> Result<(), PeerLost> {
        if self.sent.contains(&(peer, stream)) {
            return Ok(());
        }
        if self.gone.contains(&peer) {
            return Err(PeerLost(peer));
        }
        self.sent.insert((peer, stream));
        self.parcels.push((peer, stream, freight));
        Ok(())
    }
}

impl Peers for Attempt<'_> {
    fn begin(&mut self, tag: u64) {
        self.tag = Some(tag);
    }

    fn end(&mut self, tag: u64, well: bool) {
        self.failed = (!well && !self.off).then_some(tag);
    }

    fn poll(&mut self) {}

    fn push(
        &mut self,
        peer: u32,
        stream: Stream,
        progress: Progress,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Option<usize>, PeerLost> {
        if progress.to < progress.total {
            return Ok(None); // Messages travel whole here.
        }
        let mut bytes = vec![0; progress.total];
        fill(&mut bytes);
        self.put(peer, stream, Freight::Bytes(bytes)).map(|()| Some(progress.total))
    }

    fn fail(&mut self, peer: u32, stream: Stream, cause: &Cause) -> Result<bool, PeerLost> {
        self.put(peer, stream, Freight::failure(cause)).map(|()| true)
    }

    fn front(&self, peer: u32, stream: Stream) -> Result<Front<'_>, PeerLost> {
        let first = self.mail.get(&(peer, stream)).and_then(VecDeque::front);
        let read = self.read.get(&(peer, stream));
        match (first, read) {
            (None, _) if self.gone.contains(&peer) => Err(PeerLost(peer)),
            (None, _) => Ok(Front::Nothing),
            (Some(Err(cause)), _) => Ok(Front::Failure(cause)),
            (Some(Ok(bytes)), Some(&read)) if read == bytes.len() => Ok(Front::Nothing),
            (Some(Ok(bytes)), read) => {
                let total = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                let rest = bytes.get(read.copied().unwrap_or(0)..).unwrap_or_default();
                Ok(Front::Bytes { total, bytes: rest })
            }
        }
    }

    fn release(&mut self, peer: u32, stream: Stream, bytes: usize) {
        *self.read.entry((peer, stream)).or_default() += bytes;
    }

    fn wait(&mut self, _from: Option<u32>, _to: Option<u32>) -> bool {
        self.off = true;
        false
    }
}

/// Whether a worker's failure is one that no client can cause.
pub fn is_our_mistake(failure: &Failure<'_>) -> bool {
    use gt_protocol::message::FailureClass::{Internal, Protocol};
    matches!(failure.class, Internal | Protocol)
}
