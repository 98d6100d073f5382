//! The slots of a worker, and the sharing of memory among them.

use crate::failure::{Cause, Fault};
use gt_protocol::integer::to_usize;
use gt_protocol::message::FailureClass;
use gt_protocol::{Id, Meta};
use std::rc::Rc;

/// Maximum number of slots that a dispatcher may use: far more than live values. At about 100 bytes
/// each they are 400 MB.
const SLOTS_MAX: usize = 1 << 22;
/// Maximum distance of a new slot above all earlier ones. A dispatcher assigns them densely, so
/// this only limits the memory that a faulty one can make us allocate at once.
const SLOTS_AHEAD_MAX: usize = 1 << 16;

/// Identifies the memory of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageId(usize);

/// A value in a slot.
#[derive(Debug)]
pub struct Held<V> {
    pub value: V,
    pub meta: Meta,
    /// Memory of the value; values with the same id share it.
    pub storage: StorageId,
    /// True if its elements are row-major with the strides of a fresh result, in memory that begins
    /// with them; false for other views. A result may take over only such memory, so that its bits
    /// and strides do not depend on the reuse.
    pub contiguous: bool,
    /// Number of following instructions that have been applied to this value already: each is the
    /// only reader of the value before it.
    pub ahead: u8,
}

/// Reason why a slot has no value.
#[derive(Debug)]
pub enum NoValue {
    Failed(Rc<Cause>),
    Fault(Fault),
}

#[derive(Debug)]
enum TableSlot<V> {
    Empty,
    Value(Held<V>),
    Failed(Rc<Cause>),
    /// The job with this ticket will fill the slot.
    Pending(u64),
    /// The value's buffer became a result's; only a `free` may follow.
    Consumed,
}

#[derive(Debug)]
struct StorageUse {
    holders: u32,
    bytes: u64,
}

/// Slots by index.
#[derive(Debug)]
pub struct SlotTable<V> {
    slots: Vec<TableSlot<V>>,
    storages: Vec<StorageUse>,
    storages_free: Vec<StorageId>,
    values: u64,
    bytes: u64,
    bytes_peak: u64,
}

impl<V> Default for SlotTable<V> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            storages: Vec::new(),
            storages_free: Vec::new(),
            values: 0,
            bytes: 0,
            bytes_peak: 0,
        }
    }
}

impl<V> SlotTable<V> {
    /// Number of live values, bytes of their memory, and the maximum of these bytes so far. Memory
    /// that several values share counts once and in full, as long as one of them lives: a view adds
    /// nothing and keeps the whole memory of its base. Memory that an engine uses besides values
    /// (temporaries, caches) is not counted.
    pub fn counters(&self) -> (u64, u64, u64) {
        (self.values, self.bytes, self.bytes_peak)
    }

    #[inline]
    pub fn held(&self, id: Id) -> Result<&Held<V>, NoValue> {
        match self.slots.get(index(id)) {
            Some(TableSlot::Value(held)) => Ok(held),
            other => Err(no_value(other, id)),
        }
    }

    pub fn held_mut(&mut self, id: Id) -> Result<&mut Held<V>, NoValue> {
        match self.slots.get_mut(index(id)) {
            Some(TableSlot::Value(held)) => Ok(held),
            other => Err(no_value(other.as_deref(), id)),
        }
    }

    /// Returns true if no other slot shares the memory of this value.
    pub fn is_alone(&self, held: &Held<V>) -> bool {
        self.storages[held.storage.0].holders == 1
    }

    /// Returns true if the slot is in use: it has a value, a failure, or the remains of one until
    /// it is freed.
    pub fn is_taken(&self, id: Id) -> bool {
        !matches!(self.slots.get(index(id)), None | Some(TableSlot::Empty))
    }

    /// Checks that results may go into these slots.
    pub fn check_vacant(&self, ids: &[Id]) -> Result<(), Fault> {
        for &id in ids {
            match self.slots.get(index(id)) {
                None | Some(TableSlot::Empty) if index(id) < self.limit() => {}
                None | Some(TableSlot::Empty) => {
                    let text = format!("slot {}: {} is the limit", index(id), self.limit());
                    return Err(Fault::protocol(text));
                }
                Some(
                    TableSlot::Value(_)
                    | TableSlot::Failed(_)
                    | TableSlot::Pending(_)
                    | TableSlot::Consumed,
                ) => {
                    return Err(Fault::protocol(format!("slot {} is in use", index(id))));
                }
            }
        }
        Ok(())
    }

    /// Stores a contiguous value with memory of its own in a vacant slot.
    pub fn put(&mut self, id: Id, value: V, meta: Meta) {
        self.put_in(id, value, meta, meta.bytes());
    }

    /// Stores a value with memory of its own, of so many bytes, in a vacant slot: contiguous,
    /// unless the bytes are too few.
    pub fn put_in(&mut self, id: Id, value: V, meta: Meta, bytes: u64) {
        let held = self.adopt(value, meta, bytes);
        self.fill(id, TableSlot::Value(held));
        self.values += 1;
    }

