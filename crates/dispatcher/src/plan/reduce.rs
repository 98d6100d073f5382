//! Reductions that are launched together: those that one instruction needs, and those that the
//! session's history expects, which wait in buckets until a bucket is full or one of them is
//! needed.

use super::inputs::{PlanOperand, needs_one_layout};
use super::operands::KeepCopy;
use super::run::Run;
use super::slots;
use crate::planner::Planner;
use crate::reshard::without_partial;
use crate::session::provenance::LayoutCause;
use crate::session::reductions::{Bucket, Expected, Launch, Reduction, ValueKind, ValueReader};
use crate::session::value::{Shards, Value};
use crate::strategy::choose::Choice;
use gt_protocol::placement::Layout;
use gt_protocol::{Attr, Id, Instruction, Meta};
use smallvec::SmallVec;

/// Maximum number of values in one instruction: far fewer than a frame holds, and enough to make
/// the instruction's own cost negligible.
const VALUES_MAX: usize = 512;

impl Planner<'_> {
    /// Maximum bytes of a bucket; 0 turns buckets off.
    fn bucket_bytes(&self) -> u64 {
        self.core.cost_model.bucket
    }

    /// The reduction that leads from one layout to the other, if nothing else is needed. `None` if
    /// the members of its lines share a backend that reduces: such a backend takes one value at a
    /// time.
    fn reduction(&self, from: &Layout, to: &Layout) -> Option<Reduction> {
        let in_bytes =
            |workers: SmallVec<[u32; 8]>| self.core.workers.backend(&workers) == Attr::Absent;
        Reduction::between(from, to).filter(|reduction| reduction.lines().all(in_bytes))
    }

    /// Puts results of an instruction into buckets if the session's history expects their
    /// reduction.
    pub(super) fn expect_reductions(&mut self, outputs: impl Iterator<Item = u32>) {
        for slot in outputs {
            let value = self.value(slot);
            if value.layout().is_partial()
                && let Some(expected) = self.expected(value)
            {
                self.expect_reduction(slot, expected);
            }
        }
    }

    fn expected(&self, value: &Value) -> Option<Expected> {
        if self.core.config.reduce_early {
            return Some(Expected { launch: Launch::Full, to: without_partial(value.layout()) });
        }
        self.session.reductions.expected(&ValueKind::of(value)?)
    }

    fn expect_reduction(&mut self, slot: u32, Expected { launch, to }: Expected) {
        let bytes_max = self.bucket_bytes();
        let value = self.value(slot);
        let reduction = self.reduction(value.layout(), &to).map(|reduction| {
            let bytes = reduction.bytes(*value.meta(), value.layout());
            (reduction, bytes)
        });
        match reduction {
            Some((reduction, bytes)) if launch != Launch::Full || bytes < bytes_max => {
                let reductions = &mut self.session.reductions;
                if let Some(full) = reductions.add(reduction, launch, (slot, bytes), bytes_max) {
                    self.launch(&full);
                }
            }
            // Nothing is gained by waiting for other values.
            Some(_) | None if launch == Launch::Full => {
                self.reshard(slot, &to, KeepCopy::Reduced);
            }
            Some(_) | None => {}
        }
    }

    /// Reduces the values of the bucket that contains this one, which is needed now.
    pub(crate) fn launch_bucket_of(&mut self, slot: u32) {
        if self.session.reductions.is_empty() {
            return;
        }
        if let Some(bucket) = self.session.reductions.take_of(slot) {
            self.launch(&bucket);
        }
    }

    /// Reduces the values of the buckets that contain an instruction's operands.
    pub(crate) fn launch_buckets_of(&mut self, instruction: &Instruction<'_>) {
        for slot in slots(instruction) {
            self.launch_bucket_of(slot);
        }
    }

    /// Reduces the values of all buckets.
    pub(crate) fn launch_all_buckets(&mut self) {
        for bucket in self.session.reductions.take_all() {
            self.launch(&bucket);
        }
    }

    fn launch(&mut self, bucket: &Bucket) {
        let first = bucket.slots.iter().find_map(|&slot| self.session.value(slot));
        if let Some(number) = first.map(Value::number) {
            self.on_behalf_of(number, |planner| {
                planner.reduce_together(&bucket.reduction, &bucket.slots);
            });
        }
    }

    /// Runs before an instruction's operands are resharded one by one: reduces those together that
    /// need the same reduction, with other values whose reduction is expected now.
    pub(super) fn reduce_inputs(&mut self, run: Run<'_>, inputs: &[PlanOperand], choice: &Choice) {
        let is_partial = |input: &PlanOperand| {
            input.slot().is_some_and(|slot| self.value(slot).layout().is_partial())
        };
        if self.bucket_bytes() == 0 || !inputs.iter().any(is_partial) {
            return;
        }
        let mut groups: SmallVec<[(Reduction, SmallVec<[u32; 4]>); 1]> = SmallVec::new();
        for (input, need) in inputs.iter().zip(&choice.inputs) {
            let Some(slot) = input.slot() else { continue };
            if self.is_held_twice(slot, need)
                || !needs_one_layout(slot, need, inputs, &choice.inputs)
            {
                continue;
            }
            let Some(reduction) = self.reduction(self.value(slot).layout(), need) else { continue };
            match groups.iter_mut().find(|(other, _)| *other == reduction) {
                Some((_, slots)) if slots.contains(&slot) => {}
                Some((_, slots)) => slots.push(slot),
                None => groups.push((reduction, SmallVec::from_iter([slot]))),
            }
        }
        let reader = ValueReader::from(run.instruction.op);
        for (reduction, mut slots) in groups {
            let mut others = self.session.reductions.take_with(reader, &reduction);
            // An operand that the plan passes on unreduced must not be reduced meanwhile.
            others.retain(|other| inputs.iter().all(|input| input.slot() != Some(*other)));
            if slots.len() + others.len() > 1 {
                self.record_uses(run, inputs, choice, &slots);
                slots.extend(others);
                self.reduce_together(&reduction, &slots);
            }
        }
    }

    /// Records the uses that are otherwise recorded when an operand is resharded.
    fn record_uses(
        &mut self,
        run: Run<'_>,
        inputs: &[PlanOperand],
        choice: &Choice,
        slots: &[u32],
    ) {
        for (input, need) in inputs.iter().zip(&choice.inputs) {
            if let Some(slot) = input.slot().filter(|slot| slots.contains(slot)) {
                self.note_change(slot, need);
                self.record_use(slot, run.instruction.op, need);
            }
        }
    }

    /// Reduces values of the session in their slots, by as few messages as the limit of bytes
    /// allows.
    fn reduce_together(&mut self, reduction: &Reduction, slots: &[u32]) {
        let bytes_max = self.bucket_bytes();
        let mut part: Vec<u32> = Vec::new();
        let mut bytes = 0_u64;
        for &slot in slots {
            // A value that has failed since, or was reduced by another instruction, is skipped.
            let value = self.session.value(slot);
            let Some(value) = value.filter(|value| reduction.fits(value.layout())) else {
                continue;
            };
            let more = reduction.bytes(*value.meta(), value.layout());
            bytes = bytes.saturating_add(more);
            if bytes > bytes_max || part.len() == VALUES_MAX {
                self.reduce_part(reduction, &std::mem::take(&mut part));
                bytes = more;
            }
            part.push(slot);
        }
        self.reduce_part(reduction, &part);
    }

    /// Reduces values by one message between every two members.
    fn reduce_part(&mut self, reduction: &Reduction, slots: &[u32]) {
        let shards = |&slot: &u32| {
            let value = self.value(slot);
            (*value.meta(), value.shards())
        };
        if let [slot] = *slots {
            let to = reduction.reduced(self.value(slot).layout());
            self.reshard(slot, &to, KeepCopy::Reduced);
            return;
        }
        let values: Vec<(Meta, Shards)> = slots.iter().map(shards).collect();
        self.all_reduce_coalesced(reduction, &values);
        let cause = LayoutCause::Instruction(self.number);
        for (&slot, (_, shards)) in slots.iter().zip(values) {
            let value = self.value_mut(slot);
            value.set_cause(cause);
            value.replace(Shards::new(reduction.reduced(&shards.layout), shards.slots));
            if self.core.tracing {
                let value = self.value(slot);
                let id = Id::number(value.number(), value.output);
                self.core.reduced_together.push(id);
            }
        }
    }
}
