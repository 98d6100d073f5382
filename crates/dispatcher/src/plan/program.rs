//! Operators that fold what is cut: the steps of a program, each planned for itself, and what they yield.

use super::run::{Given, Held, Placed, Run};
use super::spread::all_lie;
use crate::handle::Shards;
use crate::motion::Mover;
use gt_protocol::placement::Mesh;
use gt_protocol::rules::spread::{Program, Source, Step};
use gt_protocol::rules::{Arg, Outputs, RuleError, infer};
use gt_protocol::{Attr, Meta, Op};
use smallvec::SmallVec;

impl Mover<'_> {
    pub(super) fn run_program(
        &mut self,
        run: Run<'_>,
        program: (usize, &Program),
        operands: &[Given],
        mesh: &Mesh,
    ) -> Result<Placed, RuleError> {
        let mut made: Vec<Placed> = Vec::new();
        let mut taken: SmallVec<[Source; 2]> = SmallVec::new();
        let results = self
            .run_steps(program, operands, mesh, &mut made)
            .and_then(|()| self.results(run, program.1, operands, mesh, (&made, &mut taken)));
        for (step, placed) in made.into_iter().enumerate() {
            for (output, (_, shards)) in placed.into_iter().enumerate() {
                if !taken.contains(&Source::Step(step, output)) {
                    self.free_shards(&shards);
                }
            }
        }
        results
    }

    /// Runs the steps; what they have made stands in `made`, also where one of them is refused.
    fn run_steps(
        &mut self,
        (axis, program): (usize, &Program),
        operands: &[Given],
        mesh: &Mesh,
        made: &mut Vec<Placed>,
    ) -> Result<(), RuleError> {
        for step in &program.steps {
            let given: SmallVec<[Given; 4]> =
                step.operands.iter().map(|source| self.resolve(*source, operands, made)).collect();
            let outputs = match &step.forced {
                Some(forced) => forced.outputs.clone(),
                None => infer_step(step, &given)?,
            };
            let run = Run {
                op: step.op,
                attrs: &step.attrs,
                outputs: &outputs,
                payload: &[],
                consumes: 0,
            };
            made.push(match &step.forced {
                Some(forced) => {
                    let lies = all_lie(&given, mesh);
                    let choice = self.choose(run, &lies, mesh, Some((axis, &forced.strategy)));
                    self.run_one(run, &given, mesh, &choice)
                }
                None => self.run(run, &given, mesh)?,
            });
        }
        Ok(())
    }

    /// What the program yields: steps' results that are handed on as they are stand in `taken`.
    fn results(
        &mut self,
        run: Run<'_>,
        program: &Program,
        operands: &[Given],
        mesh: &Mesh,
        (made, taken): (&[Placed], &mut SmallVec<[Source; 2]>),
    ) -> Result<Placed, RuleError> {
        let mut results = Placed::new();
        for (source, wanted) in program.results.iter().zip(run.outputs) {
            let Given::Value(held) = self.resolve(*source, operands, made) else { continue };
            let as_it_is = held.meta == *wanted && !taken.contains(source);
            if as_it_is && matches!(source, Source::Step(..)) {
                taken.push(*source);
                results.push((held.meta, held.shards));
            } else {
                results.push(self.finished(held, *wanted, mesh)?);
            }
        }
        Ok(results)
    }

    /// A result of a program in slots of its own, in the dtype and shape that the instruction promised.
    fn finished(
        &mut self,
        held: Held,
        wanted: Meta,
        mesh: &Mesh,
    ) -> Result<(Meta, Shards), RuleError> {
        if held.meta.dtype == wanted.dtype {
            return self.changed(held, wanted, Op::Reshape, Attr::Ints(wanted.dims), mesh);
        }
        let cast = Meta::new(wanted.dtype, held.meta.dims);
        let (meta, shards) = self.changed(held, cast, Op::Cast, Attr::Dtype(wanted.dtype), mesh)?;
        if meta == wanted {
            return Ok((meta, shards));
        }
        let held = Held { meta, shards: shards.clone(), slot: None };
        let reshaped = self.changed(held, wanted, Op::Reshape, Attr::Ints(wanted.dims), mesh);
        self.free_shards(&shards);
        reshaped
    }

    /// One step that changes the metadata of a value.
    fn changed(
        &mut self,
        held: Held,
        to: Meta,
        op: Op,
        attr: Attr,
        mesh: &Mesh,
    ) -> Result<(Meta, Shards), RuleError> {
        let run = Run { op, attrs: &[attr], outputs: &[to], payload: &[], consumes: 0 };
        let mut placed = self.run(run, &[Given::Value(held)], mesh)?;
        placed.pop().ok_or_else(super::no_worker)
    }

    fn resolve(&self, source: Source, operands: &[Given], made: &[Placed]) -> Given {
        match source {
            Source::Absent => Given::Absent,
            Source::Scalar(scalar) => Given::Scalar(scalar),
            Source::Operand(position) => match operands.get(position) {
                // An earlier step may have made it whole for good.
                Some(Given::Value(held)) => Given::Value(self.refreshed(held)),
                Some(given) => given.clone(),
                None => Given::Absent,
            },
            Source::Step(step, output) => made
                .get(step)
                .and_then(|placed| placed.get(output))
                .map_or(Given::Absent, |(meta, shards)| {
                    Given::Value(Held { meta: *meta, shards: shards.clone(), slot: None })
                }),
        }
    }

    pub(super) fn refreshed(&self, held: &Held) -> Held {
        let state = self.core.sessions.get(&self.session);
        let value = held.slot.and_then(|slot| state?.value(slot));
        match value {
            Some(value) => Held { shards: value.shards.clone(), ..held.clone() },
            None => held.clone(),
        }
    }
}

fn infer_step(step: &Step, given: &[Given]) -> Result<Outputs, RuleError> {
    let args: SmallVec<[Arg<'_>; 4]> = given
        .iter()
        .map(|given| match given {
            Given::Absent => Arg::Absent,
            Given::Scalar(scalar) => Arg::Scalar(*scalar),
            Given::Value(held) => Arg::Value(&held.meta),
        })
        .collect();
    infer(step.op, &args, &step.attrs)
}
