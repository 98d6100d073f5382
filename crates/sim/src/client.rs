//! A simulated client: draws its program, writes it as instructions, and holds every answer against the oracle.

use crate::oracle::{Evaluated, Oracle, Outcome, Root, Step, Term, count};
use crate::program::{Drawn, Scene, palette};
use crate::random::Random;
use crate::tensor::{Tensor, to_dims, wide};
use gt_protocol::message::{self, Failure, FailureClass, Message, Reply};
use gt_protocol::wire::{self, PAYLOAD_BYTES_MAX};
use gt_protocol::{Attr, Id, Instruction, Op, Operand};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Questions without an answer that a client lets stand before it waits.
const PENDING_MAX: usize = 4;
/// Requests of client n are numbered from n times this, so that an answer gone astray is seen.
const REQUESTS_PER_CLIENT: u64 = 1 << 20;

/// A breach of the protocol, to be met with a fault of this session and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    UnknownSlot,
    SlotInUse,
    NotForClients,
    TooManyValues,
    NoSuchDim,
    Garbage,
}

impl Breach {
    pub const ALL: [Self; 6] = [
        Self::UnknownSlot,
        Self::SlotInUse,
        Self::NotForClients,
        Self::TooManyValues,
        Self::NoSuchDim,
        Self::Garbage,
    ];
}

/// What the world knows of faults that a client cannot know.
pub trait Evidence {
    /// Whether a worker that held the value of this number, or one of its operands, has crashed.
    fn lost(&self, number: u64) -> bool;
    /// Whether there was no worker when it was planned.
    fn homeless(&self, number: u64) -> bool;
}

#[derive(Debug)]
enum Pending {
    Read { value: Id, expected: Outcome, start: u64, count: u64, received: u64 },
    /// Instructions before this number are done when the answer comes.
    Synchronize { before: u64 },
    Stats,
}

pub struct Client {
    random: Random,
    sizes: Vec<usize>,
    mistakes: u64,
    pub oracle: Oracle,
    /// Steps still to be taken.
    remaining: u64,
    breach: Option<Breach>,
    live: Vec<Id>,
    slots: BTreeMap<Id, u32>,
    slots_free: Vec<u32>,
    pending: BTreeMap<u64, Pending>,
    next_request: u64,
    /// Failures that this client has heard of, by number.
    reported: BTreeSet<u64>,
    pub answers: u64,
    pub failures: u64,
    /// The session is over; nothing is expected any more.
    pub closed: bool,
}

impl Client {
    pub fn new(index: usize, random: &mut Random, steps: Option<u64>, breach: Option<Breach>) -> Self {
        let mut random = random.fork();
        let sizes = palette(&mut random);
        let drawn = random.between(20, 200);
        let first_request = u64::try_from(index).unwrap_or(0) * REQUESTS_PER_CLIENT;
        Self {
            sizes,
            mistakes: random.below(7),
            remaining: steps.unwrap_or(drawn),
            random,
            oracle: Oracle::default(),
            breach,
            live: Vec::new(),
            slots: BTreeMap::new(),
            slots_free: Vec::new(),
            pending: BTreeMap::new(),
            next_request: first_request + 1,
            reported: BTreeSet::new(),
            answers: 0,
            failures: 0,
            closed: false,
        }
    }

    /// Has nothing to say any more.
    pub fn finished(&self) -> bool {
        self.closed || self.remaining == 0
    }

    pub fn unanswered(&self) -> usize {
        if self.closed { 0 } else { self.pending.len() }
    }

    /// Whether it would break the protocol or has done so.
    pub fn is_hostile(&self) -> bool {
        self.breach.is_some()
    }

    /// Values that the program can still name.
    pub fn live(&self) -> &[Id] {
        &self.live
    }

    /// The words of the next few steps; none while answers are waited for.
    pub fn turn(&mut self) -> Vec<u32> {
        let mut words = Vec::new();
        let steps = self.random.between(1, 6);
        for _ in 0..steps {
            if self.remaining == 0 || self.pending.len() >= PENDING_MAX {
                break;
            }
            self.remaining -= 1;
            match self.breach {
                Some(breach) if self.remaining == 0 => self.break_rules(breach, &mut words),
                Some(_) | None => self.step(&mut words),
            }
        }
        words
    }

