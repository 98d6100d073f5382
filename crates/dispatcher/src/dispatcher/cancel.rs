//! Instructions that a client cancelled while they were waiting in front of the dispatcher.
//!
//! The dispatcher is where the stream is cut, so all workers agree: an instruction was planned, and
//! then runs on all of its members, or it was not.

use super::Dispatcher;
use crate::event::{ClientFault, SessionId, Sink};
use gt_protocol::{Instruction, Kind, Op, wire};

impl Dispatcher {
    /// Takes an instruction that its client cancelled: its results fail, and nothing is computed.
    /// Uploads, frees, reads, and whatever else computes nothing are handled as ever.
    ///
    /// # Errors
    /// As [`Dispatcher::instruction`].
    pub fn cancel(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), ClientFault> {
        let is_computed =
            instruction.op.info().kind() == Kind::Compute && instruction.op != Op::Upload;
        self.core.touched_bytes = 0;
        if !is_computed {
            return self.general(session, instruction, None, sink);
        }
        let mut planner = self.planner(session, sink).ok_or(ClientFault::NoSession { session })?;
        planner.cancel(instruction)
    }

    /// [`Dispatcher::cancel`] for the words of one instruction.
    ///
    /// # Errors
    /// As there, and words that are no instruction.
    pub fn cancel_words(
        &mut self,
        session: SessionId,
        words: &[u32],
        sink: &mut dyn Sink,
    ) -> Result<(), ClientFault> {
        let (instruction, _) = wire::decode(words)?;
        self.cancel(session, &instruction, sink)
    }
}
