//! The emitter: rules, slot, source position, tape record and the instruction itself, in one go.

use super::alias::{Resolved, Var};
use super::backward::rules;
use super::tape::{Edge, Input, Node, Place, SavedValue, grad_enabled, next_sequence, remember};
use super::tensor::Tensor;
use super::value::Value;
use super::{errors, gil_cell::GilCell, runtime};
use gt_protocol::rules::{self as shape_rules, ErrorClass};
use gt_protocol::{Attr, Id, Instruction, Meta, Op, Operand, Scalar, wire};
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
    let ready = resolve(py, op, args)?;
    let metas = infer(py, op, &ready, &attrs)?;
    runtime::prepare(py)?;
    check_session(py, op, &ready)?;
    let recorded = grad_enabled()
        && ready.iter().any(|operand| operand.edge.is_some())
        && rules::any_for(py, op, ready.iter().map(|operand| operand.edge.is_some()));
    // What the backward pass needs is not given away.
    let consumes = if recorded { consumes & !op.info().saves_operands } else { consumes };
    let (values, site, attrs) = send(py, op, &ready, attrs, consumes, &metas)?;
    if !recorded {
        return Ok(values.into_iter().map(|value| Var::new(value, None)).collect());
    }
    Ok(record(py, op, args, ready, attrs, &metas, values, site))
}

/// What an operator would result in; nothing is sent.
pub(crate) fn results_of(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
) -> PyResult<shape_rules::Outputs> {
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
    shape_rules::infer(op, &operands, attrs).map_err(|error| errors::of_rule(py, &error))
}

