//! Emission: the one way of an instruction that computes. Its words are written down as its operands are looked at; then
//! it gets slots, is published, and is recorded on the tape.
//!
//! Operands whose value has to be taken again first, and numbers that have to be cast first, are handed back to
//! [`emit`]. From the look at the operands to the publication nothing calls into Python: a collection there could
//! run a destructor that writes one of them.

pub(crate) mod convert;
pub(crate) mod default_float;
pub(crate) mod emit;
pub(crate) mod read;
pub(crate) mod upload;

use crate::client::gil_cell::GilCell;
use crate::client::session::runtime::{self, Caller, Slots};
use crate::client::session::{caller, errors};
use crate::client::tape::{self, generated_formulas, grad_enabled};
use crate::client::value::metadata::SharedMeta;
use crate::client::value::pool::Pooled;
use crate::client::value::variable::{Edge, Input, Place, SavedValue, Var, Vars};
use crate::client::value::{SharedValue, Value};
use gt_protocol::rules::{self as shape_rules, ErrorClass, Outputs, keeps_metadata};
use gt_protocol::wire::{self, EncodeError};
use gt_protocol::{Attr, Meta, Op, OperandKind, Scalar};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use smallvec::SmallVec;

/// An operand before it is an instruction's.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Absent,
    Scalar(Scalar),
    Var(&'a Var),
}

/// What has become of an instruction.
pub(crate) enum Emission {
    /// Its results' variables have been added.
    Done,
    /// Nothing: the operand at this position is a view, and its memory was written since it was taken.
    Stale(usize),
    /// Nothing: these operands (bit k: operand k) become floats of the default dtype first.
    Floats(u16),
}

/// Where the gradient of each operand goes; empty where nothing is recorded.
type Edges = SmallVec<[Option<Edge>; 2]>;

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
        let mut edges = Edges::new();
        add_edges(py, op, args, &mut edges)?;
        // Filled where it stands: it is large, and most instructions are small.
        let mut draft = Draft::new(py, op);
        if let Some(position) = draft.take_operands(py, op, args) {
            return Ok(Emission::Stale(position));
        }
        let kept = draft.kept_metadata(py);
        let inferred: Outputs;
        let metas = if let Some(meta) = &kept {
            std::slice::from_ref(&***meta)
        } else {
            inferred = infer(py, op, args, attrs)?;
            &inferred
        };
        if default_float::is_other(py)
            && let Some(floats) = of_operands(py, args, |args| default_float::floats(py, op, args))
        {
            return Ok(Emission::Floats(floats));
        }
        if draft.is_foreign {
            runtime::prepare(py)?;
            return Err(foreign(py, op));
        }
        let words = &mut draft.words.0;
        if draft.has_absent || !attrs.is_empty() || args.len() != op.info().operands.len() {
            check_operands(op, args).map_err(not_encodable)?;
            wire::append_attrs(op.info(), attrs, words).map_err(not_encodable)?;
        }
        wire::close(op.info().name, words, 0).map_err(not_encodable)?;
        let needs = || edges.iter().map(Option::is_some);
        let formulas = generated_formulas::of(op);
        let recorded = formulas.any_for(needs());
        // What the backward pass needs is not given away.
        let consumes = match consumes {
            0 => 0,
            _ if recorded => consumes & !formulas.saves(needs()).operands,
            consumes => consumes,
        };
        let mut slots = Slots::new();
        let sent = runtime::with(py, |runtime| {
            let ready = runtime.has_room_for(py, caller);
            ready.then(|| runtime.publish(py, (op, caller), consumes, words, metas, &mut slots))
        });
        let Some(sent) = sent else {
            runtime::prepare_for(py, caller)?;
            continue;
        };
        sent?;
        let results = Results { slots: &slots, kept: kept.as_ref(), metas };
        if recorded {
            record(py, op, args, (attrs, edges), caller, &results, vars);
        } else {
            results.values(py, |value| vars.push(Var::new(py, value, None)));
        }
        if let Some(meta) = kept {
            meta.release(py);
        }
        return Ok(Emission::Done);
    }
}

/// The results of an instruction that has been published.
struct Results<'a> {
    slots: &'a [u32],
    /// The metadata of the one result, where that is the operands'.
    kept: Option<&'a SharedMeta>,
    metas: &'a [Meta],
}

