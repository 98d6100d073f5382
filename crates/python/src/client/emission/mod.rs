//! Emission: the only path of an instruction that computes. Its words are written while its
//! operands are examined; then it gets slots, is published, and is recorded on the tape.
//!
//! Views that have to be taken again and numbers that have to be cast are handed back to [`emit`].
//! Nothing calls into Python between the examination of the operands and the publication: a garbage
//! collection there could run a destructor that writes one of them.

mod array_memory;
pub(crate) mod autocast;
pub(crate) mod complex;
pub(crate) mod convert;
pub(crate) mod default_float;
mod draft;
pub(crate) mod emit;
mod inference;
pub(crate) mod numbers;
mod operands;
pub(crate) mod read;
pub(crate) mod region;
pub(crate) mod shown;
pub(crate) mod upload;

use crate::client::gil_cell::GilCell;
use crate::client::session::runtime::{self, Caller, ResultSlots};
use crate::client::session::{caller, errors};
use crate::client::tape::{self, generated_formulas, grad_enabled};
use crate::client::value::ValueHandle;
use crate::client::value::variable::{Edge, Input, NodeKind, Place, SavedValue, Var, Vars};
use draft::Draft;
use gt_protocol::rules::{ErrorClass, RuleError};
use gt_protocol::wire::{self, EncodeError};
use gt_protocol::{Attr, Op};
use inference::{InferenceKey, Inferences, InferredResults, OperandKey};
pub(crate) use operands::{Arg, of_operands};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use smallvec::SmallVec;

/// Outcome of emitting an instruction.
pub(crate) enum Emission {
    /// Its results' variables have been added.
    Done,
    /// Its one result, which has not been added.
    One(Var),
    /// Nothing was sent: the operand at this position is a view whose memory was written since it
    /// was taken.
    Stale(usize),
    /// Nothing was sent: these operands (bit k: operand k) have to be cast to the default float
    /// dtype first.
    Floats(u16),
    /// Nothing was sent: the row does not take complex numbers; the generic row does.
    Complex,
}

/// Outcome of publishing an instruction.
enum Publication {
    /// Its results' variables have been added; they are not recorded yet.
    Done,
    /// Nothing was sent: the connection is not ready.
    NotReady,
    Stale(usize),
    Floats(u16),
    Complex,
    Refused(EmissionError),
}

/// Reason why an instruction cannot be emitted.
enum EmissionError {
    Rule(RuleError),
    /// A value belongs to an earlier connection.
    Foreign,
    Encode(EncodeError),
    Connection(PyErr),
}

/// A request to emit an instruction.
#[derive(Clone, Copy)]
struct EmissionRequest<'a> {
    op: Op,
    args: &'a [Arg<'a>],
    attrs: &'a [Attr],
    caller: Caller,
    /// Bit k: operand k is not used afterwards.
    consumes: u16,
}

/// Edge that the gradient of each operand takes.
type Edges = SmallVec<[Option<Edge>; 2]>;

/// Buffers and cache that the next instruction reuses.
struct Emitter {
    draft: Draft,
    inferences: Inferences,
}

/// The one emitter. Nothing calls into Python while it is borrowed.
static EMITTER: GilCell<Emitter> =
    GilCell::new(Emitter { draft: Draft::new(), inferences: Inferences::new() });

/// Emits one instruction whose operands in `consumes` die with it.
pub(crate) fn emit(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
    consumes: u16,
    vars: &mut Vars,
) -> PyResult<Emission> {
    let caller = caller::current(py);
    loop {
        let edges = edges(py, op, args, attrs)?;
        let consumes = match &edges {
            // Values that the backward pass needs are not consumed.
            Some(edges) if consumes != 0 => {
                let needs = edges.iter().map(Option::is_some);
                consumes & !generated_formulas::of(op).saves(needs).operands
            }
            Some(_) | None => consumes,
        };
        let request = EmissionRequest { op, args, attrs, caller, consumes };
        if let Some(result) = publish_plain(py, request) {
            let result = result?;
            if let Some(edges) = edges {
                record(py, op, args, (attrs, edges), caller, std::slice::from_ref(&result))?;
            }
            return Ok(Emission::One(result));
        }
        match publish(py, request, vars) {
            Publication::Done => {}
            Publication::NotReady => {
                runtime::prepare_for(py, caller)?;
                continue;
            }
            Publication::Stale(position) => return Ok(Emission::Stale(position)),
            Publication::Floats(floats) => return Ok(Emission::Floats(floats)),
            Publication::Complex => return Ok(Emission::Complex),
            Publication::Refused(EmissionError::Foreign) if runtime::is_new_child(py) => {
                runtime::prepare_for(py, caller)?;
                continue;
            }
            Publication::Refused(refusal) => return Err(error(py, op, refusal)),
        }
        if let Some(edges) = edges {
            record(py, op, args, (attrs, edges), caller, vars)?;
        }
        return Ok(Emission::Done);
    }
}

