//! Running an operator on a mesh: the plan is looked up or made, operands are resharded, each
//! member gets its words.

use super::inputs::{self, PlanOperand};
use super::results::StepResults;
use crate::event::low_half;
use crate::planner::Planner;
use crate::reshard::Resharded;
use crate::session::value::{Shards, Slots, slot_at};
use crate::strategy::cache::{Plan, Query};
use crate::strategy::choose::{Choice, OperandSpec, Operation, choose};
use crate::strategy::member;
use gt_protocol::placement::Mesh;
use gt_protocol::rules::decomposition::{Decomposition, decompose};
use gt_protocol::rules::spread::{InputSpec, OpSpec, Strategy};
use gt_protocol::rules::{ErrorClass, RuleError};
use gt_protocol::{Attr, Id, Instruction, Meta, Op, Operand, wire};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;

/// Instruction of one step of a plan, whose ids only mark operands that are values, and its
/// results' metadata.
#[derive(Clone, Copy)]
pub(crate) struct Run<'r> {
    pub instruction: &'r Instruction<'r>,
    pub outputs: &'r [Meta],
}

impl Run<'_> {
    /// An instruction of the plan's own, with this many results. Its ids are set for each member.
    pub(super) fn step(
        op: Op,
        attrs: SmallVec<[Attr; 2]>,
        operands: SmallVec<[Operand; 4]>,
        outputs: usize,
    ) -> Instruction<'static> {
        let outputs = SmallVec::from_elem(Id::slot(0), outputs);
        Instruction { attrs, operands, outputs, ..Instruction::new(op) }
    }
}

/// Plan of an operator.
pub(super) struct PlanOf {
    pub plan: Plan,
    /// True if the plan was in the cache.
    pub is_known: bool,
}

/// Operands of a step in the layouts that it needs; `None` for an operand that is no value.
type Operands = SmallVec<[Option<Resharded>; 4]>;

