//! Published values, and named sessions as a client sees them.

use super::tensor::Tensor;
use crate::client::connection::answers::Answer;
use crate::client::emission::convert::DimsArg;
use crate::client::emission::{emit, read};
use crate::client::session::describe::DescribeKind;
use crate::client::session::generator::Generator;
use crate::client::session::runtime::Question;
use crate::client::session::{caller, errors, runtime};
use crate::client::value::dtype::DtypeArg;
use gt_protocol::message::{FromClient, SessionAction};
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Id, Instruction, Op, Operand};
use pyo3::prelude::*;
use smallvec::smallvec;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(publish, module)?)?;
    module.add_function(wrap_pyfunction!(published, module)?)?;
    module.add_function(wrap_pyfunction!(published_names, module)?)?;
    module.add_function(wrap_pyfunction!(rebalance, module)?)?;
    module.add_function(wrap_pyfunction!(grant, module)?)?;
    module.add_function(wrap_pyfunction!(borrow, module)?)?;
    module.add_function(wrap_pyfunction!(session_request, module)?)
}

/// Keeps the tensors' present values under a name of the session; without tensors the name is
/// free again. Returns when the dispatcher has done so.
#[pyfunction]
fn publish(py: Python<'_>, name: &str, tensors: Vec<Bound<'_, Tensor>>) -> PyResult<()> {
    let mut values = Vec::with_capacity(tensors.len());
    for tensor in &tensors {
        values.push(tensor.get().var.value(py)?);
    }
    let caller = caller::ready(py)?;
    if values.iter().any(|value| value.epoch != runtime::epoch()) {
        return Err(read::other_session(py, "publish"));
    }
    let request = runtime::with(py, |runtime| {
        let request = runtime.answers.open();
        let generator = *runtime.generator();
        let mut word = Instruction::new(Op::Publish);
        word.operands.extend(values.iter().map(|value| Operand::Value(Id::slot(value.slot))));
        word.attrs = smallvec![
            Attr::Int(i64::try_from(request).expect("requests are counted from 0")),
            Attr::Text(name.into()),
            Attr::Int(generator.seed),
            Attr::Int(generator.draw),
        ];
        word.tag = caller.site;
        runtime.send(&word).map(|()| request)
    })?;
    match runtime::wait(py, request, Question::Description)? {
        Answer::Done(_) => Ok(()),
        Answer::Failed(failed) => Err(read::failure(py, &failed)),
        Answer::Described(_) | Answer::Read(_) | Answer::Waiting(_) => {
            Err(errors::connection_lost(py, "the dispatcher answered another request"))
        }
    }
}

/// Value number `index` of those that a name keeps.
#[pyfunction]
fn published<'py>(
    py: Python<'py>,
    name: &str,
    index: i64,
    shape: DimsArg,
    dtype: DtypeArg,
) -> PyResult<Bound<'py, Tensor>> {
    let attrs = smallvec![
        Attr::Text(name.into()),
        Attr::Int(index),
        Attr::Ints(shape.0),
        Attr::Dtype(dtype.0),
    ];
    emit::tensor(py, Op::Published, &[], attrs)
}

/// The session's names, as the dispatcher describes them.
#[pyfunction]
fn published_names(py: Python<'_>) -> PyResult<String> {
    read::describe(py, None, DescribeKind::Published)
}

/// Sends an instruction that is answered by a description.
fn described(py: Python<'_>, op: Op, attrs: impl IntoIterator<Item = Attr>) -> PyResult<String> {
    let caller = caller::ready(py)?;
    let request = runtime::with(py, |runtime| {
        let request = runtime.answers.open();
        let mut word = Instruction::new(op);
        let number = i64::try_from(request).expect("requests are counted from 0");
        word.attrs.push(Attr::Int(number));
        word.attrs.extend(attrs);
        word.tag = caller.site;
        runtime.send(&word).map(|()| request)
    })?;
    match runtime::wait(py, request, Question::Description)? {
        Answer::Described(text) => Ok(text),
        Answer::Failed(failed) => Err(read::failure(py, &failed)),
        Answer::Done(_) | Answer::Read(_) | Answer::Waiting(_) => {
            Err(errors::connection_lost(py, "the dispatcher answered another request"))
        }
    }
}

/// Moves the session's values to the workers that are there now, at their next use.
#[pyfunction]
fn rebalance(py: Python<'_>) -> PyResult<String> {
    described(py, Op::Rebalance, [])
}

/// Lets other sessions of a user borrow a name, or of everybody where the user is empty.
#[pyfunction]
fn grant(py: Python<'_>, name: &str, user: &str, is_revoked: bool) -> PyResult<String> {
    let attrs = [Attr::Text(name.into()), Attr::Text(user.into()), Attr::Choice(is_revoked.into())];
    described(py, Op::Grant, attrs)
}

/// Keeps what another session has published under a name, for [`published`]; without a session
/// that is given back.
#[pyfunction]
fn borrow(py: Python<'_>, session: &str, name: &str) -> PyResult<String> {
    described(py, Op::Borrow, [Attr::Text(session.into()), Attr::Text(name.into())])
}

/// Continues a named session: numbers of instructions and the generator's state go on where its
/// last client left them.
pub(super) fn continue_session(py: Python<'_>) -> PyResult<()> {
    runtime::with(py, |runtime| runtime.answers.open_first());
    let text = match runtime::wait(py, 0, Question::Description)? {
        Answer::Described(text) => text,
        Answer::Failed(failed) => return Err(read::failure(py, &failed)),
        Answer::Done(_) | Answer::Read(_) | Answer::Waiting(_) => {
            return Err(errors::connection_lost(py, "the dispatcher did not describe the session"));
        }
    };
    let words = text.lines().next().unwrap_or_default().split(' ');
    let number = |name: &str| {
        let mut words = words.clone().filter_map(|word| word.split_once('='));
        words.find(|(key, _)| *key == name)?.1.parse::<i64>().ok()
    };
    let next = number("next").and_then(|next| u64::try_from(next).ok());
    let generator = number("seed").zip(number("draw"));
    runtime::with(py, |runtime| {
        runtime.answers.continue_numbers(next.unwrap_or(0));
        if let Some((seed, draw)) = generator {
            *runtime.generator() = Generator { seed, draw };
        }
    });
    Ok(())
}

/// Asks the dispatcher for the named sessions (`list`) or what users have used (`usage`), or to take
/// a session from its client (`detach`) or end it (`end`); returns its answer.
#[pyfunction]
fn session_request(py: Python<'_>, action: &str, name: &str) -> PyResult<String> {
    let action = match action {
        "list" => SessionAction::List,
        "detach" => SessionAction::Detach,
        "end" => SessionAction::End,
        "usage" => SessionAction::Usage,
        other => {
            let text = format!("session_request: {other:?} is not list, detach, end or usage");
            return Err(errors::mistake(py, ErrorClass::Value, text));
        }
    };
    runtime::prepare(py)?;
    let request = runtime::with(py, |runtime| {
        let request = runtime.answers.open();
        if let Some(connection) = runtime.connection.as_mut() {
            let message = FromClient::Sessions { request, action, name };
            connection.say(&message, &mut runtime.answers);
        }
        request
    });
    match runtime::wait(py, request, Question::Description)? {
        Answer::Described(text) => Ok(text),
        Answer::Failed(failed) => Err(read::failure(py, &failed)),
        Answer::Done(_) | Answer::Read(_) | Answer::Waiting(_) => {
            Err(errors::connection_lost(py, "the dispatcher answered another request"))
        }
    }
}
