//! What a machine needs from whatever computes.

use crate::backend::{Collective, DirectReads, Turn};
use crate::buffers::BorrowedBuffers;
use crate::failure::{FailedInstruction, Fault};
use crate::reduce_op::{Shard, reduce};
use gt_protocol::placement::ReduceOp;
use gt_protocol::{Dtype, Instruction, Meta, Op, Scalar};
use smallvec::SmallVec;

/// The results of an instruction; nearly always one.
pub type Values<V> = SmallVec<[V; 2]>;

/// An operand as an engine gets it.
#[derive(Debug)]
pub enum EngineOperand<'a, V> {
    Absent,
    Value(&'a V),
    Scalar(Scalar),
}

/// An instruction that may run with the one before it, whose result it ends.
#[derive(Debug)]
pub struct Follower<'a, V> {
    pub instruction: Instruction<'a>,
    /// Absent where they are that result.
    pub operands: SmallVec<[EngineOperand<'a, V>; 4]>,
    /// Operands, a bit each, that are that result.
    pub from: u16,
}

/// Whose bytes a collective needs.
#[derive(Debug)]
pub enum Places<'a, V> {
    Operand(&'a V),
    Result(&'a mut V),
    Both(&'a V, &'a mut V),
    /// The operand becomes the result.
    One(&'a mut V),
}

/// Executes instructions on values of its own. It owns no table and knows no slot.
pub trait Engine {
    /// A handle to a value: dropping it frees the value.
    type Value;
    /// Bytes of values that a collective works on.
    type Borrowed: BorrowedBuffers;
    /// Our part in a collective by a backend. It keeps what it needs of the values.
    type Rendezvous;

    /// Computes the row's outputs. Bit k of `reuse` says that nobody reads operand k again, that it is contiguous and that
    /// a result has its shape and dtype: its buffer may become a result's. A result shares memory with an operand only
    /// then, and for the rows that `reuse::aliases` lists. Its bits are the same with and without.
    /// Results of creation, and of elementwise rows and updates of contiguous operands, are contiguous or stand for an
    /// absent state; those of other rows may have any layout.
    fn execute(
        &mut self,
        instruction: &Instruction<'_>,
        operands: &[EngineOperand<'_, Self::Value>],
        reuse: u16,
    ) -> Result<Values<Self::Value>, Fault>;

    /// Computes several updates like `instruction` in one call, `operands` being those of one after another, of which each writes
    /// over those in `reuse`: the results of each, which have the bits that [`execute`](Self::execute) gives. No two name the same value.
    /// Nothing where there is no such call, or where it fails: nothing has been written then, and each is executed by itself.
    fn execute_group(
        &mut self,
        _instruction: &Instruction<'_>,
        _operands: &[EngineOperand<'_, Self::Value>],
        _reuse: u16,
    ) -> Option<Vec<Values<Self::Value>>> {
        None
    }

    /// Computes an instruction and of its result those that follow it, the first ones, as many as go together with it here: how many of
    /// `followers`, at least one, and the result of the last, whose bits are those of one after the other. Nothing where none
    /// goes together with it; nothing has been done then. `reuse` is of the first, as for [`execute`](Self::execute).
    fn execute_joined(
        &mut self,
        _first: &Instruction<'_>,
        _operands: &[EngineOperand<'_, Self::Value>],
        _reuse: u16,
        _followers: &[Follower<'_, Self::Value>],
    ) -> Option<(usize, Self::Value)> {
        None
    }

    /// Elements of an elementwise result from which on looking at what follows takes less time than the pass that it may save.
    fn joined_elements_min(&self) -> i64 {
        1 << 12
    }

    /// How many calls have run in C++, and in Python; and of GT's own kernels from either.
    fn calls(&self) -> [u64; 3] {
        [0; 3]
    }

    /// Says whether the next instruction is worth several threads. It follows from instructions alone, as the number of
    /// threads may change the bits of a result.
    fn set_large(&mut self, is_large: bool) {
        let _ = is_large;
    }

    /// The worker's index is known.
    fn set_index(&mut self, _index: u32) {}

    /// An instruction begins: for an engine that records when it executes what.
    fn begin_instruction(&mut self) {}

    /// The instruction that has begun has ended.
    fn end_instruction(&mut self, _session: u32, _instruction: &Instruction<'_>) {}

    /// A collective begins, under a ticket of the machine's; it is over when [`end_transfer`](Self::end_transfer) says so.
    fn begin_transfer(&mut self, _ticket: u64) {}

    /// A collective is over.
    fn end_transfer(&mut self, _ticket: u64, _origin: &FailedInstruction) {}

    /// Somebody waits for all that was recorded, or nothing is left to do.
    fn flush_record(&mut self) {}

    /// Positions whose buffer this engine can use again for a result of `op`.
    fn in_place(&self, op: Op) -> u16;

    /// What a value is; asked only where the shape rules cannot say (a mask's count of elements).
    fn meta(&mut self, value: &Self::Value) -> Result<Meta, Fault>;

    /// Whether a result of `reshape` is its operand's memory; else it is a copy.
    fn is_view(&mut self, result: &Self::Value, operand: &Self::Value) -> Result<bool, Fault>;

    /// Bytes of the memory that holds a value, all of it. Asked where they need not be those of its shape: of an
    /// optimizer's results, of which one may only stand for a state that the step does not have.
    fn memory_bytes(&mut self, value: &Self::Value) -> Result<u64, Fault>;

    /// A value whose bytes [`write`](Self::write) will fill.
    fn allocate(&mut self, meta: &Meta) -> Result<Self::Value, Fault>;

    /// Puts bytes into an allocated value; the machine has checked that they fit.
    fn write(
        &mut self,
        value: &mut Self::Value,
        byte_offset: u64,
        bytes: &[u8],
    ) -> Result<(), Fault>;

    /// Shows all the bytes of a value, row-major, in place where they are stored so.
    fn with_bytes(&mut self, value: &Self::Value, show: &mut dyn FnMut(&[u8]))
    -> Result<(), Fault>;

    /// A copy with the strides that [`allocate`](Self::allocate) gives; nothing where the value has them already.
    fn contiguous(
        &mut self,
        _value: &Self::Value,
        _meta: &Meta,
    ) -> Result<Option<Self::Value>, Fault> {
        Ok(None)
    }

    /// A copy with the layout of a received value, address included; nothing where the value has it.
    fn as_received(
        &mut self,
        _value: &Self::Value,
        _meta: &Meta,
    ) -> Result<Option<Self::Value>, Fault> {
        Ok(None)
    }

    /// Lends the bytes of values for as long as a collective works on them, row-major, in place where they are stored so: of an
    /// operand to be read, of a result to be written. A value to be written may be replaced by one with a better layout.
    /// Until the buffers are returned the machine writes to none of them, and reads none that is written.
    fn borrow_buffers(&mut self, places: Places<'_, Self::Value>) -> Result<Self::Borrowed, Fault>;

    /// Takes buffers back. What was written is the value's when this returns; `written` is the one that was to be.
    fn return_buffers(
        &mut self,
        borrowed: Self::Borrowed,
        written: Option<&mut Self::Value>,
    ) -> Result<(), Fault>;

    /// Who can take part in collectives with us from device to device, and by a process group: those who say the same. Nothing:
    /// nobody.
    fn domains(&self) -> [&str; 2] {
        [""; 2]
    }

    /// Begins our part of a collective by a backend, and says what the others must know to read the operand, and a result
    /// that others read too. An empty payload: it cannot be, and all go by messages. From now until
    /// [`end`](Self::end) the operand is not written, and the result only by this engine.
    fn rendezvous(
        &mut self,
        collective: &Collective<'_>,
        places: Places<'_, Self::Value>,
    ) -> Result<(Self::Rendezvous, Vec<u8>), Fault>;

    /// Goes on with what all members have sent in the last round, in the group's order, our own payload among them. After the
    /// first one there are `reads`: what is to be read of whose memory.
    fn negotiate(
        &mut self,
        rendezvous: &mut Self::Rendezvous,
        payloads: &[&[u8]],
        reads: Option<&DirectReads>,
    ) -> Result<Turn, Fault>;

    /// Whether the result can be had without waiting for another member, or never will be. Until then the machine looks
    /// after its other collectives.
    fn is_over(&mut self, _rendezvous: &mut Self::Rendezvous) -> bool {
        true
    }

    /// A member of this collective is gone, and it is not over.
    fn lose(&mut self, _rendezvous: &mut Self::Rendezvous, _peer: u32) {}

    /// From now on the result is used: whatever this engine computes afterwards finds it there.
    fn finish(
        &mut self,
        rendezvous: &mut Self::Rendezvous,
        result: Option<&mut Self::Value>,
    ) -> Result<(), Fault>;

    /// The end of a collective, well or not: nobody begins to read our memory any more. `payloads` are the last
    /// ones that were received, of a part that failed perhaps of an earlier round; none of members that have failed or are
    /// gone. When this returns, the engine may write to that memory again: it sees to it itself that what the others
    /// have begun to read is not overtaken.
    fn end(&mut self, rendezvous: Self::Rendezvous, payloads: &[Option<Vec<u8>>]);

    /// All go by messages after all: what [`borrow_buffers`](Self::borrow_buffers) would have given.
    fn fall_back(
        &mut self,
        rendezvous: Self::Rendezvous,
        result: Option<&mut Self::Value>,
    ) -> Result<Self::Borrowed, Fault>;

    /// Reduces shards of one dtype and length, in the order given, into `out`, which is as long.
    fn reduce(dtype: Dtype, reduce_op: ReduceOp, shards: &[Shard<'_>], out: &mut [u8]) {
        reduce(dtype, reduce_op, shards, out);
    }

    /// Whether the fault that it has just returned is one of all its values: a collective on a device has not come to its
    /// end, and what was computed since may be made of its result. Said once; what comes from then on is well.
    fn take_loss(&mut self) -> bool {
        false
    }

    /// Returns when everything before has run.
    fn synchronize(&mut self) -> Result<(), Fault>;
}
