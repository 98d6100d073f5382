//! Creations: results without operands, or with one operand of which only the metadata and the
//! layout are read. Each member creates its shard only, if a rule says how.
//!
//! Large creations wait for their first use, which may determine their layout: a value that is then
//! sharded never exists whole on any worker.

use super::inputs;
use super::place::created_layout;
use super::results::{ResultValue, Results, StepResults};
use super::run::Run;
use super::{PlanStop, slots};
use crate::planner::{Planner, no_worker};
use crate::session::provenance::Decider;
use crate::session::scopes::PlacingScope;
use crate::session::uploads::{UploadKind, UploadUse};
use crate::session::value::{Deferred, PendingLayout, Shards, ValueState, slot_at};
use crate::strategy::choose::Choice;
use gt_protocol::operator::Like;
use gt_protocol::placement::{Intervals, Layout, Placement, ShardRanges};
use gt_protocol::rules::RuleError;
use gt_protocol::rules::spread::{OpSpec, made};
use gt_protocol::{Attr, AttrKind, Dims, Family, Instruction, Meta, Op, Scalar};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

/// An instruction that reads no value.
pub(super) struct Creation<'i> {
    /// The instruction, without the operand whose elements are not read.
    instruction: Cow<'i, Instruction<'i>>,
    /// The session's value whose metadata and layout it copies.
    like: Option<u32>,
}

/// The layout of the created value, and its decider.
struct CreatedLayout {
    layout: Layout,
    decider: Option<Decider>,
    pending: PendingLayout,
}

impl<'i> Creation<'i> {
    pub fn of(instruction: &'i Instruction<'i>) -> Option<Self> {
        let Some(like) = slots(instruction).next() else {
            return Some(Self { instruction: Cow::Borrowed(instruction), like: None });
        };
        let (op, attrs) = match instruction.op.info().like? {
            Like::Always(op) => (op, instruction.attrs.clone()),
            Like::Named(place) => drawn(instruction, place)?,
        };
        let operands = SmallVec::new();
        let plain = Instruction { op, attrs, operands, consumes: 0, ..instruction.clone() };
        Some(Self { instruction: Cow::Owned(plain), like: Some(like) })
    }
}

