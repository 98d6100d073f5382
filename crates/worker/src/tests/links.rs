//! Workers side by side, with small queues between them that keep their order.

use super::device::{Device, DeviceConduct};
use super::*;
use gt_protocol::message::{self, Peer, Reach, ToWorker};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of a chunk, and chunks in flight from one worker to another: so few that every queue is
/// full all the time.
const CHUNK_BYTES: usize = 24;
const CHUNKS_MAX: usize = 2;

#[derive(Clone, Debug)]
struct Chunk {
    message: MessageId,
    total: u64,
    part: Result<Vec<u8>, Cause>,
    read: usize,
}

impl Chunk {
    fn front(&self) -> Front<'_> {
        match &self.part {
            Ok(bytes) => Front::Bytes { total: self.total, bytes: &bytes[self.read..] },
            Err(cause) => Front::Failure(cause),
        }
    }

    /// Returns true if nothing is left.
    fn release(&mut self, bytes: usize) -> bool {
        self.read += bytes;
        self.part.as_ref().map_or(true, |all| self.read == all.len())
    }
}

/// State that all workers share: the queues, by sender and receiver, and the news about each
/// worker.
#[derive(Debug, Default)]
struct Between {
    queues: BTreeMap<(PeerId, PeerId), VecDeque<Chunk>>,
    gone: BTreeSet<PeerId>,
    /// Workers that instructions may mean, but of which there was no news beside the instructions.
    unheard: BTreeSet<PeerId>,
}

/// A worker's ends of the queues. A chunk of an instruction in flight stays at the front of its
/// queue until it is taken, and everything behind it waits.
#[derive(Debug)]
pub struct Links {
    me: PeerId,
    between: Rc<RefCell<Between>>,
    heads: BTreeMap<PeerId, Chunk>,
    kept: BTreeMap<(PeerId, MessageId), VecDeque<Chunk>>,
    active: BTreeSet<u64>,
    ended: BTreeSet<u64>,
    /// Members that had no room for a chunk since.
    refused: RefCell<BTreeSet<PeerId>>,
    gone_seen: usize,
}

impl Links {
    fn put(&self, peer: PeerId, chunk: Chunk) -> Result<bool, PeerLost> {
        let between = &mut *self.between.borrow_mut();
        if between.gone.contains(&peer) {
            return Err(PeerLost(peer));
        }
        let queue = between.queues.entry((self.me, peer)).or_default();
        let room = queue.len() < CHUNKS_MAX && !between.unheard.contains(&peer);
        if room {
            queue.push_back(chunk);
        } else {
            self.refused.borrow_mut().insert(peer);
        }
        Ok(room)
    }

    /// Makes the front of the queue from a worker visible.
    fn advance(&mut self, peer: PeerId) {
        if !self.heads.contains_key(&peer)
            && let Some(queue) = self.between.borrow_mut().queues.get_mut(&(peer, self.me))
            && let Some(chunk) = queue.pop_front()
        {
            self.heads.insert(peer, chunk);
        }
    }

    fn keep(&mut self, peer: PeerId) {
        let chunk = self.heads.remove(&peer).unwrap();
        self.kept.entry((peer, chunk.message)).or_default().push_back(chunk);
        self.advance(peer);
    }
}

