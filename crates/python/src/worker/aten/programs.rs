//! The programs of a worker, looked up by an instruction's form; `gt/worker/aten/binding.py`
//! makes them when a form is first seen.

#![allow(unsafe_code, reason = "functions of a library that is loaded at run time")]

use super::abi::{AtenStep, FUNCTIONS, Helper, NativeOperand};
use super::value::{NativeTensor, TensorValue};
use crate::worker::attributes::Attributes;
use crate::worker::slow_rows::SlowRows;
use gt_protocol::{Attr, Instruction, Scalar};
use gt_worker::{EngineOperand, Values, same_attr};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of forms kept of one row: a model's `reshape` has a dozen sizes; all operators
/// without a row share one row.
const FORMS_MAX: usize = 256;
/// Maximum number of results of a program; `program.py` has the same limit.
const RESULTS_MAX: usize = 8;

static IS_OFFERED: AtomicBool = AtomicBool::new(false);
/// The helper that has been loaded and not yet taken; written once, by the thread that loads it.
static OFFER: Mutex<Option<NativeOffer>> = Mutex::new(None);

/// A helper that is ready to use.
#[derive(Debug)]
pub struct NativeOffer {
    helper: &'static Helper,
    /// (row, kinds, kinds of the list, over, attributes) -> (program, changing attributes) or None.
    bind: Py<PyAny>,
}

/// Passes a loaded helper to this process's worker, which uses it from its next instruction on.
///
/// Args:
///     addresses: The helper's functions, in the order of `gt.worker.aten.library.LOOP`; the library must never be
///         unloaded.
///     bind: The function that makes programs.
#[pyfunction]
pub fn offer_aten(addresses: [usize; FUNCTIONS], bind: Py<PyAny>) {
    // SAFETY: `gt.worker.aten.start` passes a library's own functions, in this order, and never
    // unloads it.
    let helper = unsafe { Helper::install(addresses) };
    *OFFER.lock().expect("no thread panics while it holds the lock") =
        Some(NativeOffer { helper, bind });
    IS_OFFERED.store(true, Ordering::Release);
}

/// Takes the helper, if one is offered.
#[inline]
pub fn take_offer() -> Option<NativeOffer> {
    if !IS_OFFERED.load(Ordering::Relaxed) || !IS_OFFERED.swap(false, Ordering::Acquire) {
        return None;
    }
    OFFER.lock().expect("no thread panics while it holds the lock").take()
}

/// Form of an instruction: everything that a program is specialised for.
#[derive(Debug)]
struct Form {
    kinds: SmallVec<[u64; 6]>,
    over: u16,
    attrs: SmallVec<[Attr; 2]>,
    /// Bit k: the number of attribute k is passed at each run.
    changing: u32,
    /// `None` if the form runs in Python.
    program: Option<Program>,
}

#[derive(Debug)]
struct Program(NonNull<c_void>, &'static Helper);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is ours, and it is not used after this.
        unsafe { (self.1.free_program)(self.0.as_ptr()) }
    }
}

#[derive(Debug, Default)]
struct Forms {
    kept: Vec<Form>,
    oldest: usize,
    /// Index behind the form that was found last: forms recur in the order of the step before.
    next: usize,
}

impl Forms {
    #[inline]
    fn place(&mut self, arguments: &[NativeOperand], over: u16, attrs: &[Attr]) -> Option<usize> {
        let (before, after) = self.kept.split_at(self.next.min(self.kept.len()));
        let fits = |form: &Form| form.fits(arguments, over, attrs);
        let found = match after.iter().position(fits) {
            Some(place) => before.len() + place,
            None => before.iter().position(fits)?,
        };
        self.next = found + 1;
        Some(found)
    }
}

/// The programs of all rows, and the function that makes them.
#[derive(Debug)]
pub struct Programs {
    helper: &'static Helper,
    bind: Py<PyAny>,
    /// Forms by an operator's code.
    rows: Vec<Forms>,
    slow_rows: SlowRows,
    pub calls: u64,
}

