//! An instruction that its client cancelled before it was planned: its results fail, with that as
//! the root cause unless an operand has failed already.

use crate::event::ClientFault;
use crate::planner::Planner;
use crate::session::failure::{RootCause, ValueFailure};
use crate::session::value::{Handle, Value, ValueState};
use gt_protocol::message::{CANCELLED, FailureClass};
use gt_protocol::rules::replaced_operands;
use gt_protocol::{Id, Instruction, Operand};

impl Planner<'_> {
    /// Enters the results of a cancelled instruction. A step of an optimizer leaves parameter and
    /// state as they were; every other result is a failure, which the client is told when it reads
    /// one.
    pub fn cancel(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        super::check_outputs(self.session, instruction)?;
        let failed = super::check_operands(self.session, instruction)?;
        self.number = self.session.number(instruction.tag);
        let moved_before = self.core.moved_bytes;
        let failure = failed.unwrap_or_else(|| self.cancelled(instruction));
        let replaced = replaced_operands(instruction.op);
        for (place, (&output, index)) in instruction.outputs.iter().zip(0..).enumerate() {
            let operand = replaced.get(place).and_then(|&at| instruction.operands.get(at));
            let slot = match operand {
                Some(Operand::Value(id)) => id.as_slot(),
                Some(Operand::Absent | Operand::Scalar(_)) | None => None,
            };
            self.cancel_result((output, index), slot, &failure);
        }
        self.trace_line(instruction, moved_before);
        Ok(())
    }

    fn cancelled(&self, instruction: &Instruction<'_>) -> ValueFailure {
        ValueFailure::new(RootCause {
            number: self.number,
            class: FailureClass::Cancelled,
            op: instruction.op,
            site: instruction.tag,
            text: format!("{CANCELLED}; {}", super::operation(self.session, instruction)),
        })
    }

    /// Enters a result: an alias of the value that it would have replaced, else the failure.
    fn cancel_result(
        &mut self,
        (output, index): (Id, u8),
        replaced: Option<u32>,
        failure: &ValueFailure,
    ) {
        let kept = replaced.and_then(|slot| {
            self.materialize(slot, None);
            match self.session.handle(slot) {
                Handle::Live(value) => Some((*value.meta(), value.shards())),
                Handle::Failed(_) | Handle::Free => None,
            }
        });
        let (Some(slot), Some((meta, shards))) = (output.as_slot(), kept) else {
            let of_operand = replaced.and_then(|slot| match self.session.handle(slot) {
                Handle::Failed(failure) => Some(failure.clone()),
                Handle::Live(_) | Handle::Free => None,
            });
            return self.session.define_failed(output, of_operand.unwrap_or(failure.clone()));
        };
        let borrowed = crate::reshard::Resharded::borrowed(&shards.slots);
        let slots = self.keeping(|planner| planner.own(meta, &shards.layout, borrowed));
        let spec = self.session.specs.of(&meta, &shards.layout);
        let value = Value::new(spec, self.number, index, ValueState::Ready(slots));
        self.session.define(slot, value);
    }
}
