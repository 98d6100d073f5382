//! The value that a client's slot refers to.

use super::failure::ValueFailure;
use super::provenance::{LayoutCause, Provenance};
use super::spec::ValueSpec;
use crate::event::low_half;
use gt_protocol::placement::Layout;
use gt_protocol::{Attr, Meta, Op};
use smallvec::SmallVec;
use std::sync::Arc;

/// Slots of a value: one on each member of its layout's mesh, in the mesh's order.
pub(crate) type Slots = SmallVec<[u32; 2]>;

/// The slot of the member at index `place`.
pub(crate) fn slot_at(slots: &[u32], place: usize) -> u32 {
    let Some(&slot) = slots.get(place) else { unreachable!("member {place} of {slots:?}") };
    slot
}

/// A value's shards: its layout, and the slot on each member.
#[derive(Clone, Debug)]
pub(crate) struct Shards {
    pub layout: Layout,
    pub slots: Slots,
}

impl Shards {
    pub fn new(layout: Layout, slots: Slots) -> Self {
        assert_eq!(layout.mesh().len(), slots.len(), "slots {slots:?} of {layout}");
        Self { layout, slots }
    }

    /// Each member with its slot.
    pub fn worker_slots(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.layout.mesh().members().iter().copied().zip(self.slots.iter().copied())
    }

    /// The slot on `worker`, if it is a member.
    pub fn on(&self, worker: u32) -> Option<u32> {
        self.slots.get(self.layout.mesh().place(worker)?).copied()
    }
}

/// The creation of a value that waits for its first use, which may determine its layout. No worker
/// holds any of it.
#[derive(Clone, Debug)]
pub(crate) struct Deferred {
    pub op: Op,
    pub attrs: SmallVec<[Attr; 2]>,
}

/// State of a value: deferred, or held by workers once they have run the instruction.
#[derive(Debug)]
pub(crate) enum ValueState {
    Deferred(Box<Deferred>),
    /// The slot on each member of its layout's mesh.
    Ready(Slots),
}

/// Action at the next use of a value.
#[derive(Debug, Default, PartialEq)]
pub(crate) enum PendingLayout {
    #[default]
    Nothing,
    /// The value takes this layout: bytes that a client is still sending arrive in another one.
    Target(Layout),
    /// The value takes this layout: the client asked for its values to go to the workers that there
    /// are.
    Rebalance(Layout),
    /// The needed layout is recorded, for uploads from the same line.
    Record,
}

/// Storage of a value's slots.
#[derive(Debug, Default)]
enum SlotStorage {
    /// One slot, in the value itself.
    #[default]
    Inline,
    Spread(Slots),
    Deferred(Box<Deferred>),
}

/// Part of a value that several sessions hold. A token lives as long as the values that have it.
#[derive(Clone, Debug)]
pub(crate) enum Borrowing {
    /// The owner's value.
    Owner(Arc<()>),
    /// A borrower's value: its bytes count for the owner.
    Borrower(Arc<()>),
}

/// Fields that few values need.
#[derive(Debug, Default)]
struct ValueExtras {
    storage: SlotStorage,
    /// Copies of the value on other members or in another layout, kept for the next reader there.
    copies: Vec<Shards>,
    pending: PendingLayout,
    provenance: Option<Arc<Provenance>>,
    cause: LayoutCause,
    borrowing: Option<Borrowing>,
}

/// Tells if the fast path may take a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanPath {
    /// One worker holds all of it, there are no copies, and nothing is pending.
    Fast,
    General,
}

/// A value that exists, or will once the workers have run its instruction. A session has up to 16
/// million of them, and each instruction enters one: properties common to many are shared, and rare
/// fields are boxed.
#[derive(Debug)]
pub(crate) struct Value {
    spec: Arc<ValueSpec>,
    /// Its number in two parts of together 48 bits: a million instructions a second fill them in
    /// nine years.
    number_low: u32,
    number_high: u16,
    pub output: u8,
    path: PlanPath,
    /// Call site of the instruction that defined it: it may be read long after the session has
    /// dropped the number's call site.
    pub site: u32,
    /// The slot on its only worker, if there is just one.
    slot: u32,
    cold: Option<Box<ValueExtras>>,
}

impl Value {
    #[inline]
    pub fn new(spec: Arc<ValueSpec>, number: u64, output: u8, state: ValueState) -> Self {
        let mut value = Self::on_one(spec, number, output, u32::MAX);
        value.set_state(state);
        value
    }

    /// A value that is whole on its layout's only worker, in this slot.
    #[inline]
    pub fn on_one(spec: Arc<ValueSpec>, number: u64, output: u8, slot: u32) -> Self {
        let number_high = u16::try_from(number >> 32).expect("a session's numbers have 48 bits");
        let number_low = low_half(number);
        let path = PlanPath::Fast;
        Self { spec, number_low, number_high, output, path, site: 0, slot, cold: None }
    }

