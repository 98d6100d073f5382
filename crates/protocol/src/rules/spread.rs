//! How operators run on shards, one file a family: which operands must be cut or whole, and what the results then are.
//!
//! A [`Strategy`] speaks of one dimension of a mesh. A mesh of several dimensions takes one strategy for each: an
//! operator on shards is the same operator on smaller shapes. A strategy follows from an operand that is cut or partial
//! already; the planner prices them. What no strategy covers is made whole first, which is slow and right.
//!
//! Operators that reduce what is cut in several steps stand in `decomposition`.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "an operator without a rule here is gathered, which is slow and right"
)]

mod contract;
mod create;
mod edges;
mod elementwise;
mod generated_strategies;
mod index;
mod loss;
mod normalize;
mod partial;
mod random;
mod reduce;
mod view;
mod writes;

use crate::placement::{Placement, Placements, ShardRanges};
use crate::{Attr, Dims, Family, Meta, Op};
use smallvec::SmallVec;

/// What a rule knows of an operand: its metadata (none for a scalar or an absent one) and how it lies along the mesh
/// dimension that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct SpreadArg<'a> {
    pub meta: Option<&'a Meta>,
    pub placement: &'a Placement,
}

/// What [`strategies`] is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub op: Op,
    pub args: &'a [SpreadArg<'a>],
    pub attrs: &'a [Attr],
    pub outputs: &'a [Meta],
    /// Members along this dimension of the mesh.
    pub members: usize,
}

/// What an instruction has on each member beside its operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// Entry `entry` of the sizes in attribute `attr` is the size of the member's shard.
    Size { attr: usize, entry: usize, ranges: ShardRanges },
    /// Attributes `start` and `end` bound what the member holds of the range that they bound globally; where `step` is
    /// not 1, of each so manieth index in it, and the member holds one interval.
    Window { start: usize, end: usize, step: i64, ranges: ShardRanges },
    /// Entries `entry` and `entry + 1` of the amounts in attribute `attr` stand on the members that hold the first and
    /// the last index.
    Ends { attr: usize, entry: usize, ranges: ShardRanges },
    /// Where the member's only interval begins is added to attribute `attr`, `factor` times.
    Shift { attr: usize, factor: i64, ranges: ShardRanges },
    /// Attributes `start` and `end` bound the part of a range of whole numbers that is the member's only interval.
    Steps { start: usize, end: usize, step: i64, ranges: ShardRanges },
    /// Attribute `start` is where the member's only interval begins, `total` the size of the whole dimension: indices
    /// outside of the interval count as zeros, those outside of the whole are errors.
    Range { start: usize, total: usize, size: i64, ranges: ShardRanges },
    /// Attribute `attr` is this on every member.
    Value { attr: usize, value: i64 },
    /// A random box: attribute `global` holds the whole shape, entry `dim` of `start` the place of the shard in it.
    Box { global: usize, start: usize, dim: usize, ranges: ShardRanges },
    /// The operand is there on the first member only: a bias is added once.
    First { operand: usize },
}

/// One way to run an operator along one dimension of a mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strategy {
    /// How each operand must lie.
    pub needs: SmallVec<[Placement; 4]>,
    /// How each result then lies.
    pub gives: Placements,
    pub locals: SmallVec<[Local; 1]>,
}

/// An operand that is cut: its position, the dimension, that dimension's size and the shards.
#[derive(Clone, Copy)]
struct Lead<'a> {
    position: usize,
    dim: usize,
    size: i64,
    ranges: &'a ShardRanges,
}

/// Everything that follows from how the operands lie. The last one is always there: all whole.
pub fn strategies(question: &Question<'_>) -> SmallVec<[Strategy; 4]> {
    let mut found: SmallVec<[Strategy; 4]> = SmallVec::new();
    for (position, arg) in question.args.iter().enumerate() {
        let Some(meta) = arg.meta else { continue };
        let strategy = match arg.placement {
            Placement::Replicate => None,
            Placement::Partial(reduce_op) => partial::partial(question, position, *reduce_op),
            Placement::Shard { dim, ranges } => meta.dims.get(*dim).and_then(|&size| {
                generated_strategies::TABLE.get(question.op.place())?(
                    question,
                    Lead { position, dim: *dim, size, ranges },
                )
            }),
        };
        if let Some(strategy) = strategy.filter(|strategy| !found.contains(strategy)) {
            found.push(strategy);
        }
    }
    found.push(question.whole());
    found
}

