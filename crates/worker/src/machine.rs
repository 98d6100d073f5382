//! Execution of a worker's stream, one instruction after the other.

mod cancel;
mod compute;
mod control;
mod read;

use crate::attributes::unsigned;
use crate::codec::Codec;
use crate::engine::Engine;
use crate::failure::{Cause, Fault};
use crate::frame::split_frame;
use crate::look_ahead::LookAhead;
use crate::peers::PeerId;
use crate::replies::Replies;
use crate::rounding::{Rounding, parts_of_billion};
use crate::state::MachineState;
use crate::stream::Driver;
use crate::table::NoValue;
use cancel::Cancels;
use gt_protocol::message::{
    self, Backends, FailureClass, FromWorker, LOSSES_MAX, Losses, Peer, Stats, ToWorker,
};
use gt_protocol::wire::{self, MESSAGE_CODE_FIRST, WireError};
use gt_protocol::{Instruction, Kind, Op};
use std::fmt;
use std::rc::Rc;

/// Reason why a machine takes no more words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The dispatcher said goodbye.
    Goodbye,
    /// The length of a frame is impossible, so the start of the next one is unknown.
    Broken(WireError),
}

/// A worker: its state, and its look-ahead in the stream.
pub struct Machine<E: Engine> {
    state: MachineState<E>,
    executed: u64,
    look_ahead: LookAhead,
    cancels: Cancels,
}

impl<E: Engine> fmt::Debug for Machine<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats(0);
        out.debug_struct("Machine").field("stats", &stats).finish_non_exhaustive()
    }
}

impl<E: Engine> Machine<E> {
    pub fn new(engine: E) -> Self {
        let (look_ahead, cancels) = (LookAhead::default(), Cancels::default());
        Self { state: MachineState::new(engine), executed: 0, look_ahead, cancels }
    }

    /// Tells the worker its index, by which collectives name it.
    pub fn set_index(&mut self, index: u32) {
        self.state.index = index;
        self.state.engine.set_index(index);
    }

    pub fn set_look_ahead(&mut self, look_ahead: LookAhead) {
        self.look_ahead = look_ahead;
    }

    /// Sets the codec of sums with other hosts.
    pub fn set_codec(&mut self, codec: Option<Codec>) {
        self.state.rounding = codec.map(Rounding::new);
    }

    /// Returns true if the stream works on a collective, or has completed one that is not taken in
    /// yet.
    pub fn is_in_flight(&self) -> bool {
        self.state.is_in_flight()
    }

    /// Takes in the results of completed collectives: a caller that waits for words calls this when
    /// there are any.
    pub fn catch_up(&mut self, replies: &mut impl Replies, driver: &mut impl Driver<E::Borrowed>) {
        self.state.catch_up(replies, driver);
    }

    /// Writes the engine's records, when the worker is idle.
    pub fn flush_record(&mut self) {
        self.state.engine.flush_record();
    }

    /// Tells the dispatcher the backends of its collectives, before any other message.
    pub fn announce(&self, is_far: bool, replies: &mut impl Replies) {
        let [device, group] = self.state.engine.domains().map(message::clip);
        if !device.is_empty() || !group.is_empty() {
            replies.send(&FromWorker::Backends(Backends { device, group, is_far }));
        }
    }

    pub fn stats(&self, request: u64) -> Stats {
        let (values, bytes, bytes_peak) = self.state.table.counters();
        let [aten, python, own] = self.state.engine.calls();
        let executed = self.executed;
        let rounding = self.state.rounding.as_ref().map(Rounding::stats).unwrap_or_default();
        Stats {
            request,
            values,
            bytes,
            bytes_peak,
            executed,
            aten,
            python,
            own,
            joined: self.state.joined,
            rounded: rounding.reductions,
            error_ppb: parts_of_billion(rounding.error.relative()),
            error_ppb_max: parts_of_billion(rounding.error_max),
            ..Stats::default()
        }
    }

    /// Executes the complete frames at the front of `words` and returns their length in words. All
    /// of `words` may be looked at, so a caller passes everything that has been published. It stops
    /// before an instruction that needs the result of a collective for which the driver does not
    /// wait.
    pub fn run(
        &mut self,
        words: &[u32],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) -> Result<usize, Stop> {
        let mut rest = words;
        // One instruction for all frames: it has 300 bytes, and moving it takes longer than
        // decoding into it.
        let mut instruction = Instruction::new(Op::Free);
        while let Some((frame, next)) = split_frame(rest).map_err(Stop::Broken)? {
            if frame.first().is_some_and(|first| first & 0xffff >= MESSAGE_CODE_FIRST.into()) {
                if !self.message(frame, replies, driver)? {
                    break;
                }
            } else if let Err(error) = wire::decode_into(frame, &mut instruction) {
                self.undecoded(frame, error, replies);
            } else {
                if !self.state.in_flight.is_empty()
                    && !self.state.ready(&instruction, replies, driver)
                {
                    break;
                }
                if self.cancels.is_expected(replies.announced())
                    && self.state.is_cancelled(&instruction)
                {
                    self.cancel(&instruction, next, replies, driver);
                } else {
                    self.execute(&instruction, next, replies, driver);
                }
            }
            rest = next;
        }
        Ok(words.len() - rest.len())
    }

