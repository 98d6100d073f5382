//! `rebalance`: a session's values go to the workers that are there now. Each gets the layout that it
//! would have if it were made now, at its next use; nothing moves before.

use crate::event::{ClientFault, WorkerIndex};
use crate::plan::created_layout;
use crate::planner::Planner;
use crate::session::provenance::{Decider, LayoutCause, OverAll};
use crate::session::reductions::Reductions;
use crate::session::requests::request_number;
use crate::session::uploads::UploadHistory;
use crate::session::value::{PendingLayout, Value};
use gt_protocol::message::ToClient;
use gt_protocol::placement::{Layout, Mesh, Placement, ShardRanges};
use gt_protocol::{Dims, Instruction};
use smallvec::SmallVec;

/// The session's old home, and its new one.
#[derive(Clone, Copy)]
struct HomeChange {
    from: WorkerIndex,
    to: WorkerIndex,
}

impl Planner<'_> {
    /// The instruction `rebalance`.
    pub(super) fn rebalance(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        let request = request_number(instruction)?;
        self.trace_plain(instruction);
        self.launch_all_buckets();
        let home = self.change_home();
        // The layouts in the history are over other workers.
        self.session.uploads = UploadHistory::default();
        self.session.reductions = Reductions::default();
        let all: SmallVec<[u32; 8]> = self.session.values().map(|(slot, _)| slot).collect();
        let mut count = 0;
        for slot in all {
            if let Some(layout) = self.rebalanced(slot, home) {
                self.value_mut(slot).set_pending(PendingLayout::Rebalance(layout));
                count += 1;
            }
        }
        let text = format!("values={count}");
        self.sink.session(self.id, &ToClient::Description { request, text: &text });
        Ok(())
    }

    /// Returns true if a layout's workers were all that there were, at some time of the session.
    fn was_over_all(&self, layout: &Layout) -> bool {
        let since = self.session.first_epoch;
        since.is_some_and(|since| self.core.workers.were_all(layout.mesh().members(), since))
    }

    fn change_home(&mut self) -> Option<HomeChange> {
        let from = self.session.home?;
        self.session.home = self.core.workers.better_home(from);
        let to = self.session.home?;
        (to != from).then_some(HomeChange { from, to })
    }

    /// The layout that a value would have if it were made now; `None` if it has it.
    fn rebalanced(&mut self, slot: u32, home: Option<HomeChange>) -> Option<Layout> {
        let value = self.session.value(slot)?;
        let (layout, dims) = (value.target().clone(), value.meta().dims);
        if layout.is_partial() {
            return None; // its reduction is still to come, in the order that its mesh gives
        }
        let (signal, asked) = (signal_of(value), over_all_of(value));
        let is_made = value.cause() == LayoutCause::AsMade;
        let alive = self.core.workers.alive();
        let all = Mesh::line(alive);
        let wanted = if let Some(signal) = signal {
            let placing = self.placing_scope(signal)?;
            if is_made {
                Some(created_layout(&placing, &dims))
            } else {
                over(&layout, &placing.mesh, &dims)
            }
        } else if let Some(asked) = asked {
            Some(asked_layout(asked, all, &dims))
        } else if layout.single().is_none() && self.was_over_all(&layout) {
            over(&layout, &all, &dims)
        } else {
            let moves = home.filter(|home| layout.single() == Some(home.from));
            moves.map(|home| Layout::on(home.to))
        };
        wanted.filter(|wanted| *wanted != layout)
    }
}

/// The signal whose scope gives a value its layout.
fn signal_of(value: &Value) -> Option<u16> {
    match value.cause() {
        LayoutCause::Scope(Some(signal)) => return Some(signal),
        LayoutCause::AsMade
        | LayoutCause::Scope(None)
        | LayoutCause::Instruction(_)
        | LayoutCause::Unknown
        | LayoutCause::Rebalanced => {}
    }
    let provenance = value.provenance()?;
    (provenance.decider == Decider::Scope).then_some(provenance.signal)
}

/// The layout over all workers that the client has asked for.
fn over_all_of(value: &Value) -> Option<OverAll> {
    match value.provenance()?.decider {
        Decider::Request(asked) => asked,
        Decider::UploadHistory | Decider::Scope | Decider::Strategy => None,
    }
}

fn asked_layout(asked: OverAll, mesh: Mesh, dims: &Dims) -> Layout {
    match asked {
        OverAll::Sharded(dim) if let Some(&size) = dims.get(dim) => {
            let ranges = ShardRanges::even(size, mesh.len());
            Layout::new(mesh, [Placement::Shard { dim, ranges }].into_iter().collect())
        }
        OverAll::Sharded(_) | OverAll::Replicated => Layout::replicated(mesh),
    }
}

/// A layout over a line of workers, over another line; `None` for a mesh of several dimensions, and
/// for shards of sizes that the program has chosen.
fn over(layout: &Layout, mesh: &Mesh, dims: &Dims) -> Option<Layout> {
    let [placement] = layout.placements() else { return None };
    if mesh.rank() != 1 {
        return None;
    }
    match placement {
        Placement::Replicate => Some(Layout::replicated(mesh.clone())),
        Placement::Shard { dim, ranges } => {
            let &size = dims.get(*dim)?;
            let blocks = i64::try_from(ranges.iter().map(<[_]>::len).max()?).ok()?;
            if *ranges != ShardRanges::blocked(size, blocks, ranges.len()) {
                return None;
            }
            let ranges = ShardRanges::blocked(size, blocks, mesh.len());
            let placement = Placement::Shard { dim: *dim, ranges };
            Some(Layout::new(mesh.clone(), [placement].into_iter().collect()))
        }
        Placement::Partial(_) => None,
    }
}
