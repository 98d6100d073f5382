//! Reads: the only place where a program waits for its workers.

use super::shown;
use crate::client::connection::answers::{Answer, Destination, Elements, Failed, ReadRange};
use crate::client::connection::new_array::NewArray;
use crate::client::session::describe::DescribeKind;
use crate::client::session::runtime::Question;
use crate::client::session::{caller, errors, runtime};
use crate::client::value::variable::Var;
use gt_protocol::message::{FromClient, Stats};
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Dtype, Id, Instruction, Op, Operand};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat};
use std::collections::BTreeMap;
use std::time::Duration;

/// All elements, contiguous and row-major, as a numpy array of bytes.
pub(crate) fn bytes<'py>(py: Python<'py>, var: &Var) -> PyResult<Bound<'py, PyAny>> {
    let meta = var.meta(py);
    let length = usize::try_from(meta.bytes()).expect("a size has 64 bits");
    let (place, array) = NewArray::new(py, length)?;
    if length > 0 {
        elements(py, var, 0, meta.elements(), Destination::Array(place))?;
    }
    Ok(array)
}

fn elements(
    py: Python<'_>,
    var: &Var,
    start: i64,
    count: i64,
    place: Destination,
) -> PyResult<Elements> {
    let value = var.value(py)?; // taken again for a view whose memory was written, also without a gradient
    let caller = caller::ready(py)?;
    if value.epoch != runtime::epoch() {
        return Err(other_session(py, "read"));
    }
    let mut word = Instruction::new(Op::Read);
    let request = runtime::with(py, |runtime| {
        let unsigned = |number: i64| u64::try_from(number).expect("elements are counted from 0");
        let dtype = var.meta(py).dtype;
        let range = ReadRange { start: unsigned(start), count: unsigned(count), dtype };
        let request = runtime.answers.open_read(range, place);
        word.operands.push(Operand::Value(Id::slot(value.slot)));
        word.attrs = [i64::try_from(request).expect("requests are counted from 0"), start, count]
            .into_iter()
            .map(Attr::Int)
            .collect();
        word.tag = caller.site;
        runtime.send(&word).map(|()| request)
    })?;
    shown::show(py, &word, &[]);
    match runtime::wait(py, request, Question::Read(&var.meta(py)))? {
        Answer::Read(elements) => {
            warn_of_unread(py)?;
            Ok(elements)
        }
        Answer::Failed(failed) => {
            runtime::with(py, |runtime| runtime.answers.was_read(failed.number));
            Err(failure(py, &failed))
        }
        Answer::Done(_) | Answer::Described(_) | Answer::Waiting(_) => {
            Err(errors::connection_lost(py, "the dispatcher answered another request"))
        }
    }
}

/// Warns of each failure that no read has raised; they count as reported from then on. A read that
/// fails itself leaves the others to the next read: with `-W error`, a warning would replace the
/// failure that was asked for.
fn warn_of_unread(py: Python<'_>) -> PyResult<()> {
    if !runtime::with(py, |runtime| runtime.answers.has_unread()) {
        return Ok(());
    }
    let (failures, more) = runtime::unread(py);
    if more > 0 {
        errors::warn(
            py,
            0,
            &format!("{more} failures that nobody has read were too many to be kept"),
        )?;
    }
    for failed in &failures {
        let text = format!("a failure that nobody has read: {}", errors::describe(py, failed));
        errors::warn(py, failed.site, &text)?;
    }
    Ok(())
}

/// The first element as a Python number.
pub(crate) fn item(py: Python<'_>, var: &Var) -> PyResult<Py<PyAny>> {
    let first = elements(py, var, 0, 1, Destination::default())?;
    number(py, var.meta(py).dtype, first.bytes())
}

/// The only element, for `float(x)` and `int(x)`.
pub(crate) fn single(py: Python<'_>, var: &Var) -> PyResult<Py<PyAny>> {
    if var.meta(py).elements() != 1 {
        return Err(errors::mistake(
            py,
            ErrorClass::Value,
            "only one element tensors can be converted to Python scalars",
        ));
    }
    item(py, var)
}

fn number(py: Python<'_>, dtype: Dtype, bytes: &[u8]) -> PyResult<Py<PyAny>> {
    let mut word = [0_u8; 8];
    for (place, byte) in word.iter_mut().zip(bytes) {
        *place = *byte;
    }
    let whole = u64::from_le_bytes(word);
    let [b0, b1, b2, b3, ..] = word;
    let half = u16::from_le_bytes([b0, b1]);
    let single = u32::from_le_bytes([b0, b1, b2, b3]);
    let float = |value: f64| Ok(PyFloat::new(py, value).into_any().unbind());
    let int = |value: i64| Ok(value.into_pyobject(py)?.into_any().unbind());
    match dtype {
        Dtype::Bool => Ok(PyBool::new(py, b0 != 0).to_owned().into_any().unbind()),
        Dtype::U8 => int(i64::from(b0)),
        Dtype::I8 => int(i64::from(b0.cast_signed())),
        Dtype::I16 => int(i64::from(half.cast_signed())),
        Dtype::I32 => int(i64::from(single.cast_signed())),
        Dtype::I64 => int(whole.cast_signed()),
        Dtype::F16 => float(half_to_f64(half)),
        Dtype::Bf16 => float(f64::from(f32::from_bits(u32::from(half) << 16))),
        Dtype::F32 => float(f64::from(f32::from_bits(single))),
        Dtype::F64 => float(f64::from_bits(whole)),
        Dtype::C64 | Dtype::C128 => {
            let [real, imag] = parts(dtype, bytes);
            Ok(PyComplex::from_doubles(py, real, imag).into_any().unbind())
        }
    }
}

