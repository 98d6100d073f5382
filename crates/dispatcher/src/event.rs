//! Inputs and outputs of the core.

use gt_protocol::message::{FromWorker, ToClient, ToWorker};
use gt_protocol::wire::{self, WireError};
use gt_protocol::{Id, Instruction, Op, Operand};
use std::fmt::Write;

/// Identifies a session; never reused while the dispatcher lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// A worker's index in the order of joining.
pub type WorkerIndex = u32;

/// Everything that happens, except instructions.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A worker is ready to receive instructions.
    WorkerJoined { index: WorkerIndex },
    /// A worker that has joined is this process of the dispatcher's host.
    WorkerProcess { index: WorkerIndex, process: u32 },
    /// A worker is gone, with all values that it held.
    WorkerLeft { index: WorkerIndex, reason: &'a str },
    /// A client is gone: of a named session the published values stay, any other is closed.
    SessionDetached { session: SessionId },
    /// A session is over: its values are freed.
    SessionClosed { session: SessionId },
    /// A client asks for the workers' counters.
    StatsRequest { session: SessionId, request: u64 },
    /// A worker answers or reports.
    FromWorker { index: WorkerIndex, message: FromWorker<'a> },
}

/// Destination of the core's outputs. Implementations only queue; they never call back into the
/// core.
pub trait Sink {
    /// Queues an instruction in the worker's own slots.
    fn worker(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>);
    /// Queues an encoded instruction in the worker's own slots.
    fn words(&mut self, worker: WorkerIndex, words: &[u32]) {
        if let Ok((instruction, _)) = wire::decode(words) {
            self.worker(worker, &instruction);
        }
    }
    /// Frees the worker's slots `slots`: the instruction `free`, which is every second one and so
    /// has a method of its own.
    fn free(&mut self, worker: WorkerIndex, slots: &[u32]) {
        let mut instruction = Instruction::new(Op::Free);
        instruction.operands.extend(slots.iter().map(|&slot| Operand::Value(Id::slot(slot))));
        self.worker(worker, &instruction);
    }
    /// Queues a message to a worker.
    fn worker_message(&mut self, worker: WorkerIndex, message: &ToWorker<'_>);
    /// Gives up a worker that broke the protocol: its connection is closed, and
    /// [`Event::WorkerLeft`] follows with this reason.
    fn give_up(&mut self, worker: WorkerIndex, reason: &str);
    /// Queues a message to a client.
    fn session(&mut self, session: SessionId, message: &ToClient<'_>);
    /// Writes a line of the trace: the client's instruction in numbers, with notes.
    fn trace(&mut self, session: SessionId, instruction: &Instruction<'_>, notes: &TraceNotes<'_>);
}

/// The part of a trace line after `#`.
#[derive(Clone, Debug, Default)]
pub struct TraceNotes<'a> {
    /// `f32[128,64] shard(0)@[0,1]` for each result.
    pub results: String,
    /// The signal's name, if the client gave one.
    pub signal: Option<&'a str>,
    /// `train.py:42`, if the client gave it.
    pub site: Option<&'a str>,
    /// The error of a failed instruction.
    pub error: Option<String>,
    /// Bytes moved between workers for this instruction.
    pub moved_bytes: u64,
    /// The boundary between two scopes that the program passed before this instruction, if this is
    /// the first one since then to move anything.
    pub boundary: Option<&'a str>,
    /// Values that were reduced together for this instruction, or while it was planned.
    pub together: &'a [Id],
    /// Reason of the results' layout, where reasons are asked for.
    pub reason: Option<String>,
}

impl TraceNotes<'_> {
    /// ` together=%3,%5`; empty where no values were reduced together.
    pub fn together(&self) -> String {
        let mut text = String::new();
        for (place, id) in self.together.iter().enumerate() {
            let (number, output) = id.parts();
            let before = if place == 0 { " together=" } else { "," };
            let after = if output == 0 { String::new() } else { format!(".{output}") };
            // Writing to a string cannot fail.
            let _ = write!(text, "{before}%{number}{after}");
        }
        text
    }
}

/// Counters of [`crate::Dispatcher::statistics`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub sessions: usize,
    pub workers: usize,
    pub values: usize,
    pub bytes: u64,
    pub requests: usize,
    pub moved_bytes: u64,
    pub worker_slots: usize,
}

/// A breach of the protocol by a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientFault {
    #[error("session {session:?} is not open")]
    NoSession { session: SessionId },
    #[error("{op:?} is not an instruction for clients")]
    NotForClients { op: Op },
    #[error("{op:?} names slot {slot}, which holds no value")]
    UnknownSlot { op: Op, slot: u64 },
    #[error("{op:?} defines slot {slot}, which still holds a value")]
    SlotInUse { op: Op, slot: u64 },
    #[error("{op:?} defines {count} values instead of {expected}")]
    Outputs { op: Op, count: usize, expected: usize },
    #[error("slot {slot} is over the limit of {limit} live values of a session")]
    TooManyValues { slot: u64, limit: u32 },
    #[error("broken stream: {0}")]
    Wire(#[from] WireError),
    #[error("{op:?}: the words are no instruction")]
    Malformed { op: Op },
    #[error("{op:?}: attribute {name:?} is missing or of the wrong kind")]
    Attribute { op: Op, name: &'static str },
}

/// The full number whose low 32 bits a worker sent back: the nearest one below `next`.
pub(crate) fn number_of(next: u64, sent: u64) -> u64 {
    const LOW_BITS: u64 = 1 << 32;
    let candidate = (next & !(LOW_BITS - 1)) | (sent & (LOW_BITS - 1));
    if candidate < next { candidate } else { candidate.saturating_sub(LOW_BITS) }
}

/// The low half of a number, which is sent to a worker.
pub(crate) fn low_half(number: u64) -> u32 {
    u32::try_from(number & 0xffff_ffff).expect("masked to 32 bits")
}

#[cfg(test)]
mod tests {
    use super::number_of;

    #[test]
    fn the_low_half_of_a_number_is_completed() {
        for (next, number) in [
            (10, 9),
            (1 << 32, (1 << 32) - 1),
            ((1 << 32) + 5, (1 << 32) - 7),
            (1 << 40, 1 << 39 | 3),
        ] {
            if next - number < 1 << 32 {
                assert_eq!(number_of(next, number & 0xffff_ffff), number);
            }
        }
    }
}
