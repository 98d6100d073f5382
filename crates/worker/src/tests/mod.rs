//! A toy engine (integers modulo a prime) and helpers of the tests.

#![allow(
    clippy::as_conversions,
    clippy::wildcard_enum_match_arm,
    reason = "a toy of five operators, and numbers that fit"
)]

mod cancel;
mod coalesced;
mod codec;
mod collective;
mod device;
mod group;
mod joined;
mod links;
mod machine;
mod negotiation;
mod nobody;
mod random;
mod reduce_op;
mod replaced;
mod stream;
mod work;

use crate::{
    Backend, BorrowedBuffers, Buffers, Cause, Collective, CommunicationStream, CopyBytes,
    DirectReads, Engine, EngineOperand, Fault, Follower, Front, Machine, MessageId, PeerId,
    PeerLost, Peers, Places, Progress, ReduceOp, Replies, Shard, Turn, Values,
};
use gt_protocol::message::{FailureClass, FromWorker, Losses, Message, ToWorker};
use gt_protocol::{Attr, Dims, Dtype, Id, Instruction, Meta, Op, Operand, Scalar, wire};
use nobody::Nobody;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

const PRIME: i64 = 1_000_003;
/// Maximum number of elements of a toy value, whatever a garbage instruction requests.
const NUMBERS_MAX: i64 = 1 << 17;

/// Bytes of 64-bit integers.
type Memory = Rc<RefCell<Vec<u8>>>;

/// A vector that views may share.
#[derive(Clone, Debug)]
struct Toy {
    memory: Memory,
    dims: Dims,
}

/// A toy engine that counts its allocations, and may be told not to work in place.
#[derive(Debug, Default)]
struct ToyEngine {
    allocations: Rc<Cell<usize>>,
    never_in_place: bool,
    /// Number of updates in each grouped call; for a call that is to fail, the number requested.
    groups: Rc<RefCell<Vec<usize>>>,
    groups_fail: bool,
    groups_large: bool,
    /// Operators that were joined to earlier instructions, and the maximum of the offered ones that
    /// are joined.
    joined: Rc<RefCell<Vec<Op>>>,
    joins_max: Option<usize>,
    conduct: device::DeviceConduct,
}

impl ToyEngine {
    fn new_value(&self, numbers: &[i64], dims: Dims) -> Toy {
        self.allocations.set(self.allocations.get() + 1);
        Toy { memory: Rc::new(RefCell::new(bytes_of(numbers))), dims }
    }

    fn filled(&self, meta: &Meta, number: i64) -> Result<Toy, Fault> {
        if !matches!(meta.dtype, Dtype::I64 | Dtype::F64)
            || !(0..=NUMBERS_MAX).contains(&meta.elements())
        {
            return Err(Fault::new(FailureClass::OutOfMemory, format!("{meta}")));
        }
        Ok(self.new_value(&vec![number; usize::try_from(meta.elements()).unwrap()], meta.dims))
    }

