//! Planning: one client instruction into the workers' instructions.
//!
//! A value on one worker is the common case and takes the short way (`local`). Where an operand is spread over several
//! workers, `spread` asks the sharding rules; without an answer everything is made whole first.

mod local;
mod spread;

use crate::collect::Shards;
use crate::event::{Fault, SessionId, Sink, TraceNotes};
use crate::failure::{Cause, Failure};
use crate::handle::{Handle, Value};
use crate::session::Session;
use crate::Dispatcher;
use gt_protocol::placement::{Layout, Mesh, Placement};
use gt_protocol::rules::{Arg, ErrorClass, Outputs, RuleError, infer};
use gt_protocol::{Id, Instruction, Meta, Operand};
use smallvec::SmallVec;

/// What the tables say about an instruction's operands.
enum Operands {
    /// All live; metadata in the operands' order (nothing for scalars and absent ones), and where they all are when
    /// that is one worker.
    Live { metas: SmallVec<[Option<Meta>; 4]>, place: Place },
    /// One has failed.
    Failed(Failure),
}

/// Where operands are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    One(u32),
    Several,
}

impl Dispatcher {
    /// Plans an instruction that defines values.
    pub(crate) fn define(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        let state = self.sessions.get_mut(&session).ok_or(Fault::NoSession { session })?;
        check_outputs(state, instruction)?;
        let operands = look_up(state, instruction)?;
        let number = state.number(instruction.tag);
        let moved_before = self.moved_bytes;
        let (metas, place) = match operands {
            Operands::Failed(failure) => {
                self.mark_inherited(session, instruction, &failure);
                self.trace_line(session, instruction, number, moved_before, sink);
                return Ok(());
            }
            Operands::Live { metas, place } => (metas, place),
        };
        match infer_outputs(instruction, &metas) {
            Err(error) => self.fail(session, instruction, number, &error),
            Ok(outputs) => match self.worker_for(session, place) {
                None if place == Place::Several => {
                    self.plan_spread(session, instruction, number, &metas, &outputs, sink);
                }
                None => self.fail(session, instruction, number, &no_worker()),
                Some(worker) => self.plan_local(session, instruction, number, &outputs, worker, sink),
            },
        }
        self.trace_line(session, instruction, number, moved_before, sink);
        Ok(())
    }

    /// The one worker to run on: the operands', or the session's home where there are none.
    fn worker_for(&mut self, session: SessionId, place: Place) -> Option<u32> {
        match place {
            Place::One(worker) => Some(worker),
            Place::Several => None,
            Place::Nowhere => self.home(session),
        }
    }

    /// The worker where this session's new tensors are made: the one with the fewest sessions when it was chosen.
    pub(crate) fn home(&mut self, session: SessionId) -> Option<u32> {
        let alive = self.alive();
        let home = self.sessions.get(&session)?.home;
        if let Some(home) = home.filter(|home| alive.contains(home)) {
            return Some(home);
        }
        let load = |worker: &u32| self.sessions.values().filter(|state| state.home == Some(*worker)).count();
        let chosen = alive.into_iter().min_by_key(|worker| (load(worker), *worker))?;
        self.sessions.get_mut(&session)?.home = Some(chosen);
        Some(chosen)
    }

    /// Marks the results as failed, with this instruction as the root cause, and says so to the client.
    fn fail(&mut self, session: SessionId, instruction: &Instruction<'_>, number: u64, error: &RuleError) {
        let failure = Failure::new(Cause {
            number,
            class: error.class.into(),
            op: instruction.op,
            site: instruction.tag,
            text: error.text.clone(),
        });
        self.mark_failed(session, instruction, failure);
    }

    fn mark_inherited(&mut self, session: SessionId, instruction: &Instruction<'_>, failure: &Failure) {
        if let Some(state) = self.sessions.get_mut(&session) {
            for output in &instruction.outputs {
                state.define_failed(*output, failure.clone());
            }
        }
    }

    /// Enters the results of an instruction into the session's table.
    fn define_values(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        results: impl IntoIterator<Item = (Meta, Layout, SmallVec<[u32; 2]>)>,
    ) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        for (output, (id, (meta, layout, slots))) in
            (0..).zip(instruction.outputs.iter().zip(results))
        {
            if let Some(slot) = id.as_slot() {
                state.define(slot, Value { meta, number, output, layout, slots });
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
        let Some(state) = self.sessions.get(&session) else { return };
        let (line, results, error) = in_numbers(state, instruction, number);
        let notes = TraceNotes {
            results,
            signal: state.signals.get(&u32::from(instruction.signal)).map(AsRef::as_ref),
            site: state.site_names.get(&instruction.tag).map(AsRef::as_ref),
            error,
            moved_bytes: self.moved_bytes - moved_before,
        };
        sink.trace(session, &line, &notes);
    }

    /// The trace line of an instruction that defines nothing.
    pub(crate) fn trace_plain(&self, session: SessionId, instruction: &Instruction<'_>, sink: &mut dyn Sink) {
        let Some(state) = self.sessions.get(&session) else { return };
        let (line, _, _) = in_numbers(state, instruction, 0);
        sink.trace(session, &line, &TraceNotes::default());
    }

    /// The pieces of a live value.
    pub(crate) fn shards_of(&self, session: SessionId, slot: u32) -> Option<Shards> {
        let value = self.sessions.get(&session)?.value(slot)?;
        Some(Shards { layout: value.layout.clone(), slots: value.slots.clone() })
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
                results.push_str(&format!("{gap}{} {}", value.meta, value.layout));
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

fn no_worker() -> RuleError {
    RuleError { class: ErrorClass::Runtime, text: "no worker is connected to the dispatcher".to_owned() }
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

fn look_up(state: &Session, instruction: &Instruction<'_>) -> Result<Operands, Fault> {
    let mut metas = SmallVec::new();
    let mut place = Place::Nowhere;
    for operand in &instruction.operands {
        let Operand::Value(id) = operand else {
            metas.push(None);
            continue;
        };
        let slot = id.as_slot().unwrap_or(u32::MAX);
        match state.handle(slot) {
            Handle::Free => {
                return Err(Fault::UnknownSlot { op: instruction.op, slot: u64::from(slot) });
            }
            Handle::Failed(failure) => return Ok(Operands::Failed(failure.clone())),
            Handle::Live(value) => {
                metas.push(Some(value.meta));
                place = match (place, value.layout.mesh.single()) {
                    (Place::Nowhere, Some(worker)) => Place::One(worker),
                    (Place::One(one), Some(worker)) if one == worker => place,
                    (Place::Nowhere | Place::One(_) | Place::Several, _) => Place::Several,
                };
            }
        }
    }
    Ok(Operands::Live { metas, place })
}

fn infer_outputs(
    instruction: &Instruction<'_>,
    metas: &[Option<Meta>],
) -> Result<Outputs, RuleError> {
    let args: SmallVec<[Arg<'_>; 4]> = instruction
        .operands
        .iter()
        .zip(metas)
        .map(|(operand, meta)| match (operand, meta) {
            (Operand::Scalar(scalar), _) => Arg::Scalar(*scalar),
            (Operand::Value(_), Some(meta)) => Arg::Value(meta),
            (Operand::Absent | Operand::Value(_), _) => Arg::Absent,
        })
        .collect();
    infer(instruction.op, &args, &instruction.attrs)
}

/// One worker holds it all.
pub(crate) fn on_one(worker: u32) -> Layout {
    Layout { mesh: Mesh::new(&[worker]), placement: Placement::Replicate }
}