/// How an operator keeps the cut of the driving operand; the row names it.
type Follow = fn(&Question<'_>, Lead<'_>) -> Option<Strategy>;

/// No operand's cut is kept.
fn gathered(_question: &Question<'_>, _lead: Lead<'_>) -> Option<Strategy> {
    None
}

/// How a result without operands is made in shards of dimension `dim`; `None` where it is made whole and cut.
pub fn made(question: &Question<'_>, dim: usize, ranges: &ShardRanges) -> Option<Strategy> {
    match question.op.info().family {
        Family::Random => random::made(question, dim, ranges),
        Family::Create => create::made(question, dim, ranges),
        _ => None,
    }
}

/// Placement of a cut.
fn cut(dim: usize, ranges: &ShardRanges) -> Placement {
    Placement::Shard { dim, ranges: ranges.clone() }
}

fn normal(dim: i64, rank: usize) -> Option<usize> {
    let rank_signed = i64::try_from(rank).ok()?;
    let dim = if dim < 0 { dim + rank_signed } else { dim };
    usize::try_from(dim).ok().filter(|&dim| dim < rank)
}

impl<'a> Question<'a> {
    /// All operands whole, and so are the results.
    pub fn whole(&self) -> Strategy {
        Strategy {
            needs: self.args.iter().map(|_| Placement::Replicate).collect(),
            gives: self.outputs.iter().map(|_| Placement::Replicate).collect(),
            locals: SmallVec::new(),
        }
    }

    fn meta(&self, position: usize) -> Option<&'a Meta> {
        self.args.get(position)?.meta
    }

    fn rank(&self, position: usize) -> Option<usize> {
        Some(self.meta(position)?.dims.len())
    }

    fn out_rank(&self) -> Option<usize> {
        Some(self.outputs.first()?.dims.len())
    }

    fn attr(&self, name: &str) -> &'a Attr {
        self.op
            .info()
            .attr_index(name)
            .and_then(|index| self.attrs.get(index))
            .unwrap_or(&Attr::Absent)
    }

    fn int(&self, name: &str) -> Option<i64> {
        match self.attr(name) {
            Attr::Int(value) => Some(*value),
            _ => None,
        }
    }

    fn dim(&self, name: &str, rank: usize) -> Option<usize> {
        normal(self.int(name)?, rank)
    }

    fn ints(&self, name: &str) -> Option<Dims> {
        match self.attr(name) {
            Attr::Ints(dims) => Some(*dims),
            _ => None,
        }
    }

    /// The strategy with these needs (absent ones whole) and gives.
    fn answer(
        &self,
        needs: impl IntoIterator<Item = Placement>,
        gives: impl IntoIterator<Item = Placement>,
    ) -> Strategy {
        let mut needs: SmallVec<[Placement; 4]> = needs.into_iter().collect();
        needs.resize(self.args.len(), Placement::Replicate);
        for (need, arg) in needs.iter_mut().zip(self.args) {
            if arg.meta.is_none() {
                *need = Placement::Replicate;
            }
        }
        let mut gives: Placements = gives.into_iter().collect();
        gives.resize(self.outputs.len(), Placement::Replicate);
        Strategy { needs, gives, locals: SmallVec::new() }
    }

    /// Every value operand with a dimension of the lead's size as far from its end is cut there; the others stay whole.
    fn aligned(&self, from_end: usize, lead: Lead<'_>) -> SmallVec<[Placement; 4]> {
        let need = |arg: &SpreadArg<'_>| {
            let meta = arg.meta?;
            let dim = meta.dims.len().checked_sub(from_end)?;
            (meta.dims.get(dim) == Some(&lead.size)).then(|| cut(dim, lead.ranges))
        };
        self.args.iter().map(|arg| need(arg).unwrap_or_default()).collect()
    }

    /// All operands are cut at the lead's dimension, where each must have the lead's size; so is every result at `to`.
    fn alike(&self, lead: Lead<'_>, to: usize) -> Option<Strategy> {
        let fits = |arg: &SpreadArg<'_>| {
            arg.meta.is_none_or(|meta| meta.dims.get(lead.dim) == Some(&lead.size))
        };
        self.args.iter().all(fits).then(|| {
            let needs = self.args.iter().map(|_| cut(lead.dim, lead.ranges));
            self.answer(needs, self.outputs.iter().map(|_| cut(to, lead.ranges)))
        })
    }
}
