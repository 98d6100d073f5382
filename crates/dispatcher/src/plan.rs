//! Planning: one client instruction into the workers' instructions.
//!
//! A value on one worker is the common case and takes the short way (`local`). Where an operand is spread over several
//! workers, `spread` asks the sharding rules; without an answer everything is made whole first.

mod cache;
mod choose;
mod create;
mod habit;
mod late;
mod local;
mod member;
mod program;
mod run;
mod scoped;
mod spread;
mod together;
mod words;

pub(crate) use cache::Plans;
pub(crate) use habit::Habits;
pub(crate) use late::LATE_BYTES_MIN;
pub(crate) use together::Piles;

use crate::Dispatcher;
use crate::event::{Fault, SessionId, Sink, TraceNotes};
use crate::failure::{Cause, Failure};
use crate::handle::{Handle, Shards, Slots, Value};
use crate::planted;
use crate::session::Session;
use gt_protocol::message::ToClient;
use gt_protocol::placement::Layout;
use gt_protocol::rules::{Arg, ErrorClass, Outputs, RuleError, infer};
use gt_protocol::{Id, Instruction, Meta, Operand};
use smallvec::SmallVec;
use std::fmt::Write;

/// Where an instruction's operands are.
enum Place {
    Nowhere,
    One(u32),
    Several,
    /// One of them has failed.
    Failed(Failure),
}

impl Dispatcher {
    /// Plans an instruction that defines values. `known` holds the results' metadata where the caller has inferred it
    /// by the same rules and is trusted (an embedded client).
    pub(crate) fn define(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        known: Option<&[Meta]>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        let state = self.sessions.get_mut(&session).ok_or(Fault::NoSession { session })?;
        check_outputs(state, instruction)?;
        let place = find(state, instruction)?;
        let number = state.number(instruction.tag);
        self.planning = number;
        let moved_before = self.moved_bytes;
        if matches!(place, Place::Several) {
            self.fold_awaited(session, instruction, sink);
        }
        let state = self.sessions.get(&session).ok_or(Fault::NoSession { session })?;
        let inferred = match (&place, known) {
            (Place::Failed(_), _) | (_, Some(_)) => Ok(Outputs::new()),
            (_, None) => infer_outputs(state, instruction),
        };
        match (place, inferred) {
            (Place::Failed(failure), _) => self.mark_inherited(session, instruction, &failure),
            (_, Err(error)) => self.fail(session, instruction, number, &error, sink),
            (place, Ok(inferred)) => {
                let outputs = known.unwrap_or(&inferred);
                self.place(session, instruction, number, place, outputs, sink);
            }
        }
        self.trace_line(session, instruction, number, moved_before, sink);
        Ok(())
    }

    fn place(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        mut place: Place,
        outputs: &[Meta],
        sink: &mut dyn Sink,
    ) {
        if let Some(scope) = self.layout_scope(session, instruction) {
            return self.plan_scoped(session, instruction, number, outputs, &scope, sink);
        }
        if matches!(place, Place::Several) {
            if self.put_off_alike(session, instruction, number, outputs) {
                return;
            }
            if let Some(failure) = self.make_operands(session, instruction, sink) {
                return self.mark_inherited(session, instruction, &failure);
            }
            let found = self.sessions.get(&session).map(|state| find(state, instruction));
            if let Some(Ok(found)) = found {
                place = found;
            }
        }
        let worker = match place {
            Place::One(worker) => Some(worker),
            Place::Nowhere => {
                if self.upload_as_known(session, instruction, number, outputs, sink) {
                    return;
                }
                let home = self.home(session);
                let layout = home.map(Layout::on);
                let late = layout.is_some_and(|layout| {
                    self.put_off(session, instruction, number, outputs, &layout)
                });
                if late {
                    return;
                }
                home
            }
            Place::Failed(_) | Place::Several => None,
        };
        match worker {
            Some(worker) => self.plan_local(session, instruction, number, outputs, worker, sink),
            None if matches!(place, Place::Several) => {
                if let Some(recipe) = late::unread(instruction) {
                    return self.plan_alike(session, instruction, number, outputs, &recipe, sink);
                }
                self.grant_wishes(session, instruction, sink);
                let found = self.sessions.get(&session).map(|state| find(state, instruction));
                if let Some(Ok(Place::One(worker))) = found {
                    self.learn_stays(session, instruction);
                    return self.plan_local(session, instruction, number, outputs, worker, sink);
                }
                let Some(mesh) = self.common_mesh(session, instruction) else { return };
                self.plan_spread(session, instruction, number, outputs, &mesh, sink);
            }
            None => self.fail(session, instruction, number, &no_worker(), sink),
        }
    }

