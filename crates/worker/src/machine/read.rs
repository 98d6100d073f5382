//! Answers to reads.

use crate::attributes::{first_value, unsigned};
use crate::engine::Engine;
use crate::failure::Fault;
use crate::replies::Replies;
use crate::state::MachineState;
use crate::table::NoValue;
use gt_protocol::Instruction;
use gt_protocol::integer::to_u64;
use gt_protocol::message::{FailureClass, FromWorker, Reply};

impl<E: Engine> MachineState<E> {
    pub fn read(
        &mut self,
        instruction: &Instruction<'_>,
        replies: &mut impl Replies,
    ) -> Result<(), NoValue> {
        let id = first_value(instruction)?;
        let request = unsigned(instruction, "request")?;
        let start = unsigned(instruction, "start")?;
        let total = unsigned(instruction, "count")?;
        let held = self.table.held(id)?;
        let meta = held.meta;
        let elements = meta.bytes() / meta.dtype.size();
        if start.checked_add(total).is_none_or(|end| end > elements) {
            let text = format!("read of {total} elements from {start} on of a {meta}");
            return Err(Fault::protocol(text).into());
        }
        let answer = Reply {
            request,
            start,
            count: 0,
            total,
            dtype: meta.dtype,
            dims: meta.dims,
            bytes: &[],
        };
        let mut length = 0;
        self.engine.with_bytes(&held.value, &mut |bytes| {
            length = to_u64(bytes.len());
            if length == meta.bytes() {
                answer_in_chunks(&answer, bytes, replies);
            }
        })?;
        if length != meta.bytes() {
            let text = format!("a {meta} of {length} bytes");
            return Err(Fault::new(FailureClass::Internal, text).into());
        }
        Ok(())
    }
}

fn answer_in_chunks(answer: &Reply<'_>, bytes: &[u8], replies: &mut impl Replies) {
    let size = answer.dtype.size();
    let byte =
        |element: u64| usize::try_from(element * size).expect("an offset in memory fits usize");
    let requested = &bytes[byte(answer.start)..byte(answer.start + answer.total)];
    if requested.is_empty() {
        replies.send(&FromWorker::Reply(*answer));
        return;
    }
    let mut start = answer.start;
    for chunk in requested.chunks(replies.chunk_bytes_max()) {
        let count = to_u64(chunk.len()) / size;
        replies.send(&FromWorker::Reply(Reply { start, count, bytes: chunk, ..*answer }));
        start += count;
    }
}
