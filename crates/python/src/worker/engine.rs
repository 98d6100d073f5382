//! The engine that calls Python kernels, of torch and of numpy alike.

#![allow(unsafe_code, reason = "Python's C API, and tensors' bytes")]

use super::attributes::scalar;
use super::backends::{Backends, Rendezvous};
use super::borrowed::{BorrowedMemory, Span, Written};
use super::faults;
use super::idle::Idle;
use super::kernels::{Kernel, Kernels};
use super::vectorcall::Caller;
use gt_protocol::message::FailureClass;
use gt_protocol::{Dims, Dtype, Family, Instruction, Meta, Op};
use gt_transport::memory::{HUGE_BYTES_MIN, prefer_huge_pages};
use gt_worker::{
    Collective, DirectReads, Engine, Fault, Input, LookAhead, Machine, Places, Turn, Values,
};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU16, Ordering};

/// Bytes of which each allocation's address is a multiple: the backends' own. Matrix products take another loop, and round
/// otherwise, where an operand's is not.
const ALIGNMENT: usize = 64;

/// Code of the operator that this process executes, or executed last; 0 before the first.
static EXECUTING: AtomicU16 = AtomicU16::new(0);

/// The name of the operator that this process's worker executes: what a backend's warning is about.
#[pyfunction]
pub fn executing_op() -> Option<&'static str> {
    Op::from_code(EXECUTING.load(Ordering::Relaxed)).map(|op| op.info().name)
}

/// Python objects as values, kernels as operators.
#[derive(Debug)]
pub struct PythonEngine {
    kernels: Kernels,
    caller: Caller,
    /// By the wire's number.
    dtypes: Vec<Py<PyAny>>,
    /// A class, or a tuple of them.
    out_of_memory: Py<PyAny>,
    functions: Functions,
    threads: Threads,
    backends: Backends,
}

/// What a backend has beside kernels.
#[derive(Debug)]
struct Functions {
    /// (size, dtype) -> a value, its elements not yet set.
    allocate: Py<PyAny>,
    /// (value) -> the same elements, contiguous in the host's memory.
    contiguous: Py<PyAny>,
    /// (value) -> the same elements, contiguous where the values lie: the same object if they are so.
    row_major: Py<PyAny>,
    /// (value) -> its strides in elements.
    strides: Py<PyAny>,
    /// (value) -> a contiguous copy where the values lie.
    copy: Py<PyAny>,
    /// (contiguous value) -> its address.
    address: Py<PyAny>,
    /// (contiguous value) -> its length in bytes.
    length: Py<PyAny>,
    /// (value, byte offset, bytes), where values are not in the host's memory, else None.
    write: Option<Py<PyAny>>,
    /// (value) -> (the dtype's number, size).
    meta: Py<PyAny>,
    /// (value) -> bytes of the memory in which it lies.
    memory_bytes: Py<PyAny>,
    synchronize: Py<PyAny>,
}

/// How many threads kernels use: one, or for a large instruction as many as the backend has.
#[derive(Debug)]
struct Threads {
    /// (number) -> nothing; `None` where the backend has one thread, or chooses by itself.
    set: Option<Py<PyAny>>,
    most: u32,
    is_large: bool,
}

/// What a loop runs: a machine, and what becomes of its memory while nothing comes.
#[derive(Debug)]
pub struct Worker {
    pub machine: Machine<PythonEngine>,
    pub idle: Idle,
}

impl Worker {
    /// Over a `gt.worker.backend.Backend`, set up as that says.
    pub fn new(backend: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { machine: machine(backend)?, idle: Idle::new(backend)? })
    }
}

/// A machine over a `gt.worker.backend.Backend`, set up as that says.
pub fn machine(backend: &Bound<'_, PyAny>) -> PyResult<Machine<PythonEngine>> {
    let mut machine = Machine::new(PythonEngine::new(backend)?);
    let look_ahead = match backend.getattr("look_ahead")?.extract::<Option<u64>>()? {
        None => LookAhead::Published,
        Some(0) => LookAhead::Nothing,
        Some(seed) => LookAhead::Drawn(seed),
    };
    machine.set_look_ahead(look_ahead);
    Ok(machine)
}

