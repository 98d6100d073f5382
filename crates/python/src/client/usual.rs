//! The usual case of an emission: operands that are no views, an operator without attributes and with one result, a
//! connection with room. Its words are written down as the operands are looked at, with nothing built in between.
//! Whatever is out of the ordinary takes the way of [`super::emit`], to the same end.

use super::alias::Var;
use super::caller::Caller;
use super::default_float;
use super::emit::{self, Arg};
use super::gradient_rules;
use super::runtime::{self, SHORT_HEADER, ShortWords};
use super::tape::{Edge, Input, Inputs, Place, Recording, SavedValue, SavedValues, grad_enabled};
use super::value::Value;
use gt_protocol::rules::keeps_metadata;
use gt_protocol::{Dims, Dtype, Meta, Op, Scalar, wire};
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::Arc;

/// What has been seen of the operands.
struct Seen {
    words: ShortWords,
    /// Bit k: operand k needs a gradient.
    needs: u16,
    /// Of the first value, where there is one; then of the result.
    meta: Meta,
    values: usize,
    /// Whether all operands are values of that metadata.
    alike: bool,
}

/// Emits `op` where that is the usual case; `None`, with nothing done, where it is not.
pub(crate) fn emit(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    consumes: u16,
) -> Option<PyResult<Arc<Var>>> {
    let info = op.info();
    if info.outputs != 1 || !info.attrs.is_empty() || info.has_list() {
        return None;
    }
    let caller = Caller::current(py);
    // Filled where it stands: it is large, and the operators that come here are small.
    let mut seen = Seen {
        words: ShortWords::new(),
        needs: 0,
        meta: Meta::new(Dtype::DEFAULT, Dims::EMPTY),
        values: 0,
        alike: true,
    };
    look(py, args, &mut seen)?;
    if !(seen.alike && seen.meta.dtype.is_float() && keeps_metadata(op)) {
        if default_float::is_other(py) {
            return None;
        }
        match emit::results_of(py, op, args, &[]) {
            Ok(results) => seen.meta = *results.first()?,
            Err(mistake) => return Some(Err(mistake)),
        }
    }
    let recorded = seen.needs != 0
        && grad_enabled()
        && gradient_rules::any_for(
            py,
            op,
            (0..args.len()).map(|position| seen.needs & (1 << position) != 0),
        );
    // What the backward pass needs is not given away.
    let consumes = if recorded { consumes & !info.saves_operands } else { consumes };
    let sent = runtime::with(py, |runtime| {
        runtime
            .has_room_for(py, caller)
            .then(|| runtime.send_short(py, op, caller, consumes, &mut seen.words, &seen.meta))
    })?;
    Some(sent.map(|slot| {
        let value = Arc::new(Value { slot, epoch: runtime::epoch(), meta: seen.meta });
        if recorded {
            record(py, op, args, seen.needs, value, caller)
        } else {
            Var::new(value, None)
        }
    }))
}

fn record(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    needs: u16,
    value: Arc<Value>,
    caller: Caller,
) -> Arc<Var> {
    let (operands, outputs) =
        gradient_rules::saves(py, op, (0..args.len()).map(|position| needs & (1 << position) != 0));
    let info = op.info();
    let saved = saved_of(py, args, operands & info.saves_operands);
    let Caller { site, signal } = caller;
    let recording = Recording { op, attrs: Vec::new(), inputs: inputs_of(py, args), site, signal };
    recording.record_one(py, saved, value, outputs & info.saves_outputs != 0)
}

fn look(py: Python<'_>, args: &[Arg<'_>], seen: &mut Seen) -> Option<()> {
    let epoch = runtime::epoch();
    let mut scalars: SmallVec<[Scalar; 3]> = SmallVec::new();
    seen.words.extend_from_slice(&[0; SHORT_HEADER]);
    for (position, arg) in args.iter().enumerate() {
        let word = match arg {
            Arg::Absent => wire::NONE,
            Arg::Scalar(scalar) => {
                scalars.push(*scalar);
                wire::IMMEDIATE
            }
            Arg::Var(var) => {
                let needs = var.glance(py, |value, edge, leaf| {
                    if value.epoch != epoch || matches!(edge, Some(Edge::Nowhere)) {
                        return None;
                    }
                    if seen.values == 0 {
                        seen.meta = value.meta;
                    } else {
                        seen.alike &= seen.meta == value.meta;
                    }
                    seen.words.push(value.slot);
                    Some(edge.is_some() || leaf)
                })??;
                seen.values += 1;
                seen.needs |= u16::from(needs).checked_shl(u32::try_from(position).ok()?)?;
                continue;
            }
        };
        seen.alike = false;
        seen.words.push(word);
    }
    for scalar in scalars {
        seen.words.extend_from_slice(&wire::scalar_words(scalar));
    }
    Some(())
}

fn inputs_of(py: Python<'_>, args: &[Arg<'_>]) -> Inputs {
    args.iter()
        .map(|arg| match arg {
            Arg::Absent => Input { edge: None, meta: None, scalar: None },
            Arg::Scalar(scalar) => Input { edge: None, meta: None, scalar: Some(*scalar) },
            Arg::Var(var) => {
                let seen = var.glance(py, |value, edge, leaf| {
                    let edge = match edge {
                        None if leaf => Some(Edge::Leaf(Arc::clone(var))),
                        edge => edge.cloned(),
                    };
                    (edge, value.meta)
                });
                let (edge, meta) = seen.map_or((None, None), |(edge, meta)| (edge, Some(meta)));
                Input { edge, meta, scalar: None }
            }
        })
        .collect()
}

fn saved_of(py: Python<'_>, args: &[Arg<'_>], wanted: u16) -> SavedValues {
    let mut saved = SavedValues::new();
    if wanted == 0 {
        return saved;
    }
    for (position, arg) in args.iter().enumerate() {
        if let Arg::Var(var) = arg
            && wanted & (1 << position) != 0
            && let Ok(value) = var.value(py)
        {
            let watched = var.watched(py);
            saved.push(SavedValue { place: Place::Operand(position), value, watched });
        }
    }
    saved
}
