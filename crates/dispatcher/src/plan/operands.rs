//! Resharding a value of the session: the only operation that moves values, and the decision about
//! the shards that are kept.

use super::inputs::{PlanOperand, needs_one_layout};
use super::run::Run;
use super::{PlanStop, slots};
use crate::planner::Planner;
use crate::reshard::{Resharded, without_partial};
use crate::session::provenance::LayoutCause;
use crate::session::reductions::{ValueKind, ValueReader};
use crate::session::scopes::PlacingScope;
use crate::session::uploads::UploadKind;
use crate::session::value::{PendingLayout, Shards, Slots};
use crate::strategy::choose::Choice;
use gt_protocol::message::FailureClass;
use gt_protocol::placement::{Layout, Placement};
use gt_protocol::{Instruction, Meta, Op, Operand};
use smallvec::SmallVec;

/// Policy for keeping the shards of a resharded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepCopy {
    /// The value has this layout from now on.
    Always,
    /// An instruction needs the layout, and the next one may too.
    Useful,
    /// The layout is needed once: only a reduction is kept, so that no later reader has to repeat
    /// it.
    Reduced,
    /// The value must not change: another operand of the same instruction is the same value.
    Never,
}

/// Effect of resharding on the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// The new shards are the value from now on.
    Replace,
    /// The value keeps its shards, and more members hold it whole.
    Grow,
    /// The new shards are a copy.
    Copy,
    Nothing,
}

impl Memory {
    fn of(from: &Layout, to: &Layout, keep: KeepCopy) -> Self {
        let is_reduced = from.is_partial() && from.mesh() == to.mesh();
        let grows = from.is_whole() && to.is_whole() && to.mesh().contains(from.mesh());
        match keep {
            KeepCopy::Always | KeepCopy::Useful if grows => Self::Grow,
            KeepCopy::Always => Self::Replace,
            KeepCopy::Useful | KeepCopy::Reduced if is_reduced => Self::Replace,
            KeepCopy::Useful if to.is_whole() && (from.is_whole() || from.is_partial()) => {
                Self::Copy
            }
            KeepCopy::Useful | KeepCopy::Reduced | KeepCopy::Never => Self::Nothing,
        }
    }
}