    fn set_state(&mut self, state: ValueState) {
        let storage = match state {
            ValueState::Deferred(deferred) => SlotStorage::Deferred(deferred),
            ValueState::Ready(slots) => {
                let layout = &self.spec.layout;
                assert_eq!(layout.mesh().len(), slots.len(), "slots {slots:?} of {layout}");
                match *slots {
                    [only] => {
                        self.slot = only;
                        SlotStorage::Inline
                    }
                    _ => SlotStorage::Spread(slots),
                }
            }
        };
        if self.cold.is_some() || !matches!(storage, SlotStorage::Inline) {
            self.cold_mut().storage = storage;
        }
        self.update_path();
    }

    fn update_path(&mut self) {
        let is_fast = self.cold().is_none_or(|cold| {
            matches!(cold.storage, SlotStorage::Inline) && cold.pending == PendingLayout::Nothing
        });
        self.path = if is_fast { PlanPath::Fast } else { PlanPath::General };
    }

    pub fn spec(&self) -> &Arc<ValueSpec> {
        &self.spec
    }

    #[inline]
    pub fn meta(&self) -> &Meta {
        &self.spec.meta
    }

    #[inline]
    pub fn number(&self) -> u64 {
        u64::from(self.number_high) << 32 | u64::from(self.number_low)
    }

    /// The only worker that holds it, if it is whole there and nothing is pending: the condition of
    /// the fast path.
    #[inline]
    pub fn plain(&self) -> Option<u32> {
        self.spec.single.filter(|_| self.path == PlanPath::Fast)
    }

    /// Returns true if its next use leaves it unchanged: it is not deferred, and nothing is
    /// pending.
    #[inline]
    pub fn is_materialized(&self) -> bool {
        self.path == PlanPath::Fast
            || self.cold().is_some_and(|cold| {
                cold.pending == PendingLayout::Nothing
                    && !matches!(cold.storage, SlotStorage::Deferred(_))
            })
    }

    /// The slot of a plain value on its worker.
    #[inline]
    pub fn plain_slot(&self) -> u32 {
        assert_eq!(self.path, PlanPath::Fast, "%{} is not plain", self.number());
        self.slot
    }

    /// The worker and slot of a value without any extras: the common case.
    #[inline]
    pub fn only(&self) -> Option<(u32, u32)> {
        Some((self.spec.single.filter(|_| self.cold.is_none())?, self.slot))
    }

    pub fn deferred(&self) -> Option<&Deferred> {
        match &self.cold()?.storage {
            SlotStorage::Deferred(deferred) => Some(deferred),
            SlotStorage::Inline | SlotStorage::Spread(_) => None,
        }
    }

