//! The interface of a machine to the engine that computes.

use crate::backend::{Collective, DirectReads, Turn};
use crate::buffers::BorrowedBuffers;
use crate::failure::{FailedInstruction, Fault};
use crate::reduce_op::{Shard, reduce};
use gt_protocol::placement::ReduceOp;
use gt_protocol::{Dtype, Instruction, Meta, Op, Scalar};
use smallvec::SmallVec;

/// The results of an instruction; nearly always one.
pub type Values<V> = SmallVec<[V; 2]>;

/// An operand in the form that an engine gets.
#[derive(Debug)]
pub enum EngineOperand<'a, V> {
    Absent,
    Value(&'a V),
    Scalar(Scalar),
}

/// An instruction that may run together with the one before it, whose result it consumes.
#[derive(Debug)]
pub struct Follower<'a, V> {
    pub instruction: Instruction<'a>,
    /// Operands; absent where they are that result.
    pub operands: SmallVec<[EngineOperand<'a, V>; 4]>,
    /// Bit mask of the operands that are that result.
    pub from: u16,
}

/// Values whose bytes a collective needs.
#[derive(Debug)]
pub enum Places<'a, V> {
    Operand(&'a V),
    Result(&'a mut V),
    Both(&'a V, &'a mut V),
    /// One value that is operand and result.
    One(&'a mut V),
}

/// Executes instructions on values of its own. It has no table and no slots.
pub trait Engine {
    /// A handle to a value: dropping it frees the value.
    type Value;
    /// Borrowed bytes of values that a collective works on.
    type Borrowed: BorrowedBuffers;
    /// Our part in a collective by a backend. It keeps the values that it needs alive.
    type Rendezvous;

    /// Computes the row's outputs. Bit k of `reuse` guarantees that operand k is not read again,
    /// that it is contiguous, and that a result has its shape and dtype: its buffer may become a
    /// result's. A result shares memory with an operand only in this case, and for the rows that
    /// `reuse::aliases` lists. The results are bit-identical with and without. Results of
    /// creations, and of elementwise rows and updates of contiguous operands, are contiguous or
    /// stand for an absent state; results of other rows may have any layout.
    fn execute(
        &mut self,
        instruction: &Instruction<'_>,
        operands: &[EngineOperand<'_, Self::Value>],
        reuse: u16,
    ) -> Result<Values<Self::Value>, Fault>;

    /// Computes several updates like `instruction` in one call. `operands` concatenates their
    /// operands; each update overwrites those in `reuse`, and no two updates name the same value.
    /// Returns the results of each, bit-identical to [`execute`](Self::execute)'s. Returns `None`,
    /// with nothing written, where there is no such call or where it fails: each update is then
    /// executed by itself.
    fn execute_group(
        &mut self,
        _instruction: &Instruction<'_>,
        _operands: &[EngineOperand<'_, Self::Value>],
        _reuse: u16,
    ) -> Option<Vec<Values<Self::Value>>> {
        None
    }

    /// Computes an instruction together with as many of `followers`, in order, as this engine can
    /// join: each consumes the result before it. Returns their number, at least one, and the last
    /// one's result, bit-identical to executing them one by one. Returns `None`, with nothing done,
    /// where none can be joined. `reuse` applies to the first instruction, as in
    /// [`execute`](Self::execute).
    fn execute_joined(
        &mut self,
        _first: &Instruction<'_>,
        _operands: &[EngineOperand<'_, Self::Value>],
        _reuse: u16,
        _followers: &[Follower<'_, Self::Value>],
    ) -> Option<(usize, Self::Value)> {
        None
    }

    /// Number of elements of an elementwise result from which looking for followers takes less time
    /// than the pass over memory that it may save.
    fn joined_elements_min(&self) -> i64 {
        1 << 12
    }

    /// Number of calls that ran in C++, and in Python; and number of calls of GT's own kernels from
    /// either.
    fn calls(&self) -> [u64; 3] {
        [0; 3]
    }

    /// True if updates of any size are computed in one call. An engine with several threads computes
    /// large ones one by one.
    fn groups_large(&self) -> bool {
        false
    }

    /// Tells if the next instruction is worth several threads. The caller decides by instructions
    /// alone, because the number of threads may change the bits of a result.
    fn set_large(&mut self, is_large: bool) {
        let _ = is_large;
    }

    /// Tells the engine the worker's index.
    fn set_index(&mut self, _index: u32) {}

    /// Marks the start of an instruction, for an engine that records execution times.
    fn begin_instruction(&mut self) {}

    /// Marks the end of the instruction that was started.
    fn end_instruction(&mut self, _session: u32, _instruction: &Instruction<'_>) {}

    /// Marks the start of a collective, under the machine's ticket;
    /// [`end_transfer`](Self::end_transfer) marks its end.
    fn begin_transfer(&mut self, _ticket: u64) {}

    /// Marks the end of a collective.
    fn end_transfer(&mut self, _ticket: u64, _origin: &FailedInstruction) {}

    /// Writes the records that have gathered: they are waited for, or the worker is idle.
    fn flush_record(&mut self) {}

    /// Bit mask of operands whose buffer this engine can reuse for a result of `op`.
    fn in_place(&self, op: Op) -> u16;

    /// Metadata of a value; called only where the shape rules cannot tell it (the number of true
    /// elements of a mask).
    fn meta(&mut self, value: &Self::Value) -> Result<Meta, Fault>;

    /// Returns true if a result of `reshape` shares its operand's memory, false if it is a copy.
    fn is_view(&mut self, result: &Self::Value, operand: &Self::Value) -> Result<bool, Fault>;

    /// Bytes of the whole memory that holds a value. Called where they may differ from those of its
    /// shape: for an optimizer's results, one of which may only stand for a state that the step
    /// does not have.
    fn memory_bytes(&mut self, value: &Self::Value) -> Result<u64, Fault>;

    /// Allocates a value whose bytes [`write`](Self::write) will fill.
    fn allocate(&mut self, meta: &Meta) -> Result<Self::Value, Fault>;

    /// Sets all bytes of an allocated value to zero.
    fn clear(&mut self, value: &mut Self::Value) -> Result<(), Fault>;

    /// Writes bytes into an allocated value; the machine has checked that they fit.
    fn write(
        &mut self,
        value: &mut Self::Value,
        byte_offset: u64,
        bytes: &[u8],
    ) -> Result<(), Fault>;

    /// Passes all the bytes of a value, row-major, to `show`, in place if they are stored so.
    fn with_bytes(&mut self, value: &Self::Value, show: &mut dyn FnMut(&[u8]))
    -> Result<(), Fault>;

    /// Copies a value to the strides that [`allocate`](Self::allocate) gives; `None` if it has them
    /// already.
    fn contiguous(
        &mut self,
        _value: &Self::Value,
        _meta: &Meta,
    ) -> Result<Option<Self::Value>, Fault> {
        Ok(None)
    }

    /// Copies a value to the layout of a received one, alignment included; `None` if it has it
    /// already.
    fn as_received(
        &mut self,
        _value: &Self::Value,
        _meta: &Meta,
    ) -> Result<Option<Self::Value>, Fault> {
        Ok(None)
    }

    /// Lends the bytes of values for as long as a collective works on them, row-major, in place if
    /// they are stored so: an operand's for reading, a result's for writing. A value to be written
    /// may be replaced by one with a better layout. Until the buffers are returned the machine does
    /// not write any of them, and does not read one that is written.
    fn borrow_buffers(&mut self, places: Places<'_, Self::Value>) -> Result<Self::Borrowed, Fault>;

    /// Takes buffers back. When this returns, `written` has the bytes that were written.
    fn return_buffers(
        &mut self,
        borrowed: Self::Borrowed,
        written: Option<&mut Self::Value>,
    ) -> Result<(), Fault>;

    /// Domains of workers that can take part in collectives with this one, from device to device
    /// and by a process group: workers with the same domain. Empty: none.
    fn domains(&self) -> [&str; 2] {
        [""; 2]
    }

    /// Starts our part of a collective by a backend, and returns the payload from which the others
    /// learn how to read the operand, and a result that others read too. An empty payload means
    /// that the backend cannot take part, and all members use messages. From now until
    /// [`end`](Self::end) the operand is not written, and the result only by this engine.
    fn rendezvous(
        &mut self,
        collective: &Collective<'_>,
        places: Places<'_, Self::Value>,
    ) -> Result<(Self::Rendezvous, Vec<u8>), Fault>;

    /// Continues with the payloads of all members in the last round, in the group's order, our own
    /// included. After the first round `reads` has the ranges to read from other members' memory.
    fn negotiate(
        &mut self,
        rendezvous: &mut Self::Rendezvous,
        payloads: &[&[u8]],
        reads: Option<&DirectReads>,
    ) -> Result<Turn, Fault>;

    /// Returns true if the result is available without waiting for another member, or never will
    /// be. Until then the machine handles its other collectives.
    fn is_over(&mut self, _rendezvous: &mut Self::Rendezvous) -> bool {
        true
    }

    /// Tells that a member of this collective, which is not over, is gone.
    fn lose(&mut self, _rendezvous: &mut Self::Rendezvous, _peer: u32) {}

    /// Makes the result usable: everything that this engine computes afterwards finds it complete.
    fn finish(
        &mut self,
        rendezvous: &mut Self::Rendezvous,
        result: Option<&mut Self::Value>,
    ) -> Result<(), Fault>;

    /// Ends a collective, successful or not: no member starts to read our memory any more.
    /// `payloads` are the last ones received, possibly of an earlier round if our part failed;
    /// `None` for members that have failed or are gone. When this returns, the engine may write
    /// that memory again, and must itself order such writes after the reads that other members have
    /// started.
    fn end(&mut self, rendezvous: Self::Rendezvous, payloads: &[Option<Vec<u8>>]);

    /// Switches to messages: returns the buffers that [`borrow_buffers`](Self::borrow_buffers)
    /// would have given.
    fn fall_back(
        &mut self,
        rendezvous: Self::Rendezvous,
        result: Option<&mut Self::Value>,
    ) -> Result<Self::Borrowed, Fault>;

    /// Reduces shards of one dtype and length, in the order given, into `out`, which has the same
    /// length.
    fn reduce(dtype: Dtype, reduce_op: ReduceOp, shards: &[Shard<'_>], out: &mut [u8]) {
        reduce(dtype, reduce_op, shards, out);
    }

    /// Returns true, once, if the fault that it has just returned affects all its values: a
    /// collective on a device did not complete, and values computed since may depend on its result.
    /// Values computed from then on are valid.
    fn take_loss(&mut self) -> bool {
        false
    }

    /// Returns when all earlier work has run.
    fn synchronize(&mut self) -> Result<(), Fault>;
}