impl PythonEngine {
    /// Fetches everything from a `gt.worker.backend.Backend`.
    pub fn new(backend: &Bound<'_, PyAny>) -> PyResult<Self> {
        let function = |name: &str| backend.getattr(name).map(Bound::unbind);
        Ok(Self {
            kernels: Kernels::new(backend)?,
            backends: Backends::new(backend)?,
            caller: Caller::new(),
            dtypes: backend.getattr("dtypes")?.extract()?,
            out_of_memory: function("out_of_memory")?,
            threads: Threads {
                set: backend.getattr("set_threads")?.extract()?,
                most: backend.getattr("threads")?.extract()?,
                is_large: false,
            },
            functions: Functions {
                allocate: function("allocate")?,
                contiguous: function("contiguous")?,
                row_major: function("row_major")?,
                strides: function("strides")?,
                copy: function("copy")?,
                address: function("address")?,
                length: function("length")?,
                write: backend.getattr("write")?.extract()?,
                meta: function("meta")?,
                memory_bytes: function("memory_bytes")?,
                synchronize: function("synchronize")?,
            },
        })
    }

    /// Address and length of a value's bytes, valid while the returned object lives.
    fn span(&self, py: Python<'_>, value: &Py<PyAny>) -> PyResult<(usize, usize, Py<PyAny>)> {
        let contiguous = self.caller.call(py, &self.functions.contiguous, &[value.as_ptr()])?;
        let (address, length) = self.place(py, &contiguous)?;
        Ok((address, length, contiguous))
    }

    fn lend_operand(&self, py: Python<'_>, value: &Py<PyAny>) -> PyResult<Span> {
        let (address, length, contiguous) = self.span(py, value)?;
        // SAFETY: `contiguous` has `length` bytes at `address` in the host's memory. While the loan lives the machine lets
        // nothing be written to the value's memory, or `contiguous` is a copy that only we have.
        Ok(unsafe { Span::new(address, length, contiguous) })
    }

    /// Memory of a value to be written: its own where it lies in the host's memory, after it has become contiguous, else a
    /// copy (if it is to be `read` too, of its bytes) that [`settle`](Engine::settle) writes back.
    fn lend_result(&self, py: Python<'_>, value: &mut Py<PyAny>, read: bool) -> PyResult<Written> {
        if self.functions.write.is_some() {
            return self.copied(py, value, read).map(Written::Copy);
        }
        let (address, length, contiguous) = self.span(py, value)?;
        *value = contiguous.clone_ref(py);
        // SAFETY: `contiguous` has `length` bytes at `address` in the host's memory. The machine lends for writing what
        // nothing else shares memory with and hands it out again only after the loan, or `contiguous` is a copy made just
        // now.
        Ok(Written::Place(unsafe { Span::new(address, length, contiguous) }))
    }

    /// A value's bytes, or as many zeros.
    fn copied(&self, py: Python<'_>, value: &Py<PyAny>, read: bool) -> PyResult<Vec<u8>> {
        if !read {
            let length = self.caller.call(py, &self.functions.length, &[value.as_ptr()])?;
            return Ok(vec![0; length.extract(py)?]);
        }
        let (address, length, contiguous) = self.span(py, value)?;
        // SAFETY: `contiguous` has `length` bytes at `address` in the host's memory and lives until they are copied.
        let copy = unsafe { memory(address, length) }.to_vec();
        drop(contiguous);
        Ok(copy)
    }

    fn contiguous_copy(
        &self,
        py: Python<'_>,
        value: &Py<PyAny>,
        meta: &Meta,
    ) -> PyResult<Option<Py<PyAny>>> {
        let arguments = [value.as_ptr()];
        // A backend takes any stride of a dimension of size 1 for contiguous. Its matrix products do not: they choose
        // another loop, and other bits.
        if meta.dims.contains(&1) {
            let strides = self.caller.call(py, &self.functions.strides, &arguments)?;
            let strides: SmallVec<[i64; 8]> =
                strides.bind(py).try_iter()?.map(|one| one?.extract()).collect::<PyResult<_>>()?;
            let is_contiguous = meta.dims.contains(&0) || is_row_major(&meta.dims, &strides);
            return if is_contiguous {
                Ok(None)
            } else {
                self.caller.call(py, &self.functions.copy, &arguments).map(Some)
            };
        }
        let contiguous = self.caller.call(py, &self.functions.row_major, &arguments)?;
        Ok((!contiguous.is(value)).then_some(contiguous))
    }

