//! Inputs and outputs of the rules in this folder.

use crate::placement::{Placement, Placements, ShardRanges};
use crate::{Attr, Dims, Meta, Op};
use smallvec::SmallVec;
use std::sync::Arc;

/// Properties of an operand that a rule sees: its metadata (none for a scalar or an absent one) and
/// its placement along one dimension of a mesh.
#[derive(Clone, Copy, Debug)]
pub struct InputSpec<'a> {
    pub meta: Option<&'a Meta>,
    pub placement: &'a Placement,
}

/// Properties of an instruction that a sharding rule sees.
#[derive(Clone, Copy, Debug)]
pub struct OpSpec<'a> {
    pub op: Op,
    pub args: &'a [InputSpec<'a>],
    pub attrs: &'a [Attr],
    pub outputs: &'a [Meta],
    /// Number of members along this dimension of the mesh.
    pub members: usize,
}

/// Attributes or operands of an instruction that differ between members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalAttr {
    /// Entry `entry` of the sizes in attribute `attr` is the size of the member's shard.
    Size { attr: usize, entry: usize, ranges: ShardRanges },
    /// Attributes `start` and `end` bound the part of the global range that the member holds; with
    /// a `step` other than 1, the member must hold one interval.
    Window { start: usize, end: usize, step: i64, ranges: ShardRanges },
    /// Entries `entry` and `entry + 1` of the amounts in attribute `attr` apply to the members that
    /// hold the first and the last index.
    Ends { attr: usize, entry: usize, ranges: ShardRanges },
    /// Start of the member's only interval, times `factor`, is added to attribute `attr`.
    Shift { attr: usize, factor: i64, ranges: ShardRanges },
    /// Attributes `start` and `end` bound the part of a range of integers that is the member's only
    /// interval.
    Steps { start: usize, end: usize, step: i64, ranges: ShardRanges },
    /// Attribute `start` is the start of the member's only interval, `total` the size of the whole
    /// dimension: indices outside of the interval count as zeros, those outside of the whole are
    /// errors.
    Range { start: usize, total: usize, size: i64, ranges: ShardRanges },
    /// Number `entry` of the list in attribute `attr` is the size of the member's shard.
    Stated { attr: usize, entry: usize, ranges: ShardRanges },
    /// The member's numbers are appended to the list in attribute `attr`.
    Listed { attr: usize, numbers: Arc<[Box<[i64]>]> },
    /// Attribute `attr` has this value on every member.
    Value { attr: usize, value: i64 },
    /// A random box: attribute `global` is the whole shape, entry `dim` of `start` the position of
    /// the shard in it.
    Box { global: usize, start: usize, dim: usize, ranges: ShardRanges },
    /// Only the first member has the operand: a bias is added once.
    First { operand: usize },
}

/// One way to run an operator along one dimension of a mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strategy {
    /// The placement that each operand must have.
    pub input_specs: SmallVec<[Placement; 4]>,
    /// The placement of each result.
    pub output_specs: Placements,
    pub local_attrs: SmallVec<[LocalAttr; 1]>,
}

/// A sharded operand: its position, the dimension, that dimension's size and the shards.
#[derive(Clone, Copy)]
pub(super) struct Driving<'a> {
    pub(super) position: usize,
    pub(super) dim: usize,
    pub(super) size: i64,
    pub(super) ranges: &'a ShardRanges,
}

/// Function that keeps the sharding of the driving operand; the row names it.
pub(super) type Follow = fn(&OpSpec<'_>, Driving<'_>) -> Option<Strategy>;

/// Keeps no operand's sharding.
pub(super) fn gathered(_spec: &OpSpec<'_>, _driving: Driving<'_>) -> Option<Strategy> {
    None
}

/// The placement of a sharded dimension.
pub(super) fn cut(dim: usize, ranges: &ShardRanges) -> Placement {
    Placement::Shard { dim, ranges: ranges.clone() }
}

pub(super) fn normal(dim: i64, rank: usize) -> Option<usize> {
    let rank_signed = i64::try_from(rank).ok()?;
    let dim = if dim < 0 { dim + rank_signed } else { dim };
    usize::try_from(dim).ok().filter(|&dim| dim < rank)
}

impl<'a> OpSpec<'a> {
    /// The strategy in which all operands and results are whole.
    pub fn whole(&self) -> Strategy {
        Strategy {
            input_specs: self.args.iter().map(|_| Placement::Replicate).collect(),
            output_specs: self.outputs.iter().map(|_| Placement::Replicate).collect(),
            local_attrs: SmallVec::new(),
        }
    }

    pub(super) fn meta(&self, position: usize) -> Option<&'a Meta> {
        self.args.get(position)?.meta
    }

    pub(super) fn rank(&self, position: usize) -> Option<usize> {
        Some(self.meta(position)?.dims.len())
    }

    pub(super) fn out_rank(&self) -> Option<usize> {
        Some(self.outputs.first()?.dims.len())
    }

    pub(super) fn attr(&self, name: &str) -> &'a Attr {
        self.op
            .info()
            .attr_index(name)
            .and_then(|index| self.attrs.get(index))
            .unwrap_or(&Attr::Absent)
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        match self.attr(name) {
            Attr::Int(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn dim(&self, name: &str, rank: usize) -> Option<usize> {
        normal(self.int(name)?, rank)
    }

    pub(super) fn ints(&self, name: &str) -> Option<Dims> {
        match self.attr(name) {
            Attr::Ints(dims) => Some(*dims),
            _ => None,
        }
    }

    /// The strategy with these placements of the operands (absent ones are whole) and of the results.
    pub(super) fn strategy(
        &self,
        input_specs: impl IntoIterator<Item = Placement>,
        output_specs: impl IntoIterator<Item = Placement>,
    ) -> Strategy {
        let mut input_specs: SmallVec<[Placement; 4]> = input_specs.into_iter().collect();
        input_specs.resize(self.args.len(), Placement::Replicate);
        for (need, arg) in input_specs.iter_mut().zip(self.args) {
            if arg.meta.is_none() {
                *need = Placement::Replicate;
            }
        }
        let mut output_specs: Placements = output_specs.into_iter().collect();
        output_specs.resize(self.outputs.len(), Placement::Replicate);
        Strategy { input_specs, output_specs, local_attrs: SmallVec::new() }
    }

    /// Every operand that is a value with a dimension of the driving operand's size at the same
    /// distance from its end is sharded there; the others stay whole.
    pub(super) fn aligned(
        &self,
        from_end: usize,
        driving: Driving<'_>,
    ) -> SmallVec<[Placement; 4]> {
        let need = |arg: &InputSpec<'_>| {
            let meta = arg.meta?;
            let dim = meta.dims.len().checked_sub(from_end)?;
            (meta.dims.get(dim) == Some(&driving.size)).then(|| cut(dim, driving.ranges))
        };
        self.args.iter().map(|arg| need(arg).unwrap_or_default()).collect()
    }

    /// All operands are sharded at the driving operand's dimension, in which they must have its
    /// size; every result is sharded at `to`.
    pub(super) fn alike(&self, driving: Driving<'_>, to: usize) -> Option<Strategy> {
        let fits = |arg: &InputSpec<'_>| {
            arg.meta.is_none_or(|meta| meta.dims.get(driving.dim) == Some(&driving.size))
        };
        self.args.iter().all(fits).then(|| {
            let input_specs = self.args.iter().map(|_| cut(driving.dim, driving.ranges));
            self.strategy(input_specs, self.outputs.iter().map(|_| cut(to, driving.ranges)))
        })
    }
}