impl Planner<'_> {
    /// Plans a creation.
    pub(super) fn create(
        &mut self,
        creation: &Creation<'_>,
        outputs: &[Meta],
        scope: Option<PlacingScope>,
    ) -> Result<Results, PlanStop> {
        let Some(meta) = outputs.first() else { unreachable!("a creation has a result") };
        let instruction = &*creation.instruction;
        let before = self.session.traffic;
        let CreatedLayout { layout, decider, pending } =
            self.layout_of_creation(creation, meta, scope)?;
        if self.is_deferred(creation, outputs, decider) {
            let (op, attrs) = (instruction.op, instruction.attrs.clone());
            let state = ValueState::Deferred(Box::new(Deferred { op, attrs }));
            let values = smallvec![ResultValue { meta: *meta, layout, state }];
            return Ok(Results { values, decider, pending, before });
        }
        if instruction.op.info().payload {
            let (shards, target) = self.upload(instruction, *meta, &layout);
            let pending = target.map_or(pending, PendingLayout::Target);
            let decider = decider.filter(|_| layout.mesh().len() > 1);
            return Ok(Results {
                decider,
                pending,
                ..Results::ready(smallvec![(*meta, shards)], before)
            });
        }
        let values = self.create_shards(Run { instruction, outputs }, &layout)?;
        let decider = decider.filter(|_| layout.mesh().len() > 1);
        Ok(Results { decider, ..Results::ready(values, before) })
    }

    fn layout_of_creation(
        &mut self,
        creation: &Creation<'_>,
        meta: &Meta,
        scope: Option<PlacingScope>,
    ) -> Result<CreatedLayout, PlanStop> {
        let pending = PendingLayout::Nothing;
        let follows = |like: u32| {
            // A draw like a replicated value may be sharded as the scope says.
            let is_drawn = creation.instruction.op.info().family == Family::Random;
            !is_drawn || scope.is_none() || !self.value(like).target().is_whole()
        };
        if let Some(like) = creation.like.filter(|&like| follows(like)) {
            let layout = self.layout_like(like, &meta.dims);
            return Ok(CreatedLayout { layout, decider: None, pending });
        }
        if let Some(scope) = scope {
            let layout = created_layout(&scope, &meta.dims);
            return Ok(CreatedLayout { layout, decider: Some(Decider::Scope), pending });
        }
        let pending = match self.upload_use(&creation.instruction, meta) {
            Some(UploadUse::Always(layout)) if layout.single().is_none() => {
                let decider = Some(Decider::UploadHistory);
                return Ok(CreatedLayout { layout, decider, pending });
            }
            Some(UploadUse::Unknown) => PendingLayout::Record,
            Some(UploadUse::Always(_) | UploadUse::Differs) | None => pending,
        };
        let home = self.home().ok_or_else(no_worker)?;
        Ok(CreatedLayout { layout: Layout::on(home), decider: None, pending })
    }

    /// History of uploads from the same line, for sizes at which it matters.
    fn upload_use(&mut self, instruction: &Instruction<'_>, meta: &Meta) -> Option<UploadUse> {
        let alive = self.core.workers.alive();
        let matters = meta.bytes() >= self.core.config.defer_bytes_min && alive.len() > 1;
        if !instruction.op.info().payload || !matters || instruction.tag == 0 {
            return None;
        }
        let kind = UploadKind { site: instruction.tag, meta: *meta };
        Some(self.session.uploads.of(&kind, alive))
    }

    /// The present or target layout of a value, applied to a value of these dimensions: replicated
    /// where the shapes differ.
    fn layout_like(&self, like: u32, dims: &Dims) -> Layout {
        let value = self.value(like);
        let layout = value.target();
        if value.meta().dims == *dims && !layout.is_partial() {
            layout.clone()
        } else {
            Layout::replicated(layout.mesh().clone())
        }
    }

    /// Returns true if a creation waits for its first use: it is large, or the value that it is
    /// like waits too.
    fn is_deferred(
        &self,
        creation: &Creation<'_>,
        outputs: &[Meta],
        decider: Option<Decider>,
    ) -> bool {
        let instruction = &creation.instruction;
        let [meta] = outputs else { return false };
        if let Some(like) = creation.like.filter(|_| decider.is_none()) {
            return self.value(like).deferred().is_some();
        }
        matches!(instruction.op.info().family, Family::Create | Family::Random)
            && !instruction.op.info().payload
            && instruction.operands.is_empty()
            && meta.bytes() >= self.core.config.defer_bytes_min
    }

    /// Creates results without operands in this layout.
    pub(super) fn create_shards(
        &mut self,
        run: Run<'_>,
        layout: &Layout,
    ) -> Result<StepResults, RuleError> {
        if let Some(made) = self.create_cut(run, layout) {
            return made;
        }
        let mesh = layout.mesh();
        let whole = self.run(run, &inputs::of(run.instruction), mesh)?;
        let mut cut = StepResults::new();
        for (meta, shards) in whole {
            let resharded = self.redistribute(meta, &shards, layout);
            if resharded.owned {
                self.free_shards(&shards);
            }
            cut.push((meta, Shards::new(layout.clone(), resharded.slots)));
        }
        Ok(cut)
    }

    /// Creates each member's shard on that member; `None` where it has to be cut out of the whole.
    ///
    /// A random number depends on its position in a box of the whole, and a shard of several
    /// intervals (of a fused projection) is no box: its intervals are created one by one and
    /// joined.
    fn create_cut(
        &mut self,
        run: Run<'_>,
        layout: &Layout,
    ) -> Option<Result<StepResults, RuleError>> {
        if let Some(choice) = choice_of(run, layout) {
            let inputs = inputs::of(run.instruction);
            return Some(self.run_choice(run, &inputs, layout.mesh(), &choice));
        }
        let (axis, dim, ranges) = in_intervals(layout)?;
        let mut parts: SmallVec<[Shards; 4]> = SmallVec::new();
        for part in one_interval_each(ranges) {
            let part = layout.with(axis, Placement::Shard { dim, ranges: part });
            let (_, shards) = self.create_cut(run, &part)?.ok()?.pop()?;
            parts.push(shards);
        }
        let dim = i64::try_from(dim).ok()?;
        let join = |(place, &worker): (usize, &u32)| {
            let slots: SmallVec<[u32; 4]> =
                parts.iter().map(|shards| slot_at(&shards.slots, place)).collect();
            self.join(worker, &slots, dim)
        };
        let slots = layout.mesh().members().iter().enumerate().map(join).collect();
        let meta = *run.outputs.first()?;
        Some(Ok(smallvec![(meta, Shards::new(layout.clone(), slots))]))
    }
}

