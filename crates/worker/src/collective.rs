//! What the workers of a group do together: every member meets the same instruction, and a failed operand travels to
//! the others in the place of its bytes, so that nobody waits for it. Here a collective becomes a job of the lane.

mod bundle;
mod exchange;
mod group;
mod head;
mod many;
mod region;
mod round;
mod talk;
mod task;

pub(crate) use bundle::{Bundle, Spent};
pub use exchange::Broken;
pub(crate) use exchange::{Exchange, Step};
pub(crate) use group::Group;
pub(crate) use round::{Heard, Round};
pub(crate) use talk::Talk;

use crate::lane::{Driver, Job, Origin, Refusal};
use crate::machine::{Machine, Replies, UnderWay, unsigned};
use crate::reuse;
use crate::table::NoValue;
use crate::ways::Way;
use crate::{Cause, Engine, Fault, Places};
use gt_protocol::{Id, Instruction, Op};
use smallvec::SmallVec;
use task::Task;

/// Members that send something, or wait for something.
pub(crate) type Senders = SmallVec<[u32; 8]>;

/// What an engine gives for the places of a collective, and what the collective will leave.
type Prepared<E, R> = (R, UnderWay<<E as Engine>::Value, <E as Engine>::Joint>);

impl<E: Engine> Machine<E> {
    pub(crate) fn collective(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) -> Result<(), NoValue> {
        if instruction.op == Op::AllReduceCoalesced {
            return self.coalesced(instruction, replies, driver);
        }
        let tag = unsigned(instruction, "tag")?;
        let group = if matches!(instruction.op, Op::Send | Op::Receive) {
            Group::pair(self.index, self.peer(instruction)?)
        } else {
            Group::new(instruction, self.index)?
        };
        if let Some(way) = Way::of(instruction)? {
            return self.begin_talk(instruction, next, tag, (way, group), replies, driver);
        }
        match self.begin_bytes(instruction, next, tag, &group) {
            Ok((exchange, (memory, under_way))) => {
                let (ticket, origin) = (under_way.ticket, under_way.origin);
                match driver.submit(Job::new(ticket, origin, exchange, group, E::reduce, memory)) {
                    Some(ended) => self.conclude(under_way, ended, replies, driver),
                    None => self.leave(under_way),
                }
                Ok(())
            }
            Err(why) => {
                let cause = self.cause(instruction, &why);
                let (listeners, senders) =
                    (listeners(instruction, &group), senders(instruction, &group));
                driver.refuse(Refusal { tag, hop: 0, cause, listeners, senders });
                Err(why)
            }
        }
    }

    fn begin_bytes(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        tag: u64,
        group: &Group,
    ) -> Result<(Exchange, Prepared<E, E::Loan>), NoValue> {
        self.table.check_vacant(&instruction.outputs)?;
        self.lie_as_received(instruction)?;
        let task = self.task(instruction, tag, group)?;
        let reused = self.reused(instruction, next);
        let prepared = self.prepare(instruction, &task, reused, E::lend)?;
        Ok((task.exchange, prepared))
    }

    /// What is sent lies here as it will lie there: kernels round by how their operands lie, and what two workers compute
    /// of the same value is to be the same to the last bit.
    pub(super) fn lie_as_received(&mut self, instruction: &Instruction<'_>) -> Result<(), NoValue> {
        let Some(id) = instruction.values().next().filter(|_| instruction.op == Op::Send) else {
            return Ok(());
        };
        let held = self.table.held(id)?;
        let meta = held.meta;
        if held.contiguous {
            return Ok(());
        }
        if let Some(copy) = self.engine.as_received(&held.value, &meta)? {
            let held = self.table.adopt(copy, meta, meta.bytes());
            self.table.put_held(id, held);
        }
        Ok(())
    }

