//! Placement of an instruction, and the layouts that scopes request.

use super::operands::KeepCopy;
use super::slots;
use crate::number::signed;
use crate::planner::Planner;
use crate::session::provenance::LayoutCause;
use crate::session::scopes::PlacingScope;
use gt_protocol::placement::{Layout, Mesh, Placement, Placements, ShardRanges};
use gt_protocol::scope::{Scope, ScopePlacement};
use gt_protocol::{Dims, Family, Instruction, Operand};

impl Planner<'_> {
    /// The scope of a signal with its mesh, if it has placements and any of its workers lives.
    pub(crate) fn placing_scope(&mut self, signal: u16) -> Option<PlacingScope> {
        let workers = &self.core.workers;
        let placing = self.session.scopes.placing(signal, workers.alive(), workers.epoch());
        if placing.is_some() {
            self.session.has_layouts = true;
            self.note_epoch();
        }
        placing
    }

    /// The mesh of an instruction's operands: the largest one, and the first among equals.
    ///
    /// A single element goes where the other operands are, if there are any. An update stays on the
    /// workers that hold its parameter, wherever the gradient comes from.
    pub(super) fn operand_mesh(&self, instruction: &Instruction<'_>) -> Mesh {
        let updates = instruction.op.info().family == Family::Update;
        let mut chosen: Option<(bool, &Mesh)> = None;
        for slot in slots(instruction) {
            let value = self.value(slot);
            let mesh = value.layout().mesh();
            if updates && chosen.is_none() && mesh.len() > 1 {
                return mesh.clone();
            }
            let many = value.meta().elements() > 1;
            if chosen.is_none_or(|(most, other)| (many, mesh.len()) > (most, other.len())) {
                chosen = Some((many, mesh));
            }
        }
        let Some((_, mesh)) = chosen else {
            unreachable!("{:?} has operands, or it is a creation", instruction.op)
        };
        mesh.clone()
    }

    /// Returns true if the mesh is the one worker that holds all the operands.
    pub(super) fn stays_on(&self, instruction: &Instruction<'_>, mesh: &Mesh) -> bool {
        let only = mesh.single();
        only.is_some() && slots(instruction).all(|slot| self.value(slot).layout().single() == only)
    }

    /// Gives a layer's weight the layout that the scope requests, permanently.
    pub(super) fn place_weight(&mut self, instruction: &Instruction<'_>, placing: &PlacingScope) {
        let PlacingScope { scope, mesh } = placing;
        let Some(weight) = instruction.op.info().weight else { return };
        let operand = instruction.operands.get(weight.operand);
        let Some(slot) = operand.and_then(|operand| match operand {
            Operand::Value(id) => id.as_slot(),
            Operand::Absent | Operand::Scalar(_) => None,
        }) else {
            return;
        };
        let value = self.value(slot);
        if value.meta().dims.len() != 2 || !value.layout().is_whole() {
            return;
        }
        let dims = value.meta().dims;
        let members = value.layout().mesh().members();
        let elsewhere = members.iter().all(|&worker| mesh.place(worker).is_none());
        // The scope's dimensions are those of [in, out].
        let stored = |dim: usize| if dim == 0 { weight.in_dim } else { weight.out_dim };
        let cuts = cuts(scope, mesh, 2).map(|cut| cut.map(stored));
        let layout = layout_of_cuts(scope, mesh, &dims, cuts);
        if !layout.is_whole() || elsewhere {
            self.reshard(slot, &layout, KeepCopy::Always);
            self.note_cause(slot, LayoutCause::Scope(Some(instruction.signal)));
        }
    }

    /// Notes the reason why a value's layout is not its original one.
    pub(super) fn note_cause(&mut self, slot: u32, cause: LayoutCause) {
        // Creating a deferred value may have failed.
        if let Some(value) = self.session.value_mut(slot) {
            value.set_cause(cause);
        }
    }
}

/// The tensor dimension that each mesh dimension shards, for a tensor of `rank` dimensions.
fn cuts<'s>(
    scope: &'s Scope,
    mesh: &'s Mesh,
    rank: usize,
) -> impl Iterator<Item = Option<usize>> + 's {
    let normal = move |dim: i64| {
        let rank = signed(rank);
        let dim = if dim < 0 { dim + rank } else { dim };
        usize::try_from(dim).ok().filter(|_| dim < rank)
    };
    let last = mesh.rank().saturating_sub(1);
    (0..mesh.rank()).map(move |axis| {
        if scope.replicated {
            return None;
        }
        if scope.placements.is_empty() {
            // A plain axis is sharded over the last dimension of the mesh.
            return scope.axis.filter(|_| axis == last).and_then(normal);
        }
        match scope.placements.get(axis) {
            Some(ScopePlacement::Shard { dim }) => normal(*dim),
            Some(ScopePlacement::Replicate) | None => None,
        }
    })
}

fn layout_of_cuts(
    scope: &Scope,
    mesh: &Mesh,
    dims: &Dims,
    cuts: impl Iterator<Item = Option<usize>>,
) -> Layout {
    let blocks = scope.blocks.map_or(1, i64::from);
    let mut placements = Placements::new();
    for (axis, cut) in cuts.enumerate() {
        let is_cut = |dim: usize| placements.iter().any(|placement| placement.cut() == Some(dim));
        let dim = cut.filter(|&dim| !is_cut(dim));
        placements.push(match dim.and_then(|dim| Some((dim, *dims.get(dim)?))) {
            Some((dim, size)) => Placement::Shard {
                dim,
                ranges: ShardRanges::blocked(size, blocks, mesh.size(axis)),
            },
            None => Placement::Replicate,
        });
    }
    Layout::new(mesh.clone(), placements)
}

/// The layout of a tensor that is created in the scope.
pub(crate) fn created_layout(placing: &PlacingScope, dims: &Dims) -> Layout {
    let PlacingScope { scope, mesh } = placing;
    layout_of_cuts(scope, mesh, dims, cuts(scope, mesh, dims.len()))
}
