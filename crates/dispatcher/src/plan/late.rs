//! Large tensors that are made of nothing (zeros, random numbers) wait for their first use, which may say how they lie:
//! what is to be cut then never exists whole, on no worker.
//!
//! Until then such a value has a recipe and no slots; its layout is the one that it gets if its first use says nothing.

use super::run::Run;
use crate::Dispatcher;
use crate::event::{SessionId, Sink};
use crate::failure::{Cause, Failure};
use crate::handle::{Handle, Recipe, Shards, Slots};
use crate::motion::Mover;
use gt_protocol::message::{FailureClass, ToClient};
use gt_protocol::placement::Layout;
use gt_protocol::{Attr, Family, Id, Instruction, Meta, Op, Scalar};
use smallvec::SmallVec;

/// Smaller ones are made at once: a megabyte more on a worker hurts nobody, and work that starts earlier ends earlier.
pub(crate) const LATE_BYTES_MIN: u64 = 1 << 20;

impl Dispatcher {
    /// Makes tensors without operands at their first use from so many bytes on. For tests, whose tensors are small.
    pub fn set_late_bytes_min(&mut self, bytes: u64) {
        self.late_bytes_min = bytes;
    }

    /// Enters the result of an instruction that can wait for its first use; whether it did.
    pub(super) fn put_off(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        outputs: &[Meta],
        layout: &Layout,
    ) -> bool {
        let of_nothing = matches!(instruction.op.info().family, Family::Create | Family::Random)
            && instruction.op != Op::Upload
            && instruction.operands.is_empty();
        let [meta] = outputs else { return false };
        if !of_nothing || meta.bytes() < self.late_bytes_min {
            return false;
        }
        let recipe = Recipe { op: instruction.op, attrs: instruction.attrs.clone() };
        self.define_late(session, instruction, number, *meta, layout.clone(), recipe);
        true
    }

    /// Enters what is drawn to lie as a value does that still waits, of which nothing is read; whether it was that.
    pub(super) fn put_off_alike(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        outputs: &[Meta],
    ) -> bool {
        let recipe = unread(instruction).filter(|_| instruction.op == Op::RandomLike);
        let like = instruction.values().next().and_then(Id::as_slot);
        let like = like.and_then(|slot| self.value_mut(session, slot));
        let layout = like.filter(|value| value.recipe.is_some());
        let layout = layout.map(|value| value.shards.layout.clone());
        let (Some(recipe), Some(layout), [meta]) = (recipe, layout, outputs) else { return false };
        self.define_late(session, instruction, number, *meta, layout, recipe);
        true
    }

