//! Lines on standard error about what the client emits, for `GT_DEBUG_CLIENT`.

use crate::client::gil_cell::GilCell;
use crate::client::session::{runtime, site};
use gt_protocol::text::{self, NoNames, PayloadText};
use gt_protocol::{Id, Instruction, Meta, Operand, wire};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// True if lines are written: the only thing that an instruction looks at otherwise.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Numbers of the instructions that slots' values come from.
static NUMBERS: GilCell<Option<HashMap<u32, Id>>> = GilCell::new(None);

/// Sets if the client writes a line for each instruction that it emits.
#[pyfunction]
pub(crate) fn show_instructions(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
}

/// Writes the line of an emitted instruction, given by its words; its results have this metadata.
#[inline]
pub(crate) fn show_words(py: Python<'_>, words: &[u32], outputs: &[Meta]) {
    if IS_ON.load(Ordering::Relaxed) {
        show_decoded(py, words, outputs);
    }
}

#[cold]
fn show_decoded(py: Python<'_>, words: &[u32], outputs: &[Meta]) {
    if let Ok((instruction, _)) = wire::decode(words) {
        show(py, &instruction, outputs);
    }
}

/// Writes the line of an instruction that was sent: `client: %2 = add %0 %1 -> f32[4]  train.py:7`.
pub(crate) fn show(py: Python<'_>, instruction: &Instruction<'_>, outputs: &[Meta]) {
    if !IS_ON.load(Ordering::Relaxed) {
        return;
    }
    let line = line(py, instruction, outputs);
    // If standard error is closed, there is nowhere to report it.
    let _ = writeln!(std::io::stderr(), "gt: client: {line}");
}

fn line(py: Python<'_>, instruction: &Instruction<'_>, outputs: &[Meta]) -> String {
    let mut instruction = instruction.clone();
    let place = site::name(py, instruction.tag).unwrap_or_default();
    (instruction.tag, instruction.signal, instruction.payload) = (0, 0, &[]);
    let numbered = runtime::with(py, |runtime| runtime.answers.numbered());
    let mut numbers = NUMBERS.get_mut(py);
    let numbers = numbers.get_or_insert_default();
    for operand in &mut instruction.operands {
        if let Operand::Value(id) = operand
            && let Some(number) = id.as_slot().and_then(|slot| numbers.get(&slot))
        {
            *id = *number;
        }
    }
    for (output, id) in (0..).zip(&mut instruction.outputs) {
        let number = Id::number(numbered.saturating_sub(1), output);
        if let Some(slot) = id.as_slot() {
            numbers.insert(slot, number);
        }
        *id = number;
    }
    let mut text = text::format(&instruction, &NoNames, PayloadText::Reference);
    for (place, meta) in outputs.iter().enumerate() {
        let arrow = if place == 0 { " ->" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{arrow} {meta}");
    }
    if !place.is_empty() {
        let _ = write!(text, "  {place}");
    }
    text
}
