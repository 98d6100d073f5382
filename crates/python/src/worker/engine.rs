//! The engine that calls Python kernels, of torch and of numpy.

#![allow(unsafe_code, reason = "an attached interpreter, without asking")]

use super::aten::{self, JoinedSteps, ProgramCall, Programs, TensorValue};
use super::backends::{CollectiveBackends, Rendezvous};
use super::borrowed::BorrowedMemory;
use super::execution_log::ExecutionLog;
use super::faults;
use super::kernel_call;
use super::kernels::Kernels;
use super::memory::ValueMemory;
use super::slow_rows::SlowRows;
use super::vectorcall::Vectorcaller;
use gt_protocol::message::FailureClass;
use gt_protocol::placement::ReduceOp;
use gt_protocol::{Dims, Dtype, Instruction, Meta, Op};
use gt_transport::vectors::{VectorLoop, widest};
use gt_worker::{
    Collective, DirectReads, Engine, EngineOperand, FailedInstruction, Fault, Follower, Places,
    Shard, Turn, Values,
};
use pyo3::prelude::*;
use std::iter::once;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

/// Code of the operator that this process executes or executed last; 0 before the first.
static EXECUTING: AtomicU16 = AtomicU16::new(0);

/// The name of the operator that this process's worker executes, for warnings of a backend.
#[pyfunction]
pub fn executing_op() -> Option<&'static str> {
    Op::from_code(EXECUTING.load(Ordering::Relaxed)).map(|op| op.info().name)
}

/// An engine whose values are Python objects and whose operators are kernels.
#[derive(Debug)]
pub struct PythonEngine {
    kernels: Kernels,
    caller: Vectorcaller,
    /// Dtype objects by their number on the wire.
    dtypes: Vec<Py<PyAny>>,
    /// The exception class for a lack of memory, or a tuple of such classes.
    out_of_memory: Py<PyAny>,
    memory: ValueMemory,
    threads: Threads,
    /// () -> None, once all earlier work has run.
    synchronize: Py<PyAny>,
    backends: CollectiveBackends,
    /// Programs that run instructions without Python, where the helper is loaded.
    programs: Option<Programs>,
    /// (steps, whether the first one's first operand may be overwritten) -> (number of steps that
    /// ran, result), or None. For a backend whose kernels are not programs.
    chain: Option<Py<PyAny>>,
    /// Number of calls of Python kernels.
    calls: u64,
    /// () -> number of GT's own kernels that have run, whoever called them.
    own_calls: Py<PyAny>,
    take_loss: Py<PyAny>,
    slow_rows: SlowRows,
    /// Record of each instruction's start and duration, where one is requested.
    execution_log: Option<ExecutionLog>,
}

/// Number of threads that kernels use: one, or for a large instruction as many as the backend has.
#[derive(Debug)]
struct Threads {
    /// (number) -> None; `None` where the backend has one thread, or chooses by itself.
    set: Option<Py<PyAny>>,
    most: u32,
    is_large: bool,
}

impl PythonEngine {
    /// Fetches the functions and settings of a `gt.worker.backend.Backend`.
    pub fn new(backend: &Bound<'_, PyAny>) -> PyResult<Self> {
        let function = |name: &str| backend.getattr(name).map(Bound::unbind);
        let caller = Vectorcaller::new();
        Ok(Self {
            kernels: Kernels::new(backend)?,
            backends: CollectiveBackends::new(backend)?,
            programs: None,
            chain: backend.getattr("chain")?.extract()?,
            calls: 0,
            own_calls: function("own_calls")?,
            take_loss: function("take_loss")?,
            slow_rows: SlowRows::default(),
            execution_log: execution_log(backend)?,
            caller,
            dtypes: backend.getattr("dtypes")?.extract()?,
            out_of_memory: function("out_of_memory")?,
            threads: Threads {
                set: backend.getattr("set_threads")?.extract()?,
                most: backend.getattr("threads")?.extract()?,
                is_large: false,
            },
            memory: ValueMemory::new(backend, caller)?,
            synchronize: function("synchronize")?,
        })
    }

    fn set_threads(&self) {
        let Some(set) = &self.threads.set else { return };
        let py = attached();
        let count = if self.threads.is_large { self.threads.most } else { 1 };
        if let Err(error) = set.call1(py, (count,)) {
            // The number came from the backend itself, and only speed depends on it.
            error.write_unraisable(py, None);
        }
    }

    #[cold]
    fn fault(&self, py: Python<'_>, error: &PyErr) -> Fault {
        let out_of_memory = error.matches(py, &self.out_of_memory);
        let out_of_memory =
            out_of_memory.expect("a backend's out_of_memory is a class, or a tuple");
        faults::of(py, error, out_of_memory)
    }
}