impl Peers for Links {
    fn introduce(&mut self, _peer: &Peer<'_>) {}

    fn begin(&mut self, tag: u64) {
        assert!(self.active.insert(tag), "{tag} begins twice");
    }

    fn end(&mut self, tag: u64, well: bool) {
        assert!(self.active.remove(&tag), "{tag} ends and has not begun");
        if well {
            let is_left = |message: &MessageId| message.tag == tag;
            assert!(!self.kept.keys().any(|(_, message)| is_left(message)), "{tag} is not taken");
        } else {
            self.ended.insert(tag);
            self.kept.retain(|(_, message), _| message.tag != tag);
        }
    }

    fn pause(&mut self, tag: u64) {
        assert!(self.active.remove(&tag), "{tag} pauses and has not begun");
    }

    fn poll(&mut self) -> bool {
        let senders: Vec<PeerId> =
            self.between.borrow().queues.keys().map(|&(from, _)| from).collect();
        for peer in senders {
            self.advance(peer);
            while let Some(head) = self.heads.get(&peer) {
                if self.active.contains(&head.message.tag) {
                    break;
                }
                if self.ended.contains(&head.message.tag) {
                    self.heads.remove(&peer);
                    self.advance(peer);
                } else {
                    self.keep(peer);
                }
            }
        }
        let between = self.between.borrow();
        let full = |peer: PeerId| {
            let queue = between.queues.get(&(self.me, peer));
            let is_full = queue.is_some_and(|queue| queue.len() >= CHUNKS_MAX);
            is_full || between.unheard.contains(&peer)
        };
        let refused = self.refused.replace(BTreeSet::new());
        let (still, room): (BTreeSet<PeerId>, BTreeSet<PeerId>) =
            refused.into_iter().partition(|&peer| full(peer));
        let is_news = !room.is_empty() || between.gone.len() != self.gone_seen;
        self.refused.replace(still);
        self.gone_seen = between.gone.len();
        is_news
    }

    fn has_come(&self, tag: u64) -> bool {
        self.heads.values().any(|head| head.message.tag == tag)
    }

    fn push(
        &mut self,
        peer: PeerId,
        message: MessageId,
        progress: Progress,
        fill: &mut dyn FnMut(&mut [u8], CopyBytes),
    ) -> Result<Option<usize>, PeerLost> {
        let length = CHUNK_BYTES.min(progress.to - progress.from);
        let mut bytes = vec![0; length];
        fill(&mut bytes, <[u8]>::copy_from_slice);
        let total = u64::try_from(progress.total).unwrap();
        let chunk = Chunk { message, total, part: Ok(bytes), read: 0 };
        Ok(self.put(peer, chunk)?.then_some(length))
    }

    fn fail(&mut self, peer: PeerId, message: MessageId, cause: &Cause) -> Result<bool, PeerLost> {
        self.put(peer, Chunk { message, total: 0, part: Err(cause.clone()), read: 0 })
    }

    fn front(&self, peer: PeerId, message: MessageId) -> Result<Front<'_>, PeerLost> {
        if let Some(chunk) = self.kept.get(&(peer, message)).and_then(VecDeque::front) {
            return Ok(chunk.front());
        }
        match self.heads.get(&peer) {
            Some(head) if head.message == message => Ok(head.front()),
            _ if self.between.borrow().gone.contains(&peer) => Err(PeerLost(peer)),
            _ => Ok(Front::Nothing),
        }
    }

    fn release(&mut self, peer: PeerId, message: MessageId, bytes: usize) {
        if let Some(chunks) = self.kept.get_mut(&(peer, message)) {
            if chunks.front_mut().unwrap().release(bytes) {
                chunks.pop_front();
            }
            if chunks.is_empty() {
                self.kept.remove(&(peer, message));
            }
        } else if self.heads.get_mut(&peer).unwrap().release(bytes) {
            self.heads.remove(&peer);
            self.advance(peer);
        }
    }

    fn clear(&mut self, peer: PeerId, message: MessageId) -> bool {
        let mut moved = false;
        while self.heads.get(&peer).is_some_and(|head| head.message != message)
            && !self.kept.contains_key(&(peer, message))
        {
            self.keep(peer);
            moved = true;
        }
        moved
    }
}

/// A worker with the words that it has still to execute.
pub struct Worker {
    pub machine: Machine<ToyEngine>,
    pub stream: CommunicationStream<Links, ToyBuffers>,
    pub allocations: Rc<Cell<usize>>,
    words: Vec<u32>,
    answers: Answers,
}

