//! One instruction after the other: what a worker does with the words it is sent.

mod compute;
mod read;
mod under_way;

pub(crate) use under_way::{Left, UnderWay, pending};

use crate::lane::Driver;
use crate::look_ahead::LookAhead;
use crate::table::{NoValue, Table};
use crate::{Cause, Engine, Fault};
use gt_protocol::message::{
    self, FailureClass, FromWorker, REPLY_BYTES_MAX, Stats, ToWorker, Ways,
};
use gt_protocol::rules::{Arg, describe};
use gt_protocol::wire::{self, MESSAGE_CODE_FIRST, WireError, WireReason};
use gt_protocol::{Attr, Family, Id, Instruction, Meta, Op, Operand};
use smallvec::SmallVec;
use std::rc::Rc;

/// Where a machine's answers go, in order, and where payloads come from that are not among the words.
pub trait Replies {
    fn send(&mut self, message: &FromWorker<'_>);
    /// Bytes of a piece of an answer at most: a multiple of every element's size.
    fn piece_bytes_max(&self) -> usize {
        REPLY_BYTES_MAX
    }
    /// Shows the next payload that came beside the words, with the offset that it was sent for, and takes it away; false
    /// where there is none.
    fn payload(&mut self, show: &mut dyn FnMut(u64, &[u8])) -> bool {
        let _ = show;
        false
    }
}

/// Why a machine takes no more words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The dispatcher said goodbye.
    Goodbye,
    /// The length of a frame is impossible, so nobody knows where the next one begins.
    Broken(WireError),
}

/// A worker: an engine, its slots, and the session that it works for at the moment.
#[derive(Debug)]
pub struct Machine<E: Engine> {
    pub(crate) engine: E,
    pub(crate) table: Table<E::Value>,
    /// This worker's index, by which collectives name it.
    pub(crate) index: u32,
    pub(crate) session: u32,
    /// Collectives that the lane works on, in the order of their instructions.
    under_way: Vec<UnderWay<E::Value, E::Joint>>,
    tickets: u64,
    executed: u64,
    look_ahead: LookAhead,
}

impl<E: Engine> Machine<E> {
    pub fn new(engine: E) -> Self {
        Self {
            engine,
            table: Table::default(),
            index: 0,
            session: 0,
            under_way: Vec::new(),
            tickets: 0,
            executed: 0,
            look_ahead: LookAhead::default(),
        }
    }

    /// Tells the worker which member of a collective's group it is.
    pub fn set_index(&mut self, index: u32) {
        self.index = index;
    }

    pub fn set_look_ahead(&mut self, look_ahead: LookAhead) {
        self.look_ahead = look_ahead;
    }

    /// Tells the dispatcher which ways collectives may take here besides by bytes, before anything else.
    pub fn announce(&self, is_far: bool, replies: &mut impl Replies) {
        let [device, group] = self.engine.domains().map(message::clip);
        if !device.is_empty() || !group.is_empty() {
            replies.send(&FromWorker::Ways(Ways { device, group, is_far }));
        }
    }

    pub fn stats(&self, request: u64) -> Stats {
        let (values, bytes, bytes_peak) = self.table.counters();
        Stats { request, values, bytes, bytes_peak, executed: self.executed }
    }

    /// Executes the complete frames at the front of `words` and returns how many words they have. All of `words` may be
    /// looked at, so a caller hands over everything that has been published. It stops before an instruction that
    /// needs the result of a collective for which the driver does not wait.
    pub fn run(
        &mut self,
        words: &[u32],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) -> Result<usize, Stop> {
        let mut rest = words;
        // One for all: it has 300 bytes, and moving it takes longer than decoding into it.
        let mut instruction = Instruction::new(Op::Free);
        while let Some((frame, next)) = split_frame(rest)? {
            if frame.first().is_some_and(|first| first & 0xffff >= MESSAGE_CODE_FIRST.into()) {
                if !self.message(frame, replies, driver)? {
                    break;
                }
            } else if let Err(error) = wire::decode_into(frame, &mut instruction) {
                self.undecoded(frame, error, replies);
            } else {
                if !self.under_way.is_empty() && !self.ready(&instruction, replies, driver) {
                    break;
                }
                self.executed += 1;
                let seen = self.look_ahead.seen(next);
                if let Err(why) = self.instruction(&instruction, seen, replies, driver) {
                    self.fail(&instruction, &why, replies);
                }
            }
            rest = next;
        }
        Ok(words.len() - rest.len())
    }

