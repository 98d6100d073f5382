//! Results without operands: each worker makes what it is to hold of them, and only that where a rule says how.

use super::choose::Choice;
use super::run::{Placed, Run};
use crate::handle::Shards;
use crate::motion::Mover;
use gt_protocol::placement::{Intervals, Layout, Pieces, Placement};
use gt_protocol::rules::RuleError;
use gt_protocol::rules::spread::{Question, made};
use smallvec::SmallVec;

impl Mover<'_> {
    /// A result without operands, made as `layout` says.
    pub(super) fn create(&mut self, run: Run<'_>, layout: &Layout) -> Result<Placed, RuleError> {
        if let Some(placed) = self.create_pieces(run, layout) {
            return Ok(placed);
        }
        let whole = self.run(run, &[], layout.mesh())?;
        let mut cut = Placed::new();
        for (meta, shards) in whole {
            let brought = self.redistribute(meta, &shards, layout);
            if brought.owned {
                self.free_shards(&shards);
            }
            cut.push((meta, Shards { layout: layout.clone(), slots: brought.slots }));
        }
        Ok(cut)
    }

    /// Each member makes its piece; `None` where it has to be cut out of the whole.
    ///
    /// A random number follows from its place in a box of the whole, and a piece of several intervals (of a fused
    /// projection) is no box: its intervals are made one by one and joined.
    fn create_pieces(&mut self, run: Run<'_>, layout: &Layout) -> Option<Placed> {
        if let Some(choice) = made_as(run, layout) {
            return Some(self.run_one(run, &[], layout.mesh(), &choice));
        }
        let (axis, dim, pieces) = in_intervals(layout)?;
        let mut made: SmallVec<[Shards; 4]> = SmallVec::new();
        for part in one_interval_each(pieces) {
            let part = layout.with(axis, Placement::Shard { dim, pieces: part });
            let (_, shards) = self.create_pieces(run, &part)?.pop()?;
            made.push(shards);
        }
        let dim = i64::try_from(dim).ok()?;
        let join = |(place, &worker): (usize, &u32)| {
            let parts = made.iter().filter_map(|shards| shards.slots.get(place).copied());
            let parts: SmallVec<[u32; 4]> = parts.collect();
            self.join(worker, &parts, dim)
        };
        let slots = layout.mesh().members().iter().enumerate().map(join).collect();
        let meta = *run.outputs.first()?;
        Some(Placed::from_iter([(meta, Shards { layout: layout.clone(), slots })]))
    }
}

/// What each member makes, where one instruction makes all of its piece.
fn made_as(run: Run<'_>, layout: &Layout) -> Option<Choice> {
    let mut locals = SmallVec::new();
    for (axis, placement) in layout.placements().iter().enumerate() {
        let Placement::Shard { dim, pieces } = placement else { continue };
        let question = Question {
            op: run.op,
            args: &[],
            attrs: run.attrs,
            outputs: run.outputs,
            members: layout.mesh().size(axis),
        };
        let strategy = made(&question, *dim, pieces)?;
        locals.extend(strategy.locals.into_iter().map(|local| (axis, local)));
    }
    if layout.is_partial() {
        return None;
    }
    Some(Choice { needs: SmallVec::new(), gives: SmallVec::from_iter([layout.clone()]), locals })
}

/// The first cut of which some member holds several intervals: the mesh dimension, the tensor dimension, the pieces.
fn in_intervals(layout: &Layout) -> Option<(usize, usize, &Pieces)> {
    layout.placements().iter().enumerate().find_map(|(axis, placement)| match placement {
        Placement::Shard { dim, pieces } if most(pieces) > 1 => Some((axis, *dim, pieces)),
        Placement::Shard { .. } | Placement::Replicate | Placement::Partial(_) => None,
    })
}

/// How many intervals a member holds at the most.
fn most(pieces: &Pieces) -> usize {
    pieces.iter().map(<[_]>::len).max().unwrap_or(0)
}

/// Everybody's first interval, everybody's second one, and so on; of those who have no such one, nothing.
fn one_interval_each(pieces: &Pieces) -> impl Iterator<Item = Pieces> {
    (0..most(pieces)).map(|turn| {
        let own = |held: &[_]| held.get(turn).copied().map_or_else(Intervals::new, Intervals::from);
        Pieces::new(pieces.iter().map(own))
    })
}
