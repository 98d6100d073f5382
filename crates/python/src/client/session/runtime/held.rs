//! Sending what an open region holds back.

use super::fork::forked;
use super::state::{Caller, Runtime, WAITING, epoch};
use crate::client::session::region::{
    HeldInstruction, HeldItem, HeldRegion, RegionProgram, Segment, SegmentOutcome, Treatment, Way,
    build,
};
use gt_protocol::{Attr, Dtype, Id, Instruction, Op, Operand};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::collections::{HashSet, VecDeque};

impl Runtime {
    /// Opens a region; returns false where one is open already, or where no part of it could be
    /// sent as a call: without a connection to a single worker.
    pub(crate) fn open_region(&mut self, region: impl FnOnce() -> HeldRegion) -> bool {
        let is_alone = self.answers.workers.len() == 1 && self.begun && self.connection.is_some();
        let opens = self.region.is_none() && is_alone && !forked();
        if opens {
            self.region = Some(region());
        }
        opens
    }

    /// Ends the open region. What it still holds back could not be sent.
    pub(crate) fn close_region(&mut self) -> Option<HeldRegion> {
        self.drop_held();
        self.region.take()
    }

    /// Returns true if an instruction may be published: it is held back, or what is held back need
    /// not be sent before it and there is room.
    #[inline]
    pub(crate) fn may_publish(&mut self, py: Python<'_>, op: Op, caller: Caller) -> bool {
        if self.region.is_none() {
            return self.has_room_for(py, caller);
        }
        match self.treatment(py, op, caller) {
            Some(Treatment::Held) => {
                let is_open = !forked()
                    && self.begun
                    && self.answers.closed.is_none()
                    && self.connection.is_some();
                if is_open && !WAITING.get(py).slots.is_empty() {
                    self.free_waiting(py);
                }
                is_open && self.knows_site(caller.site)
            }
            None | Some(Treatment::Passed) => self.has_room_for(py, caller),
            Some(Treatment::Ends) => {
                let region = self.region.as_mut();
                let is_empty = region.is_none_or(|region| {
                    region.ended_by = Some(op.info().name);
                    region.is_empty()
                });
                is_empty && self.has_room_for(py, caller)
            }
        }
    }

    /// Treatment of an instruction; `None` without an open region.
    #[inline]
    pub(super) fn treatment(
        &mut self,
        py: Python<'_>,
        op: Op,
        Caller { signal, .. }: Caller,
    ) -> Option<Treatment> {
        let region = self.region.as_mut()?;
        Some(region.treatment(op, signal, |signal| Self::places(py, signal)))
    }

    /// Returns true while something is held back.
    pub(super) fn holds(&self) -> bool {
        self.region.as_ref().is_some_and(|region| !region.is_empty())
    }

    /// Drops what is held back, with its connection.
    pub(super) fn drop_held(&mut self) {
        if let Some(region) = &mut self.region {
            region.held.clear();
            region.begin_segment();
        }
    }

    /// Sends the first thing that is held back, for which the caller has found room.
    pub(super) fn send_held(&mut self) -> PyResult<()> {
        if self.region.as_ref().is_some_and(|region| !region.is_closing) {
            self.decide();
        }
        let Some(region) = &mut self.region else { return Ok(()) };
        let Some(first) = region.held.pop_front() else { return Ok(()) };
        let is_last = region.held.is_empty();
        let sent = self.send_one(first);
        if is_last && let Some(region) = &mut self.region {
            let vacated = region.begin_segment();
            self.slots.free.extend(vacated);
        }
        sent.map_err(PyRuntimeError::new_err)
    }

    fn send_one(&mut self, one: HeldItem) -> Result<(), String> {
        let Some(connection) = self.connection.as_mut() else {
            return Err("gt is not connected".to_owned());
        };
        match one {
            HeldItem::Instruction(HeldInstruction { op, mut words, outputs }) => {
                self.answers.number(op);
                connection.send_words(op, &mut words, &outputs, &mut self.answers)
            }
            HeldItem::Made(instruction) => {
                self.answers.number(instruction.op);
                connection.send(&instruction, &mut self.answers)
            }
            HeldItem::Freed(slots) => connection.release(&slots, &mut self.answers),
        }
    }

