//! Where the pieces of a value are: over which workers, and which part of it each one holds.

use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// A half-open range of indexes along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    pub start: i64,
    pub end: i64,
}

impl Interval {
    pub fn len(self) -> i64 {
        self.end - self.start
    }

    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// Which indexes of the cut dimension each member of the mesh holds. A member may hold none, or several intervals.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pieces(Arc<[SmallVec<[Interval; 1]>]>);

impl Pieces {
    /// `size` indexes over `members`, in order; the first `size % members` hold one more than the others.
    pub fn even(size: i64, members: usize) -> Self {
        let count = i64::try_from(members).unwrap_or(1).max(1);
        let (base, extra) = (size / count, size % count);
        let mut start = 0;
        let cut = (0..count).map(|member| {
            let end = start + base + i64::from(member < extra);
            let interval = Interval { start, end };
            start = end;
            SmallVec::from_elem(interval, 1)
        });
        Self(cut.collect())
    }

    /// How many indexes each member holds.
    pub fn sizes(&self) -> impl Iterator<Item = i64> + '_ {
        self.0.iter().map(|intervals| intervals.iter().map(|interval| interval.len().max(0)).sum())
    }

    /// The intervals of each member.
    pub fn iter(&self) -> impl Iterator<Item = &[Interval]> + '_ {
        self.0.iter().map(SmallVec::as_slice)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How a value lies over a mesh of one dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Every member holds all of it.
    Replicate,
    /// Member k holds piece k of dimension `dim`.
    Shard { dim: usize, pieces: Pieces },
}

/// An arrangement of workers, by index. Meshes of one member are where unsharded values live.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mesh(Arc<[u32]>);

impl Mesh {
    pub fn new(members: &[u32]) -> Self {
        Self(members.into())
    }

    pub fn members(&self) -> &[u32] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The only member, where there is just one.
    pub fn single(&self) -> Option<u32> {
        match *self.0 {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// A mesh and the placement on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    pub mesh: Mesh,
    pub placement: Placement,
}

/// `shard(0)@[0,1]`
impl fmt::Display for Layout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.placement {
            Placement::Replicate => out.write_str("replicate@[")?,
            Placement::Shard { dim, .. } => write!(out, "shard({dim})@[")?,
        }
        for (position, member) in self.mesh.members().iter().enumerate() {
            write!(out, "{}{member}", if position == 0 { "" } else { "," })?;
        }
        out.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::Pieces;

    #[test]
    fn uneven_and_empty_pieces_cover_the_dimension_once() {
        for (size, members, expected) in
            [(7, 2, vec![4, 3]), (1, 2, vec![1, 0]), (0, 3, vec![0, 0, 0]), (8, 3, vec![3, 3, 2])]
        {
            let pieces = Pieces::even(size, members);
            assert_eq!(pieces.sizes().collect::<Vec<_>>(), expected);
            let mut next = 0;
            for intervals in pieces.iter() {
                assert_eq!(intervals[0].start, next);
                next = intervals[0].end;
            }
            assert_eq!(next, size);
        }
    }
}
