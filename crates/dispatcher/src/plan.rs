//! Planning: from one instruction of a client to instructions for workers. The general way is:
//!
//! 1. its operands are found and prepared: pending layouts are applied, deferred values created (`operands`, `reduce`);
//! 2. it is placed: the mesh of its scope, else of its operands, else the session's home (`place`);
//! 3. the cheapest strategy on that mesh is chosen, or looked up (`run`);
//! 4. each operand is resharded to the layout that the strategy needs (`operands`);
//! 5. each member gets its words (`run`);
//! 6. the results enter the session's table (`results`).
//!
//! A creation (`create`, `upload`) has no operands to reshard, and may defer steps 4 and 5 to its
//! first use. An operator may be decomposed into several (`decompose`), each of which takes steps 3
//! to 5.

mod cancel;
mod create;
mod decompose;
mod inputs;
mod operands;
mod place;
mod quota;
mod reduce;
mod replay;
mod results;
mod run;
mod upload;

pub(crate) use operands::KeepCopy;
pub(crate) use place::created_layout;
pub(crate) use results::Results;

use crate::event::ClientFault;
use crate::number::slot_of;
use crate::planner::Planner;
use crate::session::Session;
use crate::session::failure::ValueFailure;
use crate::session::provenance::Decider;
use crate::session::value::Handle;
use crate::strategy::cache::Plan;
use create::Creation;
use gt_protocol::rules::{ErrorClass, Outputs, RuleArg, RuleError, describe, infer};
use gt_protocol::{Id, Instruction, Meta, Operand};
use run::{PlanOf, Run};
use smallvec::SmallVec;

/// Reason why an instruction has no results.
pub(crate) enum PlanStop {
    /// It cannot run.
    Error(RuleError),
    /// An operand has failed.
    Operand(ValueFailure),
}

impl From<RuleError> for PlanStop {
    fn from(error: RuleError) -> Self {
        Self::Error(error)
    }
}

impl Planner<'_> {
    /// Plans an instruction that defines values. `known` has the results' metadata if a trusted
    /// caller (an embedded client) has inferred it by the same rules.
    pub fn define(
        &mut self,
        instruction: &Instruction<'_>,
        known: Option<&[Meta]>,
    ) -> Result<(), ClientFault> {
        check_outputs(self.session, instruction)?;
        let failed = check_operands(self.session, instruction)?;
        self.number = self.session.number(instruction.tag);
        let moved_before = self.core.moved_bytes;
        let planned = match failed {
            Some(failure) => Err(PlanStop::Operand(failure)),
            None => self.plan(instruction, known),
        };
        self.finish(instruction, planned);
        self.trace_line(instruction, moved_before);
        let operands = self.session.client_operands(instruction);
        self.session.note_operands(instruction.op, operands);
        Ok(())
    }

    fn plan(
        &mut self,
        instruction: &Instruction<'_>,
        known: Option<&[Meta]>,
    ) -> Result<Results, PlanStop> {
        let inferred;
        let outputs = if let Some(known) = known {
            known
        } else {
            inferred = infer_outputs(self.session, instruction)?;
            &inferred
        };
        let scope = self.placing_scope(instruction.signal);
        if let Some(creation) = Creation::of(instruction) {
            return self.create(&creation, outputs, scope);
        }
        let is_ready = self.has_ready_operands(instruction, scope.as_ref());
        let first_uses = self.prepare_operands(instruction, scope.as_ref())?;
        let inputs = inputs::of(instruction);
        let mesh = match &scope {
            Some(scope) => scope.mesh.clone(),
            None => self.operand_mesh(instruction),
        };
        // A plan on the operands' only worker needs no explanation.
        let stays = self.stays_on(instruction, &mesh);
        let before = self.session.traffic;
        let run = Run { instruction, outputs };
        let PlanOf { plan, is_known } = self.plan_of(run, &inputs, &mesh);
        if let Plan::One(choice) = &plan
            && is_known
            && is_ready
        {
            self.keep_replay(run, choice, (scope.as_ref(), &mesh));
        }
        let values = self.run_plan(run, &inputs, &mesh, &plan)?;
        if stays {
            for slot in first_uses {
                let layout = self.value(slot).layout().clone();
                self.record_upload_use(slot, &layout);
            }
        }
        let decider = (!stays).then_some(Decider::Strategy);
        Ok(Results { decider, ..Results::ready(values, before) })
    }
}

fn check_outputs(session: &Session, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
    let (info, count) = (instruction.op.info(), instruction.outputs.len());
    if !info.fits_outputs(count) {
        let expected = usize::from(info.outputs.max(1));
        return Err(ClientFault::Outputs { op: instruction.op, count, expected });
    }
    for (position, id) in instruction.outputs.iter().enumerate() {
        let slot = session.check_definable(instruction.op, *id)?;
        if instruction.outputs.iter().take(position).any(|earlier| earlier == id) {
            return Err(ClientFault::SlotInUse { op: instruction.op, slot: u64::from(slot) });
        }
    }
    Ok(())
}

/// Checks that all operands are values of the session; returns the failure of the first failed one.
fn check_operands(
    session: &Session,
    instruction: &Instruction<'_>,
) -> Result<Option<ValueFailure>, ClientFault> {
    for id in instruction.values() {
        let slot = slot_of(id);
        match session.handle(slot) {
            Handle::Live(_) => {}
            Handle::Failed(failure) => return Ok(Some(failure.clone())),
            Handle::Free => {
                return Err(ClientFault::UnknownSlot { op: instruction.op, slot: u64::from(slot) });
            }
        }
    }
    Ok(None)
}

/// Operands as inference rules and error texts take them; a slot without a value is absent.
fn rule_args<'s>(
    session: &'s Session,
    instruction: &Instruction<'_>,
) -> SmallVec<[RuleArg<'s>; 4]> {
    let arg = |operand: &Operand| match operand {
        Operand::Scalar(scalar) => RuleArg::Scalar(*scalar),
        Operand::Value(id) => {
            let value = id.as_slot().and_then(|slot| session.value(slot));
            value.map_or(RuleArg::Absent, |value| RuleArg::Value(value.meta()))
        }
        Operand::Absent => RuleArg::Absent,
    };
    instruction.operands.iter().map(arg).collect()
}

/// Text of an operation: the operator, and the metadata of its operands.
pub(crate) fn operation(session: &Session, instruction: &Instruction<'_>) -> String {
    describe(instruction.op, &rule_args(session, instruction))
}

pub(crate) fn infer_outputs(
    session: &Session,
    instruction: &Instruction<'_>,
) -> Result<Outputs, RuleError> {
    let args = rule_args(session, instruction);
    let outputs = infer(instruction.op, &args, &instruction.attrs)?;
    if outputs.len() != instruction.outputs.len() {
        let (name, stated) = (instruction.op.info().name, outputs.len());
        let text = format!("{name}: {stated} results for {} slots", instruction.outputs.len());
        return Err(RuleError { class: ErrorClass::Runtime, text });
    }
    Ok(outputs)
}

/// The session's slots of an instruction's operands.
pub(crate) fn slots<'i>(instruction: &'i Instruction<'_>) -> impl Iterator<Item = u32> + 'i {
    instruction.values().filter_map(Id::as_slot)
}