    /// The worker where this session's new tensors are made: the one with the fewest sessions when it was chosen.
    pub(crate) fn home(&mut self, session: SessionId) -> Option<u32> {
        let alive = self.alive();
        let home = self.sessions.get(&session)?.home;
        if let Some(home) = home.filter(|home| alive.contains(home)) {
            return Some(home);
        }
        let load = |worker: &u32| {
            self.sessions.values().filter(|state| state.home == Some(*worker)).count()
        };
        let chosen = alive.into_iter().min_by_key(|worker| (load(worker), *worker))?;
        self.sessions.get_mut(&session)?.home = Some(chosen);
        Some(chosen)
    }

    /// Marks the results as failed, with this instruction as the root cause, and says so to the client.
    pub(crate) fn fail(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        error: &RuleError,
        sink: &mut dyn Sink,
    ) {
        let failure = Failure::new(Cause {
            number,
            class: error.class.into(),
            op: instruction.op,
            site: instruction.tag,
            text: error.text.clone(),
        });
        sink.session(session, &ToClient::Failure(failure.message(session)));
        self.mark_failed(session, instruction, failure);
    }

    fn mark_inherited(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        failure: &Failure,
    ) {
        if let Some(state) = self.sessions.get_mut(&session) {
            let failure =
                if planted::CAUSE_LOST { own_cause(state, failure) } else { failure.clone() };
            for output in &instruction.outputs {
                state.define_failed(*output, failure.clone());
            }
        }
    }

    /// Enters the results of an instruction into the session's table.
    pub(crate) fn define_values(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        results: impl IntoIterator<Item = (Meta, Shards)>,
    ) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        for (output, (id, (meta, shards))) in (0..).zip(instruction.outputs.iter().zip(results)) {
            if let Some(slot) = id.as_slot() {
                let value = Value::new(meta, number, output, shards);
                state.define(slot, value);
            }
        }
    }

    pub(crate) fn trace_line(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        moved_before: u64,
        sink: &mut dyn Sink,
    ) {
        if !self.tracing {
            return;
        }
        let moved_bytes = self.moved_bytes - moved_before;
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let boundary = state.scopes.boundary().filter(|_| moved_bytes > 0);
        if boundary.is_some() {
            state.scopes.pass(0);
        }
        let (line, results, error) = in_numbers(state, instruction, number);
        let together = std::mem::take(&mut self.together);
        let notes = TraceNotes {
            results,
            signal: state.signals.get(&u32::from(instruction.signal)).map(AsRef::as_ref),
            site: state.site_names.get(&instruction.tag).map(AsRef::as_ref),
            error,
            moved_bytes,
            boundary: boundary.and_then(|signal| state.signals.get(&signal)).map(AsRef::as_ref),
            together: &together,
        };
        sink.trace(session, &line, &notes);
    }

    /// The trace line of an instruction that defines nothing.
    pub(crate) fn trace_plain(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) {
        let Some(state) = self.sessions.get(&session) else { return };
        let (line, _, _) = in_numbers(state, instruction, 0);
        let together = std::mem::take(&mut self.together);
        let notes = TraceNotes { together: &together, ..TraceNotes::default() };
        sink.trace(session, &line, &notes);
    }

    pub(crate) fn value_mut(&mut self, session: SessionId, slot: u32) -> Option<&mut Value> {
        self.sessions.get_mut(&session)?.value_mut(slot)
    }

    /// The slots of a copy that lies so.
    pub(crate) fn copy_of(&self, session: SessionId, slot: u32, layout: &Layout) -> Option<Slots> {
        let value = self.sessions.get(&session)?.value(slot)?;
        let copy = value.copies.iter().find(|copy| copy.layout == *layout)?;
        Some(copy.slots.clone())
    }
}

