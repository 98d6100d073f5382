//! Instructions that compute nothing, and uploads.

use crate::attributes::{first_value, unsigned};
use crate::engine::Engine;
use crate::failure::Fault;
use crate::replies::Replies;
use crate::state::MachineState;
use crate::table::NoValue;
use gt_protocol::message::FromWorker;
use gt_protocol::{Attr, Id, Instruction, Meta, Op};

impl<E: Engine> MachineState<E> {
    pub fn control(
        &mut self,
        instruction: &Instruction<'_>,
        replies: &mut impl Replies,
    ) -> Result<(), NoValue> {
        let op = instruction.op;
        if op == Op::Free {
            return self.free(instruction);
        } else if op == Op::Read {
            return self.read(instruction, replies);
        } else if op == Op::Chunk {
            return self.chunk(instruction, replies);
        } else if op == Op::Session {
            let id = unsigned(instruction, "id")?;
            self.session = u32::try_from(id)
                .map_err(|_| Fault::protocol(format!("session {id} does not fit 32 bits")))?;
        } else if op == Op::Synchronize {
            let request = unsigned(instruction, "request")?;
            self.engine.synchronize()?;
            replies.send(&FromWorker::Done { request });
        } else if op == Op::Distribute {
            return Err(Fault::protocol("distribute is for dispatchers only").into());
        }
        // Names of signals and source positions are for traces; a worker keeps none.
        Ok(())
    }

    fn free(&mut self, instruction: &Instruction<'_>) -> Result<(), NoValue> {
        let mut unknown: Option<Id> = None;
        for id in instruction.values() {
            if !self.in_flight.is_empty() {
                self.abandon(id);
            }
            if !self.table.free(id) {
                unknown = unknown.or(Some(id));
            }
        }
        match unknown {
            None => Ok(()),
            Some(id) => {
                let slot = id.as_slot().expect("an instruction of the wire names slots");
                Err(Fault::protocol(format!("free of slot {slot}, which is empty")).into())
            }
        }
    }

    pub fn upload(&mut self, instruction: &Instruction<'_>) -> Result<(), NoValue> {
        let (Attr::Ints(dims), Attr::Dtype(dtype)) =
            (instruction.attr("size"), instruction.attr("dtype"))
        else {
            return Err(Fault::protocol("upload without size and dtype").into());
        };
        let meta = Meta::new(*dtype, *dims);
        self.table.check_vacant(&instruction.outputs)?;
        let mut value = self.allocate(&meta)?;
        check_fits(&meta, 0, instruction.payload)?;
        if !is_whole(&meta, instruction.payload) {
            // A client need not send the rest, and the memory may hold what another user freed.
            self.engine.clear(&mut value)?;
        }
        self.engine.write(&mut value, 0, instruction.payload)?;
        if let Some(&id) = instruction.outputs.first() {
            self.table.put(id, value, meta);
        }
        Ok(())
    }

    /// Handles bytes of an upload. A chunk without bytes has them beside the words, and takes them
    /// in even if it fails.
    fn chunk(
        &mut self,
        instruction: &Instruction<'_>,
        replies: &mut impl Replies,
    ) -> Result<(), NoValue> {
        let offset = unsigned(instruction, "offset")?;
        if !instruction.payload.is_empty() {
            return self.write(instruction, offset, instruction.payload);
        }
        let mut outcome = Err(Fault::protocol("a chunk without bytes").into());
        replies.payload(&mut |sent_for, bytes| {
            outcome = if sent_for == offset {
                self.write(instruction, offset, bytes)
            } else {
                let text = format!("a payload for {sent_for} came with the chunk for {offset}");
                Err(Fault::protocol(text).into())
            };
        });
        outcome
    }

    fn write(
        &mut self,
        instruction: &Instruction<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), NoValue> {
        let id = first_value(instruction)?;
        let held = self.table.held_mut(id)?;
        check_fits(&held.meta, offset, bytes)?;
        Ok(self.engine.write(&mut held.value, offset, bytes)?)
    }
}

/// Returns true if the bytes are all of a value's.
fn is_whole(meta: &Meta, bytes: &[u8]) -> bool {
    u64::try_from(bytes.len()).is_ok_and(|length| length == meta.bytes())
}

fn check_fits(meta: &Meta, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
    let end = u64::try_from(bytes.len()).ok().and_then(|length| offset.checked_add(length));
    if end.is_some_and(|end| end <= meta.bytes()) {
        return Ok(());
    }
    let length = bytes.len();
    Err(Fault::protocol(format!("{length} bytes at {offset} do not fit into a {meta}")))
}
