//! Decomposition of operators that reduce a sharded dimension into steps, each of which has
//! strategies of its own: a softmax is a maximum, a difference, an exponential, a sum and a
//! quotient. `definitions.txt` has the definitions; this file applies one to a call.

mod definition;
mod expression;
#[cfg(test)]
mod tests;

use crate::placement::{Placement, ShardRanges};
use crate::rules::spread::spec::{LocalAttr, OpSpec, Strategy};
use crate::{Attr, Meta, Op, Scalar};
use definition::{
    Definition, LineInstruction, LineOperand, LinePlacement, LinePlacements, definitions,
};
use expression::Expression;
use smallvec::SmallVec;

/// Operand of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    Absent,
    Scalar(Scalar),
    /// An operand of the decomposed instruction.
    Operand(usize),
    /// A result of an earlier step.
    Step(usize, usize),
}

/// One instruction of a decomposition.
#[derive(Clone, Debug, PartialEq)]
pub struct DecompositionStep {
    pub op: Op,
    pub operands: SmallVec<[Source; 3]>,
    pub attrs: SmallVec<[Attr; 2]>,
    pub forced: Option<ForcedStrategy>,
}

/// Fixed strategy of a step along the mesh dimension that the decomposition is for, where the cost
/// model must not choose: its results may have shapes that no rule infers, for example one total
/// for each member.
#[derive(Clone, Debug, PartialEq)]
pub struct ForcedStrategy {
    pub strategy: Strategy,
    pub outputs: SmallVec<[Meta; 2]>,
}

/// Instructions whose results together equal those of the decomposed one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decomposition {
    pub steps: Vec<DecompositionStep>,
    pub results: SmallVec<[Source; 2]>,
}

/// The steps of an operator whose reduced dimension is sharded along this dimension of the mesh;
/// `None` where a single instruction suffices, or where gathering is the best known way.
pub fn decompose(call: &OpSpec<'_>) -> Option<Decomposition> {
    let applies = |definition: &&Definition| {
        definition.conditions.iter().all(|condition| condition.holds(call) == Some(true))
    };
    definitions(call.op).iter().find(applies)?.applied(call)
}

impl Definition {
    fn applied(&self, call: &OpSpec<'_>) -> Option<Decomposition> {
        let taken = |condition: &Option<Expression>| {
            condition.as_ref().is_none_or(|condition| condition.holds(call) == Some(true))
        };
        let (_, results) = self.results.iter().find(|(condition, _)| taken(condition))?;
        let mut chosen = Chosen { definition: self, call, used: vec![false; self.lines.len()] };
        for result in results {
            chosen.mark(result)?;
        }
        let mut decomposition = Decomposition::default();
        // Step that computes each line's values.
        let mut steps: Vec<Option<usize>> = vec![None; self.lines.len()];
        for (place, line) in self.lines.iter().enumerate() {
            let Ok(instruction) = &line.instruction else { continue };
            if chosen.used.get(place) == Some(&true) && chosen.holds(place)? {
                *steps.get_mut(place)? = Some(decomposition.steps.len());
                decomposition.steps.push(chosen.step(instruction, &steps)?);
            }
        }
        for result in results {
            decomposition.results.push(chosen.source(result, &steps)?);
        }
        Some(decomposition)
    }
}

/// A definition applied to a call, with the lines that are in use.
struct Chosen<'d, 'q> {
    definition: &'d Definition,
    call: &'d OpSpec<'q>,
    used: Vec<bool>,
}

impl Chosen<'_, '_> {
    /// Evaluates the condition of a line.
    fn holds(&self, line: usize) -> Option<bool> {
        let condition = &self.definition.lines.get(line)?.condition;
        condition.as_ref().map_or(Some(true), |condition| condition.holds(self.call))
    }

