//! Operands that are contributions: what the row says of sums, order and selection decides whether the result is made of
//! contributions too. An operator of which it says nothing gets whole operands.

use super::contract;
use super::spec::{OpSpec, Strategy};
use crate::operator::{AttrTest, Condition, Family, Fill, OperandGroup};
use crate::placement::{Placement, ReduceOp};
use crate::{Attr, Dtype};

/// The operand at `position` holds contributions that `reduce_op` combines.
pub(super) fn partial(spec: &OpSpec<'_>, position: usize, reduce_op: ReduceOp) -> Option<Strategy> {
    selects(spec, position, reduce_op)
        .or_else(|| linear(spec, position, reduce_op))
        .or_else(|| reduces(spec, reduce_op))
        .or_else(|| monotone(spec, position, reduce_op))
}

/// Elements are handed on as they are, so that results combine as they do.
fn selects(spec: &OpSpec<'_>, position: usize, reduce_op: ReduceOp) -> Option<Strategy> {
    let info = spec.op.info();
    let term = spec.term(info.selects, position)?;
    let is_partial = |at: usize| spec.is_partial(at, reduce_op);
    if repeats(reduce_op) {
        // Whatever is whole may be among the contributions as often as it likes.
        let passes = |at| spec.covers(term, at) && is_partial(at) && spec.ordered(at);
        return passes(position).then(|| spec.contributions(reduce_op, passes));
    }
    let is_shard = *spec.attr("total") != Attr::Absent;
    let fills = match info.fills {
        Fill::Nothing if !is_shard => true,
        Fill::Nothing | Fill::Zero => reduce_op == ReduceOp::Sum,
        Fill::Attr(place) => {
            reduce_op == ReduceOp::Sum && spec.attrs.get(place) == Some(&Attr::Float(0.0))
        }
    };
    let covered = |at: &usize| spec.covers(term, *at);
    let all = (0..spec.args.len()).filter(covered).all(|at| is_partial(at) && spec.widens(at));
    (fills && all).then(|| spec.contributions(reduce_op, |at| covered(&at)))
}

/// Sums pass; a sum and a whole value do not add up, for each member would add the value once more.
fn linear(spec: &OpSpec<'_>, position: usize, reduce_op: ReduceOp) -> Option<Strategy> {
    let info = spec.op.info();
    let term = spec.term(info.linear, position).filter(|_| reduce_op == ReduceOp::Sum)?;
    // What is written to is mostly new zeros, and those are as good as contributions.
    let takes = |at: usize| info.family == Family::Index && spec.meta(at).is_some();
    let adds = |at: usize| {
        (spec.is_partial(at, reduce_op) || takes(at))
            && spec.widens(at)
            && spec.meta(at).is_some_and(|meta| meta.dtype != Dtype::Bool)
    };
    let covered = |at: &usize| spec.covers(term, *at);
    if !(0..spec.args.len()).filter(covered).all(adds) {
        return None;
    }
    let strategy = spec.contributions(reduce_op, |at| covered(&at));
    Some(if info.family == Family::Contract {
        contract::added_once(spec, strategy)
    } else {
        strategy
    })
}

/// The operator combines its operands, or the elements of its only one, just so.
fn reduces(spec: &OpSpec<'_>, reduce_op: ReduceOp) -> Option<Strategy> {
    let info = spec.op.info();
    let passes = |at: usize| spec.is_partial(at, reduce_op) && spec.widens(at);
    let any = (0..spec.args.len()).any(passes);
    let whole = repeats(reduce_op) || spec.args.len() == 1;
    (info.reduce == Some(reduce_op) && any && whole).then(|| spec.contributions(reduce_op, passes))
}

/// The extreme one of several functions of one operand is the function of the extreme one, for every number: what is no
/// number stays none, or the reduction would lose it. What falls makes the largest the smallest; of integers the least has
/// no opposite.
fn monotone(spec: &OpSpec<'_>, position: usize, reduce_op: ReduceOp) -> Option<Strategy> {
    let term = spec.term(spec.op.info().monotone, position)?;
    let is_float = spec.meta(position)?.dtype.is_float();
    let (true, true) = (spec.ordered(position), is_float || !term.falls) else { return None };
    let result = match (reduce_op, term.falls) {
        (ReduceOp::Max | ReduceOp::Min, false) => reduce_op,
        (ReduceOp::Max, true) => ReduceOp::Min,
        (ReduceOp::Min, true) => ReduceOp::Max,
        (ReduceOp::Sum | ReduceOp::Prod, _) => return None,
    };
    let mut strategy = spec.contributions(reduce_op, |at| at == position);
    strategy.output_specs = spec.outputs.iter().map(|_| Placement::Partial(result)).collect();
    Some(strategy)
}

/// Whether a contribution that counts twice changes nothing.
fn repeats(reduce_op: ReduceOp) -> bool {
    matches!(reduce_op, ReduceOp::Max | ReduceOp::Min)
}

impl OpSpec<'_> {
    /// The term that holds here and has this operand.
    pub(super) fn term(
        &self,
        terms: &'static [OperandGroup],
        position: usize,
    ) -> Option<&'static OperandGroup> {
        terms.iter().find(|term| {
            self.covers(term, position) && term.condition.is_none_or(|test| self.holds(test))
        })
    }

    /// Whether the operand is one of the term's: all values of a list are at its place.
    fn covers(&self, term: &OperandGroup, position: usize) -> bool {
        let last = self.op.info().operands.len().saturating_sub(1);
        term.operands >> position.min(last) & 1 != 0
    }

    fn holds(&self, condition: Condition) -> bool {
        match (condition.test, self.attrs.get(condition.attr)) {
            (AttrTest::True, Some(Attr::Bool(value))) => *value,
            (AttrTest::False, Some(Attr::Bool(value))) => !*value,
            (AttrTest::NotNegative, Some(Attr::Float(value))) => *value >= 0.0,
            (AttrTest::Zero, Some(Attr::Float(value))) => *value == 0.0,
            (_, _) => false,
        }
    }

    fn is_partial(&self, position: usize, reduce_op: ReduceOp) -> bool {
        self.args.get(position).is_some_and(|arg| {
            arg.meta.is_some() && *arg.placement == Placement::Partial(reduce_op)
        })
    }

    /// These operands hold contributions, the others are whole, and the results are contributions.
    fn contributions(&self, reduce_op: ReduceOp, passes: impl Fn(usize) -> bool) -> Strategy {
        let partial = || Placement::Partial(reduce_op);
        let need = |at| if passes(at) { partial() } else { Placement::Replicate };
        self.strategy((0..self.args.len()).map(need), self.outputs.iter().map(|_| partial()))
    }

    /// Whether every value of the operand's dtype is one of the results', and as precise there. Contributions of integers
    /// add up in their own dtype only: they may wrap round; those of floats are no integers.
    fn widens(&self, position: usize) -> bool {
        let Some(meta) = self.meta(position) else { return false };
        self.outputs.iter().all(|output| {
            let floats = meta.dtype.is_float() && output.dtype.is_float();
            output.dtype == meta.dtype || floats && output.dtype.size() > meta.dtype.size()
        })
    }

    /// Whether the results keep the order of the operand's elements: floats have them all, if not as precisely.
    fn ordered(&self, position: usize) -> bool {
        let dtype = self.meta(position).map(|meta| meta.dtype);
        self.outputs.iter().all(|output| output.dtype.is_float() || Some(output.dtype) == dtype)
    }
}