impl Worker {
    pub fn is_sent(&mut self, instructions: &[Instruction<'_>]) {
        self.words.extend(words(instructions));
    }

    pub fn are_sent_words(&mut self, words: &[u32]) {
        self.words.extend(words);
    }

    /// Runs as far as it can without the others; returns true if it made progress.
    pub fn go(&mut self) -> bool {
        let mut moved = false;
        while self.stream.pass() || self.stream.pass_over_all() {
            moved = true;
        }
        let done = self.machine.run(&self.words, &mut self.answers, &mut self.stream).unwrap();
        self.words.drain(..done);
        self.machine.catch_up(&mut self.answers, &mut self.stream);
        moved || done > 0
    }

    /// Returns true if an instruction waits.
    pub const fn waits(&self) -> bool {
        !self.words.is_empty()
    }

    /// The answers since the last call.
    pub fn answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers.0)
    }

    /// Makes the worker disappear, as far as the others can see.
    pub fn leaves(&self) {
        let links = self.stream.peers();
        let between = &mut *links.between.borrow_mut();
        between.gone.insert(links.me);
        between.queues.retain(|&(_, to), _| to != links.me);
    }

    /// The next worker of its index, of which there is no news yet.
    pub fn successor(&self, conduct: &DeviceConduct) -> Self {
        let links = self.stream.peers();
        let me = PeerId { incarnation: links.me.incarnation + 1, ..links.me };
        links.between.borrow_mut().unheard.insert(me);
        worker(me, &links.between, conduct)
    }

    /// Sends the news of it to the others, beside their instructions.
    pub fn is_heard_of(&self) {
        let links = self.stream.peers();
        links.between.borrow_mut().unheard.remove(&links.me);
    }

    /// Words that introduce it, before the others' instructions that mean it.
    pub fn introduction(&self) -> Vec<u32> {
        let PeerId { index, incarnation } = self.stream.peers().me;
        let peer = Peer { index, incarnation, reach: Reach::Memory };
        let mut words = Vec::new();
        message::encode(&ToWorker::Peer(peer), &mut words).unwrap();
        words
    }

    /// Number of chunks in flight to it.
    pub fn chunks_in_flight(&self) -> usize {
        let links = self.stream.peers();
        let between = links.between.borrow();
        let to_it = between.queues.iter().filter(|((_, to), _)| *to == links.me);
        to_it.map(|(_, queue)| queue.len()).sum::<usize>() + links.heads.len()
    }
}

pub fn workers(count: u32) -> Vec<Worker> {
    let conducts = vec![DeviceConduct::default(); usize::try_from(count).unwrap()];
    workers_with(&conducts)
}

/// One worker for each of the conducts.
pub fn workers_with(conducts: &[DeviceConduct]) -> Vec<Worker> {
    let between = Rc::<RefCell<Between>>::default();
    let worker = |(index, conduct): (u32, &DeviceConduct)| {
        worker(PeerId { index, incarnation: 0 }, &between, conduct)
    };
    (0..).zip(conducts).map(worker).collect()
}

fn worker(me: PeerId, between: &Rc<RefCell<Between>>, conduct: &DeviceConduct) -> Worker {
    let links = Links {
        me,
        between: Rc::clone(between),
        heads: BTreeMap::new(),
        kept: BTreeMap::new(),
        active: BTreeSet::new(),
        ended: BTreeSet::new(),
        refused: RefCell::default(),
        gone_seen: 0,
    };
    let allocations = Rc::new(Cell::new(0));
    let engine = ToyEngine {
        allocations: Rc::clone(&allocations),
        conduct: conduct.clone(),
        ..ToyEngine::default()
    };
    let mut machine = Machine::new(engine);
    machine.set_index(me.index);
    let (words, answers) = (Vec::new(), Answers::default());
    Worker { machine, stream: CommunicationStream::new(links), allocations, words, answers }
}

/// Runs all workers until none makes progress.
pub fn run_until_idle(workers: &mut [Worker]) {
    while workers.iter_mut().any(Worker::go) {}
}

/// Runs one program for each worker to its end and returns their answers, which are the same with
/// every backend: by bytes, from device to device, and by bytes because one worker has no device.
pub fn together(programs: &[Vec<Instruction<'static>>]) -> Vec<Vec<Answer>> {
    let device = DeviceConduct { device: Some(Device::default()), ..DeviceConduct::default() };
    let all = vec![device; programs.len()];
    let mut some = all.clone();
    some[programs.len() - 1] = DeviceConduct::default();
    let device_programs: Vec<_> = programs.iter().map(|program| by_device(program)).collect();
    let answers = to_the_end(&vec![DeviceConduct::default(); programs.len()], programs);
    assert_eq!(to_the_end(&all, &device_programs), answers);
    assert_eq!(to_the_end(&some, &device_programs), answers);
    answers
}

/// Copy of the program with its collectives from device to device.
pub fn by_device(program: &[Instruction<'static>]) -> Vec<Instruction<'static>> {
    let mut program = program.to_vec();
    for instruction in &mut program {
        if instruction.op.info().attr_index("backend").is_some() {
            instruction.attrs.push(Attr::Choice(0));
        }
    }
    program
}

fn to_the_end(
    conducts: &[DeviceConduct],
    programs: &[Vec<Instruction<'static>>],
) -> Vec<Vec<Answer>> {
    let mut all = workers_with(conducts);
    for (worker, program) in all.iter_mut().zip(programs) {
        worker.is_sent(program);
    }
    run_until_idle(&mut all);
    for worker in &all {
        assert!(!worker.waits() && !worker.stream.is_busy(), "stuck");
    }
    all.iter_mut().map(Worker::answers).collect()
}
