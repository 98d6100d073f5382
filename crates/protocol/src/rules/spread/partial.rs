//! Operands that are contributions: what the row says of sums, order and selection decides whether the result is made of
//! contributions too. An operator of which it says nothing gets whole operands.

use super::{Question, Strategy, contract};
use crate::op::{AttrTest, Condition, Family, Fill, Term};
use crate::placement::{Placement, ReduceOp};
use crate::{Attr, Dtype};

/// The operand at `position` holds contributions that `fold` combines.
pub(super) fn partial(
    question: &Question<'_>,
    position: usize,
    reduce_op: ReduceOp,
) -> Option<Strategy> {
    selects(question, position, reduce_op)
        .or_else(|| linear(question, position, reduce_op))
        .or_else(|| reduces(question, reduce_op))
        .or_else(|| monotone(question, position, reduce_op))
}

/// Elements are handed on as they are, so that results combine as they do.
fn selects(question: &Question<'_>, position: usize, reduce_op: ReduceOp) -> Option<Strategy> {
    let info = question.op.info();
    let term = question.term(info.selects, position)?;
    let is_partial = |at: usize| question.is_partial(at, reduce_op);
    if repeats(reduce_op) {
        // Whatever is whole may be among the contributions as often as it likes.
        let passes = |at| question.covers(term, at) && is_partial(at) && question.ordered(at);
        return passes(position).then(|| question.contributions(reduce_op, passes));
    }
    let is_piece = *question.attr("total") != Attr::Absent;
    let fills = match info.fills {
        Fill::Nothing if !is_piece => true,
        Fill::Nothing | Fill::Zero => reduce_op == ReduceOp::Sum,
        Fill::Attr(place) => {
            reduce_op == ReduceOp::Sum && question.attrs.get(place) == Some(&Attr::Float(0.0))
        }
    };
    let covered = |at: &usize| question.covers(term, *at);
    let all =
        (0..question.args.len()).filter(covered).all(|at| is_partial(at) && question.widens(at));
    (fills && all).then(|| question.contributions(reduce_op, |at| covered(&at)))
}

/// Sums pass; a sum and a whole value do not add up, for each member would add the value once more.
fn linear(question: &Question<'_>, position: usize, reduce_op: ReduceOp) -> Option<Strategy> {
    let info = question.op.info();
    let term = question.term(info.linear, position).filter(|_| reduce_op == ReduceOp::Sum)?;
    // What is written to is mostly new zeros, and those are as good as contributions.
    let takes = |at: usize| info.family == Family::Index && question.meta(at).is_some();
    let adds = |at: usize| {
        (question.is_partial(at, reduce_op) || takes(at))
            && question.widens(at)
            && question.meta(at).is_some_and(|meta| meta.dtype != Dtype::Bool)
    };
    let covered = |at: &usize| question.covers(term, *at);
    if !(0..question.args.len()).filter(covered).all(adds) {
        return None;
    }
    let strategy = question.contributions(reduce_op, |at| covered(&at));
    Some(if info.family == Family::Contract {
        contract::added_once(question, strategy)
    } else {
        strategy
    })
}

/// The operator combines its operands, or the elements of its only one, just so.
fn reduces(question: &Question<'_>, reduce_op: ReduceOp) -> Option<Strategy> {
    let info = question.op.info();
    let passes = |at: usize| question.is_partial(at, reduce_op) && question.widens(at);
    let any = (0..question.args.len()).any(passes);
    let whole = repeats(reduce_op) || question.args.len() == 1;
    (info.reduce == Some(reduce_op) && any && whole)
        .then(|| question.contributions(reduce_op, passes))
}

/// The extreme one of several functions of one operand is the function of the extreme one, for every number: what is no
/// number stays none, or the reduction would lose it. What falls makes the largest the smallest; of integers the least has
/// no opposite.
fn monotone(question: &Question<'_>, position: usize, reduce_op: ReduceOp) -> Option<Strategy> {
    let term = question.term(question.op.info().monotone, position)?;
    let is_float = question.meta(position)?.dtype.is_float();
    let (true, true) = (question.ordered(position), is_float || !term.falls) else { return None };
    let result = match (reduce_op, term.falls) {
        (ReduceOp::Max | ReduceOp::Min, false) => reduce_op,
        (ReduceOp::Max, true) => ReduceOp::Min,
        (ReduceOp::Min, true) => ReduceOp::Max,
        (ReduceOp::Sum | ReduceOp::Prod, _) => return None,
    };
    let mut strategy = question.contributions(reduce_op, |at| at == position);
    strategy.gives = question.outputs.iter().map(|_| Placement::Partial(result)).collect();
    Some(strategy)
}

/// Whether a contribution that counts twice changes nothing.
fn repeats(reduce_op: ReduceOp) -> bool {
    matches!(reduce_op, ReduceOp::Max | ReduceOp::Min)
}

impl Question<'_> {
    /// The term that holds here and has this operand.
    pub(super) fn term(&self, terms: &'static [Term], position: usize) -> Option<&'static Term> {
        terms.iter().find(|term| {
            self.covers(term, position) && term.condition.is_none_or(|test| self.holds(test))
        })
    }

    /// Whether the operand is one of the term's: all values of a list are at its place.
    fn covers(&self, term: &Term, position: usize) -> bool {
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
        self.answer((0..self.args.len()).map(need), self.outputs.iter().map(|_| partial()))
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
