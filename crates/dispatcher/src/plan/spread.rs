//! The long way: operands on several workers. Bring every operand to where and how the chosen strategy needs it, and
//! run on each member. What is partial stays so until something needs it whole.

use super::cache::{Key, Plan};
use super::choose::{Asked, Choice, Lies, choose};
use super::run::{Given, Held, Placed, Run};
use crate::event::{SessionId, Sink};
use crate::handle::{Shards, Slots};
use crate::motion::{Brought, Mover};
use crate::note::{Laid, Why};
use crate::{Dispatcher, planted};
use gt_protocol::placement::{Layout, Mesh, Placement, Placements};
use gt_protocol::rules::RuleError;
use gt_protocol::rules::spread::{Program, Question, SpreadArg, Strategy, rewrite};
use gt_protocol::{Family, Id, Instruction, Meta, Operand};
use smallvec::SmallVec;
use std::sync::Arc;

impl Dispatcher {
    /// Plans an instruction on `mesh`.
    pub(super) fn plan_spread(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        outputs: &[Meta],
        mesh: &Mesh,
        sink: &mut dyn Sink,
    ) {
        let operands = self.given(session, instruction);
        let run = Run {
            op: instruction.op,
            attrs: &instruction.attrs,
            outputs,
            payload: instruction.payload,
            consumes: instruction.consumes,
        };
        let before = self.motion(session);
        self.brought.clear();
        let placed = Mover::new(self, session, sink).run(run, &operands, mesh);
        match placed {
            Ok(placed) => {
                self.define_values(session, instruction, number, placed);
                self.note(session, instruction, Why::Spread, before);
                self.fold_expected(session, instruction, sink);
            }
            Err(error) => self.fail(session, instruction, number, &error, sink),
        }
    }

    fn given(&self, session: SessionId, instruction: &Instruction<'_>) -> SmallVec<[Given; 4]> {
        let value = |id: &Id| {
            let slot = id.as_slot()?;
            let value = self.sessions.get(&session)?.value(slot)?;
            Some(Held { meta: value.meta, shards: value.shards.clone(), slot: Some(slot) })
        };
        let given = |operand: &Operand| match operand {
            Operand::Absent => Given::Absent,
            Operand::Scalar(scalar) => Given::Scalar(*scalar),
            Operand::Value(id) => value(id).map_or(Given::Absent, Given::Value),
        };
        instruction.operands.iter().map(given).collect()
    }

    /// The mesh of the instruction's operands: the largest (the first of that size).
    ///
    /// A single element lies where the others do, if there are others. An update stays on the workers over which its
    /// parameter has been laid out, wherever the gradient comes from.
    pub(super) fn common_mesh(
        &self,
        session: SessionId,
        instruction: &Instruction<'_>,
    ) -> Option<Mesh> {
        let state = self.sessions.get(&session)?;
        let updates = instruction.op.info().family == Family::Update;
        let mut chosen: Option<(bool, &Mesh)> = None;
        for id in instruction.values() {
            let Some(value) = id.as_slot().and_then(|slot| state.value(slot)) else { continue };
            let mesh = value.shards.layout.mesh();
            if updates && chosen.is_none() && mesh.len() > 1 {
                return Some(mesh.clone());
            }
            let many = value.meta.elements() > 1;
            if chosen.is_none_or(|(most, other)| (many, mesh.len()) > (most, other.len())) {
                chosen = Some((many, mesh));
            }
        }
        chosen.map(|(_, mesh)| mesh.clone())
    }
}