    #[cold]
    fn undecoded(&mut self, frame: &[u32], error: WireError, replies: &mut impl Replies) {
        let tag = frame.get(1).copied().unwrap_or(0);
        let fault = Fault::protocol(format!("an instruction's {error}"));
        let cause = Cause { session: self.session, tag, op: None, fault };
        replies.send(&FromWorker::Failure(cause.message()));
    }

    /// False where it has to wait for a collective before it.
    #[cold]
    fn message(
        &mut self,
        frame: &[u32],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) -> Result<bool, Stop> {
        let fault = match message::decode(frame) {
            // Counted is what there is when everything before is over, whoever is fast or slow.
            Ok((ToWorker::StatsRequest { request }, _)) => {
                let is_settled = self.settle(replies, driver);
                if is_settled {
                    replies.send(&FromWorker::Stats(self.stats(request)));
                }
                return Ok(is_settled);
            }
            // Others count on what we have begun to send.
            Ok((ToWorker::Goodbye { .. }, _)) => {
                return if self.settle(replies, driver) { Err(Stop::Goodbye) } else { Ok(false) };
            }
            Ok((ToWorker::Peer(peer), _)) => {
                driver.introduce(&peer);
                return Ok(true);
            }
            Err(error) => Fault::protocol(format!("a message's {error}")),
        };
        let cause = Cause { session: self.session, tag: 0, op: None, fault };
        replies.send(&FromWorker::Failure(cause.message()));
        Ok(true)
    }

    fn instruction(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) -> Result<(), NoValue> {
        match instruction.op.info().family {
            Family::Control => self.control(instruction, replies),
            Family::Collective => self.collective(instruction, next, replies, driver),
            Family::Create if instruction.op == Op::Upload => self.upload(instruction),
            Family::Create
            | Family::Random
            | Family::Elementwise
            | Family::Contract
            | Family::Reduce
            | Family::Normalize
            | Family::View
            | Family::Index
            | Family::Loss
            | Family::Update => self.compute(instruction, next),
        }
    }

    /// Marks the results, answers who waits for this instruction, and reports a first cause once.
    #[cold]
    fn fail(&mut self, instruction: &Instruction<'_>, why: &NoValue, replies: &mut impl Replies) {
        let cause = match why {
            NoValue::Failed(cause) => Rc::clone(cause),
            NoValue::Fault(fault) => Rc::new(self.cause_of(instruction, fault.clone())),
        };
        for &id in &instruction.outputs {
            self.table.poison(id, &cause);
        }
        let failure = cause.message();
        if matches!(instruction.op, Op::Read | Op::Synchronize) {
            let request = unsigned(instruction, "request").unwrap_or(0);
            replies.send(&FromWorker::FailedReply { request, failure });
        } else if matches!(why, NoValue::Fault(_)) {
            replies.send(&FromWorker::Failure(failure));
        }
    }

    pub(crate) fn cause_of(&self, instruction: &Instruction<'_>, mut fault: Fault) -> Cause {
        let (session, tag, op) = (self.session, instruction.tag, Some(instruction.op));
        if computes(instruction.op) && fault.class != FailureClass::Protocol {
            fault.text.push_str("; ");
            fault.text.push_str(&self.described(instruction));
        }
        Cause { session, tag, op, fault }
    }

