//! A simulated worker: the real machine and its stream, a queue of words before it, and messages
//! between workers that take time. There are no threads here: the stream advances between
//! instructions, or only when nothing else is left to do, by a random choice. A machine that waits
//! for a collective leaves its instruction for a later turn.

use crate::engine::{BorrowedTensors, ToyEngine};
use crate::exact::exact;
use gt_protocol::message::{self, Failure, FromWorker, Peer};
use gt_protocol::wire;
use gt_worker::{
    Abort, Cause, CommunicationStream, CopyBytes, Driver, Ended, Front, Incarnations, Job, Machine,
    MessageId, PeerId, PeerLost, Peers, Progress, Replies,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A message from one worker to another.
#[derive(Clone, Debug)]
pub enum PeerPayload {
    Bytes(Vec<u8>),
    /// The sender's part has failed: the words of a failure message.
    Failure(Vec<u32>),
}

impl PeerPayload {
    fn failure(cause: &Cause) -> Self {
        let mut words = Vec::new();
        if let Err(error) = message::encode(&FromWorker::Failure(cause.message()), &mut words) {
            unreachable!("a cause has no binary form: {error}");
        }
        Self::Failure(words)
    }

    fn unpack(self) -> Result<Vec<u8>, Cause> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Failure(words) => match message::decode(&words) {
                Ok((FromWorker::Failure(failure), _)) => Err(Cause::from(&failure)),
                other => unreachable!("a failure came back as {other:?}"),
            },
        }
    }
}

/// Outputs of a turn.
#[derive(Default)]
pub struct Effects {
    /// Words to the dispatcher.
    pub words: Vec<u32>,
    /// Messages to other workers: receiver, message id, payload.
    pub peer_messages: Vec<(PeerId, MessageId, PeerPayload)>,
    pub progress: bool,
    /// Violation of a rule by the worker.
    pub violation: Option<String>,
}

pub struct SimWorker {
    pub id: PeerId,
    machine: Machine<ToyEngine>,
    stream: SimStream,
    /// Words from the dispatcher.
    inbox: Vec<u32>,
    /// Duration of a turn in ticks: some workers are slow.
    pub ticks: u64,
    is_new: bool,
    /// Number of cancels that the dispatcher has announced.
    announced: u32,
}

/// Messages that have arrived, by sender.
type PeerMessages = BTreeMap<(PeerId, MessageId), VecDeque<Result<Vec<u8>, Cause>>>;

impl SimWorker {
    pub fn new(id: PeerId, ticks: u64, negotiates: bool) -> Self {
        let mut machine = Machine::new(ToyEngine { negotiates });
        machine.set_index(id.index);
        let stream =
            SimStream { stream: CommunicationStream::new(SimPeers::default()), lags: false };
        Self { id, machine, stream, inbox: Vec::new(), ticks, is_new: true, announced: 0 }
    }

    pub fn receive(&mut self, words: &[u32]) {
        self.inbox.extend_from_slice(words);
    }

    pub fn receive_from_peer(&mut self, from: PeerId, message: MessageId, payload: PeerPayload) {
        let peers = self.stream.stream.peers_mut();
        if !peers.ended.contains(&message.tag) {
            peers.messages.entry((from, message)).or_default().push_back(payload.unpack());
        }
    }

    pub fn peer_gone(&mut self, peer: PeerId) {
        let peers = self.stream.stream.peers_mut();
        peers.has_news |= peers.incarnations.lose(peer);
    }

    pub fn peer_joined(&mut self, peer: PeerId) {
        let peers = self.stream.stream.peers_mut();
        peers.has_news |= peers.incarnations.lose_earlier(peer) | peers.joined.insert(peer);
    }

    /// Announces a cancel, whose message may be behind many words.
    pub fn announce_cancel(&mut self) {
        self.announced += 1;
    }

    /// Number of words not yet executed.
    pub fn backlog(&self) -> usize {
        self.inbox.len()
    }

    pub fn is_idle(&self) -> bool {
        self.backlog() == 0 && !self.stream.stream.is_busy() && !self.stream.stream.has_ended()
    }