/// The instruction with numbers for slots, its results' metadata and placement, and the error of a failed one.
fn in_numbers<'a>(
    state: &Session,
    instruction: &Instruction<'a>,
    number: u64,
) -> (Instruction<'a>, String, Option<String>) {
    let mut line = instruction.clone();
    for operand in &mut line.operands {
        if let Operand::Value(id) = operand {
            *id = number_of_slot(state, *id);
        }
    }
    let mut results = String::new();
    let mut error = None;
    for (output, id) in (0..).zip(&mut line.outputs) {
        match id.as_slot().map(|slot| state.handle(slot)) {
            Some(Handle::Live(value)) => {
                let gap = if results.is_empty() { "" } else { " " };
                // Writing to a string cannot fail.
                let _ = write!(results, "{gap}{} {}", value.meta, value.shards.layout);
            }
            Some(Handle::Failed(failure)) => error = Some(failure.cause().text.clone()),
            Some(Handle::Free) | None => {}
        }
        *id = Id::number(number, output);
    }
    (line, results, error)
}

/// What a slot is called in the trace.
pub(crate) fn number_of_slot(state: &Session, id: Id) -> Id {
    match id.as_slot().map(|slot| state.handle(slot)) {
        Some(Handle::Live(value)) => Id::number(value.number, value.output),
        Some(Handle::Failed(failure)) => Id::number(failure.cause().number, 0),
        Some(Handle::Free) | None => id,
    }
}

/// What [`planted::CAUSE_LOST`] does to a cause.
fn own_cause(state: &Session, failure: &Failure) -> Failure {
    let Cause { class, op, ref text, .. } = *failure.cause();
    let number = state.next_number().saturating_sub(1);
    Failure::new(Cause { number, class, op, site: state.site_of(number), text: text.clone() })
}

fn no_worker() -> RuleError {
    RuleError {
        class: ErrorClass::Runtime,
        text: "no worker is connected to the dispatcher".to_owned(),
    }
}

fn check_outputs(state: &Session, instruction: &Instruction<'_>) -> Result<(), Fault> {
    let expected = usize::from(instruction.op.info().outputs);
    let given = instruction.outputs.len();
    if given != expected {
        return Err(Fault::Outputs { op: instruction.op, given, expected });
    }
    for (position, id) in instruction.outputs.iter().enumerate() {
        let slot = state.check_definable(instruction.op, *id)?;
        if instruction.outputs.iter().take(position).any(|earlier| earlier == id) {
            return Err(Fault::SlotInUse { op: instruction.op, slot: u64::from(slot) });
        }
    }
    Ok(())
}

fn find(state: &Session, instruction: &Instruction<'_>) -> Result<Place, Fault> {
    let mut place = Place::Nowhere;
    for id in instruction.values() {
        let slot = id.as_slot().unwrap_or(u32::MAX);
        match state.handle(slot) {
            Handle::Free => {
                return Err(Fault::UnknownSlot { op: instruction.op, slot: u64::from(slot) });
            }
            Handle::Failed(failure) => return Ok(Place::Failed(failure.clone())),
            Handle::Live(value) => {
                place = match (place, value.single()) {
                    (Place::Nowhere, Some(worker)) => Place::One(worker),
                    (Place::One(one), Some(worker)) if one == worker => Place::One(one),
                    _ => Place::Several,
                };
            }
        }
    }
    Ok(place)
}

fn infer_outputs(state: &Session, instruction: &Instruction<'_>) -> Result<Outputs, RuleError> {
    let args: SmallVec<[Arg<'_>; 4]> = instruction
        .operands
        .iter()
        .map(|operand| match operand {
            Operand::Scalar(scalar) => Arg::Scalar(*scalar),
            Operand::Value(id) => id
                .as_slot()
                .and_then(|slot| state.value(slot))
                .map_or(Arg::Absent, |value| Arg::Value(&value.meta)),
            Operand::Absent => Arg::Absent,
        })
        .collect();
    infer(instruction.op, &args, &instruction.attrs)
}
