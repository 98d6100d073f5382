//! The core's outputs enter the buffers: words and messages to workers, answers to sessions.

use super::{FLUSH_WORDS, LostPeer, Outbox, place, send, tell_notice, unsent};
use gt_dispatcher::{Replacements, SessionId, Sink, TraceNotes, WorkerIndex};
use gt_protocol::message::{self, ToClient, ToWorker};
use gt_protocol::{Attr, Id, Instruction, Op, wire};

impl Outbox {
    /// Counts words that were put into a worker's buffer.
    pub(super) fn sent(&mut self, index: WorkerIndex, words: usize) {
        let Some(worker) = self.workers.get_mut(place(index)).and_then(Option::as_mut) else {
            return;
        };
        self.tight |= words >= worker.credit;
        worker.credit = worker.credit.saturating_sub(words);
        if worker.waiting() >= FLUSH_WORDS && !self.is_held {
            worker.flush_early();
        }
        if !worker.listed {
            worker.listed = true;
            self.listed_workers.push(index);
        }
        self.touch(index);
        if !self.reached.contains(&index) {
            self.reached.push(index);
        }
    }

    fn touch(&mut self, index: WorkerIndex) {
        if !self.touched.contains(&index) {
            self.touched.push(index);
        }
    }

    /// Writes an instruction down that must not be sent now. Its client waits from here on.
    #[cold]
    fn write_down(&mut self, index: WorkerIndex, instruction: &Instruction<'_>) {
        self.scratch.clear();
        if let Err(error) = wire::encode(instruction, &mut self.scratch) {
            return self.give_up(index, &unsent(&error));
        }
        let Self { replacements, scratch, .. } = self;
        note(replacements, index, instruction, scratch);
        self.refuse(index);
    }

    /// Lets the client wait that has words for a worker which must not be sent now.
    fn refuse(&mut self, index: WorkerIndex) {
        self.tight = true;
        self.touch(index);
    }

    #[cold]
    fn note_answer(&mut self, message: &ToClient<'_>) {
        match message {
            ToClient::Reply(_) | ToClient::SpacedReply(_) => self.answer = Some(false),
            ToClient::FailedReply { .. } => self.answer = Some(true),
            // Other messages to the session answer no request of it.
            ToClient::Done { .. }
            | ToClient::Failure(_)
            | ToClient::WorkerStats { .. }
            | ToClient::WorkerJoined { .. }
            | ToClient::WorkerLeft { .. }
            | ToClient::Goodbye { .. }
            | ToClient::Description { .. } => {}
        }
    }
}

impl Sink for Outbox {
    fn worker(&mut self, index: WorkerIndex, instruction: &Instruction<'_>) {
        if !self.replacements.sends_to(index) {
            return self.write_down(index, instruction);
        }
        let Some(worker) = self.workers.get_mut(place(index)).and_then(Option::as_mut) else {
            return;
        };
        let before = worker.buffer().len();
        let words_only;
        let sent = match offset_of_chunk(instruction) {
            Some(offset) if worker.send_beside(offset, instruction.payload) => {
                words_only = Instruction { payload: &[], ..instruction.clone() };
                // A client that sends more than the worker takes has to wait.
                self.tight |= worker.is_full();
                &words_only
            }
            _ => instruction,
        };
        if let Err(error) = wire::encode(sent, worker.buffer()) {
            // The worker's slots differ from the core's from here on.
            return self.give_up(index, &unsent(&error));
        }
        let words = worker.buffer().get(before..).unwrap_or_default();
        let count = words.len();
        if self.replacements.is_on() {
            if sent.payload.len() == instruction.payload.len() {
                note(&mut self.replacements, index, instruction, words);
            } else {
                self.scratch.clear();
                // Without its words in the log, the value cannot be made again.
                drop(wire::encode(instruction, &mut self.scratch));
                note(&mut self.replacements, index, instruction, &self.scratch);
            }
        }
        self.sent(index, count);
    }

    fn words(&mut self, index: WorkerIndex, words: &[u32]) {
        if !self.replacements.note(index, words) {
            return self.refuse(index);
        }
        let Some(worker) = self.workers.get_mut(place(index)).and_then(Option::as_mut) else {
            return;
        };
        worker.buffer().extend_from_slice(words);
        self.sent(index, words.len());
    }

    fn free(&mut self, index: WorkerIndex, slots: &[u32]) {
        if !self.replacements.sends_to(index) {
            self.scratch.clear();
            wire::encode_free(slots, &mut self.scratch);
            self.replacements.note(index, &self.scratch);
            return self.refuse(index);
        }
        let Some(worker) = self.workers.get_mut(place(index)).and_then(Option::as_mut) else {
            return;
        };
        let before = worker.buffer().len();
        wire::encode_free(slots, worker.buffer());
        let words = worker.buffer().get(before..).unwrap_or_default();
        self.replacements.note(index, words);
        let count = words.len();
        self.sent(index, count);
    }

    fn worker_message(&mut self, index: WorkerIndex, message: &ToWorker<'_>) {
        let Self { workers, listed_workers, lost, .. } = self;
        if let Some(worker) = workers.get_mut(place(index)).and_then(Option::as_mut) {
            send(index, worker, message, (listed_workers, lost));
        }
    }

    fn give_up(&mut self, index: WorkerIndex, reason: &str) {
        tracing::error!("worker {index} is given up: {reason}");
        self.lost.push(LostPeer::Worker(index, reason.to_owned()));
    }

    fn session(&mut self, id: SessionId, message: &ToClient<'_>) {
        if let (Some(trace), ToClient::Failure(failure)) = (&mut self.trace, message) {
            trace.write_failure(failure);
            tell_notice(trace);
        }
        if self.listened == Some(id) {
            return self.note_answer(message);
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let encoded = if let ToClient::Reply(reply) = message
            && session.send_beside(0, reply.bytes)
        {
            message::encode_beside(reply, session.buffer())
        } else {
            message::encode(message, session.buffer())
        };
        if let Err(error) = encoded {
            let reason = unsent(&error);
            tracing::error!("session {} is given up: {reason}", id.0);
            self.lost.push(LostPeer::Session(id, reason));
        }
        if !session.listed {
            session.listed = true;
            self.listed_sessions.push(id);
        }
    }

    fn trace(&mut self, session: SessionId, instruction: &Instruction<'_>, notes: &TraceNotes<'_>) {
        let Some(trace) = &mut self.trace else { return };
        trace.write(session, instruction, notes);
        tell_notice(trace);
    }
}

/// Writes the words of an instruction down, with its bytes among them.
fn note(
    replacements: &mut Replacements,
    index: WorkerIndex,
    instruction: &Instruction<'_>,
    words: &[u32],
) {
    if instruction.op == Op::Chunk {
        let slot = instruction.values().next().and_then(Id::as_slot).unwrap_or(u32::MAX);
        replacements.note_chunk(index, slot, words);
    } else {
        replacements.note(index, words);
    }
}

/// Offset of a chunk's bytes.
fn offset_of_chunk(instruction: &Instruction<'_>) -> Option<u64> {
    let Attr::Int(offset) = instruction.attrs.first().filter(|_| instruction.op == Op::Chunk)?
    else {
        return None;
    };
    u64::try_from(*offset).ok()
}
