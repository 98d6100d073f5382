//! The slots of a worker, and which of them share memory.

use crate::failure::{Cause, Fault};
use gt_protocol::integer::to_usize;
use gt_protocol::{Id, Meta};
use std::rc::Rc;

/// Slots that a dispatcher may use: far more than live values. At about 100 bytes each they are 400 MB.
const SLOTS_MAX: usize = 1 << 22;
/// How far above all earlier slots a new one may be. A dispatcher gives them out densely, so this only limits what a
/// wrong one can make us allocate at once.
const SLOTS_AHEAD_MAX: usize = 1 << 16;

/// Which memory a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageId(usize);

/// A value in a slot.
#[derive(Debug)]
pub struct Held<V> {
    pub value: V,
    pub meta: Meta,
    /// Values with the same one share memory.
    pub storage: StorageId,
    /// Its elements are row-major with the strides of a fresh result, in memory that begins with them. Views of
    /// other forms do not. A result may only take memory that would not show afterwards that it was taken.
    pub contiguous: bool,
    /// Of the instructions that alone read this value, then each other's results, how many have been done to it already.
    pub ahead: u8,
}

/// Why a slot has no value.
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
    /// The job with this ticket will fill it.
    Pending(u64),
    /// Its buffer became a result's; only a `free` may follow.
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
    /// Live values, the bytes of their memory, and the most bytes there have been. Memory that several values share
    /// counts once and in full, as long as one of them lives: a view counts nothing of its own and keeps all of what it
    /// is a view of. What an engine holds besides values (temporaries, caches) does not count.
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

    /// Whether no other slot shares the memory of this value.
    pub fn is_alone(&self, held: &Held<V>) -> bool {
        self.storages[held.storage.0].holders == 1
    }

    /// Whether there is something in the slot: a value, a failure, or what one of them leaves until it is freed.
    pub fn is_taken(&self, id: Id) -> bool {
        !matches!(self.slots.get(index(id)), None | Some(TableSlot::Empty))
    }

    /// Whether results may go into these slots.
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

    /// Puts a contiguous value with memory of its own into a vacant slot.
    pub fn put(&mut self, id: Id, value: V, meta: Meta) {
        self.put_in(id, value, meta, meta.bytes());
    }

    /// Puts a value into a vacant slot that is alone in so many bytes of memory: contiguous, unless those are too few.
    pub fn put_in(&mut self, id: Id, value: V, meta: Meta, bytes: u64) {
        let held = self.adopt(value, meta, bytes);
        self.fill(id, TableSlot::Value(held));
        self.values += 1;
    }

    /// Counts the memory of a value that is in no slot: [`release`](Self::release) gives it back.
    pub fn adopt(&mut self, value: V, meta: Meta, bytes: u64) -> Held<V> {
        let storage = self.storage_new(bytes);
        // Saturating: the shapes are as an engine tells them, and these are counters only.
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes_peak = self.bytes_peak.max(self.bytes);
        let contiguous = bytes >= meta.bytes();
        Held { value, meta, storage, contiguous, ahead: 0 }
    }

    /// Puts a value whose memory is counted into a slot that is vacant or waits for it.
    pub fn put_held(&mut self, id: Id, held: Held<V>) {
        self.take(id, TableSlot::Value(held));
        self.values += 1;
    }

    /// Keeps a slot for the result of a job.
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

    /// Takes a value out of its slot, which counts as consumed; its memory stays counted.
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

    /// One more that shares this memory, which is none of the slots: nothing is written to it meanwhile, and it stays
    /// counted until it is [`released`](Self::release).
    pub fn hold(&mut self, storage: StorageId) {
        self.storages[storage.0].holders += 1;
    }

    /// Puts a value that shares the memory `storage` into a vacant slot.
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

    /// Every value fails.
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

    /// Puts a value that took over the buffer of the one in `from` into a vacant slot; false if there is none.
    #[must_use]
    pub fn succeed(&mut self, from: Id, to: Id, value: V) -> bool {
        let Some(slot) = self.slots.get_mut(index(from)) else { return false };
        match std::mem::replace(slot, TableSlot::Consumed) {
            TableSlot::Value(held) => {
                self.fill(to, TableSlot::Value(Held { value, ..held }));
                true
            }
            other @ (TableSlot::Empty
            | TableSlot::Failed(_)
            | TableSlot::Pending(_)
            | TableSlot::Consumed) => {
                *slot = other;
                false
            }
        }
    }

    /// Empties a slot; false where there was nothing.
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

    /// Replaces what a slot holds, and gives its share of memory back.
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

    /// One that shared this memory is gone.
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

/// The place of a slot: an instruction of the wire names nothing else.
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