    fn place(&self, py: Python<'_>, contiguous: &Py<PyAny>) -> PyResult<(usize, usize)> {
        let arguments = [contiguous.as_ptr()];
        let address = self.caller.call(py, &self.functions.address, &arguments)?;
        let length = self.caller.call(py, &self.functions.length, &arguments)?;
        Ok((address.extract(py)?, length.extract(py)?))
    }

    fn set_threads(&self) {
        let Some(set) = &self.threads.set else { return };
        let py = attached();
        let count = if self.threads.is_large { self.threads.most } else { 1 };
        if let Err(error) = set.call1(py, (count,)) {
            // The number is one that the backend gave: only speed depends on it.
            error.write_unraisable(py, None);
        }
    }

    #[cold]
    fn fault(&self, py: Python<'_>, error: &PyErr) -> Fault {
        let out_of_memory = error.matches(py, &self.out_of_memory).unwrap_or(false);
        faults::of(py, error, out_of_memory)
    }
}

impl Engine for PythonEngine {
    type Value = Py<PyAny>;
    type Borrowed = BorrowedMemory;
    type Rendezvous = Rendezvous;

    fn execute(
        &mut self,
        instruction: &Instruction<'_>,
        operands: &[Input<'_, Self::Value>],
        reuse: u16,
    ) -> Result<Values<Self::Value>, Fault> {
        let py = attached();
        let Some(kernel) = self.kernels.of_mut(instruction.op) else {
            return Err(unknown(instruction.op));
        };
        EXECUTING.store(instruction.op.info().code, Ordering::Relaxed);
        let result = run(py, self.caller, kernel, &self.dtypes, instruction, operands, reuse);
        result.map_err(|error| self.fault(py, &error))
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
        Python::attach(|py| {
            let told = self.caller.call(py, &self.functions.meta, &[value.as_ptr()]);
            let told = told.and_then(|told| told.extract::<(u32, Vec<i64>)>(py));
            let (code, sizes) = told.map_err(|error| self.fault(py, &error))?;
            match (Dtype::from_code(code), Dims::new(&sizes)) {
                (Some(dtype), Some(dims)) => Ok(Meta::new(dtype, dims)),
                _ => Err(Fault::new(FailureClass::Internal, format!("dtype {code}, {sizes:?}"))),
            }
        })
    }

    fn is_view(&mut self, result: &Self::Value, operand: &Self::Value) -> Result<bool, Fault> {
        // A reshape that needs no copy begins where its operand does.
        let py = attached();
        let address = |value: &Self::Value| -> PyResult<usize> {
            self.caller.call(py, &self.functions.address, &[value.as_ptr()])?.extract(py)
        };
        let same = address(result).and_then(|mine| Ok(mine == address(operand)?));
        same.map_err(|error| self.fault(py, &error))
    }

    fn memory_bytes(&mut self, value: &Self::Value) -> Result<u64, Fault> {
        let py = attached();
        let told = self.caller.call(py, &self.functions.memory_bytes, &[value.as_ptr()]);
        told.and_then(|told| told.extract(py)).map_err(|error| self.fault(py, &error))
    }

    fn allocate(&mut self, meta: &Meta) -> Result<Self::Value, Fault> {
        Python::attach(|py| {
            let allocate = self.functions.allocate.bind(py);
            let dtype = self.dtypes.get(usize::from(meta.dtype.code()));
            let size = PyTuple::new(py, meta.dims.as_slice());
            let value = size.and_then(|size| allocate.call1((size, dtype)));
            let value = value.map(Bound::unbind).map_err(|error| self.fault(py, &error))?;
            let on_host = self.functions.write.is_none();
            if on_host && meta.bytes() >= HUGE_BYTES_MIN {
                let place = self.place(py, &value).map_err(|error| self.fault(py, &error))?;
                prefer_huge_pages(place.0, place.1);
            }
            Ok(value)
        })
    }

    fn write(
        &mut self,
        value: &mut Self::Value,
        byte_offset: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        Python::attach(|py| {
            if let Some(write) = &self.functions.write {
                let written = write.call1(py, (&*value, byte_offset, bytes));
                return written.map(drop).map_err(|error| self.fault(py, &error));
            }
            let (address, length) =
                self.place(py, value).map_err(|error| self.fault(py, &error))?;
            let start = usize::try_from(byte_offset).unwrap_or(usize::MAX);
            if start.checked_add(bytes.len()).is_none_or(|end| end > length) {
                let text = format!("{} bytes at {start} into {length}", bytes.len());
                return Err(Fault::new(FailureClass::Internal, text));
            }
            if !bytes.is_empty() {
                // SAFETY: the backend allocated the value contiguous, with `length` bytes at `address`; it lives,
                // because `value` holds it; the range is checked above; `bytes` is ours, so the two do not overlap; no
                // other thread touches a value of this engine while the interpreter is attached here.
                unsafe {
                    let target = std::ptr::with_exposed_provenance_mut::<u8>(address + start);
                    target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                }
            }
            Ok(())
        })
    }

    fn with_bytes(
        &mut self,
        value: &Self::Value,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Fault> {
        Python::attach(|py| {
            let (address, length, contiguous) =
                self.span(py, value).map_err(|error| self.fault(py, &error))?;
            // SAFETY: `contiguous` has `length` bytes at `address` in the host's memory and lives until after the call;
            // values are only written to by this engine, which is borrowed here.
            show(unsafe { memory(address, length) });
            drop(contiguous);
            Ok(())
        })
    }

    fn contiguous(
        &mut self,
        value: &Self::Value,
        meta: &Meta,
    ) -> Result<Option<Self::Value>, Fault> {
        let py = attached();
        self.contiguous_copy(py, value, meta).map_err(|error| self.fault(py, &error))
    }

    fn as_received(
        &mut self,
        value: &Self::Value,
        meta: &Meta,
    ) -> Result<Option<Self::Value>, Fault> {
        let py = attached();
        let copy = || {
            if let Some(copy) = self.contiguous_copy(py, value, meta)? {
                return Ok(Some(copy));
            }
            let arguments = [value.as_ptr()];
            let address: usize =
                self.caller.call(py, &self.functions.address, &arguments)?.extract(py)?;
            if address.is_multiple_of(ALIGNMENT) {
                return Ok(None);
            }
            self.caller.call(py, &self.functions.copy, &arguments).map(Some)
        };
        copy().map_err(|error| self.fault(py, &error))
    }

    fn borrow_buffers(&mut self, places: Places<'_, Self::Value>) -> Result<BorrowedMemory, Fault> {
        let py = attached();
        let borrowed = match places {
            Places::Operand(operand) => self.lend_operand(py, operand).map(BorrowedMemory::operand),
            Places::Result(result) => {
                self.lend_result(py, result, false).map(BorrowedMemory::result)
            }
            Places::Both(operand, result) => self.lend_operand(py, operand).and_then(|operand| {
                Ok(BorrowedMemory::both(operand, self.lend_result(py, result, false)?))
            }),
            Places::One(both) => self.lend_result(py, both, true).map(BorrowedMemory::one),
        };
        borrowed.map_err(|error| self.fault(py, &error))
    }

    fn return_buffers(
        &mut self,
        borrowed: BorrowedMemory,
        written: Option<&mut Self::Value>,
    ) -> Result<(), Fault> {
        let (Some(copy), Some(write), Some(value)) =
            (borrowed.copy(), &self.functions.write, written)
        else {
            return Ok(());
        };
        let py = attached();
        let written = write.call1(py, (&*value, 0, PyBytes::new(py, copy)));
        written.map(drop).map_err(|error| self.fault(py, &error))
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
        let own = |value: &Self::Value| Some(value.clone_ref(py));
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
        // What cannot be asked fails where its result is looked for.
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
            *result = other;
        }
        Ok(())
    }

    fn end(&mut self, rendezvous: Rendezvous, payloads: &[Option<Vec<u8>>]) {
        let py = attached();
        if let Err(error) = rendezvous.end(py, payloads) {
            // Nobody waits for anything of it: the collective is over, and its result has been told of.
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
        match (&operand, result) {
            (Some(_), Some(both)) if is_one => self.borrow_buffers(Places::One(both)),
            (Some(operand), Some(result)) => self.borrow_buffers(Places::Both(operand, result)),
            (Some(operand), None) => self.borrow_buffers(Places::Operand(operand)),
            (None, Some(result)) => self.borrow_buffers(Places::Result(result)),
            (None, None) => Ok(BorrowedMemory::nothing()),
        }
    }

    fn synchronize(&mut self) -> Result<(), Fault> {
        Python::attach(|py| {
            let done = self.functions.synchronize.call0(py);
            done.map(drop).map_err(|error| self.fault(py, &error))
        })
    }
}

/// The bytes at an address; of none there need be no address.
///
/// # Safety
/// They are there, and nobody writes to them, as long as the result is in use.
unsafe fn memory<'a>(address: usize, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), length) }
}

/// Whether these are the strides of a value without gaps that lies row after row.
fn is_row_major(dims: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1;
    strides.len() == dims.len()
        && dims.iter().zip(strides).rev().all(|(size, &stride)| {
            let is_expected = stride == expected;
            expected *= size;
            is_expected
        })
}

/// The interpreter, without asking whether this thread is attached to it.
fn attached<'py>() -> Python<'py> {
    // SAFETY: an engine is made and used only in `LocalMachine::run` and `process::serve`, which hold a token of their
    // own around everything a machine does; it is given up only while words or other workers are waited for.
    unsafe { Python::assume_attached() }
}

/// The arguments of a call: borrowed pointers, and what was made for it.
#[derive(Default)]
struct Arguments {
    pointers: SmallVec<[*mut ffi::PyObject; 8]>,
    made: SmallVec<[Py<PyAny>; 2]>,
}

impl Arguments {
    fn push(&mut self, py: Python<'_>, operand: &Input<'_, Py<PyAny>>) {
        match operand {
            Input::Absent => self.push_made(py.None()),
            Input::Value(value) => self.pointers.push(value.as_ptr()),
            Input::Scalar(value) => self.push_made(scalar(py, *value)),
        }
    }