    /// Frees everything it holds and asks when that is done.
    pub fn free_all(&mut self) -> Vec<u32> {
        let mut words = Vec::new();
        if !self.live.is_empty() {
            let step = Step::Free(self.live.clone());
            self.take((step, None), &mut words);
        }
        self.take((Step::Synchronize, None), &mut words);
        words
    }

    fn step(&mut self, words: &mut Vec<u32>) {
        let mut scene = Scene {
            random: &mut self.random,
            oracle: &self.oracle,
            live: &self.live,
            sizes: &self.sizes,
            mistakes: self.mistakes,
        };
        let mut drawn = scene.step();
        let dying = self.choose_dying(&mut drawn.0);
        self.take(drawn, words);
        if !dying.is_empty() {
            self.take((Step::Free(dying), None), words);
        }
    }

    /// Now and then operands whose last reference goes with the instruction; they are freed after it.
    fn choose_dying(&mut self, step: &mut Step) -> Vec<Id> {
        let Step::Compute { terms, consumes, .. } = step else { return Vec::new() };
        let mut dying = Vec::new();
        if !self.random.percent(25) {
            return dying;
        }
        for (position, term) in terms.iter().take(16).enumerate() {
            if let Term::Value(id) = term
                && self.random.percent(60)
            {
                *consumes |= 1 << position;
                dying.push(*id);
            }
        }
        dying.sort_unstable();
        dying.dedup();
        dying
    }

    fn take(&mut self, (step, evaluated): Drawn, words: &mut Vec<u32>) {
        match step {
            Step::Compute { compute, terms, consumes } => {
                let (op, attrs) = compute.encode();
                let mut instruction = Instruction::new(op);
                instruction.attrs = attrs;
                instruction.consumes = consumes;
                instruction.operands = terms.iter().map(|term| self.operand(*term)).collect();
                self.define(instruction, evaluated, words);
            }
            Step::Upload { tensor, pieces } => self.upload(&tensor, pieces, evaluated, words),
            Step::Distribute { source, dim } => {
                let mut instruction = Instruction::new(Op::Distribute);
                instruction.operands.push(self.operand(Term::Value(source)));
                instruction.attrs.push(dim.map_or(Attr::Absent, Attr::Int));
                self.define(instruction, evaluated, words);
            }
            Step::Free(ids) => {
                let mut instruction = Instruction::new(Op::Free);
                for id in ids {
                    instruction.operands.push(self.operand(Term::Value(id)));
                    self.live.retain(|live| *live != id);
                    self.oracle.forget(id);
                    self.slots_free.extend(self.slots.remove(&id));
                }
                write(&instruction, words);
            }
            Step::Read { value, start, count } => self.read(value, start, count, words),
            Step::Synchronize => {
                let before = self.oracle.next_number();
                let request = self.ask(Pending::Synchronize { before });
                let mut instruction = Instruction::new(Op::Synchronize);
                instruction.attrs.push(Attr::Int(request.cast_signed()));
                write(&instruction, words);
            }
            Step::Stats => {
                let request = self.ask(Pending::Stats);
                // Short enough for every frame.
                let _ = message::encode(&Message::StatsRequest { request }, words);
            }
        }
    }

    fn read(&mut self, value: Id, start: u64, count: u64, words: &mut Vec<u32>) {
        let Some(expected) = self.oracle.outcome(value).cloned() else { return };
        let request = self.ask(Pending::Read { value, expected, start, count, received: 0 });
        let mut instruction = Instruction::new(Op::Read);
        instruction.operands.push(self.operand(Term::Value(value)));
        let attrs = [request, start, count].map(|number| Attr::Int(number.cast_signed()));
        instruction.attrs = attrs.into_iter().collect();
        write(&instruction, words);
    }