    /// The operator with its operands as they are here: `gather f32[3] i64[1]`.
    #[cold]
    fn described(&self, instruction: &Instruction<'_>) -> String {
        let operands: SmallVec<[Arg<'_>; 4]> = instruction
            .operands
            .iter()
            .map(|operand| match operand {
                Operand::Absent => Arg::Absent,
                Operand::Scalar(scalar) => Arg::Scalar(*scalar),
                Operand::Value(id) => match self.table.held(*id) {
                    Ok(held) => Arg::Value(&held.meta),
                    Err(_) => Arg::Absent,
                },
            })
            .collect();
        describe(instruction.op, &operands)
    }

    fn control(
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
            if !self.under_way.is_empty() {
                self.abandon(id);
            }
            if !self.table.free(id) {
                unknown = unknown.or(Some(id));
            }
        }
        match unknown {
            None => Ok(()),
            Some(id) => {
                let slot = id.as_slot().unwrap_or(u32::MAX);
                Err(Fault::protocol(format!("free of slot {slot}, which is empty")).into())
            }
        }
    }

    fn upload(&mut self, instruction: &Instruction<'_>) -> Result<(), NoValue> {
        let (Attr::Ints(dims), Attr::Dtype(dtype)) =
            (instruction.attr("size"), instruction.attr("dtype"))
        else {
            return Err(Fault::protocol("upload without size and dtype").into());
        };
        let meta = Meta::new(*dtype, *dims);
        self.table.check_vacant(&instruction.outputs)?;
        let mut value = self.allocate(&meta)?;
        check_fits(&meta, 0, instruction.payload)?;
        self.engine.write(&mut value, 0, instruction.payload)?;
        if let Some(&id) = instruction.outputs.first() {
            self.table.put(id, value, meta);
        }
        Ok(())
    }

    pub(crate) fn allocate(&mut self, meta: &Meta) -> Result<E::Value, Fault> {
        if meta.dims.iter().any(|&size| size < 0) || meta.dims.elements().is_none() {
            return Err(Fault::protocol(format!("{meta} is no shape")));
        }
        self.engine.allocate(meta)
    }

    /// Bytes of an upload; those of a chunk without any came beside the words, and are taken in whatever becomes of it.
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

/// Whether an operator's operands are the user's, so that a failure's text names them.
fn computes(op: Op) -> bool {
    !matches!(op.info().family, Family::Control | Family::Collective)
}

/// A frame and what follows it.
type Split<'a> = (&'a [u32], &'a [u32]);

/// The first frame of `words` and what follows, or `None` while it is not complete.
fn split_frame(words: &[u32]) -> Result<Option<Split<'_>>, Stop> {
    let Some(&first) = words.first() else { return Ok(None) };
    let length = usize::try_from(first >> 16).unwrap_or(usize::MAX);
    if length == 0 {
        return Err(Stop::Broken(WireError { word: 0, reason: WireReason::Truncated }));
    }
    Ok(words.split_at_checked(length))
}

pub(crate) fn first_value(instruction: &Instruction<'_>) -> Result<Id, Fault> {
    instruction.values().next().ok_or_else(|| Fault::protocol("the operand is no value"))
}

/// An attribute that counts something.
pub(crate) fn unsigned(instruction: &Instruction<'_>, name: &str) -> Result<u64, Fault> {
    let Attr::Int(value) = instruction.attr(name) else {
        return Err(Fault::protocol(format!("{name} is missing")));
    };
    u64::try_from(*value).map_err(|_| Fault::protocol(format!("{name} is {value}")))
}

fn check_fits(meta: &Meta, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
    let end = u64::try_from(bytes.len()).ok().and_then(|length| offset.checked_add(length));
    if end.is_some_and(|end| end <= meta.bytes()) {
        return Ok(());
    }
    let length = bytes.len();
    Err(Fault::protocol(format!("{length} bytes at {offset} do not fit into a {meta}")))
}

impl From<Fault> for NoValue {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