    /// Counts the memory of a value that is in no slot: [`release`](Self::release) gives it back.
    pub fn adopt(&mut self, value: V, meta: Meta, bytes: u64) -> Held<V> {
        let storage = self.storage_new(bytes);
        // Saturating: the shapes come from an engine, and these are counters only.
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes_peak = self.bytes_peak.max(self.bytes);
        let contiguous = bytes >= meta.bytes();
        Held { value, meta, storage, contiguous, ahead: 0 }
    }

    /// Stores a value whose memory is counted in a slot that is vacant or waits for it.
    pub fn put_held(&mut self, id: Id, held: Held<V>) {
        self.take(id, TableSlot::Value(held));
        self.values += 1;
    }

    /// Reserves a slot for the result of a job.
    pub fn pend(&mut self, id: Id, ticket: u64) {
        self.fill(id, TableSlot::Pending(ticket));
        self.values += 1;
    }

    /// The job that will fill this slot.
    pub fn pending(&self, id: Id) -> Option<u64> {
        match self.slots.get(index(id)) {
            Some(TableSlot::Pending(ticket)) => Some(*ticket),
            None
            | Some(
                TableSlot::Empty | TableSlot::Value(_) | TableSlot::Failed(_) | TableSlot::Consumed,
            ) => None,
        }
    }

    /// Takes a value out of its slot, which becomes consumed; its memory stays counted.
    pub fn withdraw(&mut self, id: Id) -> Result<Held<V>, NoValue> {
        let Some(slot) = self.slots.get_mut(index(id)) else { return Err(no_value::<V>(None, id)) };
        match std::mem::replace(slot, TableSlot::Consumed) {
            TableSlot::Value(held) => {
                self.values -= 1;
                Ok(held)
            }
            other @ (TableSlot::Empty
            | TableSlot::Failed(_)
            | TableSlot::Pending(_)
            | TableSlot::Consumed) => {
                let why = no_value(Some(&other), id);
                *slot = other;
                Err(why)
            }
        }
    }

    /// Adds a holder of this memory that is no slot: the memory is not written meanwhile, and stays
    /// counted until it is [`released`](Self::release).
    pub fn hold(&mut self, storage: StorageId) {
        self.storages[storage.0].holders += 1;
    }

    /// Stores a value that shares the memory `storage` in a vacant slot.
    pub fn put_alias(&mut self, id: Id, held: Held<V>) {
        self.hold(held.storage);
        self.fill(id, TableSlot::Value(held));
        self.values += 1;
    }

    pub fn poison(&mut self, id: Id, cause: &Rc<Cause>) {
        if index(id) < self.limit() {
            self.take(id, TableSlot::Failed(Rc::clone(cause)));
        }
    }

    /// The slots whose value is lost with another worker, ascending.
    pub fn losses(&self) -> Vec<u32> {
        let is_lost = |slot: &TableSlot<V>| match slot {
            TableSlot::Failed(cause) => cause.fault.class == FailureClass::WorkerLost,
            TableSlot::Empty
            | TableSlot::Value(_)
            | TableSlot::Pending(_)
            | TableSlot::Consumed => false,
        };
        let numbered = (0..).zip(&self.slots);
        numbered.filter(|(_, slot)| is_lost(slot)).map(|(number, _)| number).collect()
    }

    /// Marks every value as failed.
    pub fn poison_all(&mut self, cause: &Rc<Cause>) {
        for place in 0..self.slots.len() {
            if let TableSlot::Value(held) = &self.slots[place] {
                let storage = held.storage;
                self.values -= 1;
                self.release(storage);
                self.slots[place] = TableSlot::Failed(Rc::clone(cause));
            }
        }
    }

    /// Drops a value whose buffer has become a result's.
    pub fn consume(&mut self, id: Id) {
        self.take(id, TableSlot::Consumed);
    }

    /// Stores a value that took over the buffer of the one in `from` in a vacant slot.
    ///
    /// # Errors
    /// `from` holds no value: `to` stays vacant, and the caller fails the instruction, because the
    /// value is lost.
    pub fn succeed(&mut self, from: Id, to: Id, value: V) -> Result<(), NoValue> {
        let Some(slot) = self.slots.get_mut(index(from)) else {
            return Err(no_value::<V>(None, from));
        };
        match std::mem::replace(slot, TableSlot::Consumed) {
            TableSlot::Value(held) => {
                self.fill(to, TableSlot::Value(Held { value, ..held }));
                Ok(())
            }
            other @ (TableSlot::Empty
            | TableSlot::Failed(_)
            | TableSlot::Pending(_)
            | TableSlot::Consumed) => {
                let why = no_value(Some(&other), from);
                *slot = other;
                Err(why)
            }
        }
    }