impl Mover<'_> {
    /// Runs one operator on `mesh`: by several steps where it folds what is cut, else by one.
    pub(super) fn run(
        &mut self,
        run: Run<'_>,
        operands: &[Given],
        mesh: &Mesh,
    ) -> Result<Placed, RuleError> {
        match self.plan(run, operands, mesh) {
            Plan::Steps(axis, program) => self.run_program(run, (axis, &program), operands, mesh),
            Plan::One(choice) => Ok(self.run_one(run, operands, mesh, &choice)),
        }
    }

    /// How to run it, as it was found before or found out now.
    fn plan(&mut self, run: Run<'_>, operands: &[Given], mesh: &Mesh) -> Plan {
        let key = Key::new(&run, operands, mesh);
        if let Some(plan) = self.core.plans.get(&key) {
            return plan;
        }
        let lies = all_lie(operands, mesh);
        let plan = if let Some((axis, program)) = rewritten(run, &lies, mesh) {
            Plan::Steps(axis, Arc::new(program))
        } else {
            Plan::One(Arc::new(self.choose(run, &lies, mesh, None)))
        };
        self.core.plans.keep(key, plan.clone());
        plan
    }

    /// What the prices say, or what is forced along one dimension of the mesh.
    pub(super) fn choose(
        &self,
        run: Run<'_>,
        lies: &[Lies],
        mesh: &Mesh,
        forced: Option<(usize, &Strategy)>,
    ) -> Choice {
        let Run { op, attrs, outputs, .. } = run;
        let asked = Asked { op, attrs, outputs, prices: &self.core.prices };
        choose(&asked, mesh, lies, forced)
    }

    /// One instruction on each member.
    pub(super) fn run_one(
        &mut self,
        run: Run<'_>,
        operands: &[Given],
        mesh: &Mesh,
        choice: &Choice,
    ) -> Placed {
        let brought = self.bring_all(run, operands, choice);
        let mut results: SmallVec<[Slots; 2]> = run.outputs.iter().map(|_| Slots::new()).collect();
        for (place, &worker) in mesh.members().iter().enumerate() {
            let mut word = self.core.word(run.op);
            word.payload = run.payload;
            word.attrs = super::member::local_attrs(run, choice, mesh, place);
            for (position, (given, brought)) in operands.iter().zip(&brought).enumerate() {
                word.operands.push(match (given, brought) {
                    (Given::Scalar(scalar), _) => Operand::Scalar(*scalar),
                    (_, Some(_)) if super::member::withheld(choice, mesh, place, position) => {
                        Operand::Absent
                    }
                    (_, Some(brought)) => {
                        if !brought.owned {
                            let bit =
                                u32::try_from(position).ok().and_then(|at| 1_u16.checked_shl(at));
                            word.consumes |= run.consumes & bit.unwrap_or(0);
                        }
                        let slot = brought.slots.get(place).copied().unwrap_or(u32::MAX);
                        Operand::Value(Id::slot(slot))
                    }
                    (_, None) => Operand::Absent,
                });
            }
            for list in &mut results {
                let slot = self.core.take_slot(worker);
                list.push(slot);
                word.outputs.push(Id::slot(slot));
            }
            self.send(worker, &word);
        }
        for (brought, need) in brought.iter().zip(&choice.needs) {
            if let Some(brought) = brought {
                self.discard(need, brought);
            }
        }
        run.outputs
            .iter()
            .zip(results)
            .zip(&choice.gives)
            .map(|((meta, slots), layout)| (*meta, Shards { layout: layout.clone(), slots }))
            .collect()
    }

    /// Every operand as the instruction needs it; nothing for what is no value.
    fn bring_all(
        &mut self,
        run: Run<'_>,
        operands: &[Given],
        choice: &Choice,
    ) -> SmallVec<[Option<Brought>; 4]> {
        self.fold_operands(run, operands, choice);
        let mut brought = SmallVec::new();
        for (given, need) in operands.iter().zip(&choice.needs) {
            brought.push(match given {
                Given::Value(held) if needs_one_layout(held, need, operands, choice) => {
                    let held = self.refreshed(held);
                    self.core.note_brought(held.slot, self.session, need);
                    self.core.learn(self.session, &held, run.op, need);
                    Some(self.bring(&held, need))
                }
                // Another operand is the same value and needs it as it lies.
                Given::Value(held) => Some(self.redistribute(held.meta, &held.shards, need)),
                Given::Absent | Given::Scalar(_) => None,
            });
        }
        brought
    }

    /// An operand as the instruction needs it. What is made whole once stays whole.
    fn bring(&mut self, held: &Held, need: &Layout) -> Brought {
        let Some(slot) = held.slot else {
            return self.redistribute(held.meta, &held.shards, need);
        };
        let from = &held.shards;
        if from.layout == *need {
            return self.redistribute(held.meta, from, need);
        }
        let copy = self.core.copy_of(self.session, slot, need);
        if let Some(slots) = copy {
            return Brought { slots, owned: false };
        }
        if need.is_whole() && (from.layout.is_whole() || from.layout.is_partial()) {
            return Brought { slots: self.make_whole(held.meta, from, slot, need), owned: false };
        }
        self.settle(held.meta, from, slot, need)
    }

    /// The session's value as `need` says. Where it is partial the fold is remembered: it is smaller, and the next reader
    /// needs no other.
    pub(crate) fn settle(
        &mut self,
        meta: Meta,
        from: &Shards,
        slot: u32,
        need: &Layout,
    ) -> Brought {
        let brought = self.redistribute(meta, from, need);
        let folded = from.layout.is_partial();
        if folded && from.layout.mesh() == need.mesh() && brought.owned {
            let shards = Shards { layout: need.clone(), slots: brought.slots.clone() };
            self.replace(slot, shards);
            return Brought { owned: false, ..brought };
        }
        brought
    }

    /// Whole on every member of `need`, and remembered so.
    fn make_whole(&mut self, meta: Meta, from: &Shards, slot: u32, need: &Layout) -> Slots {
        if from.layout.is_whole() && need.mesh().contains(from.layout.mesh()) {
            return self.replicate(meta, from, slot, need);
        }
        let brought = self.redistribute(meta, from, need);
        if !brought.owned {
            return brought.slots;
        }
        let shards = Shards { layout: need.clone(), slots: brought.slots.clone() };
        if from.layout.mesh() == need.mesh() {
            self.replace(slot, shards);
        } else if let Some(value) = self.core.value_mut(self.session, slot) {
            value.copies.push(shards);
        }
        brought.slots
    }

    /// A whole value becomes whole on more workers; the one that sends it keeps its slot, which then lies row-major as
    /// the copies do, and others that hold it make theirs so.
    fn replicate(&mut self, meta: Meta, from: &Shards, slot: u32, need: &Layout) -> Slots {
        let Some((source, held)) = from.held().next() else { return Slots::new() };
        let spreads = need.mesh().members().iter().any(|&member| from.on(member).is_none());
        let mut slots = Slots::new();
        for &member in need.mesh().members() {
            let here = from.on(member);
            slots.push(match here {
                Some(slot) if member != source && spreads => self.compact(member, slot, meta),
                Some(slot) => slot,
                None => self.transfer(source, held, member, meta),
            });
        }
        let planning = self.core.planning;
        if !planted::REPLICA_FORGOTTEN
            && let Some(value) = self.core.value_mut(self.session, slot)
        {
            value.laid = Laid::For(planning);
            value.shards = Shards { layout: need.clone(), slots: slots.clone() };
        }
        slots
    }

    /// The session's value lies otherwise from now on.
    pub(crate) fn replace(&mut self, slot: u32, shards: Shards) {
        let planning = self.core.planning;
        let Some(value) = self.core.value_mut(self.session, slot) else { return };
        let old = std::mem::replace(&mut value.shards, shards);
        value.laid = Laid::For(planning);
        self.free_shards(&old);
    }
}

