//! Signals: the named scope of the user's program that an instruction comes from, and the
//! dispatcher's knowledge of it.
//!
//! The scope is a Python context variable, so that each thread and each asynchronous task has its
//! own. It is read only once a program has used a signal at all; until then an instruction pays one
//! load. gt/config/scopes.py finds out the meaning of a scope; its text is kept here and sent
//! before the first instruction that carries the id.

use super::interpreter;
use super::runtime::{self, Caller, Runtime};
use crate::client::gil_cell::GilCell;
use gt_protocol::scope::Scope;
use gt_protocol::{Attr, Dims, Instruction, Op};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use smallvec::smallvec;
use std::cell::Cell;
use std::sync::OnceLock;

/// Maximum number of scopes of a process: an instruction's header has 16 bits for the scope, and 0
/// means none.
const SIGNALS_MAX: usize = (1 << 16) - 1;

/// A scope, identified by its name and the scope around it.
struct Signal {
    name: String,
    /// The scope of its gradients, where that differs.
    backward: Option<u16>,
    /// The scope that its gradients carry, once there have been any.
    gradients: Option<u16>,
    /// Its meaning, as the text of the instruction `configure`; empty where it has none.
    text: String,
    /// The part of it that the dispatcher of connection `epoch` has.
    told: Told,
}

#[derive(Clone, Copy, Default)]
struct Told {
    name: bool,
    /// The dispatcher has a meaning for it, the present one or an earlier one.
    meaning: bool,
    /// The dispatcher's meaning is `text`.
    current: bool,
}

#[derive(Default)]
struct Signals {
    /// Signal with id k + 1.
    known: Vec<Signal>,
    epoch: u32,
    /// The scope of the instruction before, if the dispatcher of `epoch` knows all of it; 0 for
    /// none.
    announced: u16,
    uploads: Option<Uploads>,
}

/// The scope of uploads that look like a batch: those outside of all scopes with the largest
/// leading size so far.
struct Uploads {
    signal: u16,
    rows: i64,
}

static SIGNALS: GilCell<Option<Signals>> = GilCell::new(None);
/// The context variable with the id of the current scope.
static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

thread_local! {
    /// The scope of the forward whose gradients this thread's backward pass computes.
    static OVERRIDE: Cell<Option<u16>> = const { Cell::new(None) };
    /// Number of instructions that this thread has made since the first scope.
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// Sets the scope of this thread's instructions, in place of the context variable's; returns the
/// one before.
pub(crate) fn set_override(signal: Option<u16>) -> Option<u16> {
    OVERRIDE.replace(signal)
}

/// The scope of the gradients of values from `signal`. They run where the scope (or its `backward`)
/// says. Its layouts of created values and of weights apply to the forward pass only: a gradient's
/// factors are not weights.
pub(crate) fn backward_of(py: Python<'_>, signal: u16) -> u16 {
    let mut state = SIGNALS.get_mut(py);
    state.as_mut().map_or(signal, |signals| signals.gradients_of(signal))
}

fn place(signal: u16) -> Option<usize> {
    usize::from(signal).checked_sub(1)
}

/// The scope that the program is in; 0 outside of all. Calls into Python.
#[inline]
pub(crate) fn current(py: Python<'_>) -> u16 {
    let Some(variable) = VARIABLE.get(py) else { return 0 };
    OVERRIDE.get().unwrap_or_else(|| value_of(variable.bind(py)).unwrap_or(0))
}

/// The scope id that a context variable holds here, if it holds one.
fn value_of(variable: &Bound<'_, PyAny>) -> Option<u16> {
    let py = variable.py();
    let value = match context_var_get() {
        // SAFETY: the GIL is held; `variable` is a ContextVar ([`set_signal_variable`]), and `value` is a new reference.
        Some(get) => unsafe {
            let mut value = std::ptr::null_mut();
            if get(variable.as_ptr(), std::ptr::null_mut(), &raw mut value) != 0 {
                ffi::PyErr_Clear();
            }
            Bound::from_owned_ptr_or_opt(py, value)
        },
        None => variable.call_method0("get").ok(),
    };
    value.and_then(|id| id.extract().ok())
}

type ContextVarGet = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut *mut ffi::PyObject,
) -> std::ffi::c_int;

