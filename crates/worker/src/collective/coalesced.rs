//! A reduction of several values at once, each in its own slot.

use super::plan::reduce_op_of;
use crate::attributes::{list, unsigned};
use crate::engine::{Engine, Places};
use crate::exchange::{ALIGNMENT, BucketMemory, Exchange, Group};
use crate::failure::{Cause, Fault};
use crate::replies::Replies;
use crate::state::{Awaited, MachineState};
use crate::stream::{Abort, Driver};
use crate::table::{NoValue, StorageId};
use gt_protocol::integer::to_u64;
use gt_protocol::message::FromWorker;
use gt_protocol::placement::ReduceOp;
use gt_protocol::{Dtype, Id, Instruction};
use smallvec::SmallVec;
use std::rc::Rc;

/// A value with our contribution: its dtype, its borrowed memory, and the result to come.
type Contribution<E> = (Dtype, <E as Engine>::Borrowed, Awaited<<E as Engine>::Value>);

impl<E: Engine> MachineState<E> {
    pub(super) fn coalesced(
        &mut self,
        instruction: &Instruction<'_>,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) -> Result<(), NoValue> {
        let tag = unsigned(instruction, "tag")?;
        let group = Group::new(instruction, self.index, &self.incarnations)?;
        let (reduce_op, lengths) = match form(instruction) {
            Ok(form) => form,
            Err(fault) => {
                let cause = self.cause_of(instruction, fault.clone());
                for id in instruction.values() {
                    self.table.poison(id, &Rc::new(cause.clone()));
                }
                let others = || group.others().map(|(_, member)| member).collect();
                let (receivers, senders) = (others(), others());
                driver.abort(Abort { tag, hop: 0, cause, receivers, senders });
                return Err(fault.into());
            }
        };
        let mut in_flight = self.in_flight_new(instruction);
        let mut values = Vec::new();
        for (id, &length) in instruction.values().zip(&lengths) {
            let awaited = match self.borrow_in_slot(instruction, id, length, &mut in_flight.reads) {
                Ok((dtype, memory, awaited)) => {
                    values.push((dtype, length, Ok(memory)));
                    let bytes = to_u64(length).saturating_mul(2);
                    in_flight.bytes = in_flight.bytes.saturating_add(bytes);
                    awaited
                }
                Err(why) => {
                    let cause = self.poisoned(instruction, id, &why, replies);
                    values.push((Dtype::U8, length, Err(cause)));
                    Awaited { output: None, result: None }
                }
            };
            in_flight.awaited.push(awaited);
        }
        let mut bucket = BucketMemory::of_several(values);
        let mut exchange = Exchange::new(tag, ALIGNMENT, None);
        exchange.all_reduce(reduce_op, bucket.length(), &group);
        exchange.add_headers(&bucket, &group);
        self.round(instruction, (&exchange, &group), bucket.length(), &mut bucket, driver);
        self.submit(in_flight, (exchange, group), bucket, replies, driver);
        Ok(())
    }

    /// Borrows the bytes of a value whose slot now belongs to the reduction: the value itself,
    /// unless others read its memory.
    fn borrow_in_slot(
        &mut self,
        instruction: &Instruction<'_>,
        id: Id,
        length: usize,
        reads: &mut SmallVec<[StorageId; 2]>,
    ) -> Result<Contribution<E>, NoValue> {
        let held = self.table.held(id)?;
        let meta = held.meta;
        if usize::try_from(meta.bytes()) != Ok(length) {
            let text = format!("{length} bytes were announced of a {meta}");
            return Err(Fault::protocol(text).into());
        }
        let in_place = self.engine.in_place(instruction.op) & 1 != 0;
        if in_place && held.contiguous && self.table.is_alone(held) {
            let mut held = self.table.withdraw(id)?;
            let memory = self.engine.borrow_buffers(Places::One(&mut held.value));
            if memory.is_err() {
                self.table.release(held.storage);
            }
            let awaited = Awaited { output: Some(id), result: Some(held) };
            return Ok((meta.dtype, memory?, awaited));
        }
        let mut value = self.allocate(&meta)?;
        let held = self.table.held(id)?;
        let memory = self.engine.borrow_buffers(Places::Both(&held.value, &mut value))?;
        reads.push(held.storage);
        self.table.hold(held.storage);
        self.table.consume(id);
        let result = Some(self.table.adopt(value, meta, meta.bytes()));
        Ok((meta.dtype, memory, Awaited { output: Some(id), result }))
    }

    /// Marks the slot of a value without our contribution; a first cause is reported once.
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

/// Maximum bytes of all values of a bucket: more than any worker holds.
const BUCKET_BYTES_MAX: i64 = 1 << 48;

/// The reduction, and the length of each value.
fn form(instruction: &Instruction<'_>) -> Result<(ReduceOp, Vec<usize>), Fault> {
    let reduce_op = reduce_op_of(instruction)?;
    let announced = list(instruction, "bytes")?;
    let count = instruction.operands.len();
    let is_complete = instruction.values().count() == count && announced.len() == count;
    let total = announced.iter().try_fold(0_i64, |total, &one| total.checked_add(one));
    let lengths = announced.iter().map(|&one| usize::try_from(one)).collect();
    match lengths {
        Ok(lengths) if is_complete && total.is_some_and(|total| total <= BUCKET_BYTES_MAX) => {
            Ok((reduce_op, lengths))
        }
        Ok(_) | Err(_) => {
            let text = format!("{announced:?} are no lengths for {count} values");
            Err(Fault::protocol(text))
        }
    }
}