impl Planner<'_> {
    /// The session's value in the layout `to`.
    pub(crate) fn reshard(&mut self, slot: u32, to: &Layout, keep: KeepCopy) -> Resharded {
        if keep == KeepCopy::Always {
            self.materialize(slot, Some(to));
        }
        let Some(value) = self.session.value(slot) else {
            // The value was deferred, and could not be created.
            return Resharded::borrowed(&[]);
        };
        if value.layout() == to {
            return Resharded::borrowed(value.slots());
        }
        let copy = value.copies().iter().find(|copy| copy.layout == *to);
        if let Some(copy) = copy.filter(|_| keep == KeepCopy::Useful) {
            return Resharded::borrowed(&copy.slots);
        }
        let (meta, from) = (*value.meta(), value.shards());
        let memory = Memory::of(&from.layout, to, keep);
        if memory == Memory::Grow {
            let grown = self.keeping(|planner| planner.grow(meta, &from, slot, to));
            return Resharded::borrowed(&grown);
        }
        let resharded = if memory == Memory::Nothing {
            self.redistribute(meta, &from, to)
        } else {
            self.keeping(|planner| planner.redistribute(meta, &from, to))
        };
        if memory == Memory::Nothing || !resharded.owned {
            return resharded;
        }
        let shards = Shards::new(to.clone(), resharded.slots.clone());
        if memory == Memory::Replace {
            self.replace(slot, shards);
        } else {
            self.value_mut(slot).add_copy(shards);
        }
        Resharded { owned: false, ..resharded }
    }

    /// Replicates a whole value to more workers. The sender keeps its slot, whose memory becomes
    /// row-major as the copies are; other holders make theirs row-major too.
    fn grow(&mut self, meta: Meta, from: &Shards, slot: u32, to: &Layout) -> Slots {
        let Some((source, source_slot)) = from.worker_slots().next() else {
            unreachable!("{} has members", from.layout)
        };
        let spreads = to.mesh().members().iter().any(|&member| from.on(member).is_none());
        let mut slots = Slots::new();
        for &member in to.mesh().members() {
            slots.push(match from.on(member) {
                Some(slot) if member != source && spreads => self.compact(member, slot, meta),
                Some(slot) => slot,
                None => self.transfer(source, source_slot, member, meta),
            });
        }
        let cause = LayoutCause::Instruction(self.number);
        let value = self.value_mut(slot);
        value.set_cause(cause);
        value.replace(Shards::new(to.clone(), slots.clone()));
        slots
    }

    /// Creates a deferred value: in the requested layout, else in its own.
    pub(crate) fn materialize(&mut self, slot: u32, asked: Option<&Layout>) {
        let Some(value) = self.session.value(slot) else { return };
        let Some(deferred) = value.deferred().cloned() else { return };
        let (meta, number, op) = (*value.meta(), value.number(), deferred.op);
        // A partial layout is not used: only one member would have to contribute.
        let layout = asked.filter(|asked| !asked.is_partial()).unwrap_or(value.layout()).clone();
        let Some(layout) = self.among_the_living(&layout) else {
            let text = "every worker is gone, and this value was not made yet".to_owned();
            return self.fail_value(slot, op, FailureClass::WorkerLost, text);
        };
        let instruction = Run::step(op, deferred.attrs, SmallVec::new(), 1);
        let run = Run { instruction: &instruction, outputs: &[meta] };
        let create = |planner: &mut Self| planner.create_shards(run, &layout);
        let results = self.on_behalf_of(number, |planner| planner.keeping(create));
        match results.map(|mut results| results.pop()) {
            Ok(Some((_, shards))) => {
                self.value_mut(slot).replace(shards);
            }
            Ok(None) => unreachable!("{op:?} has one result"),
            Err(error) => self.fail_value(slot, op, error.class.into(), error.text),
        }
    }

    /// The layout, or the session's home if one of the layout's workers has left meanwhile.
    fn among_the_living(&mut self, layout: &Layout) -> Option<Layout> {
        let mut members = layout.mesh().members().iter();
        if members.all(|&worker| self.core.workers.is_alive(worker)) {
            return Some(layout.clone());
        }
        self.home().map(Layout::on)
    }

    /// Returns true if the operands need no preparation.
    pub(super) fn has_ready_operands(
        &self,
        instruction: &Instruction<'_>,
        scope: Option<&PlacingScope>,
    ) -> bool {
        let weight = instruction.op.info().weight.filter(|_| scope.is_some());
        let weight = weight.and_then(|weight| instruction.operands.get(weight.operand));
        let is_placed = weight.is_none_or(|operand| match operand {
            Operand::Value(id) => {
                id.as_slot().is_some_and(|slot| !self.value(slot).layout().is_whole())
            }
            Operand::Absent | Operand::Scalar(_) => true,
        });
        is_placed && slots(instruction).all(|slot| self.value(slot).is_materialized())
    }

    /// Prepares an instruction's operands: applies pending layouts, places the scope's weight,
    /// creates deferred values. Returns the operands whose first use is to be recorded.
    pub(super) fn prepare_operands(
        &mut self,
        instruction: &Instruction<'_>,
        scope: Option<&PlacingScope>,
    ) -> Result<SmallVec<[u32; 2]>, PlanStop> {
        let mut first_uses = SmallVec::new();
        for slot in slots(instruction) {
            if self.value(slot).plain().is_none() {
                self.launch_bucket_of(slot);
                if self.take_pending(slot) {
                    first_uses.push(slot);
                }
            }
        }
        if let Some(scope) = scope {
            self.place_weight(instruction, scope);
        }
        for slot in slots(instruction) {
            self.materialize(slot, None);
        }
        match self.failed_operand(instruction) {
            Some(failure) => Err(PlanStop::Operand(failure)),
            None => Ok(first_uses),
        }
    }

    /// Applies a value's pending layout; returns true if its first use is to be recorded.
    pub(crate) fn take_pending(&mut self, slot: u32) -> bool {
        match self.value_mut(slot).take_pending() {
            PendingLayout::Nothing => false,
            PendingLayout::Record => true,
            PendingLayout::Target(target) => {
                self.reshard(slot, &target, KeepCopy::Always);
                self.note_cause(slot, LayoutCause::Scope(None));
                false
            }
            PendingLayout::Rebalance(target) => {
                self.reshard(slot, &target, KeepCopy::Always);
                self.note_cause(slot, LayoutCause::Rebalanced);
                false
            }
        }
    }

    /// Reshards every operand to the layout that the choice needs; `None` for an operand that is no
    /// value.
    pub(super) fn reshard_inputs(
        &mut self,
        run: Run<'_>,
        inputs: &[PlanOperand],
        choice: &Choice,
    ) -> SmallVec<[Option<Resharded>; 4]> {
        self.reduce_inputs(run, inputs, choice);
        let mut operands = SmallVec::new();
        for (input, need) in inputs.iter().zip(&choice.inputs) {
            operands.push(match input {
                PlanOperand::Absent | PlanOperand::Scalar(_) => None,
                PlanOperand::StepResult(results) => {
                    Some(self.redistribute(results.0, &results.1, need))
                }
                PlanOperand::Value(slot) if self.is_held_twice(*slot, need) => {
                    Some(self.overlapping(*slot, need))
                }
                PlanOperand::Value(slot)
                    if needs_one_layout(*slot, need, inputs, &choice.inputs) =>
                {
                    self.note_change(*slot, need);
                    self.record_use(*slot, run.instruction.op, need);
                    Some(self.reshard(*slot, need, KeepCopy::Useful))
                }
                // Another operand is the same value and needs it in another layout.
                PlanOperand::Value(slot) => Some(self.reshard(*slot, need, KeepCopy::Never)),
            });
        }
        operands
    }

    /// Returns true if members hold the same indices of a sharded dimension, which no value's own
    /// layout allows.
    pub(super) fn is_held_twice(&self, slot: u32, layout: &Layout) -> bool {
        let dims = &self.value(slot).meta().dims;
        layout.placements().iter().any(|placement| match placement {
            Placement::Shard { dim, ranges } => {
                dims.get(*dim).is_some_and(|&size| ranges.total() > size)
            }
            Placement::Replicate | Placement::Partial(_) => false,
        })
    }

    /// Reshards to shards that overlap, none of which is kept; a partial value is reduced first,
    /// and stays reduced.
    fn overlapping(&mut self, slot: u32, need: &Layout) -> Resharded {
        self.note_change(slot, need);
        let layout = self.value(slot).layout();
        if layout.is_partial() {
            let reduced = without_partial(layout);
            self.reshard(slot, &reduced, KeepCopy::Reduced);
        }
        self.reshard(slot, need, KeepCopy::Never)
    }

    /// Records that an instruction of `op` needs a value in layout `need`: the next one from the
    /// same line may too.
    pub(super) fn record_use(&mut self, slot: u32, op: Op, need: &Layout) {
        let value = self.value(slot);
        let layout = value.layout();
        if layout != need {
            self.record_upload_use(slot, need);
            return self.record_reader(slot, op, need);
        }
        if layout.is_partial() {
            self.record_reader(slot, op, need);
        }
    }

    /// Records the layout in which a value that was uploaded without one is needed.
    pub(crate) fn record_upload_use(&mut self, slot: u32, need: &Layout) {
        let value = self.value(slot);
        if value.cause() == LayoutCause::Unknown {
            let kind = UploadKind { site: value.site, meta: *value.meta() };
            self.session.uploads.record(kind, need);
        }
    }

    /// Records that a partial value is reduced, or passed on as it is.
    fn record_reader(&mut self, slot: u32, op: Op, need: &Layout) {
        let value = self.value(slot);
        let layout = value.layout();
        let Some(kind) = Some(value).filter(|_| layout.is_partial()).and_then(ValueKind::of) else {
            return;
        };
        let reduces = layout.mesh() == need.mesh() && !need.is_partial();
        if !reduces {
            // An operator that passes it on unreduced may be its only reader.
            self.session.reductions.forget(slot);
        }
        self.session.reductions.record(kind, ValueReader::from(op), reduces.then_some(need));
    }
}