fn context_var_get() -> Option<ContextVarGet> {
    static FOUND: OnceLock<Option<usize>> = OnceLock::new();
    let address = (*FOUND.get_or_init(|| interpreter::private_symbol(c"PyContextVar_Get")))?;
    // SAFETY: CPython 3.7.1 and later export PyContextVar_Get with this signature.
    Some(unsafe { std::mem::transmute::<usize, ContextVarGet>(address) })
}

/// The scope of an upload, which has one of its own where the user asked for that.
pub(crate) fn of_upload(py: Python<'_>, signal: u16, dims: Dims) -> u16 {
    let mut state = SIGNALS.get_mut(py);
    let Some(signals) = state.as_mut() else { return signal };
    let Some(uploads) = &mut signals.uploads else { return signal };
    let rows = dims.as_slice().first().copied().unwrap_or(0);
    if signal != 0 || rows < uploads.rows.max(1) {
        return signal;
    }
    uploads.rows = rows;
    uploads.signal
}

impl Runtime {
    /// Enters an instruction of the scope; the scope's name and meaning are sent to the dispatcher
    /// first.
    #[inline]
    pub(crate) fn announce_signal(&mut self, py: Python<'_>, signal: u16) {
        let mut state = SIGNALS.get_mut(py);
        let Some(signals) = state.as_mut() else { return };
        MADE.set(MADE.get().wrapping_add(1));
        self.announce(signals, signal);
    }

    /// Returns true if the scope has workers, an axis or placements.
    pub(crate) fn places(py: Python<'_>, signal: u16) -> bool {
        let state = SIGNALS.get(py);
        let known = state.as_ref().zip(place(signal)).and_then(|(all, at)| all.known.get(at));
        let Some(scope) = known.and_then(|known| known.text.parse::<Scope>().ok()) else {
            return false;
        };
        scope.workers.is_some()
            || scope.axis.is_some()
            || scope.replicated
            || !scope.placements.is_empty()
    }

    /// Tells the dispatcher that the program passed through a scope without an instruction.
    pub(crate) fn pass(&mut self, py: Python<'_>, caller: Caller) {
        let mut word = Instruction::new(Op::Boundary);
        word.tag = caller.site;
        word.signal = caller.signal;
        if let Some(signals) = SIGNALS.get_mut(py).as_mut() {
            self.announce(signals, caller.signal);
        }
        // A scope that does not arrive costs no result; see `tell`.
        drop(self.send(&word));
    }

    /// Sends the parts of a scope, and of the scope of its gradients, that the dispatcher does not
    /// have yet.
    fn announce(&mut self, signals: &mut Signals, signal: u16) {
        signals.follow_connection();
        if signal == 0 || signals.announced == signal {
            return;
        }
        let backward = signals.get_mut(signal).and_then(|known| known.backward);
        for signal in [backward.unwrap_or(0), signal] {
            let Some(known) = signals.get_mut(signal) else { continue };
            let id = Attr::Int(i64::from(signal));
            if !known.told.name {
                known.told.name = true;
                self.tell(Op::Signal, id.clone(), &known.name);
            }
            if !known.told.current {
                known.told.current = true;
                if known.told.meaning || !known.text.is_empty() {
                    self.tell(Op::Configure, id, &known.text);
                }
                known.told.meaning = !known.text.is_empty();
            }
        }
        signals.announced = signal;
    }

    fn tell(&mut self, op: Op, signal: Attr, text: &str) {
        let mut word = Instruction::new(op);
        word.attrs = smallvec![signal, Attr::Text(text.into())];
        // A lost message costs a word in the log or a layout, never a result; the next instruction
        // fails as well.
        drop(self.send(&word));
    }
}

impl Signals {
    fn gradients_of(&mut self, signal: u16) -> u16 {
        let named = self.get_mut(signal).and_then(|known| known.backward).unwrap_or(signal);
        let Some(known) = self.get_mut(named) else { return named };
        if let Some(gradients) = known.gradients {
            return gradients;
        }
        let text = where_only(&known.text);
        if text == known.text {
            return named;
        }
        let name = known.name.clone();
        let made = self.add(name, text).unwrap_or(named);
        if let Some(known) = self.get_mut(named) {
            known.gradients = Some(made);
        }
        made
    }

    /// Adds a signal and returns its id; `None` where an instruction's header has no room for it.
    fn add(&mut self, name: String, text: String) -> Option<u16> {
        if self.known.len() >= SIGNALS_MAX {
            return None;
        }
        let told = Told::default();
        self.known.push(Signal { name, backward: None, gradients: None, text, told });
        u16::try_from(self.known.len()).ok()
    }