/// Words of header, result slot, and operands of [`publish_values`].
const PLAIN_WORDS: usize = 8;

/// Fast path of [`publish`]: an operator without attributes and with one result, of tensors at
/// hand, whose result is in the inference cache. Its few words are written at once. Nothing has
/// been sent where it returns `None`.
#[inline]
fn publish_plain(py: Python<'_>, request: EmissionRequest<'_>) -> Option<PyResult<Var>> {
    match request.args {
        [Arg::Var(operand)] => publish_values(py, request, [operand]),
        [Arg::Var(left), Arg::Var(right)] => publish_values(py, request, [left, right]),
        _ => None,
    }
}

#[inline]
fn publish_values<const N: usize>(
    py: Python<'_>,
    request: EmissionRequest<'_>,
    operands: [&Var; N],
) -> Option<PyResult<Var>> {
    let EmissionRequest { op, attrs, caller, consumes, .. } = request;
    let info = op.info();
    let is_plain = attrs.is_empty()
        && info.attrs.is_empty()
        && info.outputs == 1
        && info.operands.len() == N
        && !info.has_list();
    if !is_plain || default_float::is_other(py) {
        return None;
    }
    let epoch = runtime::epoch();
    let mut words = [0; PLAIN_WORDS];
    let words = &mut words[..wire::HEADER_WORDS + 1 + N];
    words[0] = info.code.into();
    let mut keys = [OperandKey::ABSENT; N];
    let places = words[wire::HEADER_WORDS + 1..].iter_mut().zip(&mut keys);
    for (operand, (word, key)) in operands.iter().zip(places) {
        let is_ours = operand.with_value(py, |value| {
            (*word, *key) = (value.slot, OperandKey::of(&value.meta));
            value.epoch == epoch
        });
        if is_ours != Some(true) {
            return None;
        }
    }
    wire::close(info.name, words, 0).ok()?;
    let emitter = EMITTER.get(py);
    let results = emitter.inferences.find(InferenceKey { op, operands: &keys, words: &[] })?;
    let mut slots = [0];
    let sent = runtime::with(py, |runtime| {
        runtime.may_publish(py, op, caller).then(|| {
            runtime.publish(py, (op, caller), consumes, words, &results.outputs, &mut slots)
        })
    })?;
    region::note_operands(py, &operands);
    shown::show_words(py, words, &results.outputs);
    let [slot] = slots;
    let meta = results.shared[0].clone_ref(py);
    Some(sent.map(|()| Var::of(py, ValueHandle { slot, epoch, meta })))
}

/// Writes an instruction down and sends it.
fn publish<'a>(py: Python<'_>, request: EmissionRequest<'a>, vars: &mut Vars) -> Publication {
    let EmissionRequest { op, args, attrs, caller, consumes } = request;
    let mut emitter = EMITTER.get_mut(py);
    let Emitter { draft, inferences } = &mut *emitter;
    if let Some(position) = draft.begin(py, op, args) {
        return Publication::Stale(position);
    }
    let mut encoded = draft.end(op, args, attrs);
    let fresh;
    let results = if let Some(known) = inferences.find(draft.key(op)) {
        known
    } else {
        if complex::is_generic(py, op, args, attrs) {
            return Publication::Complex;
        }
        fresh = match operands::infer(py, op, args, attrs) {
            Ok(outputs) => InferredResults::new(py, outputs),
            Err(error) => return Publication::Refused(EmissionError::Rule(error)),
        };
        if encoded.is_ok() {
            inferences.missed(py, draft.key(op), &fresh, args);
        }
        &fresh
    };
    if default_float::is_other(py)
        && let Some(floats) = of_operands(py, args, |args| default_float::floats(py, op, args))
    {
        return Publication::Floats(floats);
    }
    if draft.is_foreign {
        return Publication::Refused(EmissionError::Foreign);
    }
    if op.info().output_list && encoded.is_ok() {
        encoded = draft.count_outputs(op, results.outputs.len());
    }
    if let Err(error) = encoded {
        return Publication::Refused(EmissionError::Encode(error));
    }
    let mut slots: ResultSlots = SmallVec::from_elem(0, results.outputs.len());
    let sent = runtime::with(py, |runtime| {
        let (words, outputs) = (&mut draft.words, &results.outputs);
        runtime
            .may_publish(py, op, caller)
            .then(|| runtime.publish(py, (op, caller), consumes, words, outputs, &mut slots))
    });
    match sent {
        None => return Publication::NotReady,
        Some(Err(error)) => return Publication::Refused(EmissionError::Connection(error)),
        Some(Ok(())) => {}
    }
    let vars_of = |arg: &Arg<'a>| if let Arg::Var(var) = arg { Some(*var) } else { None };
    region::note_operands(py, &args.iter().filter_map(vars_of).collect::<SmallVec<[&Var; 4]>>());
    shown::show_words(py, &draft.words, &results.outputs);
    let epoch = runtime::epoch();
    for (&slot, meta) in slots.iter().zip(&results.shared) {
        vars.push(Var::of(py, ValueHandle { slot, epoch, meta: meta.clone_ref(py) }));
    }
    Publication::Done
}