impl From<NativeOffer> for Programs {
    fn from(offer: NativeOffer) -> Self {
        let NativeOffer { helper, bind } = offer;
        Self { helper, bind, rows: Vec::new(), slow_rows: SlowRows::default(), calls: 0 }
    }
}

/// A chain of instructions: each but the first takes the result of the one before it.
#[derive(Debug, Default)]
pub struct JoinedSteps {
    taken: Vec<JoinedStep>,
}

#[derive(Debug)]
struct JoinedStep {
    code: usize,
    over: u16,
    attrs: SmallVec<[Attr; 2]>,
    arguments: SmallVec<[NativeOperand; 8]>,
    from: u16,
}

/// Parameters of a run besides the instruction.
#[derive(Debug)]
pub struct ProgramCall<'a> {
    /// Bit mask of the operands that it overwrites.
    pub over: u16,
    /// True if other threads may use the interpreter meanwhile: detaching costs as much as a small
    /// operator.
    pub detaches: bool,
    pub attributes: &'a mut Attributes,
    pub dtypes: &'a [Py<PyAny>],
}

impl Programs {
    /// The results; `None` where Python must run the instruction: no line of the table fits, or it
    /// failed and Python will give the reason.
    #[inline]
    pub fn run(
        &mut self,
        py: Python<'_>,
        instruction: &Instruction<'_>,
        operands: &[EngineOperand<'_, TensorValue>],
        call: ProgramCall<'_>,
    ) -> Option<Values<TensorValue>> {
        let mut arguments: SmallVec<[NativeOperand; 8]> = SmallVec::new();
        self.push(operands, &mut arguments)?;
        let (helper, detaches) = (self.helper, call.detaches);
        let form = self.form(py, instruction, &arguments, call);
        let program = form.program.as_ref()?;
        if form.changing != 0 {
            push_changing(&mut arguments, &instruction.attrs, form.changing)?;
        }
        let values = execute(detaches, |results| {
            // SAFETY: the program was made for operands of these kinds, whose tensors live in the
            // machine's table during the call; it writes at most RESULTS_MAX results.
            unsafe { (helper.run)(program.0.as_ptr(), arguments.as_ptr(), results) }
        })?;
        self.calls += 1;
        Some(values)
    }

    /// Appends an instruction to the chain; the operands in `from` are the result of the step
    /// before. Returns `None` where it runs in Python.
    pub fn push_step(
        &mut self,
        py: Python<'_>,
        steps: &mut JoinedSteps,
        (instruction, operands): (&Instruction<'_>, &[EngineOperand<'_, TensorValue>]),
        from: u16,
        call: ProgramCall<'_>,
    ) -> Option<()> {
        let mut arguments: SmallVec<[NativeOperand; 8]> = SmallVec::new();
        self.push(operands, &mut arguments)?;
        for (position, argument) in arguments.iter_mut().enumerate() {
            if from >> position & 1 != 0 {
                *argument = NativeOperand::TENSOR_TO_COME;
            }
        }
        let over = call.over;
        let form = self.form(py, instruction, &arguments, call);
        form.program.as_ref().filter(|_| form.changing == 0)?;
        let code = usize::from(instruction.op.info().code);
        let attrs = instruction.attrs.clone();
        steps.taken.push(JoinedStep { code, over, attrs, arguments, from });
        Some(())
    }

    /// Runs the first step and as many followers as can be joined with it: returns their number and
    /// the last one's result, or `None` where no step runs.
    pub fn run_joined(
        &mut self,
        steps: &JoinedSteps,
        detaches: bool,
    ) -> Option<(usize, TensorValue)> {
        let helper = self.helper;
        let mut list: SmallVec<[AtenStep; 16]> = SmallVec::new();
        for step in &steps.taken {
            // A later step's form may have replaced an earlier one's.
            let forms = &mut self.rows[step.code];
            let place = forms.place(&step.arguments, step.over, &step.attrs)?;
            let program = forms.kept[place].program.as_ref()?.0.as_ptr().cast_const();
            list.push(AtenStep {
                program,
                operands: step.arguments.as_ptr(),
                from: u64::from(step.from),
            });
        }
        let mut joined = 0;
        let values = execute(detaches, |results| {
            // SAFETY: as for `execute` of one instruction, for each step; one result is written.
            joined = unsafe { (helper.run_joined)(list.as_ptr(), list.len(), results) };
            joined.min(1)
        })?;
        let joined = usize::try_from(joined).ok()?;
        self.calls += 1 + u64::try_from(joined).ok()?;
        values.into_iter().next().map(|value| (joined, value))
    }