    /// Result of an elementwise function of matrices of one shape.
    fn matrix(
        &self,
        operands: &[EngineOperand<'_, Toy>],
        function: impl Fn(i64, i64) -> i64,
    ) -> Toy {
        let EngineOperand::Value(Toy { dims, .. }) = operands[0] else { panic!("{operands:?}") };
        let left = numbers(&operands[0]);
        let right = operands.get(1).map_or_else(|| left.clone(), numbers);
        let made: Vec<i64> =
            left.iter().zip(&right).map(|(&a, &b)| function(a, b).rem_euclid(PRIME)).collect();
        self.new_value(&made, *dims)
    }

    fn elementwise(
        &self,
        operands: &[EngineOperand<'_, Toy>],
        reuse: u16,
        function: impl Fn(i64, i64) -> i64,
    ) -> Result<Toy, Fault> {
        let (left, right) = (numbers(&operands[0]), operands.get(1).map_or(vec![0], numbers));
        let length = left.len().max(right.len());
        if [left.len(), right.len()].iter().any(|&own| own != 1 && own != length) {
            let text = format!("sizes {} and {} do not match", left.len(), right.len());
            return Err(Fault::new(FailureClass::Runtime, text));
        }
        let at = |list: &[i64], place: usize| list[if list.len() == 1 { 0 } else { place }];
        let result: Vec<i64> = (0..length)
            .map(|place| function(at(&left, place), at(&right, place)).rem_euclid(PRIME))
            .collect();
        for (position, operand) in operands.iter().enumerate() {
            if let EngineOperand::Value(value) = operand
                && reuse & (1 << position) != 0
            {
                value.memory.replace(bytes_of(&result));
                return Ok((*value).clone());
            }
        }
        Ok(self.new_value(&result, Dims::new(&[i64::try_from(length).unwrap()]).unwrap()))
    }
}

fn numbers(operand: &EngineOperand<'_, Toy>) -> Vec<i64> {
    match operand {
        EngineOperand::Value(value) => numbers_of(&value.memory.borrow()),
        EngineOperand::Scalar(Scalar::Int(number)) => vec![*number],
        EngineOperand::Scalar(_) | EngineOperand::Absent => vec![0],
    }
}

fn bytes_of(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn numbers_of(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks::<8>().0.iter().map(|number| i64::from_le_bytes(*number)).collect()
}

/// The memory itself, so that a write in the meantime is noticed.
#[derive(Debug)]
struct ToyBuffers {
    operand: Option<Memory>,
    result: Option<Memory>,
}

impl BorrowedBuffers for ToyBuffers {
    fn show(&mut self, work: &mut dyn FnMut(Buffers<'_>)) {
        match (&self.operand, &self.result) {
            (Some(operand), Some(result)) if Rc::ptr_eq(operand, result) => {
                work(Buffers::One(&mut result.borrow_mut()));
            }
            (Some(operand), Some(result)) => {
                work(Buffers::Two(&operand.borrow(), &mut result.borrow_mut()));
            }
            (Some(operand), None) => work(Buffers::Two(&operand.borrow(), &mut [])),
            (None, Some(result)) => work(Buffers::Two(&[], &mut result.borrow_mut())),
            (None, None) => work(Buffers::Two(&[], &mut [])),
        }
    }
}

impl Engine for ToyEngine {
    type Value = Toy;
    type Borrowed = ToyBuffers;
    type Rendezvous = device::Rendezvous;

    fn groups_large(&self) -> bool {
        self.groups_large
    }

    fn execute(
        &mut self,
        instruction: &Instruction<'_>,
        operands: &[EngineOperand<'_, Toy>],
        reuse: u16,
    ) -> Result<Values<Toy>, Fault> {
        let value = match instruction.op {
            Op::Full => {
                let [Attr::Ints(dims), Attr::Scalar(number), Attr::Dtype(dtype)] =
                    &instruction.attrs[..]
                else {
                    panic!("{instruction:?}")
                };
                let number = if let Scalar::Int(number) = number { *number } else { 0 };
                self.filled(&Meta::new(*dtype, *dims), number.rem_euclid(PRIME))?
            }
            Op::Matmul => self.matrix(operands, |a, b| a * b),
            Op::Relu => self.matrix(operands, |a, _| a + 1),
            Op::ReluBackward => self.matrix(operands, |a, b| a - 2 * b),
            Op::Add => self.elementwise(operands, reuse, |a, b| a + b)?,
            Op::Sub => self.elementwise(operands, reuse, |a, b| a - b)?,
            Op::Mul => self.elementwise(operands, reuse, |a, b| a * b)?,
            Op::Neg => self.elementwise(operands, reuse, |a, _| -a)?,
            Op::Reshape => {
                let (EngineOperand::Value(value), Attr::Ints(dims)) =
                    (&operands[0], &instruction.attrs[0])
                else {
                    panic!("reshape")
                };
                if dims.elements() != i64::try_from(value.memory.borrow().len() / 8).ok() {
                    let text = format!("shape {dims} is invalid");
                    return Err(Fault::new(FailureClass::Runtime, text));
                }
                if dims.len() == 3 {
                    // A copy, for a reshape that cannot be a view.
                    self.new_value(&numbers(&operands[0]), *dims)
                } else {
                    Toy { memory: Rc::clone(&value.memory), dims: *dims }
                }
            }
            Op::Sgd => {
                let param = self.elementwise(&operands[..2], reuse, |a, b| a - b)?;
                // There is no buffer without momentum: one zero with its shape represents it.
                let none = Toy { memory: Rc::new(RefCell::new(vec![0; 8])), dims: param.dims };
                return Ok(Values::from_iter([param, none]));
            }
            other => {
                let text = format!("no {}", other.info().name);
                return Err(Fault::new(FailureClass::NotImplemented, text));
            }
        };
        Ok(Values::from_iter([value]))
    }

    fn execute_group(
        &mut self,
        instruction: &Instruction<'_>,
        operands: &[EngineOperand<'_, Toy>],
        reuse: u16,
    ) -> Option<Vec<Values<Toy>>> {
        let members = operands.chunks_exact(instruction.operands.len());
        self.groups.borrow_mut().push(members.len());
        if self.groups_fail {
            return None;
        }
        members.map(|member| self.execute(instruction, member, reuse).ok()).collect()
    }

    fn execute_joined(
        &mut self,
        first: &Instruction<'_>,
        operands: &[EngineOperand<'_, Toy>],
        reuse: u16,
        followers: &[Follower<'_, Toy>],
    ) -> Option<(usize, Toy)> {
        let count = followers.len().min(self.joins_max.unwrap_or(usize::MAX));
        if count == 0 {
            return None;
        }
        let mut made = self.execute(first, operands, reuse).ok()?.pop()?;
        for one in &followers[..count] {
            self.joined.borrow_mut().push(one.instruction.op);
            let operands: Vec<_> = one
                .operands
                .iter()
                .enumerate()
                .map(|(position, operand)| match operand {
                    EngineOperand::Absent => {
                        assert_ne!(one.from >> position & 1, 0);
                        EngineOperand::Value(&made)
                    }
                    EngineOperand::Value(value) => EngineOperand::Value(*value),
                    EngineOperand::Scalar(number) => EngineOperand::Scalar(*number),
                })
                .collect();
            made = self.execute(&one.instruction, &operands, 0).ok()?.pop()?;
        }
        Some((count, made))
    }

    fn in_place(&self, op: Op) -> u16 {
        match op {
            _ if self.never_in_place => 0,
            Op::Add | Op::Mul => 0b11,
            Op::Sub | Op::Neg | Op::Sgd | Op::AllReduce | Op::AllReduceCoalesced => 0b1,
            _ => 0,
        }
    }

    fn meta(&mut self, value: &Toy) -> Result<Meta, Fault> {
        Ok(Meta::new(Dtype::I64, value.dims))
    }

    fn is_view(&mut self, result: &Toy, operand: &Toy) -> Result<bool, Fault> {
        Ok(Rc::ptr_eq(&result.memory, &operand.memory))
    }

    fn memory_bytes(&mut self, value: &Toy) -> Result<u64, Fault> {
        Ok(value.memory.borrow().len().try_into().unwrap())
    }

    fn allocate(&mut self, meta: &Meta) -> Result<Toy, Fault> {
        self.filled(meta, 0)
    }

    fn clear(&mut self, value: &mut Toy) -> Result<(), Fault> {
        value.memory.borrow_mut().fill(0);
        Ok(())
    }

    fn write(&mut self, value: &mut Toy, byte_offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let start = usize::try_from(byte_offset).unwrap();
        value.memory.borrow_mut()[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn with_bytes(&mut self, value: &Toy, show: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
        if self.conduct.is_lost.get() {
            return Err(Fault::new(FailureClass::WorkerLost, "a kernel has not ended"));
        }
        show(&value.memory.borrow());
        Ok(())
    }

    fn take_loss(&mut self) -> bool {
        self.conduct.is_lost.replace(false)
    }

    fn borrow_buffers(&mut self, places: Places<'_, Toy>) -> Result<ToyBuffers, Fault> {
        let memory = |value: &Toy| Some(Rc::clone(&value.memory));
        Ok(match places {
            Places::Operand(operand) => ToyBuffers { operand: memory(operand), result: None },
            Places::Result(result) => ToyBuffers { operand: None, result: memory(result) },
            Places::Both(operand, result) => {
                ToyBuffers { operand: memory(operand), result: memory(result) }
            }
            Places::One(both) => ToyBuffers { operand: memory(both), result: memory(both) },
        })
    }

    fn return_buffers(
        &mut self,
        _borrowed: ToyBuffers,
        _written: Option<&mut Toy>,
    ) -> Result<(), Fault> {
        Ok(())
    }

    fn rendezvous(
        &mut self,
        collective: &Collective<'_>,
        places: Places<'_, Toy>,
    ) -> Result<(device::Rendezvous, Vec<u8>), Fault> {
        assert_eq!(collective.backend, Backend::Device);
        let buffers = self.borrow_buffers(places)?;
        Ok(self.conduct.rendezvous(collective.me, buffers))
    }

    fn negotiate(
        &mut self,
        rendezvous: &mut device::Rendezvous,
        payloads: &[&[u8]],
        reads: Option<&DirectReads>,
    ) -> Result<Turn, Fault> {
        self.conduct.negotiate(rendezvous, payloads, reads)
    }

    fn is_over(&mut self, rendezvous: &mut device::Rendezvous) -> bool {
        self.conduct.is_over(rendezvous)
    }

    fn lose(&mut self, rendezvous: &mut device::Rendezvous, member: u32) {
        self.conduct.gone.borrow_mut().push(member);
        rendezvous.lose(member);
    }

    fn finish(
        &mut self,
        rendezvous: &mut device::Rendezvous,
        _result: Option<&mut Toy>,
    ) -> Result<(), Fault> {
        if let Some(member) = rendezvous.lost() {
            return Err(PeerLost(PeerId { index: member, incarnation: 0 }).into());
        }
        self.conduct.finish(rendezvous);
        Ok(())
    }

    fn end(&mut self, rendezvous: device::Rendezvous, payloads: &[Option<Vec<u8>>]) {
        self.conduct.end(&rendezvous, payloads);
    }

    fn fall_back(
        &mut self,
        rendezvous: device::Rendezvous,
        _result: Option<&mut Toy>,
    ) -> Result<ToyBuffers, Fault> {
        Ok(rendezvous.buffers())
    }

    fn reduce(_dtype: Dtype, reduce_op: ReduceOp, shards: &[Shard<'_>], out: &mut [u8]) {
        let shards: Vec<Vec<i64>> = shards.iter().map(|shard| numbers_of(shard.of(out))).collect();
        let join = |left: i64, right: &i64| match reduce_op {
            // It is deliberately not associative, so that the order shows.
            ReduceOp::Sum => (left * 3 + right).rem_euclid(PRIME),
            ReduceOp::Max => left.max(*right),
            ReduceOp::Min => left.min(*right),
            ReduceOp::Prod => (left * right).rem_euclid(PRIME),
        };
        let column = |place: usize| shards.iter().map(move |shard| shard[place]);
        let reduced: Vec<i64> = (0..shards[0].len())
            .map(|place| {
                column(place).skip(1).fold(shards[0][place], |left, right| join(left, &right))
            })
            .collect();
        out.copy_from_slice(&bytes_of(&reduced));
    }

    fn synchronize(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// An answer, owned.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Numbers { request: u64, numbers: Vec<i64> },
    Done(u64),
    Failure(Cause),
    FailedReply(u64, Cause),
    Losses { request: u64, is_last: bool, slots: Vec<u32> },
    Other(&'static str),
}

/// Answers, with their chunks joined; and payloads beside the words, with the offsets that they
/// were sent for.
#[derive(Debug, Default)]
struct Answers(Vec<Answer>, VecDeque<(u64, Vec<u8>)>);

impl Replies for Answers {
    fn payload(&mut self, show: &mut dyn FnMut(u64, &[u8])) -> bool {
        let Some((offset, bytes)) = self.1.pop_front() else { return false };
        show(offset, &bytes);
        true
    }

    fn send(&mut self, message: &FromWorker<'_>) {
        let answer = match message {
            FromWorker::Reply(reply) => {
                let chunk = numbers_of(reply.bytes);
                if let Some(Answer::Numbers { request, numbers }) = self.0.last_mut()
                    && *request == reply.request
                    && reply.start != 0
                {
                    numbers.extend(chunk);
                    return;
                }
                Answer::Numbers { request: reply.request, numbers: chunk }
            }
            FromWorker::Done { request } => Answer::Done(*request),
            FromWorker::Failure(failure) => Answer::Failure(Cause::from(failure)),
            FromWorker::FailedReply { request, failure } => {
                Answer::FailedReply(*request, Cause::from(failure))
            }
            &FromWorker::Losses(Losses { request, is_last, slots }) => {
                Answer::Losses { request, is_last, slots: slots.to_vec() }
            }
            other => Answer::Other(other.name()),
        };
        self.0.push(answer);
    }
}

fn words(instructions: &[Instruction<'_>]) -> Vec<u32> {
    let mut words = Vec::new();
    for instruction in instructions {
        wire::encode(instruction, &mut words).unwrap();
    }
    words
}

fn run(machine: &mut Machine<ToyEngine>, instructions: &[Instruction<'_>]) -> Vec<Answer> {
    let words = words(instructions);
    let mut answers = Answers::default();
    assert_eq!(
        machine.run(&words, &mut answers, &mut CommunicationStream::new(Nobody)),
        Ok(words.len())
    );
    answers.0
}

fn values(slots: &[u32]) -> impl Iterator<Item = Operand> + '_ {
    slots.iter().map(|&slot| Operand::Value(Id::slot(slot)))
}

fn op(op: Op, outputs: &[u32], operands: &[u32], attrs: &[Attr]) -> Instruction<'static> {
    Instruction {
        tag: outputs.first().copied().unwrap_or(0) + 1000,
        outputs: outputs.iter().map(|&slot| Id::slot(slot)).collect(),
        operands: values(operands).collect(),
        attrs: attrs.iter().cloned().collect(),
        ..Instruction::new(op)
    }
}

fn ints(values: &[i64]) -> Attr {
    Attr::Ints(Dims::new(values).unwrap())
}

fn full(slot: u32, size: i64, number: i64) -> Instruction<'static> {
    let attrs = [ints(&[size]), Attr::Scalar(Scalar::Int(number)), Attr::Dtype(Dtype::I64)];
    op(Op::Full, &[slot], &[], &attrs)
}

fn free(slots: &[u32]) -> Instruction<'static> {
    op(Op::Free, &[], slots, &[])
}

fn read(slot: u32, request: i64, count: i64) -> Instruction<'static> {
    op(Op::Read, &[], &[slot], &[Attr::Int(request), Attr::Int(0), Attr::Int(count)])
}

fn answer(request: u64, numbers: &[i64]) -> Answer {
    Answer::Numbers { request, numbers: numbers.to_vec() }
}