/// [`emit`] for two operands and one result: what `x + y` calls, without a list in between.
pub(crate) fn pair(py: Python<'_>, op: Op, args: [Arg<'_>; 2]) -> PyResult<Arc<Var>> {
    let [left, right] = &args;
    let ready = [resolve_one(py, op, left)?, resolve_one(py, op, right)?];
    let metas = infer(py, op, &ready, &[])?;
    let [meta] = metas.as_slice() else {
        return only(emit(py, op, &args, SmallVec::new())?);
    };
    runtime::prepare(py)?;
    check_session(py, op, &ready)?;
    let (value, site) = send_short(py, op, &ready, 0, meta)?;
    let needs = ready.each_ref().map(|operand| operand.edge.is_some());
    let recorded = grad_enabled()
        && needs.iter().any(|&need| need)
        && rules::any_for(py, op, needs.into_iter());
    if !recorded {
        return Ok(Var::new(value, None));
    }
    let values = SmallVec::from_iter([value]);
    let ready = ready.into_iter().collect();
    only(record(py, op, &args, ready, SmallVec::new(), &metas, values, site))
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
                    if !rules::any_for(py, op, std::iter::repeat_n(true, usize::from(u8::MAX))) =>
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
    let args: SmallVec<[shape_rules::Arg<'_>; 4]> = ready
        .iter()
        .map(|operand| match (&operand.value, operand.scalar) {
            (Some(value), _) => shape_rules::Arg::Value(&value.meta),
            (None, Some(scalar)) => shape_rules::Arg::Scalar(scalar),
            (None, None) => shape_rules::Arg::Absent,
        })
        .collect();
    shape_rules::infer(op, &args, attrs).map_err(|error| errors::of_rule(py, &error))
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

/// Words of the longest instruction without attributes: header, result, operands, a scalar in each of three places.
const SHORT_WORDS: usize = 24;

/// An instruction with one result and neither attributes nor a list: its words are written down directly.
fn send_short(
    py: Python<'_>,
    op: Op,
    ready: &[Ready],
    consumes: u16,
    meta: &Meta,
) -> PyResult<(Arc<Value>, u32)> {
    let epoch = runtime::epoch();
    runtime::with(py, |runtime| {
        let slot = runtime.take_slot();
        let tag = runtime.site(py);
        let flags = u32::from(consumes) | (u32::from(runtime.signal(py)) << 16);
        let mut words: ArrayWords = ArrayWords::new();
        words.extend([u32::from(op.info().code), tag, flags, slot]);
        words.extend(ready.iter().map(|operand| match (&operand.value, operand.scalar) {
            (Some(value), _) => value.slot,
            (None, Some(_)) => wire::IMMEDIATE,
            (None, None) => wire::NONE,
        }));
        for scalar in ready.iter().filter_map(|operand| operand.scalar) {
            words.extend(wire::scalar_words(scalar));
        }
        let length = u32::try_from(words.len()).unwrap_or(0);
        if let Some(first) = words.first_mut() {
            *first |= length << 16;
        }
        runtime.send_words(op, &mut words, std::slice::from_ref(meta))?;
        Ok((Arc::new(Value { slot, epoch, meta: *meta }), tag))
    })
}

type ArrayWords = SmallVec<[u32; SHORT_WORDS]>;

/// The results, the source position, and the attributes back.
type Sent = (SmallVec<[Arc<Value>; 2]>, u32, SmallVec<[Attr; 2]>);

fn send(
    py: Python<'_>,
    op: Op,
    ready: &[Ready],
    attrs: SmallVec<[Attr; 2]>,
    consumes: u16,
    metas: &[Meta],
) -> PyResult<Sent> {
    if let ([meta], true) = (metas, attrs.is_empty() && !op.info().has_list()) {
        let (value, site) = send_short(py, op, ready, consumes, meta)?;
        return Ok((SmallVec::from_iter([value]), site, attrs));
    }
    let epoch = runtime::epoch();
    runtime::with(py, |runtime| {
        let mut instruction = Instruction::new(op);
        instruction.tag = runtime.site(py);
        instruction.signal = runtime.signal(py);
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
        let values = metas
            .iter()
            .zip(slots)
            .map(|(meta, slot)| Arc::new(Value { slot, epoch, meta: *meta }))
            .collect();
        Ok((values, instruction.tag, instruction.attrs))
    })
}

#[allow(
    clippy::too_many_arguments,
    reason = "the parts of one record; a struct would only rename them"
)]
fn record(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    ready: SmallVec<[Ready; 4]>,
    attrs: SmallVec<[Attr; 2]>,
    metas: &[Meta],
    values: SmallVec<[Arc<Value>; 2]>,
    site: u32,
) -> Vars {
    let info = op.info();
    let leads_on = |operand: &Ready| !matches!(operand.edge, None | Some(Edge::Nowhere));
    let (used_operands, mut used_outputs) = rules::saves(py, op, ready.iter().map(leads_on));
    if ready.iter().any(|operand| matches!(operand.edge, Some(Edge::Nowhere))) {
        // PyTorch keeps outputs even where the gradient gets nowhere, to see that nobody writes them.
        (_, used_outputs) =
            rules::saves(py, op, ready.iter().map(|operand| operand.edge.is_some()));
    }
    let saves_operands = info.saves_operands & used_operands;
    let saves_outputs = info.saves_outputs & used_outputs;
    let mut saved: SmallVec<[SavedValue; 2]> = SmallVec::new();
    for (position, (arg, operand)) in args.iter().zip(&ready).enumerate() {
        let place = position.min(info.operands.len() - 1);
        if saves_operands & (1_u16 << place) == 0 {
            continue;
        }
        if let (Arg::Var(var), Some(value)) = (arg, &operand.value) {
            saved.push(SavedValue {
                place: Place::Operand(position),
                value: Arc::clone(value),
                watched: var.watched(py),
            });
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
    let signal = runtime::with(py, |runtime| runtime.signal(py));
    let node = Arc::new(Node {
        op,
        attrs,
        inputs,
        outputs: metas.iter().copied().collect(),
        sequence: next_sequence(),
        site,
        signal,
        saved: GilCell::new(None),
        retained: GilCell::new(Vec::new()),
    });
    let mut vars = Vars::new();
    for (position, value) in values.into_iter().enumerate() {
        let edge = value
            .meta
            .dtype
            .is_float()
            .then(|| Edge::Node(Arc::clone(&node), u8::try_from(position).unwrap_or(u8::MAX)));
        let var = Var::new(Arc::clone(&value), edge);
        if saves_outputs & (1_u16 << position.min(15)) != 0 {
            saved.push(SavedValue {
                place: Place::Output(position),
                value,
                watched: var.watched(py),
            });
        }
        vars.push(var);
    }
    *node.saved.get_mut(py) = Some(saved);
    remember(py, &node);
    vars
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