    /// The results of several instructions like this one, whose operands follow one another, by one
    /// call; `None` as in [`run`](Self::run).
    pub fn run_group(
        &mut self,
        py: Python<'_>,
        instruction: &Instruction<'_>,
        operands: &[EngineOperand<'_, TensorValue>],
        call: ProgramCall<'_>,
    ) -> Option<Vec<Values<TensorValue>>> {
        let width = instruction.operands.len();
        let mut first: SmallVec<[NativeOperand; 8]> = SmallVec::new();
        self.push(&operands[..width], &mut first)?;
        let helper = self.helper;
        let (program, changing) = {
            let form = self.form(py, instruction, &first, call);
            (form.program.as_ref()?.0, form.changing)
        };
        let mut arguments: SmallVec<[NativeOperand; 8]> = SmallVec::new();
        for member in operands.chunks_exact(width) {
            self.push(member, &mut arguments)?;
            push_changing(&mut arguments, &instruction.attrs, changing)?;
        }
        let members = operands.len() / width;
        let mut results = vec![ptr::null_mut(); members * RESULTS_MAX];
        // SAFETY: as for `execute`, for each member: all have the kinds of the first, for which the
        // program was made.
        let count = unsafe {
            let arguments = (arguments.as_ptr(), arguments.len() / members);
            (helper.run_group)(
                program.as_ptr(),
                arguments.0,
                arguments.1,
                members,
                results.as_mut_ptr(),
            )
        };
        let count = usize::try_from(count).ok().filter(|&count| count > 0)?;
        self.calls += 1;
        Some(results[..members * count].chunks_exact(count).map(owned).collect())
    }

    fn push(
        &self,
        operands: &[EngineOperand<'_, TensorValue>],
        arguments: &mut SmallVec<[NativeOperand; 8]>,
    ) -> Option<()> {
        for operand in operands {
            arguments.push(match operand {
                EngineOperand::Absent => NativeOperand::ABSENT,
                EngineOperand::Scalar(scalar) => NativeOperand::from(*scalar),
                EngineOperand::Value(value) => {
                    NativeOperand::tensor(value.tensor(self.helper)?.handle())
                }
            });
        }
        Some(())
    }

    #[inline]
    fn form(
        &mut self,
        py: Python<'_>,
        instruction: &Instruction<'_>,
        arguments: &[NativeOperand],
        call: ProgramCall<'_>,
    ) -> &Form {
        let code = usize::from(instruction.op.info().code);
        if code >= self.rows.len() {
            self.rows.resize_with(code + 1, Forms::default);
        }
        let found = self.rows[code].place(arguments, call.over, &instruction.attrs);
        let place = match found {
            Some(place) => place,
            None => self.keep(py, instruction, arguments, call),
        };
        &self.rows[code].kept[place]
    }

    #[cold]
    fn keep(
        &mut self,
        py: Python<'_>,
        instruction: &Instruction<'_>,
        arguments: &[NativeOperand],
        call: ProgramCall<'_>,
    ) -> usize {
        let over = call.over;
        // An instruction that cannot be bound runs in Python.
        let bound = self.bound(py, instruction, arguments, call);
        let bound = bound.unwrap_or_else(|error| {
            self.slow_rows.tell(instruction.op, &error);
            None
        });
        let (program, changing) = match bound {
            Some((program, changing)) => (Some(program), changing),
            None => (None, 0),
        };
        let form = Form {
            kinds: arguments.iter().map(|argument| argument.kind).collect(),
            over,
            attrs: instruction.attrs.iter().cloned().collect(),
            changing,
            program,
        };
        let forms = &mut self.rows[usize::from(instruction.op.info().code)];
        if forms.kept.len() < FORMS_MAX {
            forms.kept.push(form);
            return forms.kept.len() - 1;
        }
        let place = forms.oldest;
        forms.oldest = (place + 1) % FORMS_MAX;
        forms.kept[place] = form;
        place
    }

    fn bound(
        &self,
        py: Python<'_>,
        instruction: &Instruction<'_>,
        arguments: &[NativeOperand],
        call: ProgramCall<'_>,
    ) -> PyResult<Option<(Program, u32)>> {
        let info = instruction.op.info();
        let fixed = info.fixed_operands().min(arguments.len());
        let fixed = if info.has_list() { fixed } else { arguments.len() };
        let (single, listed) = arguments.split_at(fixed);
        let kinds = |some: &[NativeOperand]| PyTuple::new(py, some.iter().map(|one| one.kind));
        let attrs = call.attributes.objects(py, info, &instruction.attrs, call.dtypes)?;
        let attrs = PyTuple::new(py, attrs)?;
        let made =
            self.bind.call1(py, (info.name, kinds(single)?, kinds(listed)?, call.over, attrs))?;
        let made: Option<(usize, u32)> = made.extract(py)?;
        Ok(made.and_then(|(address, changing)| {
            let program = NonNull::new(ptr::with_exposed_provenance_mut(address))?;
            Some((Program(program, self.helper), changing))
        }))
    }
}

impl Form {
    #[inline]
    fn fits(&self, arguments: &[NativeOperand], over: u16, attrs: &[Attr]) -> bool {
        let kinds = arguments.iter().map(|argument| argument.kind);
        self.over == over
            && self.kinds.len() == arguments.len()
            && self.kinds.iter().copied().eq(kinds)
            && self.attrs.len() == attrs.len()
            && self.attrs.iter().zip(attrs).enumerate().all(|(place, (left, right))| {
                self.changing >> place & 1 != 0 || same_attr(left, right)
            })
    }
}

fn push_changing(
    arguments: &mut SmallVec<[NativeOperand; 8]>,
    attrs: &[Attr],
    changing: u32,
) -> Option<()> {
    for (place, attr) in attrs.iter().enumerate() {
        if changing >> place & 1 != 0 {
            arguments.push(NativeOperand::from(match attr {
                Attr::Int(value) => Scalar::Int(*value),
                Attr::Float(value) => Scalar::Float(*value),
                Attr::Scalar(value) => *value,
                Attr::Absent
                | Attr::Bool(_)
                | Attr::Dtype(_)
                | Attr::Ints(_)
                | Attr::List(_)
                | Attr::Choice(_)
                | Attr::Text(_) => return None,
            }));
        }
    }
    Some(())
}

/// The results that `run` writes, at most `RESULTS_MAX`, and their number; `None` where it ran
/// nothing. With `detaches` other threads may use the interpreter meanwhile.
fn execute(
    detaches: bool,
    run: impl FnOnce(*mut *mut c_void) -> c_int,
) -> Option<Values<TensorValue>> {
    let mut results = [ptr::null_mut(); RESULTS_MAX];
    // SAFETY: this thread holds the interpreter's lock, which is released and taken again around
    // the call; a program touches nothing of Python.
    let count = unsafe {
        let thread = if detaches { ffi::PyEval_SaveThread() } else { ptr::null_mut() };
        let count = run(results.as_mut_ptr());
        if detaches {
            ffi::PyEval_RestoreThread(thread);
        }
        count
    };
    let count = usize::try_from(count).ok()?;
    Some(owned(&results[..count]))
}

/// Takes ownership of the handles that a run returned.
fn owned(results: &[*mut c_void]) -> Values<TensorValue> {
    let values = results.iter().map(|&result| {
        let handle = NonNull::new(result).expect("a program writes a tensor for each result");
        // SAFETY: the caller owns a result.
        TensorValue::from(unsafe { NativeTensor::new(handle) })
    });
    values.collect()
}