    fn push_made(&mut self, object: Py<PyAny>) {
        self.pointers.push(object.as_ptr());
        self.made.push(object);
    }
}

fn run(
    py: Python<'_>,
    caller: Caller,
    kernel: &mut Kernel,
    dtypes: &[Py<PyAny>],
    instruction: &Instruction<'_>,
    operands: &[Input<'_, Py<PyAny>>],
    reuse: u16,
) -> PyResult<Values<Py<PyAny>>> {
    let info = instruction.op.info();
    let mut arguments = Arguments::default();
    let fixed = info.fixed_operands().min(operands.len());
    let (single, listed) = operands.split_at(fixed);
    for operand in single {
        arguments.push(py, operand);
    }
    if info.has_list() {
        arguments.push_made(list(py, listed)?);
    }
    if !info.attrs.is_empty() {
        let objects = kernel.attributes.objects(py, info, &instruction.attrs, dtypes)?;
        arguments.pointers.extend(objects.iter().map(Py::as_ptr));
    }
    let mut call = &kernel.call;
    let number_first = matches!(operands.first(), Some(Input::Scalar(_)));
    if let (true, Family::Elementwise, Some(other)) =
        (number_first, info.family, &kernel.number_first)
    {
        call = other;
    }
    if reuse != 0
        && let Some(row) = kernel.in_place.iter().find(|row| row.overwrites & !reuse == 0)
    {
        call = &row.call;
        if row.swapped {
            arguments.pointers.swap(0, 1);
        }
    }
    let result = caller.call(py, call, &arguments.pointers)?;
    if info.outputs == 1 {
        return Ok(Values::from_iter([result]));
    }
    let results = result.bind(py).cast::<PyTuple>()?;
    Ok(results.iter().map(Bound::unbind).collect())
}

fn list(py: Python<'_>, listed: &[Input<'_, Py<PyAny>>]) -> PyResult<Py<PyAny>> {
    let objects = listed.iter().map(|operand| match operand {
        Input::Absent => py.None(),
        Input::Value(value) => value.clone_ref(py),
        Input::Scalar(value) => scalar(py, *value),
    });
    Ok(PyList::new(py, objects.collect::<Vec<_>>())?.into_any().unbind())
}

#[cold]
fn unknown(op: Op) -> Fault {
    let text = format!("{}: this worker has no kernel for it", op.info().name);
    Fault::new(FailureClass::NotImplemented, text)
}
