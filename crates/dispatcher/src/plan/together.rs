//! Reductions that are made together: those that one instruction needs, and those of gradients that are folded as they
//! come, which wait for each other until there are enough of them or one is needed.
//!
//! Nothing but the instructions so far decides, and every element is folded as it would be alone: no number depends on it.

use super::choose::Choice;
use super::run::{Given, Run};
use super::spread::needs_one_layout;
use crate::Dispatcher;
use crate::event::{SessionId, Sink};
use crate::handle::Value;
use crate::motion::{Mover, Reduction};
use gt_protocol::placement::Layout;
use gt_protocol::{Attr, Id, Instruction};
use smallvec::SmallVec;

/// Values that wait for each other.
#[derive(Debug)]
struct Pile {
    reduction: Reduction,
    /// The session's slots, in the order in which they came.
    slots: Vec<u32>,
    bytes: u64,
}

/// A session's values that will be folded, and are not yet.
#[derive(Debug, Default)]
pub(crate) struct Piles(Vec<Pile>);

impl Piles {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The slot stands for nothing any more.
    pub fn forget(&mut self, slot: u32) {
        for pile in &mut self.0 {
            pile.slots.retain(|other| *other != slot);
        }
        self.0.retain(|pile| !pile.slots.is_empty());
    }

    /// The pile that holds a slot.
    fn take_with(&mut self, slot: u32) -> Option<Pile> {
        let place = self.0.iter().position(|pile| pile.slots.contains(&slot))?;
        Some(self.0.remove(place))
    }

    /// A value comes to its like; the pile, if it is high enough now.
    fn add(&mut self, reduction: Reduction, slot: u32, bytes: u64, limit: u64) -> Option<Pile> {
        let found = self.0.iter().position(|pile| pile.reduction == reduction);
        let place = found.unwrap_or_else(|| {
            self.0.push(Pile { reduction, slots: Vec::new(), bytes: 0 });
            self.0.len() - 1
        });
        let pile = self.0.get_mut(place)?;
        pile.slots.push(slot);
        pile.bytes = pile.bytes.saturating_add(bytes);
        (pile.bytes >= limit).then(|| self.0.remove(place))
    }
}

impl Dispatcher {
    /// Values with fewer bytes are folded together with others, up to so many.
    pub(crate) fn bundle_bytes(&self) -> u64 {
        self.prices.bundle
    }

    /// Folds whatever is partial soon after it is made, with others. For tests, whose programs repeat nothing.
    pub fn set_folds_soon(&mut self, folds_soon: bool) {
        self.folds_soon = folds_soon;
    }

    /// The reduction that is all there is to do between two layouts, unless the members of its lines have a way of their
    /// own to reduce a value (see [`Self::way`]): those are not for several values.
    pub(super) fn reduction(&self, from: &Layout, to: &Layout) -> Option<Reduction> {
        Reduction::between(from, to)
            .filter(|reduction| reduction.lines().all(|workers| self.way(&workers) == Attr::Absent))
    }

    /// A value that has just been made will be folded: at once if it is large, else with others.
    pub(super) fn fold_soon(
        &mut self,
        session: SessionId,
        slot: u32,
        need: &Layout,
        sink: &mut dyn Sink,
    ) {
        let limit = self.bundle_bytes();
        let Some(value) = self.value_mut(session, slot) else { return };
        let (meta, shards) = (value.meta, value.shards.clone());
        let reduction = self.reduction(&shards.layout, need);
        let Some(reduction) =
            reduction.filter(|reduction| reduction.bytes(meta, &shards.layout) < limit)
        else {
            Mover::new(self, session, sink).settle(meta, &shards, slot, need);
            return;
        };
        let bytes = reduction.bytes(meta, &shards.layout);
        let Some(state) = self.sessions.get_mut(&session) else { return };
        if let Some(value) = state.value_mut(slot) {
            value.waits = true;
        }
        if let Some(pile) = state.piles.add(reduction, slot, bytes, limit) {
            self.fold_pile(session, &pile, sink);
        }
    }