    /// What a collective reads and writes, in memory that the engine gives; and what it will leave.
    fn prepare<R>(
        &mut self,
        instruction: &Instruction<'_>,
        task: &Task,
        reused: Option<Id>,
        give: impl FnOnce(&mut E, Places<'_, E::Value>) -> Result<R, Fault>,
    ) -> Result<Prepared<E, R>, NoValue> {
        let mut under_way = self.under_way_new(instruction);
        if let Some(id) = reused {
            let mut held = self.table.withdraw(id)?;
            under_way.bytes = held.meta.bytes();
            let given = give(&mut self.engine, Places::One(&mut held.value));
            if given.is_err() {
                // Nobody asks for it any more.
                self.table.release(held.storage);
            }
            under_way.result = Some(held);
            return Ok((given?, under_way));
        }
        let mut result = match &task.result {
            Some(meta) => Some((self.allocate(meta)?, *meta)),
            None => None,
        };
        let operand = match task.operand {
            Some(id) => Some(self.table.held(id)?),
            None => None,
        };
        let places = match (operand, &mut result) {
            (Some(held), Some((value, _))) => Places::Both(&held.value, value),
            (Some(held), None) => Places::Operand(&held.value),
            (None, Some((value, _))) => Places::Result(value),
            (None, None) => return Err(Fault::protocol("neither an operand nor a result").into()),
        };
        let given = give(&mut self.engine, places)?;
        let (reads, read_bytes) = operand.map(|held| (held.storage, held.meta.bytes())).unzip();
        let result_bytes = result.as_ref().map(|(_, meta)| meta.bytes());
        under_way.bytes = read_bytes.unwrap_or(0).saturating_add(result_bytes.unwrap_or(0));
        if let Some(storage) = reads {
            self.table.hold(storage);
            under_way.reads.push(storage);
        }
        under_way.result = result.map(|(value, meta)| self.table.adopt(value, meta, meta.bytes()));
        Ok((given, under_way))
    }

    fn under_way_new(&mut self, instruction: &Instruction<'_>) -> UnderWay<E::Value, E::Joint> {
        let origin = Origin { session: self.session, tag: instruction.tag, op: instruction.op };
        UnderWay {
            ticket: self.ticket_new(),
            origin,
            output: instruction.outputs.first().copied(),
            result: None,
            reads: SmallVec::new(),
            several: Vec::new(),
            bytes: 0,
            talk: None,
        }
    }

    /// The operand of a reduction, if its buffer can be the result's.
    fn reused(&self, instruction: &Instruction<'_>, next: &[u32]) -> Option<Id> {
        if instruction.op != Op::AllReduce {
            return None;
        }
        let id = instruction.values().next()?;
        let meta = self.table.held(id).ok()?.meta;
        let in_place = self.engine.in_place(instruction.op);
        let reusable = reuse::reusable(&self.table, instruction, in_place, next, &[meta]);
        (reusable & 1 != 0).then_some(id)
    }

    /// Why our part of a collective fails, as the others are to hear it.
    fn cause(&self, instruction: &Instruction<'_>, why: &NoValue) -> Cause {
        match why {
            NoValue::Failed(cause) => Cause::clone(cause),
            NoValue::Fault(fault) => self.cause_of(instruction, fault.clone()),
        }
    }

    fn peer(&self, instruction: &Instruction<'_>) -> Result<u32, Fault> {
        let peer = unsigned(instruction, "peer")?;
        match u32::try_from(peer) {
            Ok(peer) if peer != self.index => Ok(peer),
            Ok(_) | Err(_) => Err(Fault::protocol(format!("peer {peer} of worker {}", self.index))),
        }
    }
}

/// Who waits for something of ours.
fn listeners(instruction: &Instruction<'_>, group: &Group) -> Senders {
    let is_root = || group.place(instruction, "root").is_ok_and(|root| root == group.me);
    if instruction.op == Op::Receive || (instruction.op == Op::Broadcast && !is_root()) {
        return Senders::new();
    }
    group.others().map(|(_, member)| member).collect()
}

/// Who sends us something.
fn senders(instruction: &Instruction<'_>, group: &Group) -> Senders {
    if instruction.op == Op::Send {
        return Senders::new();
    }
    let is_broadcast = instruction.op == Op::Broadcast;
    let root = if is_broadcast { group.place(instruction, "root").ok() } else { None };
    let others = group.others().filter(|&(place, _)| root.is_none_or(|root| root == place));
    others.map(|(_, member)| member).collect()
}
