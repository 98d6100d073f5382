//! The emitter: rules, slot, source position, tape record and the instruction itself, in one go.

use super::alias::{Resolved, Var};
use super::caller::Caller;
use super::default_float::{self, Made};
use super::gradient_rules;
use super::tape::{Edge, Input, Place, Recording, SavedValue, SavedValues, grad_enabled};
use super::tensor::Tensor;
use super::value::Value;
use super::{errors, runtime, usual};
use gt_protocol::rules::{self as shape_rules, ErrorClass};
use gt_protocol::{Attr, Dtype, Id, Instruction, Meta, Op, Operand, Scalar};
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::Arc;

/// An operand before it is an instruction's.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Absent,
    Scalar(Scalar),
    Var(&'a Arc<Var>),
}

pub(crate) type Vars = SmallVec<[Arc<Var>; 2]>;

/// An operand as it is now.
struct Ready {
    value: Option<Arc<Value>>,
    edge: Option<Edge>,
    scalar: Option<Scalar>,
}

/// Emits one instruction.
pub(crate) fn emit(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: SmallVec<[Attr; 2]>,
) -> PyResult<Vars> {
    emit_consuming(py, op, args, attrs, 0)
}

/// Emits one instruction whose operands in `consumes` die with it.
pub(crate) fn emit_consuming(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: SmallVec<[Attr; 2]>,
    consumes: u16,
) -> PyResult<Vars> {
    if attrs.is_empty()
        && let Some(var) = usual::emit(py, op, args, consumes)
    {
        return Ok(SmallVec::from_iter([var?]));
    }
    let ready = resolve(py, op, args)?;
    let metas = infer(py, op, &ready, &attrs)?;
    if default_float::is_other(py)
        && let Some(floats) = default_float::cast(py, op, args, &operands_of(&ready))?
    {
        let args: SmallVec<[Arg<'_>; 4]> = floats.iter().map(Made::as_arg).collect();
        return emit(py, op, &args, attrs);
    }
    let caller = runtime::prepare_caller(py)?;
    check_session(py, op, &ready)?;
    let recorded = grad_enabled()
        && ready.iter().any(|operand| operand.edge.is_some())
        && gradient_rules::any_for(py, op, ready.iter().map(|operand| operand.edge.is_some()));
    // What the backward pass needs is not given away.
    let consumes = if recorded { consumes & !op.info().saves_operands } else { consumes };
    let sent = send(py, op, caller, &ready, attrs, consumes, &metas)?;
    if !recorded {
        return Ok(sent.values.into_iter().map(|value| Var::new(value, None)).collect());
    }
    Ok(record(py, op, args, ready, sent))
}

/// What an operator would result in; nothing is sent.
pub(crate) fn results_of(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
) -> PyResult<shape_rules::Outputs> {
    asked(py, args, |operands| {
        shape_rules::infer(op, operands, attrs).and_then(|found| {
            default_float::results_of(py, op, operands, attrs).unwrap_or(Ok(found))
        })
    })
    .map_err(|error| errors::of_rule(py, &error))
}

/// The dtype that an operator computes in.
pub(crate) fn promoted(py: Python<'_>, args: &[Arg<'_>]) -> Dtype {
    asked(py, args, shape_rules::promote)
}

/// What a rule says of operands that are not resolved yet.
fn asked<T>(
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

/// [`emit`] for an operator with neither attributes nor a list and with one result: what `x + y` calls.
pub(crate) fn one(py: Python<'_>, op: Op, args: &[Arg<'_>]) -> PyResult<Arc<Var>> {
    match usual::emit(py, op, args, 0) {
        Some(var) => var,
        None => only(emit(py, op, args, SmallVec::new())?),
    }
}

fn resolve(py: Python<'_>, op: Op, args: &[Arg<'_>]) -> PyResult<SmallVec<[Ready; 4]>> {
    args.iter().map(|arg| resolve_one(py, op, arg)).collect()
}

#[inline]
fn resolve_one(py: Python<'_>, op: Op, arg: &Arg<'_>) -> PyResult<Ready> {
    Ok(match arg {
        Arg::Absent => Ready { value: None, edge: None, scalar: None },
        Arg::Scalar(scalar) => Ready { value: None, edge: None, scalar: Some(*scalar) },
        Arg::Var(var) => {
            let resolved = match var.resolve(py) {
                // A view that PyTorch forbids to differentiate may still be compared or rounded.
                Err(_)
                    if !gradient_rules::any_for(
                        py,
                        op,
                        std::iter::repeat_n(true, usize::from(u8::MAX)),
                    ) =>
                {
                    Resolved { value: var.value(py)?, edge: None }
                }
                resolved => resolved?,
            };
            Ready { value: Some(resolved.value), edge: resolved.edge, scalar: None }
        }
    })
}

fn infer(
    py: Python<'_>,
    op: Op,
    ready: &[Ready],
    attrs: &[Attr],
) -> PyResult<shape_rules::Outputs> {
    shape_rules::infer(op, &operands_of(ready), attrs).map_err(|error| errors::of_rule(py, &error))
}