/// The real and the imaginary part of a complex element.
fn parts(dtype: Dtype, bytes: &[u8]) -> [f64; 2] {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    [first, second].map(|bytes| {
        let mut word = [0_u8; 8];
        for (place, byte) in word.iter_mut().zip(bytes) {
            *place = *byte;
        }
        if dtype == Dtype::C128 {
            return f64::from_le_bytes(word);
        }
        let [b0, b1, b2, b3, ..] = word;
        f64::from(f32::from_le_bytes([b0, b1, b2, b3]))
    })
}

/// IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits.
fn half_to_f64(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from((bits >> 10) & 0x1f);
    let fraction = f64::from(bits & 0x3ff);
    match exponent {
        0 => sign * fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
    }
}

/// Waits until every instruction emitted so far has run.
pub(crate) fn synchronize(py: Python<'_>) -> PyResult<()> {
    if runtime::with(py, |runtime| runtime.connection.is_none()) {
        return Ok(());
    }
    runtime::prepare(py)?;
    let request = runtime::with(py, |runtime| {
        let request = runtime.answers.open();
        let mut word = Instruction::new(Op::Synchronize);
        word.attrs.push(Attr::Int(i64::try_from(request).expect("requests are counted from 0")));
        runtime.send(&word).map(|()| request)
    })?;
    runtime::wait(py, request, Question::Synchronize)?;
    raise_unread(py)
}

/// The dispatcher's description of a tensor, or of the session.
pub(crate) fn describe(py: Python<'_>, var: Option<&Var>, what: DescribeKind) -> PyResult<String> {
    let value = var.map(|var| var.value(py)).transpose()?;
    let caller = caller::ready(py)?;
    if value.as_ref().is_some_and(|value| value.epoch != runtime::epoch()) {
        return Err(other_session(py, "describe"));
    }
    let request = runtime::with(py, |runtime| {
        let request = runtime.answers.open();
        let operand =
            value.as_ref().map_or(Operand::Absent, |value| Operand::Value(Id::slot(value.slot)));
        let mut word = what.instruction(request, operand);
        word.tag = caller.site;
        runtime.send(&word).map(|()| request)
    })?;
    match runtime::wait(py, request, Question::Description)? {
        Answer::Described(text) => Ok(text),
        Answer::Failed(failed) => {
            runtime::with(py, |runtime| runtime.answers.was_read(failed.number));
            Err(failure(py, &failed))
        }
        Answer::Done(_) | Answer::Read(_) | Answer::Waiting(_) => {
            Err(errors::connection_lost(py, "the dispatcher answered another request"))
        }
    }
}

pub(crate) fn other_session(py: Python<'_>, what: &str) -> PyErr {
    runtime::hold_other_threads(py);
    let whose = runtime::whose();
    errors::mistake(py, ErrorClass::Runtime, format!("{what}: the tensor {whose}"))
}

/// The exception for a failure; it adds advice where a worker was lost, or none is left.
pub(crate) fn failure(py: Python<'_>, failed: &Failed) -> PyErr {
    let advice = runtime::with(py, |runtime| runtime.advice(failed.class));
    errors::of_failure(py, failed, advice.as_deref())
}

/// Raises the first unread failure: the others are raised by the next call, or printed at exit.
fn raise_unread(py: Python<'_>) -> PyResult<()> {
    let first = runtime::with(py, |runtime| {
        runtime.receive_ready();
        runtime.answers.take_first_unread()
    });
    first.map_or(Ok(()), |failed| Err(failure(py, &failed)))
}

/// The counters of every worker by its index, once everything emitted so far has run; None for a
/// worker that does not answer. The request is no instruction, so no counter counts it.
pub(crate) fn worker_stats(
    py: Python<'_>,
    limit: Option<Duration>,
) -> PyResult<BTreeMap<u32, Option<Stats>>> {
    runtime::prepare(py)?;
    let request = runtime::with(py, |runtime| {
        let request = runtime.answers.open();
        if let Some(connection) = runtime.connection.as_mut() {
            connection.say(&FromClient::StatsRequest { request }, &mut runtime.answers);
        }
        request
    });
    match runtime::wait(py, request, Question::Counters(limit))? {
        Answer::Done(stats) => {
            raise_unread(py)?;
            Ok(stats.into_iter().map(|(worker, stats)| (worker, Some(stats))).collect())
        }
        Answer::Waiting(part) => {
            let workers = runtime::with(py, |runtime| runtime.answers.workers.clone());
            let silent = workers.into_iter().map(|worker| (worker, None));
            let answered =
                part.into_stats().into_iter().map(|(worker, stats)| (worker, Some(stats)));
            Ok(silent.chain(answered).collect())
        }
        Answer::Failed(failed) => Err(failure(py, &failed)),
        Answer::Read(_) | Answer::Described(_) => {
            Err(errors::connection_lost(py, "the dispatcher answered another request"))
        }
    }
}
