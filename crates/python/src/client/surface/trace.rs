//! Texts for people: parsing and printing the lines of a log for `gt trace`, and the tape for
//! `gt.debug`.

use super::tensor::Tensor;
use crate::client::backward;
use crate::client::session::site;
use crate::client::tape::{self, Edge, Input, Node};
use gt_protocol::text::{self, Names, NoNames, PayloadText};
use gt_protocol::{Instruction, Scalar, wire};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Prefix of a payload's reference (hash and length): the payload's bytes are not in the line.
const REFERENCE: &str = " payload=@";

/// The operator of a log line and the line as GT prints it; None for an empty line or a comment.
///
/// The instruction is also converted to its binary form and back where it has one (a slot number
/// may be too large for it).
#[pyfunction]
pub(crate) fn parse_trace_line(line: &str) -> PyResult<Option<(&'static str, String)>> {
    let (head, reference) = without_reference(line);
    let (mut names, mut payload) = (Table::default(), Vec::new());
    let parsed = text::parse(&head, &mut names, &mut payload);
    let Some(instruction) = parsed.map_err(|error| PyValueError::new_err(error.to_string()))?
    else {
        return Ok(None);
    };
    through_words(&instruction)?;
    let mut line = text::format(&instruction, &names, PayloadText::Full);
    line.push_str(&reference);
    Ok(Some((instruction.op.info().name, line)))
}

/// Splits a line into the instruction without its payload's reference, and that reference.
fn without_reference(line: &str) -> (String, String) {
    let Some((before, rest)) = line.split_once(REFERENCE) else {
        return (line.to_owned(), String::new());
    };
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (reference, after) = rest.split_at(end);
    (format!("{before}{after}"), format!("{REFERENCE}{reference}"))
}

/// Checks that the binary form decodes to the same line.
fn through_words(instruction: &Instruction<'_>) -> PyResult<()> {
    let mut words = Vec::new();
    if wire::encode(instruction, &mut words).is_err() {
        return Ok(());
    }
    let (again, _) = wire::decode(&words)
        .map_err(|error| PyValueError::new_err(format!("its words: {error}")))?;
    let lines = [instruction, &again].map(|form| text::format(form, &NoNames, PayloadText::Full));
    match lines {
        [line, again] if line == again => Ok(()),
        [line, again] => Err(PyValueError::new_err(format!("{line:?} in words is {again:?}"))),
    }
}

/// One line for each record of the tape that leads to `tensor`; without it, to the operation
/// recorded last.
#[pyfunction]
#[pyo3(signature = (tensor=None))]
pub(crate) fn print_tape(
    py: Python<'_>,
    tensor: Option<&Bound<'_, Tensor>>,
) -> PyResult<Vec<String>> {
    let last = match tensor {
        None => tape::last(py),
        Some(tensor) => match tensor.get().var.resolve(py)?.edge {
            Some(Edge::Node(node, _)) => Some(node),
            Some(Edge::Leaf(_) | Edge::Nowhere) | None => None,
        },
    };
    Ok(backward::tape_of(last).iter().map(|node| tape_line(py, node)).collect())
}

/// `%3 = matmul %1 f32[4,3], leaf f32[3] -> f32[4]  train.py:7`
fn tape_line(py: Python<'_>, node: &Node) -> String {
    let inputs: Vec<String> = node.inputs.iter().map(input_text).collect();
    let outputs: Vec<String> = node.outputs.iter().map(ToString::to_string).collect();
    let place = site::name(py, node.site).unwrap_or_default();
    let (name, inputs, outputs) = (node_name(node), inputs.join(", "), outputs.join(" "));
    format!("%{} = {name} {inputs} -> {outputs}  {place}", node.sequence)
}

fn node_name(node: &Node) -> String {
    node.op().map_or_else(|| node.function_name(), |op| op.info().name.to_owned())
}

fn input_text(input: &Input) -> String {
    match (&input.edge, &input.meta, input.scalar) {
        (Some(Edge::Node(from, _)), Some(meta), _) => format!("%{} {meta}", from.sequence),
        (Some(Edge::Leaf(_) | Edge::Nowhere), Some(meta), _) => format!("leaf {meta}"),
        (_, Some(meta), _) => format!("constant {meta}"),
        (_, None, Some(Scalar::Bool(value))) => value.to_string(),
        (_, None, Some(Scalar::Int(value))) => value.to_string(),
        (_, None, Some(Scalar::Float(value))) => value.to_string(),
        (_, None, None) => "_".to_owned(),
    }
}

/// Names of signals in the order of their appearance.
#[derive(Default)]
struct Table(Vec<String>);

impl Names for Table {
    fn signal_name(&self, id: u16) -> Option<&str> {
        self.0.get(usize::from(id).checked_sub(1)?).map(String::as_str)
    }

    fn signal_id(&mut self, name: &str) -> Option<u16> {
        self.0.push(name.to_owned());
        u16::try_from(self.0.len()).ok()
    }
}