/// The operands as the rules see them.
fn operands_of(ready: &[Ready]) -> SmallVec<[shape_rules::Arg<'_>; 4]> {
    ready
        .iter()
        .map(|operand| match (&operand.value, operand.scalar) {
            (Some(value), _) => shape_rules::Arg::Value(&value.meta),
            (None, Some(scalar)) => shape_rules::Arg::Scalar(scalar),
            (None, None) => shape_rules::Arg::Absent,
        })
        .collect()
}

fn check_session(py: Python<'_>, op: Op, ready: &[Ready]) -> PyResult<()> {
    let epoch = runtime::epoch();
    let foreign =
        ready.iter().filter_map(|operand| operand.value.as_ref()).any(|value| value.epoch != epoch);
    if !foreign {
        return Ok(());
    }
    Err(errors::mistake(
        py,
        ErrorClass::Runtime,
        format!(
            "{}: an operand belongs to another session (gt.connect or gt.disconnect was called since); \
             bring its data along by .numpy() and gt.tensor()",
            op.info().name
        ),
    ))
}

/// An instruction that has been sent.
struct Sent {
    values: SmallVec<[Arc<Value>; 2]>,
    attrs: SmallVec<[Attr; 2]>,
    site: u32,
    signal: u16,
}

fn send(
    py: Python<'_>,
    op: Op,
    caller: Caller,
    ready: &[Ready],
    attrs: SmallVec<[Attr; 2]>,
    consumes: u16,
    metas: &[Meta],
) -> PyResult<Sent> {
    let epoch = runtime::epoch();
    runtime::with(py, |runtime| {
        let mut instruction = Instruction::new(op);
        instruction.tag = caller.site;
        instruction.signal = caller.signal;
        runtime.announce_signal(py, caller.signal);
        instruction.consumes = consumes;
        instruction.attrs = attrs;
        for operand in ready {
            instruction.operands.push(match (&operand.value, operand.scalar) {
                (Some(value), _) => Operand::Value(Id::slot(value.slot)),
                (None, Some(scalar)) => Operand::Scalar(scalar),
                (None, None) => Operand::Absent,
            });
        }
        let slots: SmallVec<[u32; 2]> = metas.iter().map(|_| runtime.take_slot()).collect();
        instruction.outputs.extend(slots.iter().map(|&slot| Id::slot(slot)));
        runtime.send_inferred(&instruction, metas)?;
        let value = |(meta, slot): (&Meta, u32)| Arc::new(Value { slot, epoch, meta: *meta });
        Ok(Sent {
            values: metas.iter().zip(slots).map(value).collect(),
            attrs: instruction.attrs,
            site: instruction.tag,
            signal: instruction.signal,
        })
    })
}

fn record(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    ready: SmallVec<[Ready; 4]>,
    sent: Sent,
) -> Vars {
    let info = op.info();
    let leads_on = |operand: &Ready| !matches!(operand.edge, None | Some(Edge::Nowhere));
    let (operands, mut outputs) = gradient_rules::saves(py, op, ready.iter().map(leads_on));
    if ready.iter().any(|operand| matches!(operand.edge, Some(Edge::Nowhere))) {
        // PyTorch keeps outputs even where the gradient gets nowhere, to see that nobody writes them.
        (_, outputs) =
            gradient_rules::saves(py, op, ready.iter().map(|operand| operand.edge.is_some()));
    }
    let operands = info.saves_operands & operands;
    let mut saved = SavedValues::new();
    for (position, (arg, operand)) in args.iter().zip(&ready).enumerate() {
        let place = position.min(info.operands.len() - 1);
        if let (Arg::Var(var), Some(value)) = (arg, &operand.value)
            && operands & (1_u16 << place) != 0
        {
            let (value, watched) = (Arc::clone(value), var.watched(py));
            saved.push(SavedValue { place: Place::Operand(position), value, watched });
        }
    }
    let inputs = ready
        .into_iter()
        .map(|operand| Input {
            edge: operand.edge,
            meta: operand.value.map(|value| value.meta),
            scalar: operand.scalar,
        })
        .collect();
    let Sent { values, attrs, site, signal } = sent;
    let recording = Recording { op, attrs: attrs.into_vec(), inputs, site, signal };
    recording.record(py, saved, values, info.saves_outputs & outputs)
}

/// The one result of an operator that has one.
pub(crate) fn only(vars: Vars) -> PyResult<Arc<Var>> {
    vars.into_iter().next().ok_or_else(|| {
        pyo3::exceptions::PyRuntimeError::new_err(
            "an operator without a result was used as a value",
        )
    })
}

/// Emits an operator with one result, as a Python tensor.
pub(crate) fn tensor<'py>(
    py: Python<'py>,
    op: Op,
    args: &[Arg<'_>],
    attrs: SmallVec<[Attr; 2]>,
) -> PyResult<Bound<'py, Tensor>> {
    Tensor::wrap(py, only(emit(py, op, args, attrs)?)?)
}
