//! Instructions under a signal with a scope: which workers run them, how what they create lies, how a weight is cut.

use super::late::unread;
use super::run::Run;
use crate::Dispatcher;
use crate::event::{SessionId, Sink};
use crate::handle::Shards;
use crate::motion::Mover;
use crate::note::Why;
use gt_protocol::placement::{Layout, Mesh, Pieces, Placement, Placements};
use gt_protocol::scope::{PlacementWish, Scope};
use gt_protocol::{Dims, Id, Instruction, Meta, Op};
use smallvec::SmallVec;
use std::sync::Arc;

impl Dispatcher {
    /// What the instruction's signal means, where that says anything of layouts.
    pub(super) fn layout_scope(
        &self,
        session: SessionId,
        instruction: &Instruction<'_>,
    ) -> Option<Arc<Scope>> {
        let state = self.sessions.get(&session)?;
        let scope = state.scopes.get(u32::from(instruction.signal))?;
        let lays = scope.axis.is_some() || scope.replicated || !scope.placements.is_empty();
        (scope.workers.is_some() || lays).then(|| Arc::clone(scope))
    }

    pub(super) fn plan_scoped(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        outputs: &[Meta],
        scope: &Scope,
        sink: &mut dyn Sink,
    ) {
        let Some(mesh) = self.scope_mesh(scope) else {
            return self.fail(session, instruction, number, &super::no_worker(), sink);
        };
        self.grant_wishes(session, instruction, sink);
        if instruction.values().next().is_none() {
            return self.plan_created(session, instruction, number, outputs, (scope, &mesh), sink);
        }
        if let Some(plain) = self.drawn_anew(session, instruction) {
            return self.plan_created(session, &plain, number, outputs, (scope, &mesh), sink);
        }
        if self.put_off_alike(session, instruction, number, outputs) {
            return;
        }
        self.lay_weight(session, instruction, (scope, &mesh), sink);
        if let Some(failure) = self.make_operands(session, instruction, sink) {
            return self.mark_inherited(session, instruction, &failure);
        }
        if let Some(recipe) = unread(instruction) {
            return self.plan_alike(session, instruction, number, outputs, &recipe, sink);
        }
        let alone = mesh.single().filter(|&worker| {
            let state = self.sessions.get(&session);
            instruction.values().all(|id| {
                let value = id.as_slot().and_then(|slot| state?.value(slot));
                value.is_some_and(|value| value.single() == Some(worker))
            })
        });
        match alone {
            Some(worker) => self.plan_local(session, instruction, number, outputs, worker, sink),
            None => self.plan_spread(session, instruction, number, outputs, &mesh, sink),
        }
    }

    /// The scope's workers that live; all that live where it names none.
    fn scope_mesh(&self, scope: &Scope) -> Option<Mesh> {
        let alive = self.alive();
        let members: SmallVec<[u32; 8]> = match &scope.workers {
            Some(workers) => {
                workers.iter().copied().filter(|worker| alive.contains(worker)).collect()
            }
            None => alive.clone(),
        };
        let members = if members.is_empty() { alive } else { members };
        let shape: SmallVec<[usize; 3]> =
            scope.mesh.iter().filter_map(|(_, size)| usize::try_from(*size).ok()).collect();
        match Mesh::new(&shape, &members) {
            Some(mesh) => Some(mesh),
            None if members.is_empty() => None,
            None => Some(Mesh::line(&members)),
        }
    }

    fn plan_created(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        outputs: &[Meta],
        (scope, mesh): (&Scope, &Mesh),
        sink: &mut dyn Sink,
    ) {
        let Some(meta) = outputs.first() else { return };
        let layout = created_layout(scope, mesh, &meta.dims);
        let Some(&first) = mesh.members().first() else { return };
        if self.put_off(session, instruction, number, outputs, &layout) {
            let motion = self.motion(session);
            self.brought.clear();
            return self.note(session, instruction, Why::Scope, motion);
        }
        if mesh.len() == 1 {
            return self.plan_local(session, instruction, number, outputs, first, sink);
        }
        let run = Run {
            op: instruction.op,
            attrs: &instruction.attrs,
            outputs,
            payload: instruction.payload,
            consumes: 0,
        };
        let before = self.motion(session);
        self.brought.clear();
        if instruction.op == Op::Upload {
            self.upload(session, instruction, number, *meta, &layout, sink);
            return self.note(session, instruction, Why::Scope, before);
        }
        match Mover::new(self, session, sink).create(run, &layout) {
            Ok(placed) => {
                self.define_values(session, instruction, number, placed);
                self.note(session, instruction, Why::Scope, before);
            }
            Err(error) => self.fail(session, instruction, number, &error, sink),
        }
    }