    /// Marks the lines that a value needs.
    fn mark(&mut self, value: &LineOperand) -> Option<()> {
        let LineOperand::Line(place, _) = *value else { return Some(()) };
        if std::mem::replace(self.used.get_mut(place)?, true) {
            return Some(());
        }
        let line = self.definition.lines.get(place)?;
        match &line.instruction {
            _ if !self.holds(place)? => self.mark(line.otherwise.as_ref()?),
            Ok(instruction) => {
                instruction.operands.iter().try_for_each(|operand| self.mark(operand))
            }
            Err(value) => self.mark(value),
        }
    }

    /// The source of a value, after resolving the choices before it.
    fn source(&self, value: &LineOperand, steps: &[Option<usize>]) -> Option<Source> {
        Some(match value {
            LineOperand::Absent => Source::Absent,
            LineOperand::Given(position) if self.call.args.get(*position)?.meta.is_none() => {
                Source::Absent
            }
            LineOperand::Given(position) => Source::Operand(*position),
            LineOperand::Number(number) => Source::Scalar(number.evaluate(self.call)?.number()?),
            LineOperand::Line(place, output) => {
                let line = self.definition.lines.get(*place)?;
                match &line.instruction {
                    _ if !self.holds(*place)? => self.source(line.otherwise.as_ref()?, steps)?,
                    Ok(_) => Source::Step((*steps.get(*place)?)?, *output),
                    Err(value) => self.source(value, steps)?,
                }
            }
        })
    }

    fn step(
        &self,
        instruction: &LineInstruction,
        steps: &[Option<usize>],
    ) -> Option<DecompositionStep> {
        let info = instruction.op.info();
        let mut attrs: SmallVec<[Attr; 2]> = SmallVec::from_elem(Attr::Absent, info.attrs.len());
        for (place, value) in &instruction.attrs {
            let kind = info.attrs.get(*place)?.kind;
            *attrs.get_mut(*place)? = value.evaluate(self.call)?.attr(kind)?;
        }
        let operands = instruction.operands.iter().map(|operand| self.source(operand, steps));
        let placed = instruction.placed.as_ref();
        let forced = match placed {
            Some(placed) => Some(self.forced(instruction.op, placed)?),
            None => None,
        };
        Some(DecompositionStep {
            op: instruction.op,
            operands: operands.collect::<Option<_>>()?,
            attrs,
            forced,
        })
    }

    fn forced(&self, op: Op, placed: &LinePlacements) -> Option<ForcedStrategy> {
        let mut strategy = Strategy::default();
        for place in &placed.operands {
            strategy.input_specs.push(self.placement(place)?);
        }
        let mut outputs = SmallVec::new();
        for (place, dtype, dims) in &placed.results {
            strategy.output_specs.push(self.placement(place)?);
            let dtype = dtype.evaluate(self.call)?.dtype()?;
            outputs.push(Meta::new(dtype, dims.evaluate(self.call)?.list()?));
        }
        if placed.range {
            let (info, (_, ranges)) = (op.info(), self.driving()?);
            strategy.local_attrs.push(LocalAttr::Range {
                start: info.attr_index("start")?,
                total: info.attr_index("total")?,
                size: ranges.total(),
                ranges: ranges.clone(),
            });
        }
        Some(ForcedStrategy { strategy, outputs })
    }

    /// The dimension along which the first operand is sharded, and its shards.
    fn driving(&self) -> Option<(usize, &ShardRanges)> {
        match self.call.args.first()?.placement {
            Placement::Shard { dim, ranges } => Some((*dim, ranges)),
            Placement::Replicate | Placement::Partial(_) => None,
        }
    }

    fn placement(&self, place: &LinePlacement) -> Option<Placement> {
        Some(match place {
            LinePlacement::Replicate => Placement::Replicate,
            LinePlacement::Partial(reduction) => Placement::Partial(*reduction),
            LinePlacement::Shard => self.call.args.first()?.placement.clone(),
            LinePlacement::Even(each) => {
                let each = each.evaluate(self.call)?.integer()?;
                let members = self.call.members;
                let total = each.checked_mul(i64::try_from(members).ok()?)?;
                Placement::Shard {
                    dim: self.driving()?.0,
                    ranges: ShardRanges::even(total, members),
                }
            }
        })
    }
}
