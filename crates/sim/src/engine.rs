//! The engine of a simulated worker: toy tensors, with a mark on memory that a result has taken
//! over.

use crate::arithmetic::compute::Compute;
use crate::arithmetic::kernels::{KernelArg, KernelError};
use crate::arithmetic::tensor::{
    PRIME, ToyTensor, elements, from_dims, larger, smaller, to_bytes, to_dims,
};
use crate::exact::exact;
use gt_protocol::message::FailureClass;
use gt_protocol::rules::{self, RuleArg};
use gt_protocol::{Dtype, Family, Instruction, Meta, Op};
use gt_worker::{
    BorrowedBuffers, Buffers, Collective, DirectReads, Engine, EngineOperand, Fault, Follower,
    Places, ReduceOp, Shard, Turn, Values,
};
use std::cell::Cell;
use std::rc::Rc;

#[derive(Debug, Default)]
pub struct ToyEngine {
    /// True if it announces a backend of collectives, and refuses each: its members then negotiate
    /// before they send bytes.
    pub negotiates: bool,
}

/// A tensor and the memory that it shares with its views. A real engine writes a result over an
/// operand that is not read again; the toy marks that memory instead, so that a later reader is
/// detected.
#[derive(Debug)]
pub struct Stored {
    tensor: ToyTensor,
    overwritten: Rc<Cell<bool>>,
}

impl Stored {
    fn new(tensor: ToyTensor) -> Self {
        Self { tensor, overwritten: Rc::default() }
    }

    fn read(&self) -> Result<&ToyTensor, Fault> {
        if self.overwritten.get() {
            return Err(Fault::new(
                FailureClass::Internal,
                "memory is read that a result has taken over",
            ));
        }
        Ok(&self.tensor)
    }
}

/// Borrowed bytes of tensors: copies, because a toy tensor does not consist of bytes.
#[derive(Debug, Default)]
pub struct BorrowedTensors {
    /// The mark on the operand's memory: bytes sent from there are wrong once a result has taken it
    /// over.
    overwritten: Rc<Cell<bool>>,
    operand: Vec<u8>,
    result: Vec<u8>,
    is_one: bool,
}