impl Results<'_> {
    #[inline]
    fn metas(&self, py: Python<'_>, mut take: impl FnMut(SharedMeta)) {
        for meta in self.metas {
            take(match self.kept {
                Some(kept) => kept.clone_ref(py),
                None => SharedMeta::of(py, meta),
            });
        }
    }

    #[inline]
    fn values(&self, py: Python<'_>, mut take: impl FnMut(SharedValue)) {
        let (epoch, mut slots) = (runtime::epoch(), self.slots.iter());
        self.metas(py, |meta| {
            let Some(&slot) = slots.next() else { unreachable!("a result without a slot") };
            take(Pooled::new(py, Value { slot, epoch, meta }));
        });
    }
}

/// What an operator results in, or PyTorch's error.
fn infer(py: Python<'_>, op: Op, args: &[Arg<'_>], attrs: &[Attr]) -> PyResult<Outputs> {
    of_operands(py, args, |operands| shape_rules::infer(op, operands, attrs))
        .map_err(|error| errors::of_rule(py, &error))
}

/// Whether an instruction has the operands that its row asks for.
fn check_operands(op: Op, args: &[Arg<'_>]) -> Result<(), EncodeError> {
    let info = op.info();
    let (count, expected) = (args.len(), info.fixed_operands());
    if count < expected || (count > expected && !info.has_list()) {
        return Err(EncodeError::Operands { op: info.name, count, expected });
    }
    let mut pairs = args.iter().zip(info.operands);
    let missing = pairs.position(|(arg, operand)| {
        matches!(arg, Arg::Absent) && operand.kind == OperandKind::Required
    });
    missing.map_or(Ok(()), |position| Err(EncodeError::OperandAbsent { op: info.name, position }))
}

/// What a rule says of operands, whose values need not be at hand.
pub(crate) fn of_operands<T>(
    py: Python<'_>,
    args: &[Arg<'_>],
    rule: impl FnOnce(&[shape_rules::Arg<'_>]) -> T,
) -> T {
    let metas: SmallVec<[Option<Meta>; 4]> = args
        .iter()
        .map(|arg| match arg {
            Arg::Var(var) => Some(var.meta(py)),
            Arg::Absent | Arg::Scalar(_) => None,
        })
        .collect();
    let operands: SmallVec<[shape_rules::Arg<'_>; 4]> = args
        .iter()
        .zip(&metas)
        .map(|(arg, meta)| match (meta, arg) {
            (Some(meta), _) => shape_rules::Arg::Value(meta),
            (None, Arg::Scalar(scalar)) => shape_rules::Arg::Scalar(*scalar),
            (None, Arg::Absent | Arg::Var(_)) => shape_rules::Arg::Absent,
        })
        .collect();
    rule(&operands)
}

fn add_edges(py: Python<'_>, op: Op, args: &[Arg<'_>], edges: &mut Edges) -> PyResult<()> {
    let may_need = |arg: &Arg<'_>| matches!(arg, Arg::Var(var) if var.may_require_grad(py));
    if !grad_enabled() || !args.iter().any(may_need) {
        return Ok(());
    }
    for arg in args {
        edges.push(match arg {
            Arg::Absent | Arg::Scalar(_) => None,
            Arg::Var(var) => match var.edge(py) {
                // A view that PyTorch forbids to differentiate may still be compared or rounded.
                Err(_) if !generated_formulas::of(op).any_for(args.iter().map(|_| true)) => None,
                edge => edge?,
            },
        });
    }
    Ok(())
}

/// An instruction whose words are being written.
struct Draft {
    words: Words,
    /// Of the first operand, if results may have it and as long as all operands do.
    meta: Option<SharedMeta>,
    /// Whether results have their operands' metadata where that is the same and of floats.
    keeps_metadata: bool,
    /// Whether a value belongs to an earlier connection.
    is_foreign: bool,
    has_absent: bool,
}

impl Draft {
    #[inline]
    fn new(py: Python<'_>, op: Op) -> Self {
        let info = op.info();
        let mut words = Words::take(py);
        words.0.push(info.code.into());
        words.0.resize(wire::HEADER_WORDS + usize::from(info.outputs), 0);
        Self {
            words,
            meta: None,
            keeps_metadata: keeps_metadata(op),
            is_foreign: false,
            has_absent: false,
        }
    }

    /// Writes the operands down; the position of the first stale view where there is one.
    #[inline]
    fn take_operands(&mut self, py: Python<'_>, op: Op, args: &[Arg<'_>]) -> Option<usize> {
        let info = op.info();
        let epoch = runtime::epoch();
        let Self { words: Words(words), meta, keeps_metadata, is_foreign, has_absent } = self;
        let list_at = info.has_list().then(|| info.fixed_operands());
        let mut scalars: SmallVec<[Scalar; 3]> = SmallVec::new();
        for (position, arg) in args.iter().enumerate() {
            if list_at == Some(position) {
                words.push(u32::try_from(args.len() - position).unwrap_or(u32::MAX));
            }
            match arg {
                Arg::Absent => {
                    (*keeps_metadata, *has_absent) = (false, true);
                    words.push(wire::NONE);
                }
                Arg::Scalar(scalar) => {
                    *keeps_metadata = false;
                    scalars.push(*scalar);
                    words.push(wire::IMMEDIATE);
                }
                Arg::Var(var) => {
                    let seen = var.with_value(py, |value| {
                        *is_foreign |= value.epoch != epoch;
                        match meta {
                            _ if !*keeps_metadata => {}
                            None => *meta = Some(value.meta.clone_ref(py)),
                            Some(meta) => *keeps_metadata = meta.equals(&value.meta),
                        }
                        words.push(value.slot);
                    });
                    if seen.is_none() {
                        return Some(position);
                    }
                }
            }
        }
        if list_at == Some(args.len()) {
            words.push(0);
        }
        for scalar in scalars {
            words.extend_from_slice(&wire::scalar_words(scalar));
        }
        None
    }

    /// The metadata of its one result, where that is the operands', whatever the rule says in general.
    #[inline]
    fn kept_metadata(&mut self, py: Python<'_>) -> Option<SharedMeta> {
        let meta = self.meta.take()?;
        if self.keeps_metadata && meta.dtype.is_float() {
            return Some(meta);
        }
        meta.release(py);
        None
    }
}

/// Room for words, used again by the next instruction. One that is emitted in between finds none and makes its own.
struct Words(Vec<u32>);

static WORDS: GilCell<Vec<u32>> = GilCell::new(Vec::new());
/// An instruction with a long list does not keep its room.
const WORDS_KEPT: usize = 1024;

impl Words {
    #[inline]
    fn take(py: Python<'_>) -> Self {
        Self(std::mem::take(&mut *WORDS.get_mut(py)))
    }
}

impl Drop for Words {
    #[inline]
    fn drop(&mut self) {
        if self.0.capacity() > WORDS_KEPT {
            return;
        }
        self.0.clear();
        // SAFETY: a draft is made and dropped by `emit`, which holds the GIL at both.
        if let Some(mut kept) = unsafe { WORDS.try_get_mut() } {
            *kept = std::mem::take(&mut self.0);
        }
    }
}

#[cold]
fn not_encodable(error: EncodeError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[cold]
fn foreign(py: Python<'_>, op: Op) -> PyErr {
    errors::mistake(
        py,
        ErrorClass::Runtime,
        format!(
            "{}: an operand belongs to another session (gt.connect or gt.disconnect was called since); \
             bring its data along by .numpy() and gt.tensor()",
            op.info().name
        ),
    )
}

fn record(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    (attrs, edges): (&[Attr], Edges),
    caller: Caller,
    results: &Results<'_>,
    vars: &mut Vars,
) {
    let info = op.info();
    let leads_on = |edge: &Option<Edge>| !matches!(edge, None | Some(Edge::Nowhere));
    let formulas = generated_formulas::of(op);
    let mut saves = formulas.saves(edges.iter().map(leads_on));
    if edges.iter().any(|edge| matches!(edge, Some(Edge::Nowhere))) {
        // PyTorch keeps outputs even where the gradient gets nowhere, to see that nobody writes them.
        saves.outputs = formulas.saves(edges.iter().map(Option::is_some)).outputs;
    }
    let node = tape::node(py, op, attrs, caller, |node| {
        for (position, (arg, edge)) in args.iter().zip(edges).enumerate() {
            node.inputs.push(match arg {
                Arg::Absent => Input { edge, meta: None, scalar: None },
                Arg::Scalar(scalar) => Input { edge, meta: None, scalar: Some(*scalar) },
                Arg::Var(var) => {
                    let place = position.min(info.operands.len() - 1);
                    if saves.operands & (1_u16 << place) != 0
                        && let Some(value) = var.with_value(py, |value| value.clone_ref(py))
                    {
                        let (place, watched) = (Place::Operand(position), var.watched(py));
                        let saved = node.saved.inner_mut().get_or_insert_default();
                        saved.push(SavedValue { place, value, watched });
                    }
                    Input { edge, meta: Some(var.shared_meta(py)), scalar: None }
                }
            });
        }
        results.metas(py, |meta| node.outputs.push(meta));
    });
    let mut position = 0;
    results.values(py, |value| {
        vars.push(tape::result(py, &node, position, value, saves.outputs));
        position += 1;
    });
    tape::close(py, node);
}