    /// Empties a slot; returns false if it was empty.
    #[must_use]
    pub fn free(&mut self, id: Id) -> bool {
        match self.slots.get(index(id)) {
            None | Some(TableSlot::Empty) => false,
            Some(
                TableSlot::Value(_)
                | TableSlot::Failed(_)
                | TableSlot::Pending(_)
                | TableSlot::Consumed,
            ) => {
                self.take(id, TableSlot::Empty);
                true
            }
        }
    }

    fn limit(&self) -> usize {
        self.slots.len().saturating_add(SLOTS_AHEAD_MAX).min(SLOTS_MAX)
    }

    fn fill(&mut self, id: Id, new: TableSlot<V>) {
        let place = index(id);
        if place >= self.slots.len() && place < self.limit() {
            self.slots.resize_with(place + 1, || TableSlot::Empty);
        }
        self.slots[place] = new;
    }

    /// Replaces the content of a slot, and releases its memory.
    fn take(&mut self, id: Id, new: TableSlot<V>) {
        match self.slots.get(index(id)) {
            Some(TableSlot::Value(held)) => {
                let storage = held.storage;
                self.values -= 1;
                self.release(storage);
            }
            Some(TableSlot::Pending(_)) => self.values -= 1,
            None | Some(TableSlot::Empty | TableSlot::Failed(_) | TableSlot::Consumed) => {}
        }
        self.fill(id, new);
    }

    fn storage_new(&mut self, bytes: u64) -> StorageId {
        let new = StorageUse { holders: 1, bytes };
        if let Some(storage) = self.storages_free.pop() {
            self.storages[storage.0] = new;
            return storage;
        }
        self.storages.push(new);
        StorageId(self.storages.len() - 1)
    }

    /// Removes one holder of this memory.
    pub fn release(&mut self, storage: StorageId) {
        let entry = &mut self.storages[storage.0];
        entry.holders -= 1;
        if entry.holders == 0 {
            self.bytes = self.bytes.saturating_sub(entry.bytes);
            self.storages_free.push(storage);
        }
    }
}

#[cold]
fn no_value<V>(slot: Option<&TableSlot<V>>, id: Id) -> NoValue {
    let place = index(id);
    match slot {
        Some(TableSlot::Failed(cause)) => NoValue::Failed(Rc::clone(cause)),
        Some(TableSlot::Consumed) => {
            NoValue::Fault(Fault::protocol(format!("slot {place} was consumed")))
        }
        Some(TableSlot::Pending(_)) => {
            NoValue::Fault(Fault::protocol(format!("slot {place} is still being received")))
        }
        None | Some(TableSlot::Empty | TableSlot::Value(_)) => {
            NoValue::Fault(Fault::protocol(format!("slot {place} holds no value")))
        }
    }
}

/// The index of a slot: an instruction on the wire has no other ids.
fn index(id: Id) -> usize {
    match id.as_slot() {
        Some(slot) => to_usize(slot),
        None => panic!("{id:?} names no slot"),
    }
}

impl From<Fault> for NoValue {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::{NoValue, SlotTable};
    use crate::failure::{Cause, Fault};
    use gt_protocol::message::FailureClass;
    use gt_protocol::{Dims, Dtype, Id, Meta};
    use std::rc::Rc;

    fn meta() -> Meta {
        Meta::new(Dtype::F32, Dims::new(&[2]).unwrap())
    }

    #[test]
    fn a_value_takes_over_the_memory_of_the_one_before_it() {
        let mut table = SlotTable::default();
        table.put(Id::slot(0), "before", meta());
        table.succeed(Id::slot(0), Id::slot(1), "after").unwrap();
        assert_eq!(table.held(Id::slot(1)).unwrap().value, "after");
        assert!(matches!(table.held(Id::slot(0)), Err(NoValue::Fault(_))));
        assert_eq!(table.counters(), (1, 8, 8));
    }

    #[test]
    fn a_value_without_one_before_it_is_an_error_and_not_lost_in_silence() {
        let fault = Fault::new(FailureClass::Internal, "the first cause");
        let cause = Rc::new(Cause { session: 1, tag: 2, op: None, fault });
        let mut table = SlotTable::default();
        table.put(Id::slot(1), "freed", meta());
        assert!(table.free(Id::slot(1)));
        table.put(Id::slot(2), "consumed", meta());
        table.consume(Id::slot(2));
        table.pend(Id::slot(3), 7);
        table.poison(Id::slot(4), &cause);
        for (from, reason) in [
            (1, "slot 1 holds no value"),
            (2, "slot 2 was consumed"),
            (3, "slot 3 is still being received"),
            (4, "the first cause"),
            (9, "slot 9 holds no value"),
        ] {
            let text = match table.succeed(Id::slot(from), Id::slot(8), "lost") {
                Ok(()) => panic!("slot {from} has a value"),
                Err(NoValue::Fault(fault)) => fault.text,
                Err(NoValue::Failed(cause)) => cause.fault.text.clone(),
            };
            assert_eq!(text, reason);
            assert!(!table.is_taken(Id::slot(8)), "after slot {from}");
        }
    }
}