fn execution_log(backend: &Bound<'_, PyAny>) -> PyResult<Option<ExecutionLog>> {
    let path: Option<PathBuf> = backend.getattr("instruction_log")?.extract()?;
    let is_shown = backend.getattr("shows_executions")?.extract()?;
    Ok((path.is_some() || is_shown).then(|| ExecutionLog::new(path, is_shown)))
}

impl Engine for PythonEngine {
    type Value = TensorValue;
    type Borrowed = BorrowedMemory;
    type Rendezvous = Rendezvous;

    fn execute(
        &mut self,
        instruction: &Instruction<'_>,
        operands: &[EngineOperand<'_, Self::Value>],
        reuse: u16,
    ) -> Result<Values<Self::Value>, Fault> {
        let py = attached();
        let Some(kernel) = self.kernels.of_mut(instruction.op) else {
            return Err(unknown(instruction.op));
        };
        EXECUTING.store(instruction.op.info().code, Ordering::Relaxed);
        if self.programs.is_none() {
            self.programs = aten::take_offer().map(Programs::from);
        }
        if let Some(programs) = &mut self.programs {
            let call = ProgramCall {
                over: kernel.over(reuse).map_or(0, |row| row.overwrites),
                detaches: self.threads.is_large,
                attributes: &mut kernel.attributes,
                dtypes: &self.dtypes,
            };
            if let Some(values) = programs.run(py, instruction, operands, call) {
                return Ok(values);
            }
        }
        self.calls += 1;
        let result =
            kernel_call::run(py, self.caller, kernel, &self.dtypes, instruction, operands, reuse);
        result.map_err(|error| self.fault(py, &error))
    }

    fn set_index(&mut self, index: u32) {
        if let Some(log) = &mut self.execution_log {
            log.open(index);
        }
    }

    fn begin_instruction(&mut self) {
        if let Some(log) = &mut self.execution_log {
            log.begin();
        }
    }

    fn end_instruction(&mut self, session: u32, instruction: &Instruction<'_>) {
        if let Some(log) = &mut self.execution_log {
            log.end(session, instruction);
        }
    }

    fn begin_transfer(&mut self, ticket: u64) {
        if let Some(log) = &mut self.execution_log {
            log.begin_transfer(ticket);
        }
    }

    fn end_transfer(&mut self, ticket: u64, origin: &FailedInstruction) {
        if let Some(log) = &mut self.execution_log {
            log.end_transfer(ticket, origin);
        }
    }

    fn flush_record(&mut self) {
        if let Some(log) = &mut self.execution_log {
            log.flush();
        }
    }

    fn execute_group(
        &mut self,
        instruction: &Instruction<'_>,
        operands: &[EngineOperand<'_, Self::Value>],
        reuse: u16,
    ) -> Option<Vec<Values<Self::Value>>> {
        let py = attached();
        let kernel = self.kernels.of_mut(instruction.op)?;
        EXECUTING.store(instruction.op.info().code, Ordering::Relaxed);
        if let Some(programs) = &mut self.programs {
            let call = ProgramCall {
                over: kernel.over(reuse)?.overwrites,
                detaches: false,
                attributes: &mut kernel.attributes,
                dtypes: &self.dtypes,
            };
            if let Some(values) = programs.run_group(py, instruction, operands, call) {
                return Some(values);
            }
        }
        // An update that fails reports it when it is executed by itself.
        let results =
            kernel_call::run_group(py, kernel, &self.dtypes, instruction, operands, reuse);
        let results = results.unwrap_or_else(|error| {
            self.slow_rows.tell(instruction.op, &error);
            None
        })?;
        self.calls += 1;
        Some(results)
    }

    fn execute_joined(
        &mut self,
        first: &Instruction<'_>,
        operands: &[EngineOperand<'_, Self::Value>],
        reuse: u16,
        followers: &[Follower<'_, Self::Value>],
    ) -> Option<(usize, Self::Value)> {
        let py = attached();
        EXECUTING.store(first.op.info().code, Ordering::Relaxed);
        let Some(programs) = &mut self.programs else {
            let chain = self.chain.as_ref()?;
            // The instruction that fails reports it when it is executed by itself.
            let made = kernel_call::run_chain(py, chain, (first, operands), reuse, followers);
            let made = made.unwrap_or_else(|error| {
                self.slow_rows.tell(first.op, &error);
                None
            })?;
            self.calls += 1;
            return Some(made);
        };
        let over = self.kernels.of(first.op)?.over(reuse).map_or(0, |row| row.overwrites);
        let mut steps = JoinedSteps::default();
        let rest = followers.iter().map(|one| (&one.instruction, &*one.operands, one.from, 0));
        for (instruction, operands, from, over) in once((first, operands, 0, over)).chain(rest) {
            let Some(kernel) = self.kernels.of_mut(instruction.op) else { break };
            let call = ProgramCall {
                over,
                detaches: false,
                attributes: &mut kernel.attributes,
                dtypes: &self.dtypes,
            };
            if programs.push_step(py, &mut steps, (instruction, operands), from, call).is_none() {
                break;
            }
        }
        programs.run_joined(&steps, self.threads.is_large)
    }

    fn calls(&self) -> [u64; 3] {
        let programs = self.programs.as_ref().map_or(0, |programs| programs.calls);
        let py = attached();
        let own = self.own_calls.call0(py).and_then(|count| count.extract(py));
        [programs, self.calls, own.expect("a backend returns the number of its kernels' calls")]
    }

    fn groups_large(&self) -> bool {
        self.threads.set.is_none()
    }

    #[inline]
    fn set_large(&mut self, is_large: bool) {
        if is_large != self.threads.is_large {
            self.threads.is_large = is_large;
            self.set_threads();
        }
    }

    fn in_place(&self, op: Op) -> u16 {
        if matches!(op, Op::AllReduce | Op::AllReduceCoalesced) {
            return 1;
        }
        let rows = self.kernels.of(op).map(|kernel| kernel.in_place.as_slice());
        rows.unwrap_or_default().iter().fold(0, |mask, row| mask | row.overwrites)
    }

    fn meta(&mut self, value: &Self::Value) -> Result<Meta, Fault> {
        let py = attached();
        let described = self.memory.meta(py, value);
        let (code, sizes) = described.map_err(|error| self.fault(py, &error))?;
        match (Dtype::from_code(code), Dims::new(&sizes)) {
            (Some(dtype), Some(dims)) => Ok(Meta::new(dtype, dims)),
            _ => Err(Fault::new(FailureClass::Internal, format!("dtype {code}, {sizes:?}"))),
        }
    }

    fn is_view(&mut self, result: &Self::Value, operand: &Self::Value) -> Result<bool, Fault> {
        // A reshape that needs no copy has its operand's address.
        let py = attached();
        let result = self.memory.address(py, result);
        let is_same = result.and_then(|result| Ok(result == self.memory.address(py, operand)?));
        is_same.map_err(|error| self.fault(py, &error))
    }

    fn memory_bytes(&mut self, value: &Self::Value) -> Result<u64, Fault> {
        let py = attached();
        self.memory.memory_bytes(py, value).map_err(|error| self.fault(py, &error))
    }

    fn allocate(&mut self, meta: &Meta) -> Result<Self::Value, Fault> {
        let py = attached();
        let dtype = &self.dtypes[usize::from(meta.dtype.code())];
        self.memory.allocate(py, meta, dtype).map_err(|error| self.fault(py, &error))
    }

    fn clear(&mut self, value: &mut Self::Value) -> Result<(), Fault> {
        let py = attached();
        self.memory.clear(py, value).map_err(|error| self.fault(py, &error))
    }

    fn write(
        &mut self,
        value: &mut Self::Value,
        byte_offset: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let py = attached();
        let result = self.memory.write(py, value, byte_offset, bytes);
        result.map_err(|error| self.fault(py, &error))
    }

    fn with_bytes(
        &mut self,
        value: &Self::Value,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Fault> {
        let py = attached();
        self.memory.with_bytes(py, value, show).map_err(|error| self.fault(py, &error))
    }

    fn contiguous(
        &mut self,
        value: &Self::Value,
        meta: &Meta,
    ) -> Result<Option<Self::Value>, Fault> {
        let py = attached();
        self.memory.contiguous_copy(py, value, meta).map_err(|error| self.fault(py, &error))
    }

    fn as_received(
        &mut self,
        value: &Self::Value,
        meta: &Meta,
    ) -> Result<Option<Self::Value>, Fault> {
        let py = attached();
        self.memory.aligned_copy(py, value, meta).map_err(|error| self.fault(py, &error))
    }

    fn borrow_buffers(&mut self, places: Places<'_, Self::Value>) -> Result<BorrowedMemory, Fault> {
        let py = attached();
        self.memory.borrow(py, places).map_err(|error| self.fault(py, &error))
    }

    fn return_buffers(
        &mut self,
        borrowed: BorrowedMemory,
        written: Option<&mut Self::Value>,
    ) -> Result<(), Fault> {
        let Some(result) = written else { return Ok(()) };
        let py = attached();
        self.memory.give_back(py, &borrowed, result).map_err(|error| self.fault(py, &error))
    }

    fn domains(&self) -> [&str; 2] {
        self.backends.domains()
    }

    fn rendezvous(
        &mut self,
        collective: &Collective<'_>,
        places: Places<'_, Self::Value>,
    ) -> Result<(Rendezvous, Vec<u8>), Fault> {
        let py = attached();
        let own = |value: &Self::Value| Some(value.object(py).clone_ref(py));
        let (operand, result) = match places {
            Places::Operand(operand) => (own(operand), None),
            Places::Result(result) => (None, own(result)),
            Places::Both(operand, result) => (own(operand), own(result)),
            Places::One(both) => (own(both), own(both)),
        };
        let begun = self.backends.rendezvous(py, &self.dtypes, collective, operand, result);
        begun.map_err(|error| self.fault(py, &error))
    }

    fn negotiate(
        &mut self,
        rendezvous: &mut Rendezvous,
        payloads: &[&[u8]],
        reads: Option<&DirectReads>,
    ) -> Result<Turn, Fault> {
        let py = attached();
        rendezvous.negotiate(py, payloads, reads).map_err(|error| self.fault(py, &error))
    }

    fn is_over(&mut self, rendezvous: &mut Rendezvous) -> bool {
        // A backend that cannot be asked fails where its result is fetched.
        rendezvous.is_over(attached()).unwrap_or(true)
    }

    fn lose(&mut self, rendezvous: &mut Rendezvous, peer: u32) {
        let py = attached();
        if let Err(error) = rendezvous.lose(py, peer) {
            error.write_unraisable(py, None);
        }
    }

    fn finish(
        &mut self,
        rendezvous: &mut Rendezvous,
        result: Option<&mut Self::Value>,
    ) -> Result<(), Fault> {
        let py = attached();
        let other = rendezvous.finish(py).map_err(|error| self.fault(py, &error))?;
        if let (Some(other), Some(result)) = (other, result) {
            *result = TensorValue::from(other);
        }
        Ok(())
    }

    fn end(&mut self, rendezvous: Rendezvous, payloads: &[Option<Vec<u8>>]) {
        let py = attached();
        if let Err(error) = rendezvous.end(py, payloads) {
            // The collective is over and its result has been reported, so there is nobody to return
            // an error to.
            error.write_unraisable(py, None);
        }
    }

    fn fall_back(
        &mut self,
        rendezvous: Rendezvous,
        result: Option<&mut Self::Value>,
    ) -> Result<BorrowedMemory, Fault> {
        if let Err(error) = rendezvous.fall_back(attached()) {
            error.write_unraisable(attached(), None);
        }
        let Rendezvous { operand, result: to_write, .. } = rendezvous;
        let is_one = match (&operand, &to_write) {
            (Some(operand), Some(result)) => operand.is(result),
            (Some(_) | None, None) | (None, Some(_)) => false,
        };
        let operand = operand.map(TensorValue::from);
        match (&operand, result) {
            (Some(_), Some(both)) if is_one => self.borrow_buffers(Places::One(both)),
            (Some(operand), Some(result)) => self.borrow_buffers(Places::Both(operand, result)),
            (Some(operand), None) => self.borrow_buffers(Places::Operand(operand)),
            (None, Some(result)) => self.borrow_buffers(Places::Result(result)),
            (None, None) => Ok(BorrowedMemory::nothing()),
        }
    }

    fn reduce(dtype: Dtype, reduce_op: ReduceOp, shards: &[Shard<'_>], out: &mut [u8]) {
        widest(ReductionLoop { dtype, reduce_op, shards, out });
    }

    fn take_loss(&mut self) -> bool {
        let py = attached();
        let is_lost = self.take_loss.call0(py).and_then(|lost| lost.extract(py));
        is_lost.expect("a backend returns true or false for a loss")
    }

    fn synchronize(&mut self) -> Result<(), Fault> {
        let py = attached();
        self.synchronize.call0(py).map(drop).map_err(|error| self.fault(py, &error))
    }
}

/// The arguments of [`gt_worker::reduce`].
struct ReductionLoop<'a, 's> {
    dtype: Dtype,
    reduce_op: ReduceOp,
    shards: &'a [Shard<'s>],
    out: &'a mut [u8],
}

impl VectorLoop for ReductionLoop<'_, '_> {
    #[allow(clippy::inline_always, reason = "it is compiled for each set of vector instructions")]
    #[inline(always)]
    fn run(self) {
        gt_worker::reduce(self.dtype, self.reduce_op, self.shards, self.out);
    }
}

/// The interpreter, without a check that this thread is attached to it.
fn attached<'py>() -> Python<'py> {
    // SAFETY: an engine is made and used only in a worker's loops (`process::serve`,
    // `framed::serve_frames`), which hold a token around everything that a machine does; they
    // detach only while they wait for words or for other workers.
    unsafe { Python::assume_attached() }
}

#[cold]
fn unknown(op: Op) -> Fault {
    let text = format!("{}: this worker has no kernel for it", op.info().name);
    Fault::new(FailureClass::NotImplemented, text)
}