impl BorrowedBuffers for BorrowedTensors {
    fn show(&mut self, work: &mut dyn FnMut(Buffers<'_>)) {
        if self.overwritten.get() {
            self.operand.fill(0xa5);
        }
        if self.is_one {
            work(Buffers::One(&mut self.result));
        } else {
            work(Buffers::Two(&self.operand, &mut self.result));
        }
    }
}

/// Marks the memory of these operands as taken over by a result.
fn mark(operands: &[EngineOperand<'_, Stored>], reuse: u16) {
    for (position, operand) in operands.iter().take(16).enumerate() {
        if let EngineOperand::Value(value) = operand
            && reuse & (1 << position) != 0
        {
            value.overwritten.set(true);
        }
    }
}

/// An operand of a following instruction: the result before it if it is absent.
fn of_step<'a>(made: &'a Stored, other: &EngineOperand<'a, Stored>) -> EngineOperand<'a, Stored> {
    match other {
        EngineOperand::Absent => EngineOperand::Value(made),
        EngineOperand::Value(value) => EngineOperand::Value(value),
        EngineOperand::Scalar(scalar) => EngineOperand::Scalar(*scalar),
    }
}

impl Engine for ToyEngine {
    type Value = Stored;
    type Borrowed = BorrowedTensors;
    type Rendezvous = BorrowedTensors;

    fn execute(
        &mut self,
        instruction: &Instruction<'_>,
        operands: &[EngineOperand<'_, Stored>],
        reuse: u16,
    ) -> Result<Values<Stored>, Fault> {
        let name = instruction.op.info().name;
        let internal = |text: String| Fault::new(FailureClass::Internal, text);
        let compute = Compute::of(instruction);
        let mut args = Vec::with_capacity(operands.len());
        for operand in operands {
            args.push(match operand {
                EngineOperand::Absent => KernelArg::Absent,
                EngineOperand::Scalar(scalar) => KernelArg::Scalar(*scalar),
                EngineOperand::Value(value) => KernelArg::ToyTensor(value.read()?),
            });
        }
        let results = compute.run(&args).map_err(|refusal| match refusal {
            KernelError::Data(text) => Fault::new(FailureClass::Index, text),
            KernelError::Unknown => {
                let text = format!("{name}: no toy for {:?}", instruction.attrs);
                Fault::new(FailureClass::NotImplemented, text)
            }
            KernelError::Form(text) => internal(format!("{name}: {text}")),
        })?;
        if !as_inferred(instruction, &args, &results) {
            // The client wrote arbitrary attributes: a worker relies on the rules' inference.
            let text = format!("{name}: no toy for {:?}", instruction.attrs);
            return Err(Fault::new(FailureClass::NotImplemented, text));
        }
        mark(operands, reuse);
        let shared = match operands.first() {
            Some(EngineOperand::Value(value)) if is_view(instruction.op) => {
                Some(&value.overwritten)
            }
            _ => None,
        };
        Ok(results
            .into_iter()
            .map(|tensor| match shared {
                Some(memory) => Stored { tensor, overwritten: Rc::clone(memory) },
                None => Stored::new(tensor),
            })
            .collect())
    }

    fn execute_joined(
        &mut self,
        first: &Instruction<'_>,
        operands: &[EngineOperand<'_, Stored>],
        reuse: u16,
        followers: &[Follower<'_, Stored>],
    ) -> Option<(usize, Stored)> {
        let mut made = self.execute(first, operands, 0).ok()?.pop()?;
        let mut joined = 0;
        for one in followers {
            let operands: Vec<_> = one.operands.iter().map(|other| of_step(&made, other)).collect();
            let Ok(mut results) = self.execute(&one.instruction, &operands, 0) else { break };
            made = results.pop()?;
            joined += 1;
        }
        // If no instruction joins, nothing has been done: no operand is marked.
        if joined != 0 {
            mark(operands, reuse);
        }
        (joined != 0).then_some((joined, made))
    }

    fn joined_elements_min(&self) -> i64 {
        0
    }

    fn in_place(&self, op: Op) -> u16 {
        match op.info().family {
            Family::Elementwise | Family::Update => 0b111,
            Family::Create
            | Family::Random
            | Family::Contract
            | Family::Reduce
            | Family::Normalize
            | Family::View
            | Family::Index
            | Family::Loss
            | Family::Generic
            | Family::Control
            | Family::Collective => 0,
        }
    }

    fn meta(&mut self, value: &Stored) -> Result<Meta, Fault> {
        let tensor = value.read()?;
        Ok(Meta::new(tensor.dtype, to_dims(&tensor.dims)))
    }

    fn is_view(&mut self, result: &Stored, operand: &Stored) -> Result<bool, Fault> {
        Ok(Rc::ptr_eq(&result.overwritten, &operand.overwritten))
    }

    fn memory_bytes(&mut self, value: &Stored) -> Result<u64, Fault> {
        self.meta(value).map(|meta| meta.bytes())
    }

    fn allocate(&mut self, meta: &Meta) -> Result<Stored, Fault> {
        let dims = from_dims(&meta.dims);
        Ok(Stored::new(ToyTensor::from_fn(&dims, meta.dtype, |_| 0)))
    }

    fn clear(&mut self, value: &mut Stored) -> Result<(), Fault> {
        value.read()?;
        value.tensor.data.fill(Default::default());
        Ok(())
    }

    fn write(&mut self, value: &mut Stored, byte_offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        value.read()?;
        let dtype = value.tensor.dtype;
        let first = exact::<_, usize>(byte_offset / dtype.size());
        let written = elements(dtype, bytes);
        match value.tensor.data.get_mut(first..first + written.len()) {
            Some(place) if byte_offset.is_multiple_of(dtype.size()) => {
                place.copy_from_slice(&written);
            }
            Some(_) | None => {
                let text = format!("{} bytes at {byte_offset}", bytes.len());
                return Err(Fault::new(FailureClass::Internal, text));
            }
        }
        Ok(())
    }

    fn with_bytes(&mut self, value: &Stored, show: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
        show(&value.read()?.to_bytes());
        Ok(())
    }

    fn borrow_buffers(&mut self, places: Places<'_, Stored>) -> Result<BorrowedTensors, Fault> {
        let bytes = |value: &Stored| value.read().map(ToyTensor::to_bytes);
        let of_operand = |value: &Stored| -> Result<BorrowedTensors, Fault> {
            let overwritten = Rc::clone(&value.overwritten);
            Ok(BorrowedTensors {
                overwritten,
                operand: bytes(value)?,
                ..BorrowedTensors::default()
            })
        };
        Ok(match places {
            Places::Operand(operand) => of_operand(operand)?,
            Places::Result(result) => {
                BorrowedTensors { result: bytes(result)?, ..BorrowedTensors::default() }
            }
            Places::Both(operand, result) => {
                BorrowedTensors { result: bytes(result)?, ..of_operand(operand)? }
            }
            Places::One(both) => {
                BorrowedTensors { result: bytes(both)?, is_one: true, ..BorrowedTensors::default() }
            }
        })
    }

    fn return_buffers(
        &mut self,
        borrowed: BorrowedTensors,
        written: Option<&mut Stored>,
    ) -> Result<(), Fault> {
        written.map_or(Ok(()), |value| self.write(value, 0, &borrowed.result))
    }

    fn domains(&self) -> [&str; 2] {
        if self.negotiates { ["toys", ""] } else { ["", ""] }
    }

    fn rendezvous(
        &mut self,
        _meeting: &Collective<'_>,
        places: Places<'_, Stored>,
    ) -> Result<(BorrowedTensors, Vec<u8>), Fault> {
        Ok((self.borrow_buffers(places)?, Vec::new()))
    }

    fn negotiate(
        &mut self,
        _buffers: &mut BorrowedTensors,
        _words: &[&[u8]],
        _work: Option<&DirectReads>,
    ) -> Result<Turn, Fault> {
        Ok(Turn::FallBack)
    }

    fn finish(
        &mut self,
        _buffers: &mut BorrowedTensors,
        _result: Option<&mut Stored>,
    ) -> Result<(), Fault> {
        Ok(())
    }

    fn end(&mut self, _buffers: BorrowedTensors, _words: &[Option<Vec<u8>>]) {}

    fn fall_back(
        &mut self,
        borrowed: BorrowedTensors,
        _result: Option<&mut Stored>,
    ) -> Result<BorrowedTensors, Fault> {
        Ok(borrowed)
    }

    fn reduce(dtype: Dtype, reduce_op: ReduceOp, shards: &[Shard<'_>], out: &mut [u8]) {
        let shards: Vec<Vec<u64>> =
            shards.iter().map(|shard| elements(dtype, shard.of(out))).collect();
        let Some((first, others)) = shards.split_first() else { return };
        let mut reduced = first.clone();
        for shard in others {
            for (a, &b) in reduced.iter_mut().zip(shard) {
                *a = match reduce_op {
                    ReduceOp::Sum => (*a + b) % PRIME,
                    ReduceOp::Max => larger(*a, b),
                    ReduceOp::Min => smaller(*a, b),
                    ReduceOp::Prod => *a * b % PRIME,
                };
            }
        }
        out.copy_from_slice(&to_bytes(dtype, &reduced));
    }

    fn synchronize(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Returns true if results have the dtypes and dimensions that the rules infer, where they can.
fn as_inferred(
    instruction: &Instruction<'_>,
    args: &[KernelArg<'_>],
    results: &[ToyTensor],
) -> bool {
    let meta = |tensor: &ToyTensor| Meta::new(tensor.dtype, to_dims(&tensor.dims));
    let metas: Vec<Option<Meta>> = args.iter().map(|arg| arg.optional().map(meta)).collect();
    let operands: Vec<RuleArg<'_>> = args
        .iter()
        .zip(&metas)
        .map(|(arg, known)| match (arg, known) {
            (KernelArg::Scalar(scalar), _) => RuleArg::Scalar(*scalar),
            (_, Some(meta)) => RuleArg::Value(meta),
            (_, None) => RuleArg::Absent,
        })
        .collect();
    rules::infer(instruction.op, &operands, &instruction.attrs).map_or(true, |inferred| {
        inferred.iter().eq(results.iter().map(meta).collect::<Vec<_>>().iter())
    })
}

/// Returns true for rows whose result shares its operand's memory in a real engine.
fn is_view(op: Op) -> bool {
    matches!(op, Op::Reshape | Op::Permute | Op::Expand | Op::Slice | Op::Select | Op::Diagonal)
}
