//! An instruction that its user's quota refuses: its results are failed values, and nothing is
//! computed.

use crate::event::ClientFault;
use crate::planner::Planner;
use gt_protocol::Instruction;
use gt_protocol::message::FailureClass;

impl Planner<'_> {
    /// Enters the results of an instruction for which its user has no memory left.
    pub fn refuse(
        &mut self,
        instruction: &Instruction<'_>,
        text: String,
    ) -> Result<(), ClientFault> {
        super::check_outputs(self.session, instruction)?;
        let failed = super::check_operands(self.session, instruction)?;
        self.number = self.session.number(instruction.tag);
        let moved_before = self.core.moved_bytes;
        match failed {
            Some(failure) => self.inherit(instruction, &failure),
            None => self.fail_with(instruction, FailureClass::OutOfMemory, text),
        }
        self.trace_line(instruction, moved_before);
        Ok(())
    }
}