    /// Decides how the held instructions are sent.
    fn decide(&mut self) {
        let Some(region) = &mut self.region else { return };
        region.is_closing = true;
        let held = || region.held.iter().filter_map(instruction);
        let (count, Some(site)) = (held().count(), held().next().map(HeldInstruction::site)) else {
            return;
        };
        let built = build(region.held.iter(), &region.operands, region.table.least);
        let way = match &built {
            Ok(program) => region.table.way(program, epoch()),
            Err(unfit) => Way::Unfit(*unfit),
        };
        let mut outcome = SegmentOutcome::Plain;
        match (way, built) {
            (Way::Called(bytes), Ok(program)) => {
                outcome = SegmentOutcome::Called;
                call(region, &program, bytes, site);
            }
            (Way::Asking(bytes), Ok(program)) => {
                let answer = self.take_slot();
                if let Some(region) = &mut self.region {
                    region.table.asked(program.digest, answer);
                    let question = question(&program, bytes, &[answer], site);
                    region.held.push_front(question);
                }
            }
            (Way::Timed { bytes, is_call }, Ok(program)) => {
                let answers: [u32; 4] = std::array::from_fn(|_| self.take_slot());
                if let Some(region) = &mut self.region {
                    if is_call {
                        outcome = SegmentOutcome::Called;
                        call(region, &program, bytes, site);
                    }
                    time(region, &program, bytes, answers, site);
                }
            }
            (Way::Unfit(unfit), _) | (_, Err(unfit)) => outcome = SegmentOutcome::Unfit(unfit),
            (Way::Plain, Ok(_)) => {}
        }
        if let Some(region) = &mut self.region {
            let end = region.ended_by.take();
            region.segments.push(Segment { site, instructions: count, outcome, end });
        }
    }
}

fn instruction(held: &HeldItem) -> Option<&HeldInstruction> {
    match held {
        HeldItem::Instruction(instruction) => Some(instruction),
        HeldItem::Freed(_) | HeldItem::Made(_) => None,
    }
}

/// An instruction on a program and its operands.
fn on_program(op: Op, program: &RegionProgram, bytes: u32, site: u32) -> Instruction<'static> {
    let mut word = Instruction::new(op);
    word.tag = site;
    let slots = std::iter::once(bytes).chain(program.operands.iter().copied());
    word.operands.extend(slots.map(|slot| Operand::Value(Id::slot(slot))));
    word
}

/// The question whether the program is compiled, and where a second answer has a slot, for the
/// worker's clock.
fn question(program: &RegionProgram, bytes: u32, answers: &[u32], site: u32) -> HeldItem {
    let mut word = on_program(Op::Compile, program, bytes, site);
    word.outputs.extend(answers.iter().copied().map(Id::slot));
    let number = [i64::from(Dtype::I64.code()), 0];
    word.attrs.push(Attr::List(number.repeat(answers.len()).into()));
    HeldItem::Made(Box::new(word))
}

/// Puts questions for the worker's clock around what is held back.
fn time(
    region: &mut HeldRegion,
    program: &RegionProgram,
    bytes: u32,
    answers: [u32; 4],
    site: u32,
) {
    region.table.timing(program.digest, answers);
    let [before, behind] = [&answers[..2], &answers[2..]];
    // The second question names the operands too, so they are freed behind it.
    let mut freed = Vec::new();
    for one in &mut region.held {
        if let HeldItem::Freed(slots) = one {
            freed.extend(slots.extract_if(.., |slot| program.operands.contains(slot)));
        }
    }
    region.held.push_front(question(program, bytes, before, site));
    region.held.push_back(question(program, bytes, behind, site));
    if !freed.is_empty() {
        region.held.push_back(HeldItem::Freed(freed));
    }
}

/// Replaces what is held back by one call, the views that are taken of its results, and the frees.
fn call(region: &mut HeldRegion, program: &RegionProgram, bytes: u32, site: u32) {
    let mut word = on_program(Op::Call, program, bytes, site);
    word.outputs.extend(program.results.iter().map(|&(slot, _)| Id::slot(slot)));
    word.attrs.push(Attr::List(program.stated()));
    let mut exists: HashSet<u32> = program.operands.iter().copied().collect();
    exists.extend(program.results.iter().map(|(slot, _)| slot));
    let mut held = VecDeque::from([HeldItem::Made(Box::new(word))]);
    let mut freed = Vec::new();
    // Results that are computed within the call, and have no value outside.
    let mut inner: HashSet<u32> = HashSet::new();
    let mut views = program.views.iter().copied().peekable();
    for (at, one) in std::mem::take(&mut region.held).into_iter().enumerate() {
        match one {
            HeldItem::Instruction(view) if views.next_if_eq(&at).is_some() => {
                exists.extend(view.results());
                held.push_back(HeldItem::Instruction(view));
            }
            HeldItem::Instruction(one) => inner.extend(one.results()),
            HeldItem::Made(_) => {}
            HeldItem::Freed(slots) => freed.extend(slots),
        }
    }
    freed.retain(|slot| exists.contains(slot) || !inner.contains(slot));
    if !freed.is_empty() {
        held.push_back(HeldItem::Freed(freed));
    }
    region.held = held;
}
