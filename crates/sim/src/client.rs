//! A simulated client: draws its program, encodes it as instructions, and compares every answer
//! with the oracle.

use crate::exact::exact;
mod answers;
mod breach;
mod cancel;
mod script;

pub use answers::Evidence;
pub use breach::BreachKind;
use cancel::Cancelled;
pub use script::{ProgramLine, Script};

use crate::arithmetic::tensor::{ToyTensor, to_dims, wide};
use crate::oracle::{DistributeTarget, Evaluated, Expectation, Oracle, ProgramStep, StepOperand};
use crate::program::{Cluster, DrawnStep, Retry, Scene, makes, palette};
use crate::random::Random;
use gt_protocol::message::{self, FromClient};
use gt_protocol::wire::{self, PAYLOAD_BYTES_MAX};
use gt_protocol::{Attr, Family, Id, Instruction, Meta, Op, Operand};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of open requests of a client before it waits.
const PENDING_MAX: usize = 4;
/// Number of instructions of a client that emits nonsense, after its valid ones.
const NONSENSE_STEPS: u64 = 30;
/// Distance of the request numbers of two clients, so that a misdirected answer is detected.
const REQUESTS_PER_CLIENT: u64 = 1 << 20;

#[derive(Debug)]
enum OpenRequest {
    Read {
        value: Id,
        expected: Expectation,
        start: u64,
        /// True for each requested element that has arrived.
        arrived: Vec<bool>,
    },
    /// Waits for all instructions before this number.
    Synchronize {
        before: u64,
    },
    Stats,
    Rebalance,
}

pub struct Client {
    random: Random,
    sizes: Vec<usize>,
    mistakes: u64,
    spread: u64,
    cluster: Cluster,
    /// The signal that instructions carry.
    signal: u16,
    fresh: Option<Id>,
    /// Value of the last step that computed elements.
    last: Option<Id>,
    retry: Option<Retry>,
    pub oracle: Oracle,
    /// Number of steps still to be taken.
    remaining: u64,
    /// Steps to take instead of drawn ones, and the steps taken.
    script: Script,
    breach: Option<BreachKind>,
    /// True once it emits nonsense: its answers mean nothing.
    is_nonsense: bool,
    /// Slots that nonsense has defined.
    nonsense: Vec<u32>,
    live: Vec<Id>,
    slots: BTreeMap<Id, u32>,
    /// Metadata of every value so far: the dispatcher may not have handled its `free` yet.
    metas: BTreeMap<Id, Meta>,
    slots_free: Vec<u32>,
    pending: BTreeMap<u64, OpenRequest>,
    first_request: u64,
    next_request: u64,
    /// Failures that this client has received, by number.
    reported: BTreeSet<u64>,
    cancelled: Cancelled,
    pub answers: u64,
    pub failures: u64,
    /// True once the session is over; nothing is expected any more.
    pub closed: bool,
}

impl Client {
    pub fn new(
        index: usize,
        random: &mut Random,
        workers: u32,
        steps: Option<u64>,
        breach: Option<BreachKind>,
    ) -> Self {
        let mut random = random.fork();
        let sizes = palette(&mut random);
        let drawn = random.between(20, 200);
        let spread = [0, 30, 80][random.index(3)];
        let layouts = [0, 30, 80][random.index(3)];
        let cluster = Cluster::new(&mut random, workers, layouts);
        let first_request = exact::<_, u64>(index) * REQUESTS_PER_CLIENT;
        Self {
            sizes,
            mistakes: random.below(7),
            remaining: steps.unwrap_or(drawn),
            script: Script::default(),
            random,
            spread,
            cluster,
            signal: 0,
            fresh: None,
            last: None,
            retry: None,
            oracle: Oracle::default(),
            breach,
            is_nonsense: false,
            nonsense: Vec::new(),
            first_request,
            live: Vec::new(),
            slots: BTreeMap::new(),
            metas: BTreeMap::new(),
            slots_free: Vec::new(),
            pending: BTreeMap::new(),
            next_request: first_request + 1,
            reported: BTreeSet::new(),
            cancelled: Cancelled::default(),
            answers: 0,
            failures: 0,
            closed: false,
        }
    }

    /// Returns true if it has nothing more to send.
    pub fn finished(&self) -> bool {
        self.closed || self.remaining == 0 && self.script.is_over()
    }

    pub fn unanswered(&self) -> usize {
        if self.closed || self.is_nonsense { 0 } else { self.pending.len() }
    }

    /// Returns true if it will break the protocol or has done so.
    pub fn is_hostile(&self) -> bool {
        self.breach.is_some()
    }

    pub fn emits_nonsense(&self) -> bool {
        self.is_nonsense
    }

    /// Values that the program can still name.
    pub fn live(&self) -> &[Id] {
        &self.live
    }

