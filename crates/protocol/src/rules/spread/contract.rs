//! By the letter of the index equation that is cut: where the result does not have it, the result is a partial sum.

use super::super::equation::Equation;
use super::{Lead, Local, Question, Strategy, cut};
use crate::placement::{Placement, ReduceOp};
use smallvec::SmallVec;

/// Operands before this one are multiplied, the others are added.
const FACTORS: usize = 2;

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let dims = question.args.iter().map(|arg| arg.meta.map(|meta| &meta.dims));
    let equation = Equation::new(question.op.info().index, dims);
    let driver = (*equation.terms.get(lead.position)?)?;
    // The dimension of each operand that is cut too, and that of the result from its end.
    let letter = driver.letter(lead.dim);
    let from_batch_end = driver.batch_rank() - lead.dim.min(driver.batch_rank());
    let needs = equation.terms.iter().zip(question.args).map(|(term, arg)| {
        let dim = match letter {
            Some(letter) => (*term)?.place(letter)?,
            None => (*term)?.batch_rank().checked_sub(from_batch_end)?,
        };
        // What is stretched stays whole.
        (arg.meta?.dims.get(dim) == Some(&lead.size)).then(|| cut(dim, lead.ranges))
    });
    let needs: SmallVec<[Placement; 4]> = needs.map(Option::unwrap_or_default).collect();
    let from_end = match letter {
        Some(letter) if !equation.output.contains(&letter) => {
            let sum = Placement::Partial(ReduceOp::Sum);
            return Some(added_once(question, question.answer(needs, [sum])));
        }
        Some(letter) => 1 + equation.kept().rev().position(|kept| kept == letter)?,
        None => equation.kept().count() + from_batch_end,
    };
    let to = question.out_rank()?.checked_sub(from_end)?;
    let stays = question.outputs.first()?.dims.get(to) == Some(&lead.size);
    stays.then(|| question.answer(needs, [cut(to, lead.ranges)]))
}

/// Contributions to a sum have what is added in one member's.
pub(super) fn added_once(question: &Question<'_>, mut strategy: Strategy) -> Strategy {
    for operand in FACTORS..question.args.len() {
        if question.meta(operand).is_some() {
            strategy.locals.push(Local::First { operand });
        }
    }
    strategy
}
