//! What a client's slot stands for.

use super::failure::ValueFailure;
use super::provenance::{LayoutCause, Provenance};
use gt_protocol::placement::Layout;
use gt_protocol::{Attr, Meta, Op};
use smallvec::SmallVec;
use std::sync::Arc;

/// Slots of a value: one on each member of its layout's mesh, in the mesh's order.
pub(crate) type Slots = SmallVec<[u32; 2]>;

/// The slot of the member at `place`.
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
    pub fn held(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.layout.mesh().members().iter().copied().zip(self.slots.iter().copied())
    }

    /// The slot on `worker`, if it is a member.
    pub fn on(&self, worker: u32) -> Option<u32> {
        self.slots.get(self.layout.mesh().place(worker)?).copied()
    }
}

/// The creation of a value that waits for its first use. Nobody holds anything of it.
#[derive(Clone, Debug)]
pub(crate) struct Deferred {
    pub op: Op,
    pub attrs: SmallVec<[Attr; 2]>,
    /// The layout that it gets if its first use asks for no other.
    pub layout: Layout,
}

/// Whether workers hold a value, or will once they get there.
#[derive(Debug)]
pub(crate) enum ValueState {
    Deferred(Box<Deferred>),
    Ready(Shards),
}

/// What happens at the next use of a value.
#[derive(Debug, Default, PartialEq)]
pub(crate) enum PendingLayout {
    #[default]
    Nothing,
    /// It takes this layout: what a client is still sending arrives as it can.
    Target(Layout),
    /// The layout that is needed is recorded, for uploads from the same line.
    Record,
}

/// What few values have.
#[derive(Debug, Default)]
struct Cold {
    /// The same value on other members or in another layout, kept for the next reader there.
    copies: Vec<Shards>,
    pending: PendingLayout,
    provenance: Option<Arc<Provenance>>,
    cause: LayoutCause,
}

/// A value that exists, or will once the workers get there.
#[derive(Debug)]
pub(crate) struct Value {
    pub meta: Meta,
    pub number: u64,
    /// Call site of what made it, kept with it: it may be read long after the session has forgotten its number's.
    pub site: u32,
    pub output: u8,
    /// The worker that holds all of it, where nobody else holds any and nothing is pending: the fast path asks this.
    plain: Option<u32>,
    state: ValueState,
    cold: Option<Box<Cold>>,
}

impl Value {
    #[inline]
    pub fn new(meta: Meta, number: u64, output: u8, state: ValueState) -> Self {
        let mut value = Self { meta, number, site: 0, output, plain: None, state, cold: None };
        value.update_plain();
        value
    }

    #[inline]
    fn update_plain(&mut self) {
        self.plain = match (&self.state, &self.cold) {
            (ValueState::Ready(shards), None) => shards.layout.single(),
            (ValueState::Ready(shards), Some(cold)) if cold.pending == PendingLayout::Nothing => {
                shards.layout.single()
            }
            (ValueState::Ready(_) | ValueState::Deferred(_), _) => None,
        };
    }

    /// The only worker that holds it, where it is whole there and nothing is pending.
    #[inline]
    pub fn plain(&self) -> Option<u32> {
        self.plain
    }

    pub fn state(&self) -> &ValueState {
        &self.state
    }

    pub fn deferred(&self) -> Option<&Deferred> {
        match &self.state {
            ValueState::Deferred(deferred) => Some(deferred),
            ValueState::Ready(_) => None,
        }
    }

    /// Its layout, or the one that it gets at its first use.
    pub fn layout(&self) -> &Layout {
        match &self.state {
            ValueState::Deferred(deferred) => &deferred.layout,
            ValueState::Ready(shards) => &shards.layout,
        }
    }

    /// The layout that it has after its next use, if that asks for none.
    pub fn target(&self) -> &Layout {
        match self.pending() {
            PendingLayout::Target(target) => target,
            PendingLayout::Nothing | PendingLayout::Record => self.layout(),
        }
    }

