//! A reduction of several values at once, each in its own slot.

use super::Group;
use super::bundle::{Bundle, Spent};
use super::exchange::Broken;
use super::task::reduce_op_of;
use crate::lane::{Driver, Job, Refusal};
use crate::machine::{Left, Machine, Replies, UnderWay, unsigned};
use crate::table::NoValue;
use crate::{Cause, Engine, Fault, Places, ReduceOp};
use gt_protocol::message::FromWorker;
use gt_protocol::{Attr, Dtype, Id, Instruction};
use smallvec::SmallVec;
use std::rc::Rc;

/// A value of which our contribution is there, as the job works on it and as it is left.
type Lent<E> = (Dtype, <E as Engine>::Loan, Left<<E as Engine>::Value>);

impl<E: Engine> Machine<E> {
    pub(super) fn coalesced(
        &mut self,
        instruction: &Instruction<'_>,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) -> Result<(), NoValue> {
        let tag = unsigned(instruction, "tag")?;
        let group = Group::new(instruction, self.index)?;
        let (reduce_op, lengths) = match form(instruction) {
            Ok(form) => form,
            Err(fault) => {
                let cause = self.cause_of(instruction, fault.clone());
                for id in instruction.values() {
                    self.table.poison(id, &Rc::new(cause.clone()));
                }
                let others = || group.others().map(|(_, member)| member).collect();
                driver.refuse(Refusal {
                    tag,
                    hop: 0,
                    cause,
                    listeners: others(),
                    senders: others(),
                });
                return Err(fault.into());
            }
        };
        let mut under_way = self.under_way_new(instruction);
        let mut values = Vec::new();
        for (id, &length) in instruction.values().zip(&lengths) {
            let left = match self.lend_in_slot(instruction, id, length, &mut under_way.reads) {
                Ok((dtype, memory, left)) => {
                    values.push((dtype, length, Ok(memory)));
                    let bytes = u64::try_from(length).unwrap_or(u64::MAX).saturating_mul(2);
                    under_way.bytes = under_way.bytes.saturating_add(bytes);
                    left
                }
                Err(why) => {
                    let cause = self.poisoned(instruction, id, &why, replies);
                    values.push((Dtype::U8, length, Err(cause)));
                    Left { output: None, result: None }
                }
            };
            under_way.several.push(left);
        }
        let bundle = Bundle::new(tag, reduce_op, &group, values);
        let job = Job::of_several(under_way.ticket, under_way.origin, bundle, group, E::reduce);
        match driver.submit(job) {
            Some(ended) => self.conclude(under_way, ended, replies, driver),
            None => self.leave(under_way),
        }
        Ok(())
    }

    /// Puts the reductions where they are looked for, and gives back what was read; a failure of all is reported once.
    pub(crate) fn conclude_several(
        &mut self,
        under_way: UnderWay<E::Value, E::Joint>,
        values: Vec<Spent<E::Loan>>,
        outcome: Result<(), Broken>,
        replies: &mut impl Replies,
    ) {
        let UnderWay { origin, reads, several, .. } = under_way;
        let told = |broken: Broken, replies: &mut dyn FnMut(&Cause)| {
            let cause = broken.cause(&origin);
            if matches!(broken, Broken::Fault(_)) {
                replies(&cause);
            }
            Rc::new(cause)
        };
        let mut tell = |cause: &Cause| replies.send(&FromWorker::Failure(cause.message()));
        let of_all = outcome.err().map(|broken| told(broken, &mut tell));
        for (left, spent) in several.into_iter().zip(values) {
            let Left { output, mut result } = left;
            let written = result.as_mut().map(|held| &mut held.value);
            let settled = spent.memory.map_or(Ok(()), |memory| self.engine.settle(memory, written));
            let cause = match (spent.failure, &of_all, settled) {
                (Some(cause), _, _) => Some(Rc::new(cause)),
                (None, Some(cause), _) => Some(Rc::clone(cause)),
                (None, None, Err(fault)) => Some(told(Broken::Fault(fault), &mut tell)),
                (None, None, Ok(())) => None,
            };
            match (cause, output, result) {
                (None, Some(id), Some(held)) => self.table.put_held(id, held),
                (cause, output, held) => {
                    if let Some(held) = held {
                        self.table.release(held.storage);
                    }
                    if let (Some(cause), Some(id)) = (cause, output) {
                        self.table.poison(id, &cause);
                    }
                }
            }
        }
        for storage in reads {
            self.table.release(storage);
        }
    }

    /// The bytes of a value, whose slot is the reduction's from now on: over the value itself, unless others read its memory.
    fn lend_in_slot(
        &mut self,
        instruction: &Instruction<'_>,
        id: Id,
        length: usize,
        reads: &mut SmallVec<[u32; 2]>,
    ) -> Result<Lent<E>, NoValue> {
        let held = self.table.held(id)?;
        let meta = held.meta;
        if usize::try_from(meta.bytes()) != Ok(length) {
            let text = format!("{length} bytes were announced of a {meta}");
            return Err(Fault::protocol(text).into());
        }
        let in_place = self.engine.in_place(instruction.op) & 1 != 0;
        if in_place && held.contiguous && self.table.is_alone(held) {
            let mut held = self.table.withdraw(id)?;
            let memory = self.engine.lend(Places::One(&mut held.value));
            if memory.is_err() {
                self.table.release(held.storage);
            }
            let left = Left { output: Some(id), result: Some(held) };
            return Ok((meta.dtype, memory?, left));
        }
        let mut value = self.allocate(&meta)?;
        let held = self.table.held(id)?;
        let memory = self.engine.lend(Places::Both(&held.value, &mut value))?;
        reads.push(held.storage);
        self.table.hold(held.storage);
        self.table.consume(id);
        let result = Some(self.table.adopt(value, meta, meta.bytes()));
        Ok((meta.dtype, memory, Left { output: Some(id), result }))
    }

    /// The slot of a value of which our contribution is not there; a first cause is reported once.
    fn poisoned(
        &mut self,
        instruction: &Instruction<'_>,
        id: Id,
        why: &NoValue,
        replies: &mut impl Replies,
    ) -> Cause {
        let cause = self.cause(instruction, why);
        if matches!(why, NoValue::Fault(_)) {
            replies.send(&FromWorker::Failure(cause.message()));
        }
        self.table.poison(id, &Rc::new(cause.clone()));
        cause
    }
}

/// How the values are reduced, and the length of each.
fn form(instruction: &Instruction<'_>) -> Result<(ReduceOp, Vec<usize>), Fault> {
    let reduce_op = reduce_op_of(instruction)?;
    let Attr::List(lengths) = instruction.attr("bytes") else {
        return Err(Fault::protocol("bytes is missing"));
    };
    let lengths: Vec<usize> = lengths.iter().filter_map(|&one| usize::try_from(one).ok()).collect();
    let count = instruction.operands.len();
    if instruction.values().count() != count || lengths.len() != count {
        let text = format!("{} lengths for {count} values", lengths.len());
        return Err(Fault::protocol(text));
    }
    Ok((reduce_op, lengths))
}