/// Whether all operands that are this value need it alike.
pub(super) fn needs_one_layout(
    held: &Held,
    need: &Layout,
    operands: &[Given],
    choice: &Choice,
) -> bool {
    held.slot.is_none()
        || operands.iter().zip(&choice.needs).all(|(given, other)| match given {
            Given::Value(twin) => twin.slot != held.slot || other == need,
            Given::Absent | Given::Scalar(_) => true,
        })
}

/// How the operands lie, seen from `mesh`.
pub(super) fn all_lie(operands: &[Given], mesh: &Mesh) -> SmallVec<[Lies; 4]> {
    let twin = |position: usize, given: &Given| {
        let slot = given.slot()?;
        operands.iter().take(position).position(|earlier| earlier.slot() == Some(slot))
    };
    let places = operands.iter().enumerate();
    places.map(|(place, given)| Lies { twin: twin(place, given), ..lies(given, mesh) }).collect()
}

/// How an operand lies, seen from `mesh`.
fn lies(given: &Given, mesh: &Mesh) -> Lies {
    let Given::Value(held) = given else {
        return Lies { meta: None, placements: Placements::new(), elsewhere: None, twin: None };
    };
    let layout = &held.shards.layout;
    let same_shape = layout.mesh().shape() == mesh.shape();
    let here = layout.mesh() == mesh;
    let placements = if same_shape && (here || !layout.is_partial()) {
        layout.placements().iter().cloned().collect()
    } else {
        Placements::from_elem(Placement::Replicate, mesh.rank())
    };
    let is_here = here || layout.is_whole() && layout.mesh().contains(mesh);
    let elsewhere = (!is_here).then(|| layout.mesh().clone());
    Lies { meta: Some(held.meta), placements, elsewhere, twin: None }
}

/// The steps in place of an operator that folds what some dimension of the mesh cuts, and which one.
fn rewritten(run: Run<'_>, operands: &[Lies], mesh: &Mesh) -> Option<(usize, Program)> {
    (0..mesh.rank()).filter(|&axis| mesh.size(axis) > 1).find_map(|axis| {
        let args: SmallVec<[SpreadArg<'_>; 4]> = operands
            .iter()
            .map(|lies| SpreadArg {
                meta: lies.meta.as_ref(),
                placement: lies.placements.get(axis).unwrap_or(&Placement::Replicate),
            })
            .collect();
        let program = rewrite(&Question {
            op: run.op,
            args: &args,
            attrs: run.attrs,
            outputs: run.outputs,
            members: mesh.size(axis),
        });
        Some((axis, program?))
    })
}