impl Planner<'_> {
    /// Runs one operator on `mesh`: by several steps if it reduces a sharded dimension, else by
    /// one.
    pub(super) fn run(
        &mut self,
        run: Run<'_>,
        inputs: &[PlanOperand],
        mesh: &Mesh,
    ) -> Result<StepResults, RuleError> {
        let PlanOf { plan, .. } = self.plan_of(run, inputs, mesh);
        self.run_plan(run, inputs, mesh, &plan)
    }

    pub(super) fn run_plan(
        &mut self,
        run: Run<'_>,
        inputs: &[PlanOperand],
        mesh: &Mesh,
        plan: &Plan,
    ) -> Result<StepResults, RuleError> {
        match plan {
            Plan::Steps(axis, decomposition) => {
                self.run_steps(run, (*axis, decomposition), inputs, mesh)
            }
            Plan::One(choice) => self.run_choice(run, inputs, mesh, choice),
        }
    }

    /// Plan of the instruction, from the cache or made now.
    pub(super) fn plan_of(&mut self, run: Run<'_>, inputs: &[PlanOperand], mesh: &Mesh) -> PlanOf {
        let Instruction { op, attrs, .. } = run.instruction;
        let mut query = Query::new(*op, attrs, run.outputs, mesh);
        inputs::add_operands(&mut query, self.session, inputs);
        let digest = query.digest();
        if let Some(plan) = self.core.plans.get(digest, &query) {
            return PlanOf { plan: plan.clone(), is_known: true };
        }
        let specs = inputs::specs(self.session, inputs, mesh);
        let plan = match decomposition(run, &specs, mesh) {
            Some((axis, decomposition)) => Plan::Steps(axis, Arc::new(decomposition)),
            None => Plan::One(Arc::new(self.choose(run, &specs, mesh, None))),
        };
        self.core.plans.keep(digest, &query, plan.clone());
        PlanOf { plan, is_known: false }
    }

    /// Choice by the cost model, or with a forced strategy along one dimension of the mesh.
    pub(super) fn choose(
        &self,
        run: Run<'_>,
        operands: &[OperandSpec],
        mesh: &Mesh,
        forced: Option<(usize, &Strategy)>,
    ) -> Choice {
        let Run { instruction: &Instruction { op, ref attrs, .. }, outputs } = run;
        let operation = Operation { op, attrs, outputs, cost_model: &self.core.cost_model };
        choose(&operation, mesh, operands, forced)
    }

    /// One instruction on each member.
    pub(super) fn run_choice(
        &mut self,
        run: Run<'_>,
        inputs: &[PlanOperand],
        mesh: &Mesh,
        choice: &Choice,
    ) -> Result<StepResults, RuleError> {
        let mut words = std::mem::take(&mut self.core.words);
        words.clear();
        if let Err(error) = wire::encode(run.instruction, &mut words) {
            self.core.words = words;
            return Err(RuleError { class: ErrorClass::Runtime, text: error.to_string() });
        }
        let operands = self.reshard_inputs(run, inputs, choice);
        let slots = if choice.local.is_empty() {
            self.send_to_members(run, mesh, &operands, &mut words)
        } else {
            self.send_local(run, mesh, &operands, choice)
        };
        self.core.words = words;
        for (operand, need) in operands.iter().zip(&choice.inputs) {
            if let Some(operand) = operand {
                self.discard(need, operand);
            }
        }
        let results = run.outputs.iter().zip(slots).zip(&choice.outputs);
        Ok(results
            .map(|((meta, slots), layout)| (*meta, Shards::new(layout.clone(), slots)))
            .collect())
    }

    /// Sends the same words to each member, with its own slots in them.
    fn send_to_members(
        &mut self,
        run: Run<'_>,
        mesh: &Mesh,
        operands: &Operands,
        words: &mut [u32],
    ) -> SmallVec<[Slots; 2]> {
        let values: SmallVec<[&[u32]; 4]> =
            operands.iter().flatten().map(|operand| operand.slots.as_slice()).collect();
        let mut results: SmallVec<[Slots; 2]> = run.outputs.iter().map(|_| Slots::new()).collect();
        if let [_, _, flags, ..] = words {
            *flags = u32::from(run.instruction.consumes & consumable(operands));
        }
        for (place, &worker) in mesh.members().iter().enumerate() {
            for list in &mut results {
                list.push(self.core.workers.take_slot(worker));
            }
            let outputs = results.iter().map(|list| slot_at(list, place));
            let next = Cell::new(0);
            wire::rebind(words, run.instruction, low_half(self.number), outputs, |_| {
                let position = next.replace(next.get() + 1);
                let Some(slots) = values.get(position) else {
                    unreachable!("operand {position} of {} values", values.len())
                };
                slot_at(slots, place)
            });
            if let [_, _, flags, ..] = words {
                *flags |= u32::from(self.kept_signal()) << 16;
            }
            if self.core.workers.address(self.id, worker, self.sink) {
                self.sink.words(worker, words);
            }
        }
        results
    }

    /// Sends a separate instruction to each member: attributes differ, or only the first member has
    /// some operands.
    fn send_local(
        &mut self,
        run: Run<'_>,
        mesh: &Mesh,
        operands: &Operands,
        choice: &Choice,
    ) -> SmallVec<[Slots; 2]> {
        let mut results: SmallVec<[Slots; 2]> = run.outputs.iter().map(|_| Slots::new()).collect();
        let consumes = run.instruction.consumes & consumable(operands);
        for (place, &worker) in mesh.members().iter().enumerate() {
            let mut word = self.word(run.instruction.op);
            word.payload = run.instruction.payload;
            let of_all = (&*run.instruction.attrs, run.outputs);
            word.attrs = member::local_attrs(of_all, choice, mesh, place);
            word.consumes = consumes;
            let positions = run.instruction.operands.iter().zip(operands).enumerate();
            for (position, (operand_of_all, operand)) in positions {
                word.operands.push(match operand {
                    Some(_) if member::withheld(choice, mesh, place, position) => {
                        word.consumes &= !bit(position);
                        Operand::Absent
                    }
                    Some(operand) => Operand::Value(Id::slot(slot_at(&operand.slots, place))),
                    None => *operand_of_all,
                });
            }
            for list in &mut results {
                let slot = self.take_slot(worker);
                list.push(slot);
                word.outputs.push(Id::slot(slot));
            }
            self.send(worker, &word);
        }
        results
    }
}

/// Bit mask of the operands whose buffers a worker may reuse: those that are values of the session.
/// Temporary shards are freed after the instruction.
fn consumable(operands: &Operands) -> u16 {
    let bit_of = |(position, operand): (usize, &Option<Resharded>)| match operand {
        Some(operand) if !operand.owned => bit(position),
        Some(_) | None => 0,
    };
    operands.iter().enumerate().map(bit_of).fold(0, |mask, bit| mask | bit)
}

/// The bit of an operand; the later ones of a long list have none.
fn bit(position: usize) -> u16 {
    u32::try_from(position).ok().and_then(|at| 1_u16.checked_shl(at)).unwrap_or(0)
}

/// The steps of an operator that reduces a sharded dimension, and the mesh dimension that shards
/// it.
fn decomposition(
    run: Run<'_>,
    operands: &[OperandSpec],
    mesh: &Mesh,
) -> Option<(usize, Decomposition)> {
    (0..mesh.rank()).filter(|&axis| mesh.size(axis) > 1).find_map(|axis| {
        let args: SmallVec<[InputSpec<'_>; 4]> = operands
            .iter()
            .map(|operand| InputSpec {
                meta: operand.meta.as_ref(),
                placement: operand.placement(axis),
            })
            .collect();
        let decomposition = decompose(&OpSpec {
            op: run.instruction.op,
            args: &args,
            attrs: &run.instruction.attrs,
            outputs: run.outputs,
            members: mesh.size(axis),
        });
        Some((axis, decomposition?))
    })
}