    /// Operands that are to lie otherwise from their first use on.
    pub(crate) fn grant_wishes(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) {
        for id in instruction.values() {
            let Some(slot) = id.as_slot() else { continue };
            let wish = self
                .value_mut(session, slot)
                .and_then(|value| value.wish.take().filter(|wish| *wish != value.shards.layout));
            if let Some(layout) = wish {
                self.lay(session, slot, &layout, sink);
                self.note_laid(session, slot, None);
            }
        }
    }

    /// The value lies as `layout` from now on.
    pub(crate) fn lay(
        &mut self,
        session: SessionId,
        slot: u32,
        layout: &Layout,
        sink: &mut dyn Sink,
    ) {
        self.make(session, slot, Some(layout), sink);
        let Some(value) = self.value_mut(session, slot) else { return };
        let (meta, from) = (value.meta, value.shards.clone());
        let mut mover = Mover::new(self, session, sink);
        let brought = mover.redistribute(meta, &from, layout);
        if brought.owned {
            mover.replace(slot, Shards { layout: layout.clone(), slots: brought.slots });
        }
    }

    /// The weight of a product is cut as the scope says, once and for good.
    fn lay_weight(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        (scope, mesh): (&Scope, &Mesh),
        sink: &mut dyn Sink,
    ) {
        if !matches!(instruction.op, Op::Linear | Op::Matmul) {
            return;
        }
        // A layer's weight is stored [out, in]; the scope speaks of [in, out].
        let stored_out_in = instruction.op == Op::Linear;
        let Some(slot) = instruction.values().nth(1).and_then(Id::as_slot) else { return };
        let Some(value) = self.value_mut(session, slot) else { return };
        if value.meta.dims.len() != 2 || !value.shards.layout.is_whole() {
            return;
        }
        let dims = value.meta.dims;
        let members = value.shards.layout.mesh().members();
        let elsewhere = members.iter().all(|&worker| mesh.place(worker).is_none());
        let wishes = wishes(scope, mesh, 2);
        let turned = wishes.map(|wish| wish.map(|dim| if stored_out_in { 1 - dim } else { dim }));
        let layout = laid(scope, mesh, &dims, turned);
        if !layout.is_whole() || elsewhere {
            self.lay(session, slot, &layout, sink);
            self.note_laid(session, slot, Some(instruction.signal));
        }
    }
}

/// The dimension that each dimension of the mesh is to cut, of a tensor of `rank` dimensions.
fn wishes<'s>(
    scope: &'s Scope,
    mesh: &'s Mesh,
    rank: usize,
) -> impl Iterator<Item = Option<usize>> + 's {
    let normal = move |dim: i64| {
        let rank = i64::try_from(rank).unwrap_or(0);
        let dim = if dim < 0 { dim + rank } else { dim };
        usize::try_from(dim).ok().filter(|_| dim < rank)
    };
    let last = mesh.rank().saturating_sub(1);
    (0..mesh.rank()).map(move |axis| {
        if scope.replicated {
            return None;
        }
        if scope.placements.is_empty() {
            // A plain axis is cut over the last dimension of the mesh.
            return scope.axis.filter(|_| axis == last).and_then(normal);
        }
        match scope.placements.get(axis) {
            Some(PlacementWish::Shard { dim }) => normal(*dim),
            Some(PlacementWish::Replicate) | None => None,
        }
    })
}

fn laid(
    scope: &Scope,
    mesh: &Mesh,
    dims: &Dims,
    wishes: impl Iterator<Item = Option<usize>>,
) -> Layout {
    let blocks = scope.blocks.map_or(1, i64::from);
    let mut placements = Placements::new();
    for (axis, wish) in wishes.enumerate() {
        let taken = |dim: usize| placements.iter().any(|placement| placement.cut() == Some(dim));
        let dim = wish.filter(|&dim| !taken(dim));
        placements.push(match dim.and_then(|dim| Some((dim, *dims.get(dim)?))) {
            Some((dim, size)) => {
                Placement::Shard { dim, pieces: Pieces::blocked(size, blocks, mesh.size(axis)) }
            }
            None => Placement::Replicate,
        });
    }
    Layout::new(mesh.clone(), placements)
}

/// How a tensor that is created in the scope lies.
fn created_layout(scope: &Scope, mesh: &Mesh, dims: &Dims) -> Layout {
    laid(scope, mesh, dims, wishes(scope, mesh, dims.len()))
}