/// The operator that the attribute at `place` names, with the following attributes as its
/// parameters.
fn drawn(instruction: &Instruction<'_>, place: usize) -> Option<(Op, SmallVec<[Attr; 2]>)> {
    let kind = instruction.op.info().attrs.get(place)?.kind;
    let (AttrKind::Choice(words), Attr::Choice(word)) = (kind, instruction.attrs.get(place)?)
    else {
        return None;
    };
    let op = Op::from_name(words.get(usize::from(*word))?)?;
    let (shape, parameters) = instruction.attrs.split_at_checked(place)?;
    let (scalars, rest): (Vec<&Attr>, Vec<&Attr>) =
        parameters.iter().skip(1).partition(|attr| matches!(attr, Attr::Scalar(_)));
    let mut attrs: SmallVec<[Attr; 2]> = shape.iter().cloned().collect();
    let own = op.info().attrs.len().checked_sub(place + rest.len())?;
    for (info, attr) in op.info().attrs.iter().skip(place).take(own).zip(scalars) {
        match (info.kind, attr) {
            (AttrKind::Float, Attr::Scalar(value)) => attrs.push(Attr::Float(value.as_f64())),
            (AttrKind::Int, Attr::Scalar(Scalar::Int(value))) => attrs.push(Attr::Int(*value)),
            (_, _) => break,
        }
    }
    attrs.extend(rest.into_iter().cloned());
    (attrs.len() == op.info().attrs.len()).then_some((op, attrs))
}

/// Choice for a creation in which one instruction creates each member's whole shard.
fn choice_of(run: Run<'_>, layout: &Layout) -> Option<Choice> {
    if layout.is_partial() {
        return None;
    }
    let mut local = SmallVec::new();
    for (axis, placement) in layout.placements().iter().enumerate() {
        let Placement::Shard { dim, ranges } = placement else { continue };
        let spec = OpSpec {
            op: run.instruction.op,
            args: &[],
            attrs: &run.instruction.attrs,
            outputs: run.outputs,
            members: layout.mesh().size(axis),
        };
        let strategy = made(&spec, *dim, ranges)?;
        local.extend(strategy.local_attrs.into_iter().map(|one| (axis, one)));
    }
    let inputs = run.instruction.operands.iter().map(|_| layout.clone()).collect();
    let outputs = run.outputs.iter().map(|_| layout.clone()).collect();
    Some(Choice { inputs, outputs, local })
}

/// The first sharding in which some member holds several intervals: the mesh dimension, the tensor
/// dimension, its shards.
fn in_intervals(layout: &Layout) -> Option<(usize, usize, &ShardRanges)> {
    layout.placements().iter().enumerate().find_map(|(axis, placement)| match placement {
        Placement::Shard { dim, ranges } if most(ranges) > 1 => Some((axis, *dim, ranges)),
        Placement::Shard { .. } | Placement::Replicate | Placement::Partial(_) => None,
    })
}

/// Maximum number of intervals of a member.
fn most(ranges: &ShardRanges) -> usize {
    ranges.iter().map(<[_]>::len).max().expect("a mesh has members")
}

/// Every member's first interval, every member's second one, and so on; an empty one for members
/// with fewer.
fn one_interval_each(ranges: &ShardRanges) -> impl Iterator<Item = ShardRanges> {
    (0..most(ranges)).map(|turn| {
        let own = |held: &[_]| held.get(turn).copied().map_or_else(Intervals::new, Intervals::from);
        ShardRanges::new(ranges.iter().map(own))
    })
}