    fn get_mut(&mut self, signal: u16) -> Option<&mut Signal> {
        self.known.get_mut(place(signal)?)
    }

    /// Marks everything as unknown to the dispatcher of a new connection.
    fn follow_connection(&mut self) {
        if self.epoch != runtime::epoch() {
            self.epoch = runtime::epoch();
            self.announced = 0;
            self.known.iter_mut().for_each(|known| known.told = Told::default());
            self.uploads.iter_mut().for_each(|uploads| uploads.rows = 0);
        }
    }

    /// Changes the meaning of a known signal.
    fn configure(&mut self, signal: u16, backward: Option<u16>, text: String) -> PyResult<()> {
        check(&text)?;
        self.announced = 0;
        let exists = backward.is_none_or(|backward| self.get_mut(backward).is_some());
        match self.get_mut(signal).filter(|_| exists) {
            Some(known) => {
                known.told.current &= known.text == text;
                known.gradients = None;
                known.text = text;
                known.backward = backward;
                Ok(())
            }
            None => Err(PyValueError::new_err(format!("no signal has the id {signal}"))),
        }
    }
}

/// Keeps only the part of a scope's text that says where it runs.
fn where_only(text: &str) -> String {
    let Ok(scope) = text.parse::<Scope>() else { return text.to_owned() };
    let Scope { workers, mesh, backward, compile, .. } = scope;
    Scope { workers, mesh, backward, compile, ..Scope::default() }.to_string()
}

/// Checks that the dispatcher will accept a text; any other text is a bug in gt/config.
fn check(text: &str) -> PyResult<()> {
    let parsed = text.parse::<Scope>();
    parsed
        .map(drop)
        .map_err(|error| PyValueError::new_err(format!("{text:?} is no scope: {error}")))
}

/// Sets the context variable that holds the caller's scope (an id, 0 for none); the first call
/// wins.
#[pyfunction]
pub(crate) fn set_signal_variable(variable: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = variable.py();
    let class = py.import("contextvars")?.getattr("ContextVar")?;
    if !variable.is_instance(&class)? {
        return Err(PyTypeError::new_err("the current scope is asked of a ContextVar"));
    }
    let _first = VARIABLE.get_or_init(py, || variable.clone().unbind());
    Ok(())
}

/// Makes a new scope of this name and returns its id.
#[pyfunction]
#[pyo3(signature = (name, backward, text))]
pub(crate) fn signal_new(
    py: Python<'_>,
    name: String,
    backward: Option<u16>,
    text: String,
) -> PyResult<u16> {
    let mut state = SIGNALS.get_mut(py);
    let signals = state.get_or_insert_default();
    let signal = signals.add(name, String::new()).ok_or_else(|| {
        PyValueError::new_err(format!("more than {SIGNALS_MAX} signals in one process"))
    })?;
    signals.configure(signal, backward, text)?;
    Ok(signal)
}

/// Changes the meaning of a scope; the dispatcher is told before the next instruction in it.
#[pyfunction]
#[pyo3(signature = (signal, backward, text))]
pub(crate) fn signal_configure(
    py: Python<'_>,
    signal: u16,
    backward: Option<u16>,
    text: String,
) -> PyResult<()> {
    SIGNALS.get_mut(py).get_or_insert_default().configure(signal, backward, text)
}

/// Sets the scope of the gradients of values from `signal`.
#[pyfunction]
pub(crate) fn signal_of_gradients(py: Python<'_>, signal: u16) -> u16 {
    backward_of(py, signal)
}

/// Number of instructions that this thread has made, for [`super::caller::signal_left`].
#[pyfunction]
pub(crate) fn signal_entered() -> u64 {
    MADE.get()
}

/// Sets the scope of uploads that look like a batch; None for none.
#[pyfunction]
#[pyo3(signature = (signal))]
pub(crate) fn set_upload_signal(py: Python<'_>, signal: Option<u16>) {
    let mut state = SIGNALS.get_mut(py);
    let signals = state.get_or_insert_default();
    let unchanged = signals.uploads.as_ref().map(|uploads| uploads.signal) == signal;
    if !unchanged {
        signals.uploads = signal.map(|signal| Uploads { signal, rows: 0 });
    }
}
