//! Sharding by the letter of the index equation: where the result lacks the letter, it is a partial
//! sum.

use super::spec::{Driving, LocalAttr, OpSpec, Strategy, cut};
use crate::placement::{Placement, ReduceOp};
use crate::rules::equation::Equation;
use smallvec::SmallVec;

/// Number of operands that are multiplied; the others are added.
const FACTORS: usize = 2;

pub(super) fn follow(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let dims = spec.args.iter().map(|arg| arg.meta.map(|meta| &meta.dims));
    let equation = Equation::new(spec.op.info().index, dims);
    let driver = (*equation.terms.get(driving.position)?)?;
    // The corresponding dimension of each operand, and that of the result from its end.
    let letter = driver.letter(driving.dim);
    let from_batch_end = driver.batch_rank() - driving.dim.min(driver.batch_rank());
    let input_specs = equation.terms.iter().zip(spec.args).map(|(term, arg)| {
        let dim = match letter {
            Some(letter) => (*term)?.place(letter)?,
            None => (*term)?.batch_rank().checked_sub(from_batch_end)?,
        };
        // A broadcast operand stays whole.
        (arg.meta?.dims.get(dim) == Some(&driving.size)).then(|| cut(dim, driving.ranges))
    });
    let input_specs: SmallVec<[Placement; 4]> =
        input_specs.map(Option::unwrap_or_default).collect();
    let from_end = match letter {
        Some(letter) if !equation.output.contains(&letter) => {
            let sum = Placement::Partial(ReduceOp::Sum);
            return Some(added_once(spec, spec.strategy(input_specs, [sum])));
        }
        Some(letter) => 1 + equation.kept().rev().position(|kept| kept == letter)?,
        None => equation.kept().count() + from_batch_end,
    };
    let to = spec.out_rank()?.checked_sub(from_end)?;
    let stays = spec.outputs.first()?.dims.get(to) == Some(&driving.size);
    stays.then(|| spec.strategy(input_specs, [cut(to, driving.ranges)]))
}

/// In a partial sum, only one member adds the added operands.
pub(super) fn added_once(spec: &OpSpec<'_>, mut strategy: Strategy) -> Strategy {
    for operand in FACTORS..spec.args.len() {
        if spec.meta(operand).is_some() {
            strategy.local_attrs.push(LocalAttr::First { operand });
        }
    }
    strategy
}
