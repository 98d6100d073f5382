//! Partial operands: the columns about linearity, order and selection decide whether the result is
//! partial too. An operator without these columns gets whole operands.

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

/// Elements are passed on unchanged, so that results combine as the operands do.
fn selects(spec: &OpSpec<'_>, position: usize, reduce_op: ReduceOp) -> Option<Strategy> {
    let info = spec.op.info();
    let term = spec.term(info.selects, position)?;
    let is_partial = |at: usize| spec.is_partial(at, reduce_op);
    if repeats(reduce_op) {
        // A whole operand may be among the contributions any number of times.
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

/// Sums pass through; a partial sum and a whole value cannot be added, because each member would
/// add the value once.
fn linear(spec: &OpSpec<'_>, position: usize, reduce_op: ReduceOp) -> Option<Strategy> {
    let info = spec.op.info();
    let term = spec.term(info.linear, position).filter(|_| reduce_op == ReduceOp::Sum)?;
    // The target of a write is mostly new zeros, which are valid contributions.
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

/// The operator combines its operands, or the elements of its only one, by the same reduction.
fn reduces(spec: &OpSpec<'_>, reduce_op: ReduceOp) -> Option<Strategy> {
    let info = spec.op.info();
    let passes = |at: usize| spec.is_partial(at, reduce_op) && spec.widens(at);
    let any = (0..spec.args.len()).any(passes);
    let whole = repeats(reduce_op) || spec.args.len() == 1;
    (info.reduce == Some(reduce_op) && any && whole).then(|| spec.contributions(reduce_op, passes))
}

/// The extremum of a function's values is the function of the extremum, for every number: a NaN
/// must stay NaN, or the reduction would lose it. A falling function turns the maximum into the
/// minimum; it is refused for integers, whose least value has no negative.
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

/// Returns true if counting a contribution twice changes nothing.
fn repeats(reduce_op: ReduceOp) -> bool {
    matches!(reduce_op, ReduceOp::Max | ReduceOp::Min)
}

impl OpSpec<'_> {
    /// The group that contains this operand and whose condition holds.
    pub(super) fn term(
        &self,
        terms: &'static [OperandGroup],
        position: usize,
    ) -> Option<&'static OperandGroup> {
        terms.iter().find(|term| {
            self.covers(term, position) && term.condition.is_none_or(|test| self.holds(test))
        })
    }

    /// Returns true if the operand belongs to the group: all values of a list share one position.
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

    /// Strategy in which these operands are partial, the others whole, and the results partial.
    fn contributions(&self, reduce_op: ReduceOp, passes: impl Fn(usize) -> bool) -> Strategy {
        let partial = || Placement::Partial(reduce_op);
        let need = |at| if passes(at) { partial() } else { Placement::Replicate };
        self.strategy((0..self.args.len()).map(need), self.outputs.iter().map(|_| partial()))
    }

    /// Returns true if the results' dtype represents every value of the operand's dtype as
    /// precisely. Partial sums of integers are added in their own dtype only, because they may wrap
    /// around; floats are not integers.
    fn widens(&self, position: usize) -> bool {
        let Some(meta) = self.meta(position) else { return false };
        self.outputs.iter().all(|output| {
            let floats = meta.dtype.is_float() && output.dtype.is_float();
            output.dtype == meta.dtype || floats && output.dtype.size() > meta.dtype.size()
        })
    }

    /// Returns true if the results keep the order of the operand's elements: floats represent all
    /// of them, if less precisely.
    fn ordered(&self, position: usize) -> bool {
        let dtype = self.meta(position).map(|meta| meta.dtype);
        self.outputs.iter().all(|output| output.dtype.is_float() || Some(output.dtype) == dtype)
    }
}