    /// The shards of a value that is ready.
    #[inline]
    pub fn shards(&self) -> &Shards {
        match &self.state {
            ValueState::Ready(shards) => shards,
            ValueState::Deferred(deferred) => {
                unreachable!("%{} is deferred: {:?}", self.number, deferred.op)
            }
        }
    }

    /// Gives it other shards; those that it had.
    pub fn replace(&mut self, shards: Shards) -> Option<Shards> {
        let old = std::mem::replace(&mut self.state, ValueState::Ready(shards));
        self.update_plain();
        match old {
            ValueState::Ready(shards) => Some(shards),
            ValueState::Deferred(_) => None,
        }
    }

    fn cold(&self) -> Option<&Cold> {
        self.cold.as_deref()
    }

    fn cold_mut(&mut self) -> &mut Cold {
        self.cold.get_or_insert_default()
    }

    pub fn pending(&self) -> &PendingLayout {
        self.cold().map_or(&PendingLayout::Nothing, |cold| &cold.pending)
    }

    pub fn set_pending(&mut self, pending: PendingLayout) {
        if self.cold.is_some() || pending != PendingLayout::Nothing {
            self.cold_mut().pending = pending;
            self.update_plain();
        }
    }

    /// What was pending, which is done from now on.
    pub fn take_pending(&mut self) -> PendingLayout {
        let pending = self.cold.as_mut().map(|cold| std::mem::take(&mut cold.pending));
        self.update_plain();
        pending.unwrap_or_default()
    }

    pub fn copies(&self) -> &[Shards] {
        self.cold().map_or(&[], |cold| &cold.copies)
    }

    pub fn add_copy(&mut self, copy: Shards) {
        self.cold_mut().copies.push(copy);
    }

    /// All copies, which are its copies no more.
    pub fn take_copies(&mut self) -> Vec<Shards> {
        self.cold.as_mut().map(|cold| std::mem::take(&mut cold.copies)).unwrap_or_default()
    }

    /// How a plan over several workers made it; nothing for what was made where its operands are.
    pub fn provenance(&self) -> Option<&Arc<Provenance>> {
        self.cold()?.provenance.as_ref()
    }

    pub fn set_provenance(&mut self, provenance: Arc<Provenance>) {
        self.cold_mut().provenance = Some(provenance);
    }

    /// Why it has another layout than it was made with.
    pub fn cause(&self) -> LayoutCause {
        self.cold().map_or(LayoutCause::AsMade, |cold| cold.cause)
    }

    pub fn set_cause(&mut self, cause: LayoutCause) {
        self.cold_mut().cause = cause;
    }

    /// Every worker that holds a shard, with its slot.
    pub fn held(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let own = match &self.state {
            ValueState::Ready(shards) => Some(shards),
            ValueState::Deferred(_) => None,
        };
        own.into_iter().chain(self.copies()).flat_map(Shards::held)
    }
}

/// A client's slot.
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
    use gt_protocol::{Dims, Dtype};
    use smallvec::smallvec;

    /// A session has up to 16 million of them, and each instruction enters one.
    #[test]
    fn a_value_is_small() {
        assert!(size_of::<Value>() <= 152, "{} bytes", size_of::<Value>());
    }

    #[test]
    fn only_what_is_whole_on_one_worker_with_nothing_pending_is_plain() {
        let on = |worker| Shards::new(Layout::on(worker), smallvec![7]);
        let meta = Meta::new(Dtype::F32, Dims::EMPTY);
        let mut value = Value::new(meta, 0, 0, ValueState::Ready(on(3)));
        assert_eq!(value.plain(), Some(3));
        value.set_pending(PendingLayout::Record);
        assert_eq!(value.plain(), None);
        assert_eq!(value.take_pending(), PendingLayout::Record);
        assert_eq!(value.plain(), Some(3));
        value.add_copy(on(5));
        value.replace(on(4));
        assert_eq!((value.plain(), value.held().count()), (Some(4), 2));
        let deferred = Deferred { op: Op::Full, attrs: SmallVec::new(), layout: Layout::on(1) };
        let value = Value::new(meta, 0, 0, ValueState::Deferred(Box::new(deferred)));
        assert_eq!((value.plain(), value.held().count()), (None, 0));
    }
}