    /// Its layout, or the one that it gets if its first use requests no other.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.spec.layout
    }

    /// The layout that it has after its next use, if that requests none.
    pub fn target(&self) -> &Layout {
        match self.pending() {
            PendingLayout::Target(target) | PendingLayout::Rebalance(target) => target,
            PendingLayout::Nothing | PendingLayout::Record => self.layout(),
        }
    }

    /// The slot on each member; empty if it is deferred.
    #[inline]
    fn ready_slots(&self) -> Option<&[u32]> {
        match self.cold().map_or(&SlotStorage::Inline, |cold| &cold.storage) {
            SlotStorage::Inline => Some(std::slice::from_ref(&self.slot)),
            SlotStorage::Spread(slots) => Some(slots),
            SlotStorage::Deferred(_) => None,
        }
    }

    /// The slot on each member of a value that is ready.
    #[inline]
    pub fn slots(&self) -> &[u32] {
        let Some(slots) = self.ready_slots() else {
            unreachable!("%{} is deferred: {:?}", self.number(), self.deferred())
        };
        slots
    }

    /// The shards of a value, if it is ready.
    pub fn ready_shards(&self) -> Option<Shards> {
        let slots = self.ready_slots()?;
        Some(Shards { layout: self.layout().clone(), slots: slots.into() })
    }

    /// The shards of a value that is ready.
    pub fn shards(&self) -> Shards {
        Shards { layout: self.layout().clone(), slots: self.slots().into() }
    }

    /// Replaces the shards; returns the old ones.
    pub fn replace(&mut self, shards: Shards) -> Option<Shards> {
        let old = self.ready_shards();
        if self.spec.layout != shards.layout {
            self.spec = Arc::new(ValueSpec::new(self.spec.meta, shards.layout));
        }
        self.set_state(ValueState::Ready(shards.slots));
        old
    }

    fn cold(&self) -> Option<&ValueExtras> {
        self.cold.as_deref()
    }

    fn cold_mut(&mut self) -> &mut ValueExtras {
        self.cold.get_or_insert_default()
    }

    pub fn pending(&self) -> &PendingLayout {
        self.cold().map_or(&PendingLayout::Nothing, |cold| &cold.pending)
    }

    pub fn set_pending(&mut self, pending: PendingLayout) {
        if self.cold.is_some() || pending != PendingLayout::Nothing {
            self.cold_mut().pending = pending;
            self.update_path();
        }
    }

    /// Takes the pending action, which the caller performs.
    pub fn take_pending(&mut self) -> PendingLayout {
        let pending = self.cold.as_mut().map(|cold| std::mem::take(&mut cold.pending));
        self.update_path();
        pending.unwrap_or_default()
    }

    pub fn copies(&self) -> &[Shards] {
        self.cold().map_or(&[], |cold| &cold.copies)
    }

    pub fn add_copy(&mut self, copy: Shards) {
        self.cold_mut().copies.push(copy);
    }

    /// Takes all copies out of the value.
    pub fn take_copies(&mut self) -> Vec<Shards> {
        self.cold.as_mut().map(|cold| std::mem::take(&mut cold.copies)).unwrap_or_default()
    }

    /// Provenance of a value that a plan over several workers computed; `None` if it was computed
    /// where its operands are.
    pub fn provenance(&self) -> Option<&Arc<Provenance>> {
        self.cold()?.provenance.as_ref()
    }

    pub fn set_provenance(&mut self, provenance: Arc<Provenance>) {
        self.cold_mut().provenance = Some(provenance);
    }

    /// The reason why its layout is not its original one.
    pub fn cause(&self) -> LayoutCause {
        self.cold().map_or(LayoutCause::AsMade, |cold| cold.cause)
    }

    pub fn set_cause(&mut self, cause: LayoutCause) {
        self.cold_mut().cause = cause;
    }

    pub fn borrowing(&self) -> Option<&Borrowing> {
        self.cold()?.borrowing.as_ref()
    }

    pub fn set_borrowing(&mut self, borrowing: Borrowing) {
        self.cold_mut().borrowing = Some(borrowing);
    }

    /// Bytes that count for its session.
    #[inline]
    pub fn counted_bytes(&self) -> u64 {
        match self.borrowing() {
            Some(Borrowing::Borrower(_)) => 0,
            Some(Borrowing::Owner(_)) | None => self.spec.bytes,
        }
    }

    /// Every worker that holds a shard, with its slot.
    pub fn worker_slots(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let own = self.layout().mesh().members().iter().copied();
        let own = own.zip(self.ready_slots().unwrap_or_default().iter().copied());
        own.chain(self.copies().iter().flat_map(Shards::worker_slots))
    }
}

/// The state of a client's slot.
#[derive(Debug, Default)]
pub(crate) enum Handle {
    #[default]
    Free,
    Live(Value),
    Failed(ValueFailure),
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_protocol::placement::Mesh;
    use gt_protocol::{Dims, Dtype};
    use smallvec::smallvec;

    #[test]
    fn a_handle_is_small() {
        assert_eq!(size_of::<Handle>(), 32);
    }

    #[test]
    fn only_what_is_whole_on_one_worker_with_nothing_pending_is_plain() {
        let meta = Meta::new(Dtype::F32, Dims::EMPTY);
        let on = |worker| Shards::new(Layout::on(worker), smallvec![7]);
        let spec = |worker| Arc::new(ValueSpec::new(meta, Layout::on(worker)));
        let mut value = Value::new(spec(3), 1 << 40, 0, ValueState::Ready(smallvec![5]));
        assert_eq!((value.plain(), value.plain_slot(), value.number()), (Some(3), 5, 1 << 40));
        value.set_pending(PendingLayout::Record);
        assert_eq!(value.plain(), None);
        assert_eq!(value.take_pending(), PendingLayout::Record);
        assert_eq!(value.plain(), Some(3));
        value.add_copy(on(5));
        value.replace(on(4));
        assert_eq!((value.plain(), value.worker_slots().count()), (Some(4), 2));
        let mesh = Mesh::line(&[0, 1]);
        value.replace(Shards::new(Layout::replicated(mesh), smallvec![8, 9]));
        assert_eq!((value.plain(), value.slots()), (None, &[8, 9][..]));
        value.replace(on(4));
        assert_eq!((value.plain(), value.slots()), (Some(4), &[7][..]));
        let deferred = Deferred { op: Op::Full, attrs: SmallVec::new() };
        let value = Value::new(spec(1), 0, 0, ValueState::Deferred(Box::new(deferred)));
        assert_eq!((value.plain(), value.worker_slots().count()), (None, 0));
    }
}