    fn ask(&mut self, pending: Pending) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        self.pending.insert(request, pending);
        request
    }

    fn upload(
        &mut self,
        tensor: &Tensor,
        pieces: usize,
        evaluated: Option<Evaluated>,
        words: &mut Vec<u32>,
    ) {
        let bytes = tensor.to_bytes();
        let element = usize::try_from(tensor.dtype.size()).unwrap_or(1);
        let pieces = pieces.max(bytes.len().div_ceil(PAYLOAD_BYTES_MAX / 2));
        let length = (tensor.data.len().div_ceil(pieces) * element).max(element);
        let (first, rest) = bytes.split_at(length.min(bytes.len()));
        let mut instruction = Instruction::new(Op::Upload);
        instruction.attrs.push(Attr::Ints(to_dims(&tensor.dims)));
        instruction.attrs.push(Attr::Dtype(tensor.dtype));
        instruction.payload = first;
        let ids = self.define(instruction, evaluated, words);
        let Some(&id) = ids.first() else { return };
        let mut offset = first.len();
        for piece in rest.chunks(length) {
            let mut instruction = Instruction::new(Op::Chunk);
            instruction.operands.push(self.operand(Term::Value(id)));
            instruction.attrs.push(Attr::Int(wide(offset)));
            instruction.payload = piece;
            write(&instruction, words);
            offset += piece.len();
        }
    }

    /// Names the results and writes the instruction. Its source position is its number plus one.
    fn define(
        &mut self,
        mut instruction: Instruction<'_>,
        evaluated: Option<Evaluated>,
        words: &mut Vec<u32>,
    ) -> Vec<Id> {
        instruction.tag = site_of(self.oracle.next_number());
        let Some(evaluated) = evaluated else { return Vec::new() };
        let ids = self.oracle.commit(evaluated);
        for &id in &ids {
            let next = u32::try_from(self.slots.len()).unwrap_or(0);
            let slot = self.slots_free.pop().unwrap_or(next);
            self.slots.insert(id, slot);
            self.live.push(id);
            instruction.outputs.push(Id::slot(slot));
        }
        write(&instruction, words);
        ids
    }

    fn operand(&self, term: Term) -> Operand {
        match term {
            Term::Absent => Operand::Absent,
            Term::Scalar(scalar) => Operand::Scalar(scalar),
            Term::Value(id) => {
                let slot = self.slots.get(&id).copied().unwrap_or(u32::MAX);
                Operand::Value(Id::slot(slot))
            }
        }
    }

    fn break_rules(&mut self, breach: Breach, words: &mut Vec<u32>) {
        let free = u32::try_from(self.slots.len() + self.slots_free.len()).unwrap_or(0) + 7;
        let held = self.slots.values().next().copied();
        let mut instruction = Instruction::new(Op::Neg);
        instruction.operands.push(Operand::Value(Id::slot(held.unwrap_or(free))));
        instruction.outputs.push(Id::slot(free));
        match breach {
            Breach::UnknownSlot => instruction.operands[0] = Operand::Value(Id::slot(free + 1)),
            Breach::SlotInUse => instruction.outputs[0] = Id::slot(held.unwrap_or(u32::MAX >> 1)),
            Breach::NotForClients => {
                instruction = Instruction::new(Op::Session);
                instruction.attrs.push(Attr::Int(1));
            }
            Breach::TooManyValues => instruction.outputs[0] = Id::slot(1 << 30),
            Breach::NoSuchDim => {
                instruction.op = Op::Distribute;
                instruction.attrs.push(Attr::Int(9));
            }
            Breach::Garbage => {
                let word = u32::try_from(self.random.below(1 << 16)).unwrap_or(0);
                // Of an impossible length, or of a code that nobody has.
                words.push(if word & 1 == 0 { word } else { 0x0001_ffff });
                return;
            }
        }
        write(&instruction, words);
    }

    /// A message of the dispatcher.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn hear(&mut self, session: u32, message: &Message<'_>, evidence: &dyn Evidence) -> Result<(), String> {
        match message {
            Message::Reply(reply) => self.hear_reply(reply),
            Message::Done { request } => self.hear_done(*request, evidence),
            Message::Failure(failure) => self.hear_failure(session, failure, evidence),
            Message::FailedReply { request, failure } => {
                self.hear_failed_reply(session, *request, failure, evidence)
            }
            Message::Stats(stats) => match self.pending.get(&stats.request) {
                Some(Pending::Stats) => Ok(()),
                other => Err(format!("stats for request {}, which is {other:?}", stats.request)),
            },
            Message::WorkerLeft { .. } | Message::WorkerJoined { .. } => Ok(()),
            Message::StatsRequest { .. } | Message::Goodbye { .. } => {
                Err(format!("{} is no message to a client", message.name()))
            }
        }
    }

    fn hear_reply(&mut self, reply: &Reply<'_>) -> Result<(), String> {
        let request = reply.request;
        let Some(Pending::Read { value, expected, start, count, received }) = self.pending.get_mut(&request)
        else {
            return Err(format!("a reply for request {request}, which is not open"));
        };
        let Outcome::Value(tensor) = expected else {
            return Err(format!("a reply for {value:?}, which should have failed: {expected:?}"));
        };
        if reply.dtype != tensor.dtype || reply.dims != to_dims(&tensor.dims) {
            let shape = to_dims(&tensor.dims);
            return Err(format!(
                "{value:?} is {:?} {} instead of {:?} {shape}",
                reply.dtype, reply.dims, tensor.dtype
            ));
        }
        if reply.total != *count || reply.start != *start + *received {
            return Err(format!(
                "a reply of {} from {} on, {received} of {count} from {start} on are there",
                reply.total, reply.start
            ));
        }
        let element = usize::try_from(tensor.dtype.size()).unwrap_or(1);
        let first = usize::try_from(reply.start).unwrap_or(usize::MAX) * element;
        let bytes = tensor.to_bytes();
        if bytes.get(first..first + reply.bytes.len()) != Some(reply.bytes) {
            let got = Tensor::from_bytes(reply.dtype, &tensor.dims, reply.bytes).data;
            return Err(format!("{value:?} is {got:?} from {} on instead of {:?}", reply.start, tensor.data));
        }
        *received += reply.count;
        if *received == *count {
            self.pending.remove(&request);
            self.answers += 1;
        }
        Ok(())
    }

    fn hear_done(&mut self, request: u64, evidence: &dyn Evidence) -> Result<(), String> {
        match self.pending.remove(&request) {
            Some(Pending::Synchronize { before }) => {
                self.answers += 1;
                let roots = self.oracle.roots().range(..before);
                for (&number, &root) in roots {
                    let excused = evidence.lost(number) || evidence.homeless(number);
                    if root != Root::Perhaps && !excused && !self.reported.contains(&number) {
                        return Err(format!("synchronized, and nobody has told of the failure of %{number}"));
                    }
                }
                Ok(())
            }
            Some(Pending::Stats) => {
                self.answers += 1;
                Ok(())
            }
            other => Err(format!("done with request {request}, which is {other:?}")),
        }
    }

    fn hear_failure(
        &mut self,
        session: u32,
        failure: &Failure<'_>,
        evidence: &dyn Evidence,
    ) -> Result<(), String> {
        self.reported.insert(failure.number);
        let known = self.oracle.roots().contains_key(&failure.number);
        self.check_failure(session, failure, known, evidence.lost(failure.number), evidence)
    }

    fn hear_failed_reply(
        &mut self,
        session: u32,
        request: u64,
        failure: &Failure<'_>,
        evidence: &dyn Evidence,
    ) -> Result<(), String> {
        self.failures += 1;
        let Some(Pending::Read { value, expected, .. }) = self.pending.remove(&request) else {
            return Err(format!("a failure for request {request}, which is not open: {failure:?}"));
        };
        self.reported.insert(failure.number);
        let known = match &expected {
            Outcome::Failed { causes, .. } => causes.contains(&failure.number),
            Outcome::Value(_) => false,
        };
        let (number, _) = value.parts();
        let lost = evidence.lost(number);
        self.check_failure(session, failure, known, lost, evidence)
            .map_err(|text| format!("{text}; read of %{number}, {expected:?}"))
    }

    /// A failure is one that the program contains, or the loss of a worker that held the value.
    fn check_failure(
        &self,
        session: u32,
        failure: &Failure<'_>,
        known: bool,
        lost: bool,
        evidence: &dyn Evidence,
    ) -> Result<(), String> {
        let number = failure.number;
        if failure.session != session {
            return Err(format!("session {session} is told of another's failure: {failure:?}"));
        }
        if failure.class == FailureClass::WorkerLost {
            let why = "no worker that held the value has crashed";
            return if lost { Ok(()) } else { Err(format!("{why}: {failure:?}")) };
        }
        if !known && !evidence.homeless(number) {
            return Err(format!("a failure that is not in the program: {failure:?}"));
        }
        if failure.tag != site_of(number) {
            return Err(format!("%{number} failed at site {}: {failure:?}", site_of(number)));
        }
        Ok(())
    }

    /// Bytes of a value as the dispatcher counts them.
    pub fn bytes_of(&self, id: Id) -> Option<u64> {
        self.oracle.shape(id).map(|tensor: &Rc<Tensor>| count(tensor) * tensor.dtype.size())
    }
}

/// Source position of a number, as this client counts them.
fn site_of(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(0) + 1
}

fn write(instruction: &Instruction<'_>, words: &mut Vec<u32>) {
    if let Err(error) = wire::encode(instruction, words) {
        unreachable!("a client's instruction has no binary form: {error}");
    }
}
