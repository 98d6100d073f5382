//! Signals: which named scope of the user's program an instruction comes from.
//!
//! The scope is a Python context variable, so that each thread and each asynchronous task has its own. It is read only
//! once a program has used a signal at all; until then an instruction pays one load.

use super::gil_cell::GilCell;
use super::runtime::{self, Runtime};
use gt_protocol::{Attr, Instruction, Op};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smallvec::smallvec;
use std::cell::Cell;
use std::collections::HashMap;

/// Scopes of a process: the instruction's header has 16 bits for them, and 0 is none.
const SIGNALS_MAX: usize = (1 << 16) - 1;

/// A scope's name, and the scope of its gradients where that is another.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Signal {
    name: String,
    backward: Option<u16>,
}

#[derive(Default)]
struct Signals {
    /// Signal with id k + 1.
    known: Vec<Signal>,
    ids: HashMap<Signal, u16>,
    /// `get` of the context variable with the current id.
    source: Option<Py<PyAny>>,
    /// Ids whose names the dispatcher of the connection `epoch` has.
    announced: Vec<bool>,
    epoch: u32,
}

static SIGNALS: GilCell<Option<Signals>> = GilCell::new(None);

thread_local! {
    /// The scope that this thread's backward pass works for.
    static OVERRIDE: Cell<Option<u16>> = const { Cell::new(None) };
}

/// Sets the scope of this thread's instructions, whatever the context variable says; returns the one before.
pub(crate) fn set_override(signal: Option<u16>) -> Option<u16> {
    OVERRIDE.replace(signal)
}

/// The scope of the gradients of what stands in `signal`.
pub(crate) fn backward_of(py: Python<'_>, signal: u16) -> u16 {
    let signals = SIGNALS.get(py);
    let known =
        signals.as_ref().and_then(|signals| signals.known.get(usize::from(signal).checked_sub(1)?));
    known.and_then(|known| known.backward).unwrap_or(signal)
}

impl Runtime {
    /// The scope of the instruction that is being made; its name goes to the dispatcher first.
    pub(crate) fn signal(&mut self, py: Python<'_>) -> u16 {
        let mut state = SIGNALS.get_mut(py);
        let Some(signals) = state.as_mut() else { return 0 };
        let id = OVERRIDE.get().unwrap_or_else(|| signals.current(py));
        if id != 0
            && let Some(name) = signals.unannounced(id)
        {
            let mut word = Instruction::new(Op::Signal);
            word.attrs = smallvec![Attr::Int(i64::from(id)), Attr::Text(name.into())];
            // A name that does not arrive costs a word in the log, nothing else.
            drop(self.send(&word));
        }
        id
    }
}

impl Signals {
    /// What the context variable says; 0 where it says nothing that is a scope.
    fn current(&self, py: Python<'_>) -> u16 {
        let said = self.source.as_ref().and_then(|source| source.bind(py).call0().ok());
        said.and_then(|id| id.extract().ok()).unwrap_or(0)
    }

    /// The name of a scope that the dispatcher does not have yet.
    fn unannounced(&mut self, id: u16) -> Option<String> {
        if self.epoch != runtime::epoch() {
            self.epoch = runtime::epoch();
            self.announced.clear();
        }
        let place = usize::from(id).checked_sub(1)?;
        if self.announced.len() <= place {
            self.announced.resize(place + 1, false);
        }
        let told = self.announced.get_mut(place)?;
        if std::mem::replace(told, true) {
            return None;
        }
        self.known.get(place).map(|signal| signal.name.clone())
    }
}

/// The function that says in which scope (an id, 0 for none) the caller is.
#[pyfunction]
pub(crate) fn set_signal_source(py: Python<'_>, source: Py<PyAny>) {
    SIGNALS.get_mut(py).get_or_insert_default().source = Some(source);
}

/// The id of a scope: the same for the same name and scope of gradients.
#[pyfunction]
#[pyo3(signature = (name, backward=None))]
pub(crate) fn signal_id(py: Python<'_>, name: String, backward: Option<u16>) -> PyResult<u16> {
    let mut state = SIGNALS.get_mut(py);
    let signals = state.get_or_insert_default();
    let signal = Signal { name, backward };
    if let Some(id) = signals.ids.get(&signal) {
        return Ok(*id);
    }
    if signals.known.len() >= SIGNALS_MAX {
        return Err(PyValueError::new_err(format!(
            "more than {SIGNALS_MAX} signals in one process"
        )));
    }
    signals.known.push(signal.clone());
    let id = u16::try_from(signals.known.len()).unwrap_or(0);
    signals.ids.insert(signal, id);
    Ok(id)
}
