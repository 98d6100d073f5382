//! Cancelled instructions: those in front of a `cancel` that was announced. Each of them gets a
//! failure for a result, which the other members of a collective learn in place of its bytes: so
//! collectives keep their one order on all of their members. Frees, reads, uploads and what a value
//! from before depends on are executed as ever.

use crate::engine::{Engine, EngineOperand};
use crate::failure::{Cause, Fault};
use crate::state::MachineState;
use crate::table::NoValue;
use gt_protocol::message::{CANCELLED, FailureClass};
use gt_protocol::rules::replaced_operands;
use gt_protocol::{Attr, Family, Id, Instruction, KEPT, Kind, Op, Operand};
use smallvec::smallvec;
use std::rc::Rc;

/// Number of `cancel` messages that have been read, wrapping.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cancels {
    read: u32,
}

impl Cancels {
    /// Counts a message that was read.
    pub fn arrived(&mut self) {
        self.read = self.read.wrapping_add(1);
    }

    /// Returns true if more were announced than have been read. A message may be read before its
    /// announcement is seen.
    #[inline]
    pub fn is_expected(self, announced: u32) -> bool {
        announced.wrapping_sub(self.read).cast_signed() > 0
    }
}

impl<E: Engine> MachineState<E> {
    /// Returns true if an instruction in front of an expected `cancel` is not to be executed.
    #[cold]
    pub fn is_cancelled(&self, instruction: &Instruction<'_>) -> bool {
        let is_ahead = |id| self.table.held(id).is_ok_and(|held| held.ahead != 0);
        instruction.op.info().kind() != Kind::Control
            && !matches!(instruction.op, Op::Upload | Op::AllReduceCoalesced)
            && instruction.signal != KEPT
            // Its result is there already, and may be in the place of an operand.
            && !self.group.is_computed(instruction.op)
            && !instruction.values().any(is_ahead)
    }

    /// Refuses the part of a collective that is cancelled: the other members are told instead of
    /// getting bytes.
    pub fn check_collective(&self) -> Result<(), Fault> {
        if self.cancels_collective {
            return Err(Fault::new(FailureClass::Cancelled, CANCELLED));
        }
        Ok(())
    }

    /// Marks the results of a cancelled computation as failed, for the same reason as an operand
    /// that has failed. A cancelled step of an optimizer leaves parameter and state as they were.
    pub fn cancel(&mut self, instruction: &Instruction<'_>) {
        // One that was to be executed by itself, after the first of its group.
        let _ = self.group.early(instruction.op);
        let is_update = instruction.op.info().family == Family::Update;
        let replaced = if is_update { replaced_operands(instruction.op) } else { &[] };
        let mut values = instruction.values();
        let first = values.find_map(|id| match self.table.held(id) {
            Err(NoValue::Failed(cause)) => Some(cause),
            Err(NoValue::Fault(fault)) => Some(Rc::new(self.cause_of(instruction, fault))),
            Ok(_) => None,
        });
        let cause = first.unwrap_or_else(|| {
            let fault = Fault::new(FailureClass::Cancelled, CANCELLED);
            Rc::new(self.cause_of(instruction, fault))
        });
        for (place, &output) in instruction.outputs.iter().enumerate() {
            let operand = replaced.get(place).and_then(|&at| instruction.operands.get(at));
            let outcome = match operand {
                Some(Operand::Value(id)) => self.stand_in(*id, output, instruction),
                Some(Operand::Absent | Operand::Scalar(_)) | None => Err(Rc::clone(&cause)),
            };
            if let Err(cause) = outcome {
                self.table.poison(output, &cause);
            }
        }
    }

    /// Puts the value of a slot into another slot too.
    fn stand_in(
        &mut self,
        from: Id,
        to: Id,
        instruction: &Instruction<'_>,
    ) -> Result<(), Rc<Cause>> {
        self.try_stand_in(from, to, instruction.tag).map_err(|why| match why {
            NoValue::Failed(cause) => cause,
            NoValue::Fault(fault) => Rc::new(self.cause_of(instruction, fault)),
        })
    }

    fn try_stand_in(&mut self, from: Id, to: Id, tag: u32) -> Result<(), NoValue> {
        self.table.check_vacant(&[to])?;
        let held = self.table.held(from)?;
        let (meta, is_contiguous) = (held.meta, held.contiguous);
        let alias = Instruction {
            tag,
            outputs: smallvec![to],
            operands: smallvec![Operand::Value(from)],
            attrs: smallvec![Attr::Ints(meta.dims)],
            ..Instruction::new(Op::Reshape)
        };
        let values = self.engine.execute(&alias, &[EngineOperand::Value(&held.value)], 0)?;
        self.define(&alias, values, &[meta], is_contiguous)
    }
}