    /// Number of its values, and their bytes.
    pub fn held(&self) -> (u64, u64) {
        let stats = self.machine.stats(0);
        (stats.values, stats.bytes)
    }

    pub fn joined(&self) -> u64 {
        self.machine.stats(0).joined
    }

    pub fn describe(&self) -> String {
        let stream = if self.stream.stream.is_busy() { "a busy" } else { "an idle" };
        format!("worker {}: {stream} stream, then {:x?}", self.id.index, self.inbox)
    }

    /// Executes up to `frames_max` instructions. A stream that `lags` advances only if one of them
    /// waits for it, or if there are none.
    pub fn turn(&mut self, frames_max: usize, lags: bool) -> Effects {
        let mut effects = Effects::default();
        let mut outbox = WorkerOutbox { words: Vec::new(), announced: self.announced };
        if std::mem::take(&mut self.is_new) {
            self.machine.announce(false, &mut outbox);
        }
        self.stream.lags = lags;
        if !lags {
            effects.progress |= self.stream.move_on();
        }
        let length = self.next_frames(frames_max);
        let frames = &self.inbox[..length];
        match self.machine.run(frames, &mut outbox, &mut self.stream) {
            Ok(frames) => {
                self.inbox.drain(..frames);
                effects.progress |= frames > 0;
                if frames == 0 {
                    effects.progress |= self.stream.move_on();
                }
            }
            Err(stop) => effects.violation = Some(format!("a worker stopped: {stop:?}")),
        }
        self.machine.catch_up(&mut outbox, &mut self.stream);
        effects.words = outbox.words;
        effects.peer_messages = std::mem::take(&mut self.stream.stream.peers_mut().peer_messages);
        effects
    }

    /// Number of words of the next frames.
    fn next_frames(&self, frames_max: usize) -> usize {
        let mut length = 0;
        for _ in 0..frames_max {
            let rest = &self.inbox[length..];
            let Some(&first) = rest.first() else { break };
            let (_, words) = wire::halves(first);
            if usize::from(words) > rest.len() {
                break;
            }
            length += usize::from(words);
        }
        length
    }
}

/// A stream without a thread.
struct SimStream {
    stream: CommunicationStream<SimPeers, BorrowedTensors>,
    lags: bool,
}

impl SimStream {
    /// Advances as far as possible; returns true if anything moved.
    fn move_on(&mut self) -> bool {
        let mut moved = false;
        while self.stream.pass() || self.stream.pass_over_all() {
            moved = true;
        }
        moved
    }
}

impl Driver<BorrowedTensors> for SimStream {
    fn introduce(&mut self, peer: &Peer<'_>) {
        self.stream.peers_mut().introduce(peer);
    }

    fn submit(&mut self, job: Job<BorrowedTensors>) -> Option<Ended<BorrowedTensors>> {
        self.stream.submit(job)
    }

    fn abort(&mut self, abort: Abort) {
        self.stream.abort(abort);
    }

    fn ended(&mut self) -> Option<Ended<BorrowedTensors>> {
        if !self.lags {
            self.stream.pass();
        }
        self.stream.take_ended()
    }

    fn wait(&mut self, ticket: u64) -> bool {
        self.stream.wait(ticket)
    }

    fn doze(&mut self, times: u32) {
        self.stream.doze(times);
    }

    fn is_gone(&mut self, peer: PeerId) -> bool {
        self.stream.is_gone(peer)
    }
}

struct WorkerOutbox {
    words: Vec<u32>,
    announced: u32,
}

impl Replies for WorkerOutbox {
    fn announced(&self) -> u32 {
        self.announced
    }

    fn send(&mut self, message: &FromWorker<'_>) {
        if let Err(error) = message::encode(message, &mut self.words) {
            unreachable!("a worker's message has no binary form: {error}");
        }
    }
}

