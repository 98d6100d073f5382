//! Operators that reduce a sharded dimension: each step of a decomposition is planned by itself;
//! the results of the last ones are the operator's.

use super::inputs::{self, PlanOperand};
use super::results::StepResults;
use super::run::Run;
use crate::planner::{Planner, no_worker};
use crate::session::value::Shards;
use gt_protocol::placement::Mesh;
use gt_protocol::rules::decomposition::{Decomposition, DecompositionStep, Source};
use gt_protocol::rules::{RuleError, infer};
use gt_protocol::{Attr, Id, Meta, Op, Operand};
use smallvec::{SmallVec, smallvec};

impl Planner<'_> {
    /// Runs the steps of a decomposition along this dimension of the mesh, in place of an
    /// instruction.
    pub(super) fn run_steps(
        &mut self,
        run: Run<'_>,
        (axis, decomposition): (usize, &Decomposition),
        inputs: &[PlanOperand],
        mesh: &Mesh,
    ) -> Result<StepResults, RuleError> {
        let mut values: Vec<StepResults> = Vec::new();
        let mut consumed_sources: SmallVec<[Source; 2]> = SmallVec::new();
        let steps = decomposition.steps.iter();
        let outcome = steps.map(|step| self.run_step(step, axis, inputs, mesh, &mut values));
        let results = outcome.collect::<Result<(), RuleError>>().and_then(|()| {
            self.step_results(run, decomposition, inputs, mesh, (&values, &mut consumed_sources))
        });
        for (step, values) in values.into_iter().enumerate() {
            for (output, (_, shards)) in values.into_iter().enumerate() {
                if !consumed_sources.contains(&Source::Step(step, output)) {
                    self.free_shards(&shards);
                }
            }
        }
        results
    }

    /// Runs one step and adds its results to `values`.
    fn run_step(
        &mut self,
        step: &DecompositionStep,
        axis: usize,
        inputs: &[PlanOperand],
        mesh: &Mesh,
        values: &mut Vec<StepResults>,
    ) -> Result<(), RuleError> {
        let sources: SmallVec<[PlanOperand; 4]> =
            step.operands.iter().map(|source| resolve(*source, inputs, values)).collect();
        let outputs = match &step.forced {
            Some(forced) => forced.outputs.clone(),
            None => infer(step.op, &inputs::args(self.session, &sources), &step.attrs)?,
        };
        let operands = sources.iter().map(placeholder).collect();
        let instruction = Run::step(step.op, step.attrs.clone(), operands, outputs.len());
        let run = Run { instruction: &instruction, outputs: &outputs };
        values.push(match &step.forced {
            Some(forced) => {
                let specs = inputs::specs(self.session, &sources, mesh);
                let choice = self.choose(run, &specs, mesh, Some((axis, &forced.strategy)));
                self.run_choice(run, &sources, mesh, &choice)?
            }
            None => self.run(run, &sources, mesh)?,
        });
        Ok(())
    }

    /// Results of the steps; `consumed_sources` has those that are passed on unchanged.
    fn step_results(
        &mut self,
        run: Run<'_>,
        decomposition: &Decomposition,
        inputs: &[PlanOperand],
        mesh: &Mesh,
        (values, consumed_sources): (&[StepResults], &mut SmallVec<[Source; 2]>),
    ) -> Result<StepResults, RuleError> {
        let mut results = StepResults::new();
        for (source, target) in decomposition.results.iter().zip(run.outputs) {
            match resolve(*source, inputs, values) {
                PlanOperand::StepResult(values)
                    if values.0 == *target && !consumed_sources.contains(source) =>
                {
                    consumed_sources.push(*source);
                    results.push(*values);
                }
                input @ (PlanOperand::StepResult(..) | PlanOperand::Value(_)) => {
                    results.push(self.finished(input, *target, mesh)?);
                }
                PlanOperand::Absent | PlanOperand::Scalar(_) => {}
            }
        }
        Ok(results)
    }

    /// A result in slots of its own, with the dtype and shape of the instruction's result.
    fn finished(
        &mut self,
        input: PlanOperand,
        target: Meta,
        mesh: &Mesh,
    ) -> Result<(Meta, Shards), RuleError> {
        let Meta { dtype, dims } = inputs::meta(self.session, &input);
        if dtype == target.dtype {
            return self.changed(input, target, Op::Reshape, Attr::Ints(target.dims), mesh);
        }
        let cast = Meta::new(target.dtype, dims);
        let (meta, shards) =
            self.changed(input, cast, Op::Cast, Attr::Dtype(target.dtype), mesh)?;
        if meta == target {
            return Ok((meta, shards));
        }
        let input = PlanOperand::StepResult(Box::new((meta, shards.clone())));
        let reshaped = self.changed(input, target, Op::Reshape, Attr::Ints(target.dims), mesh);
        self.free_shards(&shards);
        reshaped
    }

    /// Runs one step that changes the metadata of a value.
    fn changed(
        &mut self,
        input: PlanOperand,
        to: Meta,
        op: Op,
        attr: Attr,
        mesh: &Mesh,
    ) -> Result<(Meta, Shards), RuleError> {
        let operands = smallvec![placeholder(&input)];
        let instruction = Run::step(op, smallvec![attr], operands, 1);
        let run = Run { instruction: &instruction, outputs: &[to] };
        let mut values = self.run(run, &[input], mesh)?;
        values.pop().ok_or_else(no_worker)
    }
}

/// An operand of a step: an operand of the instruction, or a result of an earlier step.
fn resolve(source: Source, inputs: &[PlanOperand], values: &[StepResults]) -> PlanOperand {
    match source {
        Source::Absent => PlanOperand::Absent,
        Source::Scalar(scalar) => PlanOperand::Scalar(scalar),
        Source::Operand(position) => {
            let Some(input) = inputs.get(position) else {
                unreachable!("operand {position} of {} operands", inputs.len())
            };
            input.clone()
        }
        Source::Step(step, output) => {
            let values = values.get(step).and_then(|values| values.get(output));
            let Some(values) = values else { unreachable!("step {step} has no {output}") };
            PlanOperand::StepResult(Box::new(values.clone()))
        }
    }
}

/// An operand in an instruction of the plan's own.
fn placeholder(input: &PlanOperand) -> Operand {
    match input {
        PlanOperand::Absent => Operand::Absent,
        PlanOperand::Scalar(scalar) => Operand::Scalar(*scalar),
        PlanOperand::Value(_) | PlanOperand::StepResult(..) => Operand::Value(Id::slot(0)),
    }
}