/// Edges of the operands, if the instruction is recorded.
#[inline]
fn edges(py: Python<'_>, op: Op, args: &[Arg<'_>], attrs: &[Attr]) -> PyResult<Option<Edges>> {
    let may_need = |arg: &Arg<'_>| matches!(arg, Arg::Var(var) if var.may_require_grad(py));
    if !args.iter().any(may_need) || !grad_enabled() {
        return Ok(None);
    }
    let formulas = generated_formulas::of(op);
    let is_integral =
        |attr: &Attr| matches!(attr, Attr::Dtype(dtype) if !dtype.is_differentiable());
    if !formulas.any_for(args.iter().map(|_| true)) || attrs.iter().any(is_integral) {
        // PyTorch does not ask for a view's history, which may be forbidden, in a comparison or in
        // a cast to integers.
        return Ok(None);
    }
    let mut edges = Edges::new();
    for arg in args {
        edges.push(match arg {
            Arg::Absent | Arg::Scalar(_) | Arg::Complex(_) | Arg::Large(_) => None,
            Arg::Var(var) => var.edge(py)?,
        });
    }
    let recorded = formulas.any_for(edges.iter().map(Option::is_some));
    Ok(recorded.then_some(edges))
}

#[cold]
fn error(py: Python<'_>, op: Op, refusal: EmissionError) -> PyErr {
    match refusal {
        EmissionError::Rule(error) => errors::of_rule(py, &error),
        EmissionError::Foreign => match runtime::prepare(py) {
            Ok(()) => foreign(py, op),
            Err(error) => error,
        },
        EmissionError::Encode(error) => PyRuntimeError::new_err(error.to_string()),
        EmissionError::Connection(error) => error,
    }
}

fn foreign(py: Python<'_>, op: Op) -> PyErr {
    let (name, whose) = (op.info().name, runtime::whose());
    errors::mistake(py, ErrorClass::Runtime, format!("{name}: an operand {whose}"))
}

/// Records an instruction whose results are `vars`.
fn record(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    (attrs, edges): (&[Attr], Edges),
    caller: Caller,
    vars: &[Var],
) -> PyResult<()> {
    let info = op.info();
    let passes_on = |edge: &Option<Edge>| !matches!(edge, None | Some(Edge::Nowhere));
    let formulas = generated_formulas::of(op);
    let mut saves = formulas.saves(edges.iter().map(passes_on));
    let mut keeps = formulas.keeps(edges.iter().map(passes_on));
    if edges.iter().any(|edge| matches!(edge, Some(Edge::Nowhere))) {
        // PyTorch saves outputs even where the gradient goes nowhere, to detect that they are
        // written.
        saves.outputs = formulas.saves(edges.iter().map(Option::is_some)).outputs;
        keeps.outputs = formulas.keeps(edges.iter().map(Option::is_some)).outputs;
    }
    for place in tape::generic::saved_results(op, attrs) {
        saves.outputs |= 1_u16 << place.min(15); // bit 15 stands for all further results
        keeps.outputs |= 1_u16 << place.min(15);
    }
    let node = tape::node(py, NodeKind::Op(op), attrs, caller, |node| {
        for (position, (arg, edge)) in args.iter().zip(edges).enumerate() {
            node.inputs.push(match arg {
                Arg::Absent | Arg::Complex(_) | Arg::Large(_) => {
                    Input { edge, meta: None, scalar: None }
                }
                Arg::Scalar(scalar) => Input { edge, meta: None, scalar: Some(*scalar) },
                Arg::Var(var) => {
                    let bit = 1_u16 << position.min(info.operands.len() - 1);
                    let (reads, keeps) = (saves.operands & bit != 0, keeps.operands & bit != 0);
                    if let Some(kept) = tape::saved_value(py, var, (reads, keeps)) {
                        let saved = node.saved.inner_mut().get_or_insert_default();
                        saved.push(SavedValue { place: Place::Operand(position), ..kept });
                    }
                    Input { edge, meta: Some(var.shared_meta(py)), scalar: None }
                }
            });
        }
        for var in vars {
            node.outputs.push(var.shared_meta(py));
        }
    });
    for (position, var) in (0..).zip(vars) {
        let bit = 1_u16 << position.min(15);
        let how = (saves.outputs & bit != 0, keeps.outputs & bit != 0);
        tape::add_result(py, &node, position, var, how);
    }
    let packed = tape::saved::pack(py, &node);
    tape::close(py, node);
    packed
}