/// Messages from other workers, and messages to them.
#[derive(Debug, Default)]
struct SimPeers {
    messages: PeerMessages,
    /// Number of bytes read of each first message.
    read: BTreeMap<(PeerId, MessageId), usize>,
    incarnations: Incarnations,
    /// Workers that can be sent messages.
    joined: BTreeSet<PeerId>,
    /// True if a worker has joined or is gone without the stream's knowledge.
    has_news: bool,
    /// Tags of collectives that have failed here: messages that still arrive for them are dropped.
    ended: BTreeSet<u64>,
    peer_messages: Vec<(PeerId, MessageId, PeerPayload)>,
}

impl SimPeers {
    /// Returns false while the receiver is not known.
    fn put(
        &mut self,
        peer: PeerId,
        message: MessageId,
        payload: PeerPayload,
    ) -> Result<bool, PeerLost> {
        if self.incarnations.is_gone(peer) {
            return Err(PeerLost(peer));
        }
        let is_there = self.joined.contains(&peer);
        if is_there {
            self.peer_messages.push((peer, message, payload));
        }
        Ok(is_there)
    }
}

impl Peers for SimPeers {
    fn introduce(&mut self, peer: &Peer<'_>) {
        let Peer { index, incarnation, .. } = *peer;
        self.incarnations.set_current(PeerId { index, incarnation });
        self.has_news = true;
    }

    fn begin(&mut self, tag: u64) {
        debug_assert!(!self.ended.contains(&tag), "collective {tag} has ended already");
    }

    fn end(&mut self, tag: u64, well: bool) {
        if !well {
            self.ended.insert(tag);
            self.messages.retain(|(_, message), _| message.tag != tag);
            self.read.retain(|(_, message), _| message.tag != tag);
        }
    }

    fn pause(&mut self, _tag: u64) {}

    fn poll(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    fn has_come(&self, tag: u64) -> bool {
        self.messages.keys().any(|(_, message)| message.tag == tag)
    }

    fn push(
        &mut self,
        peer: PeerId,
        message: MessageId,
        progress: Progress,
        fill: &mut dyn FnMut(&mut [u8], CopyBytes),
    ) -> Result<Option<usize>, PeerLost> {
        if progress.to < progress.total {
            return Ok(None); // Messages travel whole here.
        }
        let mut bytes = vec![0; progress.total];
        fill(&mut bytes, <[u8]>::copy_from_slice);
        let is_there = self.put(peer, message, PeerPayload::Bytes(bytes))?;
        Ok(is_there.then_some(progress.total))
    }

    fn fail(&mut self, peer: PeerId, message: MessageId, cause: &Cause) -> Result<bool, PeerLost> {
        self.put(peer, message, PeerPayload::failure(cause))
    }

    fn front(&self, peer: PeerId, message: MessageId) -> Result<Front<'_>, PeerLost> {
        match self.messages.get(&(peer, message)).and_then(VecDeque::front) {
            None if self.incarnations.is_gone(peer) => Err(PeerLost(peer)),
            None => Ok(Front::Nothing),
            Some(Err(cause)) => Ok(Front::Failure(cause)),
            Some(Ok(bytes)) => {
                let total = exact::<_, u64>(bytes.len());
                let read = self.read.get(&(peer, message)).copied().unwrap_or(0);
                Ok(Front::Bytes { total, bytes: &bytes[read..] })
            }
        }
    }

    fn release(&mut self, peer: PeerId, message: MessageId, bytes: usize) {
        let key = (peer, message);
        let Some(messages) = self.messages.get_mut(&key) else { return };
        let read = self.read.entry(key).or_default();
        *read += bytes;
        let is_read = match messages.front() {
            Some(Ok(bytes)) => *read >= bytes.len(),
            Some(Err(_)) | None => true,
        };
        if is_read {
            messages.pop_front();
            self.read.remove(&key);
        }
        if messages.is_empty() {
            self.messages.remove(&key);
        }
    }

    fn clear(&mut self, _peer: PeerId, _stream: MessageId) -> bool {
        false // Messages overtake each other here.
    }
}

/// Returns true if a worker's failure is one that no client can cause.
pub fn is_our_mistake(failure: &Failure<'_>) -> bool {
    use gt_protocol::message::FailureClass::{Internal, Protocol};
    matches!(failure.class, Internal | Protocol)
}
