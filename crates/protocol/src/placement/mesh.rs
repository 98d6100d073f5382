//! An arrangement of workers.

use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Maximum number of dimensions of a mesh.
pub const MESH_DIMS_MAX: usize = 3;
/// Maximum number of members of a mesh: many times the number of workers. A collective names them
/// in one list.
pub const MESH_MEMBERS_MAX: usize = 4096;

/// Workers by index in one, two or three dimensions, the last one fastest. An unsharded value has a
/// mesh of one member.
#[derive(Clone, Debug, Eq)]
pub struct Mesh(Arc<MeshParts>);

impl PartialEq for Mesh {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Hash for Mesh {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.0.shape, &self.0.members).hash(state);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct MeshParts {
    shape: SmallVec<[usize; MESH_DIMS_MAX]>,
    members: Box<[u32]>,
}

impl Mesh {
    /// `None` where the shape does not match the members, a worker is named twice, or there are too
    /// many.
    pub fn new(shape: &[usize], members: &[u32]) -> Option<Self> {
        let count = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size))?;
        let fits = count == members.len() && (1..=MESH_MEMBERS_MAX).contains(&count);
        if !fits || shape.is_empty() || shape.len() > MESH_DIMS_MAX || has_twice(members) {
            return None;
        }
        Some(Self(Arc::new(MeshParts { shape: shape.into(), members: members.into() })))
    }

    /// A mesh of one dimension; the caller ensures that the members differ.
    pub fn line(members: &[u32]) -> Self {
        let shape = SmallVec::from_slice(&[members.len()]);
        Self(Arc::new(MeshParts { shape, members: members.into() }))
    }

    pub fn members(&self) -> &[u32] {
        &self.0.members
    }

    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.shape.len()
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.0.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.members.is_empty()
    }

    /// Number of members along dimension `axis`.
    pub fn size(&self, axis: usize) -> usize {
        let Some(&size) = self.0.shape.get(axis) else {
            unreachable!("dimension {axis} of {self}")
        };
        size
    }

    /// The only member, where there is just one.
    pub fn single(&self) -> Option<u32> {
        match *self.0.members {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The index of a worker among the members.
    pub fn place(&self, worker: u32) -> Option<usize> {
        self.0.members.iter().position(|&member| member == worker)
    }

    /// Returns true if all of `other`'s members are members.
    pub fn contains(&self, other: &Self) -> bool {
        other.members().iter().all(|&worker| self.place(worker).is_some())
    }

    fn stride(&self, axis: usize) -> usize {
        self.0.shape.iter().skip(axis + 1).product::<usize>().max(1)
    }

    /// Coordinate along dimension `axis` of the member at `place`.
    pub fn coordinate(&self, place: usize, axis: usize) -> usize {
        (place / self.stride(axis)) % self.size(axis).max(1)
    }

    /// The lines of members along dimension `axis`, by index: the members of a line differ in this
    /// coordinate only.
    pub fn lines(&self, axis: usize) -> impl Iterator<Item = SmallVec<[usize; 8]>> + '_ {
        let (stride, size) = (self.stride(axis), self.size(axis));
        (0..self.len())
            .filter(move |&place| self.coordinate(place, axis) == 0)
            .map(move |first| (0..size).map(|step| first + step * stride).collect())
    }

    /// The workers at these indices.
    pub fn workers(&self, places: &[usize]) -> SmallVec<[u32; 8]> {
        places.iter().filter_map(|&place| self.0.members.get(place).copied()).collect()
    }
}

fn has_twice(members: &[u32]) -> bool {
    let mut sorted = members.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| matches!(pair, [left, right] if left == right))
}