    /// The words of the next few steps; empty while answers are waited for.
    pub fn turn(&mut self) -> Vec<u32> {
        let mut words = Vec::new();
        let steps = self.random.between(1, 6);
        for _ in 0..steps {
            if self.unanswered() >= PENDING_MAX {
                break;
            }
            if self.remaining == 0 {
                self.read_again(&mut words);
                continue;
            }
            self.remaining -= 1;
            match self.breach {
                Some(BreachKind::Nonsense) if self.remaining < NONSENSE_STEPS => {
                    self.emit_nonsense(&mut words);
                }
                Some(breach) if self.remaining == 0 => self.break_rules(breach, &mut words),
                Some(_) | None => self.step(&mut words),
            }
        }
        words
    }

    /// Frees all of its values and synchronizes.
    pub fn free_all(&mut self) -> Vec<u32> {
        let mut words = Vec::new();
        if !self.live.is_empty() {
            let step = ProgramStep::Free(self.live.clone());
            self.take((step, None), &mut words);
        }
        self.take((ProgramStep::Synchronize, None), &mut words);
        words
    }

    fn step(&mut self, words: &mut Vec<u32>) {
        if self.script.is_fixed() {
            return self.step_of_script(words);
        }
        let mut scene = Scene {
            random: &mut self.random,
            oracle: &self.oracle,
            live: &self.live,
            sizes: &self.sizes,
            mistakes: self.mistakes,
            spread: self.spread,
            cluster: &self.cluster,
            fresh: self.fresh,
            last: self.last,
            retry: &mut self.retry,
            focus: None,
            first: None,
        };
        let mut drawn = scene.step();
        let dying = self.choose_dying(&mut drawn.0);
        let computes = matches!(&drawn.0, ProgramStep::Compute { compute, .. } if compute.op.info().family == Family::Elementwise);
        let makes = makes(&drawn.0);
        self.take(drawn, words);
        self.fresh = self.live.last().copied().filter(|_| makes);
        self.last = self.live.last().copied().filter(|_| computes);
        if !dying.is_empty() {
            self.take((ProgramStep::Free(dying), None), words);
        }
    }

    /// Chooses operands that are consumed by the instruction; they are freed after it. The result
    /// of the previous instruction is chosen more often, as in an expression.
    fn choose_dying(&mut self, step: &mut ProgramStep) -> Vec<Id> {
        let ProgramStep::Compute { terms, consumes, .. } = step else { return Vec::new() };
        let mut dying = Vec::new();
        let any = self.random.percent(25);
        let in_expression = self.random.percent(50);
        for (position, term) in terms.iter().take(16).enumerate() {
            if let StepOperand::Value(id) = term
                && (in_expression && self.last == Some(*id) || any && self.random.percent(60))
            {
                *consumes |= 1 << position;
                dying.push(*id);
            }
        }
        dying.sort_unstable();
        dying.dedup();
        dying
    }

    fn take(&mut self, (step, evaluated): DrawnStep, words: &mut Vec<u32>) {
        self.script.note(&step, self.oracle.next_number());
        match step {
            ProgramStep::Compute { compute, terms, consumes } => {
                let mut instruction = Instruction::new(compute.op);
                instruction.attrs = compute.attrs.into_iter().collect();
                instruction.consumes = consumes;
                instruction.operands = terms.iter().map(|term| self.operand(*term)).collect();
                self.define(instruction, evaluated, words);
            }
            ProgramStep::Upload { tensor, ranges } => {
                self.upload(&tensor, ranges, evaluated, words);
            }
            ProgramStep::Distribute { source, target } => {
                let mut instruction = Instruction::new(Op::Distribute);
                instruction.operands.push(self.operand(StepOperand::Value(source)));
                instruction.attrs.extend(match target {
                    DistributeTarget::Dim(dim) => {
                        [dim.map_or(Attr::Absent, Attr::Int), Attr::Absent]
                    }
                    DistributeTarget::Layout(text) => [Attr::Absent, Attr::Text(text.into())],
                });
                self.define(instruction, evaluated, words);
            }
            ProgramStep::Configure { signal, text } => {
                let mut instruction = Instruction::new(Op::Configure);
                instruction.attrs.extend([Attr::Int(signal.into()), Attr::Text(text.into())]);
                write(&instruction, words);
            }
            ProgramStep::Enter(signal) => self.signal = signal,
            ProgramStep::Free(ids) => {
                let mut instruction = Instruction::new(Op::Free);
                for id in ids {
                    instruction.operands.push(self.operand(StepOperand::Value(id)));
                    self.live.retain(|live| *live != id);
                    self.oracle.forget(id);
                    self.slots_free.extend(self.slots.remove(&id));
                }
                write(&instruction, words);
            }
            ProgramStep::Read { value, start, count } => self.read(value, start, count, words),
            ProgramStep::Synchronize => {
                let before = self.oracle.next_number();
                let request = self.ask(OpenRequest::Synchronize { before });
                let mut instruction = Instruction::new(Op::Synchronize);
                instruction.attrs.push(Attr::Int(request.cast_signed()));
                write(&instruction, words);
            }
            ProgramStep::Rebalance => {
                let request = self.ask(OpenRequest::Rebalance);
                let mut instruction = Instruction::new(Op::Rebalance);
                instruction.attrs.push(Attr::Int(request.cast_signed()));
                write(&instruction, words);
            }
            ProgramStep::Stats => {
                let request = self.ask(OpenRequest::Stats);
                // It is short enough for every frame.
                let _ = message::encode(&FromClient::StatsRequest { request }, words);
            }
        }
    }