    /// Folds those of an instruction's operands that have waited, and what has waited with them.
    pub(crate) fn fold_awaited(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) {
        if self.sessions.get(&session).is_none_or(|state| state.piles.is_empty()) {
            return;
        }
        for slot in instruction.values().filter_map(Id::as_slot) {
            let Some(state) = self.sessions.get_mut(&session) else { return };
            if state.value(slot).is_some_and(|value| value.waits)
                && let Some(pile) = state.piles.take_with(slot)
            {
                self.fold_pile(session, &pile, sink);
            }
        }
    }

    /// Folds all that has waited.
    pub(crate) fn fold_all_awaited(&mut self, session: SessionId, sink: &mut dyn Sink) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        for pile in std::mem::take(&mut state.piles).0 {
            self.fold_pile(session, &pile, sink);
        }
    }

    fn fold_pile(&mut self, session: SessionId, pile: &Pile, sink: &mut dyn Sink) {
        let mut first = None;
        let mut slots: Vec<u32> = Vec::new();
        for &slot in &pile.slots {
            // What has failed since waits no more.
            if let Some(value) = self.value_mut(session, slot).filter(|value| value.waits) {
                value.waits = false;
                first.get_or_insert(value.number);
                slots.push(slot);
            }
        }
        let Some(first) = first else { return };
        let planning = std::mem::replace(&mut self.planning, first);
        Mover::new(self, session, sink).fold_together(&pile.reduction, &slots);
        self.planning = planning;
    }

    /// The trace is to say that this value was folded with others.
    pub(crate) fn note_together(&mut self, session: SessionId, slot: u32) {
        if !self.tracing {
            return;
        }
        let value = self.sessions.get(&session).and_then(|state| state.value(slot));
        if let Some(Value { number, output, .. }) = value {
            self.together.push(Id::number(*number, *output));
        }
    }
}

impl Mover<'_> {
    /// Before an instruction's operands are brought one by one: those that need the same reduction are folded together,
    /// with others of which a reduction is expected now.
    pub(super) fn fold_operands(&mut self, run: Run<'_>, operands: &[Given], choice: &Choice) {
        let is_partial = |given: &Given| match given {
            Given::Value(held) => held.slot.is_some() && held.shards.layout.is_partial(),
            Given::Absent | Given::Scalar(_) => false,
        };
        if self.core.bundle_bytes() == 0 || !operands.iter().any(is_partial) {
            return;
        }
        let mut groups: SmallVec<[(Reduction, SmallVec<[u32; 4]>); 1]> = SmallVec::new();
        for (given, need) in operands.iter().zip(&choice.needs) {
            let Given::Value(held) = given else { continue };
            let Some(slot) = held.slot.filter(|_| needs_one_layout(held, need, operands, choice))
            else {
                continue;
            };
            let held = self.refreshed(held);
            let reduction = self.core.reduction(&held.shards.layout, need);
            let Some(reduction) = reduction else { continue };
            match groups.iter_mut().find(|(other, _)| *other == reduction) {
                Some((_, slots)) if slots.contains(&slot) => {}
                Some((_, slots)) => slots.push(slot),
                None => groups.push((reduction, SmallVec::from_iter([slot]))),
            }
        }
        for (reduction, mut slots) in groups {
            let mut others = self.core.expected_with(self.session, run.op, &reduction, &slots);
            // An operand that is to pass as it lies was found so, and must not lie otherwise meanwhile.
            others.retain(|other| operands.iter().all(|given| given.slot() != Some(*other)));
            if slots.len() + others.len() > 1 {
                self.note_needs(run, operands, choice, &slots);
                slots.extend(others);
                self.fold_together(&reduction, &slots);
            }
        }
    }

    /// What is otherwise noted where an operand is brought.
    fn note_needs(&mut self, run: Run<'_>, operands: &[Given], choice: &Choice, slots: &[u32]) {
        for (given, need) in operands.iter().zip(&choice.needs) {
            if let Given::Value(held) = given
                && held.slot.is_some_and(|slot| slots.contains(&slot))
            {
                let held = self.refreshed(held);
                self.core.note_brought(held.slot, self.session, need);
                self.core.learn(self.session, &held, run.op, need);
            }
        }
    }
}