    #[inline]
    fn execute(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) {
        self.executed += 1;
        let seen = self.look_ahead.seen(next);
        self.state.engine.begin_instruction();
        replies.running(self.state.running(instruction));
        let done = self.instruction(instruction, seen, replies, driver);
        self.state.engine.end_instruction(self.state.session, instruction);
        if let Err(why) = done {
            self.fail(instruction, &why, replies);
        }
    }

    #[cold]
    fn cancel(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) {
        if instruction.op.info().kind() == Kind::Collective {
            self.state.cancels_collective = true;
            self.execute(instruction, next, replies, driver);
            self.state.cancels_collective = false;
            return;
        }
        if let Some(rounding) = &mut self.state.rounding {
            rounding.seen(self.state.session, instruction);
        }
        self.state.cancel(instruction);
    }

    #[cold]
    fn undecoded(&mut self, frame: &[u32], error: WireError, replies: &mut impl Replies) {
        let tag = frame.get(1).copied().unwrap_or(0);
        let fault = Fault::protocol(format!("an instruction's {error}"));
        let cause = Cause { session: self.state.session, tag, op: None, fault };
        replies.send(&FromWorker::Failure(cause.message()));
    }

    /// Returns false if it has to wait for an earlier collective.
    #[cold]
    fn message(
        &mut self,
        frame: &[u32],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) -> Result<bool, Stop> {
        let fault = match message::decode(frame) {
            // The counters are those after all earlier work, so they do not depend on time.
            Ok((ToWorker::StatsRequest { request }, _)) => {
                let is_over = self.state.wait_for_all(replies, driver);
                if is_over {
                    self.state.engine.flush_record();
                    let [plain_bytes, packed_bytes] = driver.packed_bytes();
                    let stats = Stats { plain_bytes, packed_bytes, ..self.stats(request) };
                    replies.send(&FromWorker::Stats(stats));
                }
                return Ok(is_over);
            }
            Ok((ToWorker::LossesRequest { request }, _)) => {
                let is_over = self.state.wait_for_all(replies, driver);
                if is_over {
                    self.report_losses(request, replies);
                }
                return Ok(is_over);
            }
            Ok((ToWorker::Mark { request }, _)) => {
                // A failed instruction has been reported, and a read of its result gets the
                // failure.
                let _ = self.state.engine.synchronize();
                replies.send(&FromWorker::Done { request });
                return Ok(true);
            }
            Ok((ToWorker::Cancel, _)) => {
                self.cancels.arrived();
                return Ok(true);
            }
            // Other members depend on messages that were started.
            Ok((ToWorker::Goodbye { .. }, _)) => {
                return if self.state.wait_for_all(replies, driver) {
                    Err(Stop::Goodbye)
                } else {
                    Ok(false)
                };
            }
            Ok((ToWorker::Peer(peer), _)) => {
                let Peer { index, incarnation, .. } = peer;
                self.state.incarnations.set_current(PeerId { index, incarnation });
                driver.introduce(&peer);
                if let Some(rounding) = &mut self.state.rounding {
                    rounding.forget_member(peer.index);
                }
                return Ok(true);
            }
            Err(error) => Fault::protocol(format!("a message's {error}")),
        };
        let cause = Cause { session: self.state.session, tag: 0, op: None, fault };
        replies.send(&FromWorker::Failure(cause.message()));
        Ok(true)
    }

    /// Tells which slots hold the loss of another worker.
    fn report_losses(&self, request: u64, replies: &mut impl Replies) {
        let slots = self.state.table.losses();
        let mut chunks = slots.chunks(LOSSES_MAX).peekable();
        if chunks.peek().is_none() {
            replies.send(&FromWorker::Losses(Losses { request, is_last: true, slots: &[] }));
        }
        while let Some(slots) = chunks.next() {
            let is_last = chunks.peek().is_none();
            replies.send(&FromWorker::Losses(Losses { request, is_last, slots }));
        }
    }

    fn instruction(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) -> Result<(), NoValue> {
        if let Some(rounding) = &mut self.state.rounding {
            rounding.seen(self.state.session, instruction);
        }
        match instruction.op.info().kind() {
            Kind::Control => self.state.control(instruction, replies),
            Kind::Collective => self.state.collective(instruction, next, replies, driver),
            Kind::Compute if instruction.op == Op::Upload => self.state.upload(instruction),
            Kind::Compute => self.state.compute(instruction, next),
        }
    }

    /// Marks the results as failed, answers requests of this instruction, and reports a first cause
    /// once.
    #[cold]
    fn fail(&mut self, instruction: &Instruction<'_>, why: &NoValue, replies: &mut impl Replies) {
        let cause = Rc::new(self.state.cause(instruction, why));
        if matches!(why, NoValue::Fault(_)) && self.state.engine.take_loss() {
            self.state.lose_all(&cause);
        }
        for &id in &instruction.outputs {
            self.state.table.poison(id, &cause);
        }
        let failure = cause.message();
        if matches!(instruction.op, Op::Read | Op::Synchronize) {
            let request = unsigned(instruction, "request").unwrap_or(0);
            replies.send(&FromWorker::FailedReply { request, failure });
        } else if matches!(why, NoValue::Fault(fault) if fault.class != FailureClass::Cancelled) {
            replies.send(&FromWorker::Failure(failure));
        }
    }
}