    fn read(&mut self, value: Id, start: u64, count: u64, words: &mut Vec<u32>) {
        let Some(expected) = self.oracle.outcome(value).cloned() else { return };
        let arrived = vec![false; exact::<_, usize>(count)];
        let request = self.ask(OpenRequest::Read { value, expected, start, arrived });
        let mut instruction = Instruction::new(Op::Read);
        instruction.operands.push(self.operand(StepOperand::Value(value)));
        let attrs = [request, start, count].map(|number| Attr::Int(number.cast_signed()));
        instruction.attrs = attrs.into_iter().collect();
        write(&instruction, words);
    }

    fn ask(&mut self, pending: OpenRequest) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        self.pending.insert(request, pending);
        request
    }

    fn upload(
        &mut self,
        tensor: &ToyTensor,
        ranges: usize,
        evaluated: Option<Evaluated>,
        words: &mut Vec<u32>,
    ) {
        let bytes = tensor.to_bytes();
        let element = exact::<_, usize>(tensor.dtype.size());
        let ranges = ranges.max(bytes.len().div_ceil(PAYLOAD_BYTES_MAX / 2));
        let length = (tensor.data.len().div_ceil(ranges) * element).max(element);
        let (first, rest) = bytes.split_at(length.min(bytes.len()));
        let mut instruction = Instruction::new(Op::Upload);
        instruction.attrs.push(Attr::Ints(to_dims(&tensor.dims)));
        instruction.attrs.push(Attr::Dtype(tensor.dtype));
        instruction.payload = first;
        let ids = self.define(instruction, evaluated, words);
        let Some(&id) = ids.first() else { return };
        let mut offset = first.len();
        for chunk in rest.chunks(length) {
            let mut instruction = Instruction::new(Op::Chunk);
            instruction.operands.push(self.operand(StepOperand::Value(id)));
            instruction.attrs.push(Attr::Int(wide(offset)));
            instruction.payload = chunk;
            write(&instruction, words);
            offset += chunk.len();
        }
    }

    /// Names the results and encodes the instruction. Its source position is its number plus one.
    fn define(
        &mut self,
        mut instruction: Instruction<'_>,
        evaluated: Option<Evaluated>,
        words: &mut Vec<u32>,
    ) -> Vec<Id> {
        instruction.tag = site_of(self.oracle.next_number());
        instruction.attrs.resize(instruction.op.info().attrs.len(), Attr::Absent);
        instruction.signal = self.signal;
        let Some(evaluated) = evaluated else { return Vec::new() };
        let ids = self.oracle.commit(evaluated);
        self.note_dependence(&instruction, &ids);
        for &id in &ids {
            let next = exact::<_, u32>(self.slots.len());
            let slot = self.slots_free.pop().unwrap_or(next);
            self.slots.insert(id, slot);
            self.live.push(id);
            if let Some(tensor) = self.oracle.shape(id) {
                self.metas.insert(id, Meta::new(tensor.dtype, to_dims(&tensor.dims)));
            }
            instruction.outputs.push(Id::slot(slot));
        }
        write(&instruction, words);
        ids
    }

    fn operand(&self, term: StepOperand) -> Operand {
        match term {
            StepOperand::Absent => Operand::Absent,
            StepOperand::Scalar(scalar) => Operand::Scalar(scalar),
            StepOperand::Value(id) => Operand::Value(Id::slot(self.slots[&id])),
        }
    }

    /// Metadata that a value has, or would have if it had not failed; `None` where no rule could
    /// tell it.
    pub fn meta_of(&self, id: Id) -> Option<Meta> {
        self.metas.get(&id).copied()
    }
}

/// Source position of a number, by this client's count.
fn site_of(number: u64) -> u32 {
    exact::<_, u32>(number) + 1
}

fn write(instruction: &Instruction<'_>, words: &mut Vec<u32>) {
    if let Err(error) = wire::encode(instruction, words) {
        unreachable!("a client's instruction has no binary form: {error}");
    }
}
