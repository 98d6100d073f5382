//! The end of a plan: its results enter the session's table, with their provenance for
//! explanations, and the trace gets its line.

use super::{PlanStop, slots};
use crate::event::TraceNotes;
use crate::planner::{CHANGES_MAX, Planner};
use crate::session::Session;
use crate::session::provenance::{Decider, LayoutCause, Provenance, TrafficStats};
use crate::session::reason;
use crate::session::value::{Handle, PendingLayout, Shards, Value, ValueState};
use gt_protocol::placement::Layout;
use gt_protocol::{Id, Instruction, Meta, Op, Operand};
use smallvec::SmallVec;
use std::fmt::Write;
use std::sync::Arc;

/// Values that a step of a plan has computed.
pub(crate) type StepResults = SmallVec<[(Meta, Shards); 1]>;

/// A value that an instruction computes.
pub(crate) struct ResultValue {
    pub meta: Meta,
    pub layout: Layout,
    pub state: ValueState,
}

/// Results of an instruction.
pub(crate) struct Results {
    pub values: SmallVec<[ResultValue; 1]>,
    /// Decider of the layouts; `None` where the results are on the one worker that holds the
    /// operands.
    pub decider: Option<Decider>,
    /// Pending layout, applied at the first use.
    pub pending: PendingLayout,
    /// Traffic of the session before this instruction.
    pub before: TrafficStats,
}

impl Results {
    /// Results that exist once their workers have run the instruction.
    pub fn ready(values: StepResults, before: TrafficStats) -> Self {
        let value = |(meta, Shards { layout, slots })| ResultValue {
            meta,
            layout,
            state: ValueState::Ready(slots),
        };
        let values = values.into_iter().map(value).collect();
        Self { values, decider: None, pending: PendingLayout::Nothing, before }
    }
}

impl Planner<'_> {
    /// Ends an instruction: enters its results, or its failure.
    pub(crate) fn finish(
        &mut self,
        instruction: &Instruction<'_>,
        planned: Result<Results, PlanStop>,
    ) {
        match planned {
            Ok(results) => self.define_results(instruction, results),
            Err(PlanStop::Operand(failure)) => self.inherit(instruction, &failure),
            Err(PlanStop::Error(error)) => self.fail(instruction, &error),
        }
    }

    fn define_results(&mut self, instruction: &Instruction<'_>, results: Results) {
        let Results { values, decider, mut pending, before } = results;
        let provenance = decider.map(|decider| {
            let by = (instruction.op, instruction.signal, decider);
            self.provenance(by, slots(instruction), &before)
        });
        let outputs = instruction.outputs.iter().filter_map(|id| id.as_slot());
        for (output, (slot, ResultValue { meta, layout, state })) in (0..).zip(outputs.zip(values))
        {
            let spec = self.session.specs.of(&meta, &layout);
            let mut value = Value::new(spec, self.number, output, state);
            if pending == PendingLayout::Record {
                value.set_cause(LayoutCause::Unknown);
            }
            value.set_pending(std::mem::take(&mut pending));
            if let Some(provenance) = &provenance {
                value.set_provenance(Arc::clone(provenance));
            }
            self.session.define(slot, value);
        }
        if decider == Some(Decider::Strategy) {
            self.expect_reductions(instruction.outputs.iter().filter_map(|id| id.as_slot()));
        }
    }

    /// Counts an instruction that ran on several workers, and keeps the provenance of its results.
    pub(super) fn provenance(
        &mut self,
        (op, signal, decider): (Op, u16, Decider),
        operands: impl Iterator<Item = u32>,
        before: &TrafficStats,
    ) -> Arc<Provenance> {
        let traffic = self.session.traffic.since(before);
        self.session.traffic.classify(traffic);
        let operand = |slot| {
            let value = self.session.value(slot)?;
            Some((value.number(), value.layout().clone()))
        };
        let operands = operands.take(CHANGES_MAX).filter_map(operand).collect();
        let changes = std::mem::take(&mut self.changes);
        Arc::new(Provenance { op, signal, decider, traffic, operands, changes })
    }

    /// Writes the trace line of an instruction that defines values.
    pub(crate) fn trace_line(&mut self, instruction: &Instruction<'_>, moved_before: u64) {
        if !self.core.tracing {
            return;
        }
        let moved_bytes = self.core.moved_bytes - moved_before;
        let boundary = self.session.scopes.boundary().filter(|_| moved_bytes > 0);
        if boundary.is_some() {
            self.session.scopes.pass(0);
        }
        let (line, results, error) = in_numbers(self.session, instruction, self.number);
        let reason = if self.core.reasoning { self.reason(instruction) } else { None };
        let together = std::mem::take(&mut self.core.reduced_together);
        let Session { signals, site_names, .. } = &*self.session;
        let notes = TraceNotes {
            results,
            signal: signals.get(&u32::from(instruction.signal)).map(AsRef::as_ref),
            site: site_names.get(&instruction.tag).map(AsRef::as_ref),
            error,
            moved_bytes,
            boundary: boundary.and_then(|signal| signals.get(&signal)).map(AsRef::as_ref),
            together: &together,
            reason,
        };
        self.sink.trace(self.id, &line, &notes);
    }

    /// Reason of the layout of an instruction's first result.
    fn reason(&self, instruction: &Instruction<'_>) -> Option<String> {
        let slot = instruction.outputs.first()?.as_slot()?;
        match self.session.handle(slot) {
            Handle::Live(value) => Some(reason::in_one_line(self.session, value)),
            Handle::Failed(_) | Handle::Free => None,
        }
    }

    /// Writes the trace line of an instruction that defines nothing.
    pub(crate) fn trace_plain(&mut self, instruction: &Instruction<'_>) {
        if !self.core.tracing {
            return;
        }
        let (line, _, _) = in_numbers(self.session, instruction, 0);
        let together = std::mem::take(&mut self.core.reduced_together);
        let notes = TraceNotes { together: &together, ..TraceNotes::default() };
        self.sink.trace(self.id, &line, &notes);
    }
}

/// The instruction with numbers for slots, its results' metadata and layouts, and the error of a
/// failed one.
fn in_numbers<'a>(
    session: &Session,
    instruction: &Instruction<'a>,
    number: u64,
) -> (Instruction<'a>, String, Option<String>) {
    let mut line = instruction.clone();
    for operand in &mut line.operands {
        if let Operand::Value(id) = operand {
            *id = number_of_slot(session, *id);
        }
    }
    let mut results = String::new();
    let mut error = None;
    for (output, id) in (0..).zip(&mut line.outputs) {
        match id.as_slot().map(|slot| session.handle(slot)) {
            Some(Handle::Live(value)) => {
                let gap = if results.is_empty() { "" } else { " " };
                // Writing to a string cannot fail.
                let _ = write!(results, "{gap}{} {}", value.meta(), value.layout());
            }
            Some(Handle::Failed(failure)) => error = Some(failure.cause().text.clone()),
            Some(Handle::Free) | None => {}
        }
        *id = Id::number(number, output);
    }
    (line, results, error)
}

/// Number of a slot in the trace.
fn number_of_slot(session: &Session, id: Id) -> Id {
    match id.as_slot().map(|slot| session.handle(slot)) {
        Some(Handle::Live(value)) => Id::number(value.number(), value.output),
        Some(Handle::Failed(failure)) => Id::number(failure.cause().number, 0),
        Some(Handle::Free) | None => id,
    }
}