    /// `random_like` something that is not cut, under a scope: the scope says how it lies.
    pub(super) fn drawn_anew<'i>(
        &self,
        session: SessionId,
        instruction: &Instruction<'i>,
    ) -> Option<Instruction<'i>> {
        if instruction.op != Op::RandomLike {
            return None;
        }
        let like = instruction.values().next().and_then(Id::as_slot)?;
        let value = self.sessions.get(&session)?.value(like)?;
        let Recipe { op, attrs } = drawn(&instruction.attrs)?;
        let operands = SmallVec::new();
        let plain = Instruction { op, attrs, operands, ..instruction.clone() };
        value.shards.layout.is_whole().then_some(plain)
    }

    /// `full_like` and `random_like`: made where the operand is, and as that lies where the shape is the same. Nothing
    /// moves.
    pub(super) fn plan_alike(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        outputs: &[Meta],
        recipe: &Recipe,
        sink: &mut dyn Sink,
    ) {
        let slot = instruction.values().next().and_then(Id::as_slot).unwrap_or(u32::MAX);
        let Some(value) = self.value_mut(session, slot) else { return };
        let like = value.wish.clone().unwrap_or_else(|| value.shards.layout.clone());
        let same = outputs.first().is_some_and(|meta| meta.dims == value.meta.dims);
        let layout =
            if same && !like.is_partial() { like } else { Layout::replicated(like.mesh().clone()) };
        let Recipe { op, ref attrs } = *recipe;
        let run = Run { op, attrs, outputs, payload: &[], consumes: 0 };
        match Mover::new(self, session, sink).create(run, &layout) {
            Ok(placed) => self.define_values(session, instruction, number, placed),
            Err(error) => self.fail(session, instruction, number, &error, sink),
        }
    }

    fn define_late(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        meta: Meta,
        layout: Layout,
        recipe: Recipe,
    ) {
        let shards = Shards { layout, slots: Slots::new() };
        self.define_values(session, instruction, number, [(meta, shards)]);
        let slot = instruction.outputs.first().copied().and_then(Id::as_slot);
        if let Some(value) = slot.and_then(|slot| self.value_mut(session, slot)) {
            value.recipe = Some(Box::new(recipe));
        }
    }

    /// Makes those operands that have waited, as they were to lie; what that failed with, if it did.
    pub(super) fn make_operands(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Option<Failure> {
        for slot in instruction.values().filter_map(Id::as_slot) {
            self.make(session, slot, None, sink);
        }
        let state = self.sessions.get(&session)?;
        let mut operands = instruction.values().filter_map(Id::as_slot);
        operands.find_map(|slot| match state.handle(slot) {
            Handle::Failed(failure) => Some(failure.clone()),
            Handle::Live(_) | Handle::Free => None,
        })
    }

    /// Makes a value that has waited: as `asked` says, else as it was to lie.
    pub(crate) fn make(
        &mut self,
        session: SessionId,
        slot: u32,
        asked: Option<&Layout>,
        sink: &mut dyn Sink,
    ) {
        let Some(value) = self.value_mut(session, slot) else { return };
        let Some(recipe) = value.recipe.take() else { return };
        let (meta, number) = (value.meta, value.number);
        // A partial value is made whole first: only one member would have to contribute.
        let layout = asked.filter(|asked| !asked.is_partial()).unwrap_or(&value.shards.layout);
        let layout = layout.clone();
        let Some(layout) = self.among_the_living(session, layout) else {
            let text = "every worker is gone, and this value was not made yet".to_owned();
            return self.fail_value(session, slot, recipe.op, FailureClass::WorkerLost, text, sink);
        };
        let run = Run {
            op: recipe.op,
            attrs: &recipe.attrs,
            outputs: &[meta],
            payload: &[],
            consumes: 0,
        };
        let planning = std::mem::replace(&mut self.planning, number);
        let made = Mover::new(self, session, sink).create(run, &layout);
        self.planning = planning;
        match (made.map(|mut results| results.pop()), self.value_mut(session, slot)) {
            (Ok(Some((_, shards))), Some(value)) => value.shards = shards,
            (Err(error), _) => {
                self.fail_value(session, slot, recipe.op, error.class.into(), error.text, sink);
            }
            (Ok(_), _) => {}
        }
    }

    /// The layout, or where this session makes new tensors if one of the layout's workers has left meanwhile.
    fn among_the_living(&mut self, session: SessionId, layout: Layout) -> Option<Layout> {
        let alive = self.alive();
        if layout.mesh().members().iter().all(|worker| alive.contains(worker)) {
            return Some(layout);
        }
        self.home(session).map(Layout::on)
    }

    fn fail_value(
        &mut self,
        session: SessionId,
        slot: u32,
        op: Op,
        class: FailureClass,
        text: String,
        sink: &mut dyn Sink,
    ) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let Some(number) = state.value(slot).map(|value| value.number) else { return };
        let site = state.site_of(number);
        let failure = state.remember(Failure::new(Cause { number, class, op, site, text }));
        sink.session(session, &ToClient::Failure(failure.message(session)));
        state.define_failed(Id::slot(slot), failure);
    }
}

/// What makes the result of an instruction that reads nothing of its operand.
pub(super) fn unread(instruction: &Instruction<'_>) -> Option<Recipe> {
    if instruction.op == Op::RandomLike {
        return drawn(&instruction.attrs);
    }
    let filled = || Recipe { op: Op::Full, attrs: instruction.attrs.clone() };
    (instruction.op == Op::FullLike).then(filled)
}

/// What `random_like` draws, without an operand.
fn drawn(attrs: &[Attr]) -> Option<Recipe> {
    let [size, dtype, Attr::Choice(kind), Attr::Scalar(first), Attr::Scalar(second), rest @ ..] =
        attrs
    else {
        return None;
    };
    let parameters = [first, second].map(|parameter| Attr::Float(parameter.as_f64()));
    let (op, parameters) = match kind {
        0 => (Op::Uniform, SmallVec::<[Attr; 2]>::from(parameters)),
        1 => (Op::Normal, SmallVec::from(parameters)),
        2 => match (first, second) {
            (Scalar::Int(low), Scalar::Int(high)) => {
                (Op::Randint, SmallVec::from([Attr::Int(*low), Attr::Int(*high)]))
            }
            _ => return None,
        },
        _ => (Op::Bernoulli, parameters.into_iter().take(1).collect()),
    };
    let shape = [size.clone(), dtype.clone()];
    let attrs = shape.into_iter().chain(parameters).chain(rest.iter().cloned()).collect();
    Some(Recipe { op, attrs })
}
