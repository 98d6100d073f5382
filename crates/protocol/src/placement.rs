//! Positions of a value's shards: the workers that hold it, and the part that each of them holds.
//!
//! A [`Layout`] is a [`Mesh`] of workers in one, two or three dimensions and one [`Placement`] for
//! each of its dimensions. Two mesh dimensions never cut the same tensor dimension: such a layout
//! is one cut over a mesh of one dimension.

mod footprint;
mod mesh;
mod ranges;
#[cfg(test)]
mod tests;
mod text;

pub use footprint::{Footprint, StridedPositions};
pub use mesh::{MESH_DIMS_MAX, MESH_MEMBERS_MAX, Mesh};
pub use ranges::{Interval, Intervals, ShardRanges};
pub use text::LayoutError;

use crate::digest::Digest;
use crate::value::Dims;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Maximum bytes of a reduction among three or more members in one hop, in which every member sends
/// its contribution to all others: up to this size the wait for a second hop costs more than the
/// bytes that it saves. Between two members it saves none. The workers apply this rule, and
/// planners assume it.
pub const ONE_HOP_BYTES_MAX: u64 = 16 * 1024;

/// Operation that combines partial results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    Sum,
    Max,
    Min,
    Prod,
}

impl ReduceOp {
    /// Index in the choice `reduce` of a collective.
    pub const fn choice(self) -> u8 {
        match self {
            Self::Sum => 0,
            Self::Max => 1,
            Self::Min => 2,
            Self::Prod => 3,
        }
    }

    /// The operation at an index of that choice.
    pub fn from_choice(place: u8) -> Option<Self> {
        [Self::Sum, Self::Max, Self::Min, Self::Prod].into_iter().find(|one| one.choice() == place)
    }

    /// Its word in that choice, and in a layout's text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Max => "max",
            Self::Min => "min",
            Self::Prod => "prod",
        }
    }
}

/// The placement of a value along one dimension of a mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Every member holds all of it.
    #[default]
    Replicate,
    /// Member k holds shard k of dimension `dim`.
    Shard { dim: usize, ranges: ShardRanges },
    /// Every member holds a contribution of the whole shape; their reduction is the value.
    Partial(ReduceOp),
}

impl Placement {
    /// The tensor dimension that is sharded.
    pub fn cut(&self) -> Option<usize> {
        match self {
            Self::Shard { dim, .. } => Some(*dim),
            Self::Replicate | Self::Partial(_) => None,
        }
    }

    pub fn is_partial(&self) -> bool {
        matches!(self, Self::Partial(_))
    }

    /// Returns true if one member holds everything, though several could share it: a slice of few
    /// rows that stayed on its member.
    pub fn is_alone(&self) -> bool {
        let Self::Shard { ranges, .. } = self else { return false };
        let (total, most) = (ranges.total(), ranges.sizes().max().unwrap_or(0));
        most == total && usize::try_from(total).is_ok_and(|total| total >= ranges.len())
    }
}

/// One placement for each dimension of a mesh.
pub type Placements = SmallVec<[Placement; 2]>;

/// A mesh and the placements on it. Cheap to copy.
#[derive(Clone, Debug, Eq)]
pub struct Layout(Arc<LayoutParts>);

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

/// Hashes the digest that was computed when the layout was made.
impl Hash for Layout {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.digest.hash(state);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct LayoutParts {
    /// First field, so that different layouts compare unequal at once.
    digest: u64,
    mesh: Mesh,
    placements: Placements,
    single: Option<u32>,
}

impl Layout {
    /// Makes a layout. Placements beyond the mesh's dimensions are dropped; absent ones replicate,
    /// and so does a shard that one member holds alone.
    pub fn new(mesh: Mesh, mut placements: Placements) -> Self {
        placements.resize(mesh.rank(), Placement::Replicate);
        for (axis, placement) in placements.iter_mut().enumerate() {
            if mesh.size(axis) == 1 {
                *placement = Placement::Replicate;
            }
        }
        let single = mesh.single();
        let mut hasher = Digest::default();
        (&mesh, &placements).hash(&mut hasher);
        let digest = hasher.finish();
        Self(Arc::new(LayoutParts { digest, mesh, placements, single }))
    }

    /// A replicated layout.
    pub fn replicated(mesh: Mesh) -> Self {
        Self::new(mesh, Placements::new())
    }

    /// A layout of one worker.
    pub fn on(worker: u32) -> Self {
        Self::replicated(Mesh::line(&[worker]))
    }

    pub fn mesh(&self) -> &Mesh {
        &self.0.mesh
    }

    pub fn placements(&self) -> &[Placement] {
        &self.0.placements
    }

    /// The only worker that holds the value, where there is just one.
    #[inline]
    pub fn single(&self) -> Option<u32> {
        self.0.single
    }

    /// Returns true if every member holds the whole value.
    pub fn is_whole(&self) -> bool {
        self.placements().iter().all(|placement| *placement == Placement::Replicate)
    }

    pub fn is_partial(&self) -> bool {
        self.placements().iter().any(Placement::is_partial)
    }

    /// The mesh dimension that shards tensor dimension `dim`, and the ranges.
    pub fn cut_of(&self, dim: usize) -> Option<(usize, &ShardRanges)> {
        self.placements().iter().enumerate().find_map(|(axis, placement)| match placement {
            Placement::Shard { dim: cut, ranges } if *cut == dim => Some((axis, ranges)),
            Placement::Shard { .. } | Placement::Replicate | Placement::Partial(_) => None,
        })
    }

    /// Indices of dimension `dim` (of `size`) that the member at `place` holds.
    pub fn held(&self, place: usize, dim: usize, size: i64) -> Intervals {
        match self.cut_of(dim) {
            Some((axis, ranges)) => ranges.of(self.mesh().coordinate(place, axis)),
            None => Interval { start: 0, end: size }.into(),
        }
    }

    /// The shape of the shard that the member at `place` holds.
    pub fn local_dims(&self, dims: &Dims, place: usize) -> Dims {
        let mut local = *dims;
        for (axis, placement) in self.placements().iter().enumerate() {
            if let Placement::Shard { dim, ranges } = placement
                && let Some(size) = local.as_mut_slice().get_mut(*dim)
            {
                *size = ranges.size(self.mesh().coordinate(place, axis));
            }
        }
        local
    }

    /// The layout with `placement` along mesh dimension `axis`.
    #[must_use]
    pub fn with(&self, axis: usize, placement: Placement) -> Self {
        let mut placements = self.0.placements.clone();
        if let Some(place) = placements.get_mut(axis) {
            *place = placement;
        }
        Self::new(self.0.mesh.clone(), placements)
    }
}
