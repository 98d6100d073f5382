//! The long way: operands on several workers. Bring every operand to what the sharding rule needs, run on each member,
//! fold what is partial.

use super::low_half;
use super::metas_of;
use crate::Dispatcher;
use crate::event::{SessionId, Sink};
use gt_protocol::placement::{Layout, Mesh, Pieces, Placement};
use gt_protocol::sharding::{Finish, Give, Need, Question, ShardArg, Spread, spread};
use gt_protocol::{Attr, Id, Instruction, Meta, Op, Operand, Scalar};
use smallvec::SmallVec;

/// Metadata, layout and slots of each result.
type Placed = SmallVec<[(Meta, Layout, SmallVec<[u32; 2]>); 2]>;

/// An operand as the members of the mesh will see it.
enum Brought {
    /// A scalar or an absent operand: the same for all.
    Plain(Operand),
    /// One slot a member; freed afterwards where it was made for this instruction only.
    Slots { slots: SmallVec<[u32; 2]>, temporary: bool },
}

impl Dispatcher {
    pub(super) fn plan_spread(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        outputs: &[Meta],
        sink: &mut dyn Sink,
    ) {
        let Some(mesh) = self.common_mesh(session, instruction) else { return };
        let plan = self.rule(session, instruction, outputs, &mesh);
        let pieces = plan.as_ref().map(|plan| Pieces::even(plan.size, mesh.len()));
        let mut brought: SmallVec<[Brought; 4]> = SmallVec::new();
        for (position, operand) in instruction.operands.iter().enumerate() {
            let Operand::Value(id) = *operand else {
                brought.push(Brought::Plain(*operand));
                continue;
            };
            let slot = id.as_slot().unwrap_or(u32::MAX);
            let need = plan.as_ref().and_then(|plan| plan.needs.get(position));
            brought.push(match (need, &pieces) {
                (Some(Need::Cut(dim)), Some(pieces)) => {
                    self.bring_cut(session, slot, &mesh, *dim, pieces, sink)
                }
                _ => self.bring_whole(session, slot, &mesh, sink),
            });
        }
        let slots =
            self.run_on_members(session, instruction, number, &mesh, plan.as_ref(), &brought, sink);
        let results = match (&plan, pieces) {
            (Some(plan), Some(pieces)) => {
                self.settle(session, outputs, &mesh, plan, &pieces, slots, sink)
            }
            _ => whole_results(outputs, &mesh, slots),
        };
        self.define_values(session, instruction, number, results);
        for operand in brought {
            if let Brought::Slots { slots, temporary: true } = operand {
                self.free_members(session, &mesh, &slots, sink);
            }
        }
    }

    /// The largest mesh among the operands (the first of that size).
    fn common_mesh(&self, session: SessionId, instruction: &Instruction<'_>) -> Option<Mesh> {
        let state = self.sessions.get(&session)?;
        let mut chosen: Option<Mesh> = None;
        for id in instruction.values() {
            let Some(value) = id.as_slot().and_then(|slot| state.value(slot)) else { continue };
            if chosen.as_ref().is_none_or(|mesh| value.layout.mesh.len() > mesh.len()) {
                chosen = Some(value.layout.mesh.clone());
            }
        }
        chosen
    }

    /// The sharding rule's answer for operands that are cut on `mesh`.
    fn rule(
        &self,
        session: SessionId,
        instruction: &Instruction<'_>,
        outputs: &[Meta],
        mesh: &Mesh,
    ) -> Option<Spread> {
        let state = self.sessions.get(&session)?;
        let metas = metas_of(state, instruction);
        let args: SmallVec<[ShardArg<'_>; 4]> = instruction
            .operands
            .iter()
            .zip(&metas)
            .map(|(operand, meta)| {
                let cut = match operand {
                    Operand::Value(id) => id
                        .as_slot()
                        .and_then(|slot| state.value(slot))
                        .filter(|value| value.layout.mesh == *mesh)
                        .and_then(|value| match &value.layout.placement {
                            Placement::Shard { dim, .. } => Some(*dim),
                            Placement::Replicate => None,
                        }),
                    Operand::Absent | Operand::Scalar(_) => None,
                };
                ShardArg { meta: meta.as_ref(), cut }
            })
            .collect();
        spread(&Question {
            op: instruction.op,
            args: &args,
            attrs: &instruction.attrs,
            outputs,
            members: mesh.len(),
        })
    }

    fn bring_whole(
        &mut self,
        session: SessionId,
        slot: u32,
        mesh: &Mesh,
        sink: &mut dyn Sink,
    ) -> Brought {
        let Some(shards) = self.shards_of(session, slot) else {
            return Brought::Plain(Operand::Absent);
        };
        let already = shards.layout.mesh == *mesh;
        match shards.layout.placement {
            Placement::Replicate if already => {
                Brought::Slots { slots: shards.slots, temporary: false }
            }
            // A parameter stays replicated once it has been needed so.
            Placement::Replicate => {
                let slots = self.replicate(session, slot, mesh, sink);
                Brought::Slots { slots, temporary: false }
            }
            Placement::Shard { .. } => {
                let slots = self.gather(session, slot, mesh, sink);
                Brought::Slots { slots, temporary: true }
            }
        }
    }

    fn bring_cut(
        &mut self,
        session: SessionId,
        slot: u32,
        mesh: &Mesh,
        dim: usize,
        pieces: &Pieces,
        sink: &mut dyn Sink,
    ) -> Brought {
        let Some(shards) = self.shards_of(session, slot) else {
            return Brought::Plain(Operand::Absent);
        };
        let wanted = Placement::Shard { dim, pieces: pieces.clone() };
        if shards.layout.mesh == *mesh && shards.layout.placement == wanted {
            return Brought::Slots { slots: shards.slots, temporary: false };
        }
        let whole = self.bring_whole(session, slot, mesh, sink);
        let Brought::Slots { slots, temporary } = whole else { return whole };
        let cut = self.cut_whole(session, mesh, &slots, dim, pieces, sink);
        if temporary {
            self.free_members(session, mesh, &slots, sink);
        }
        Brought::Slots { slots: cut, temporary: true }
    }

    /// Runs the instruction on each member; the results' slots, one list an output.
    #[allow(
        clippy::too_many_arguments,
        reason = "one instruction's whole plan; a struct would only rename it"
    )]
    fn run_on_members(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        mesh: &Mesh,
        plan: Option<&Spread>,
        brought: &[Brought],
        sink: &mut dyn Sink,
    ) -> SmallVec<[SmallVec<[u32; 2]>; 2]> {
        let mut slots: SmallVec<[SmallVec<[u32; 2]>; 2]> =
            instruction.outputs.iter().map(|_| SmallVec::new()).collect();
        let sizes = plan.map(|plan| Pieces::even(plan.size, mesh.len()));
        let sizes: SmallVec<[i64; 8]> = sizes.iter().flat_map(Pieces::sizes).collect();
        for (member, &worker) in mesh.members().iter().enumerate() {
            let mut planned = Instruction::new(plan.map_or(instruction.op, |plan| plan.op));
            planned.tag = low_half(number);
            planned.payload = instruction.payload;
            planned.attrs = match plan {
                Some(plan) => local_attrs(plan, sizes.get(member).copied().unwrap_or(0)),
                None => instruction.attrs.clone(),
            };
            for (position, operand) in brought.iter().enumerate() {
                planned.operands.push(match operand {
                    Brought::Plain(operand) => *operand,
                    Brought::Slots { slots, temporary } => {
                        if !temporary {
                            planned.consumes |= instruction.consumes & (1_u16 << position.min(15));
                        }
                        Operand::Value(Id::slot(slots.get(member).copied().unwrap_or(u32::MAX)))
                    }
                });
            }
            for list in &mut slots {
                let slot = self.take_slot(worker);
                list.push(slot);
                planned.outputs.push(Id::slot(slot));
            }
            self.send(session, worker, &planned, sink);
        }
        slots
    }

    /// Folds partial results and finishes means; metadata, layout and slots of each result.
    #[allow(
        clippy::too_many_arguments,
        reason = "one instruction's whole plan; a struct would only rename it"
    )]
    fn settle(
        &mut self,
        session: SessionId,
        outputs: &[Meta],
        mesh: &Mesh,
        plan: &Spread,
        pieces: &Pieces,
        slots: SmallVec<[SmallVec<[u32; 2]>; 2]>,
        sink: &mut dyn Sink,
    ) -> Placed {
        let mut results: Placed = SmallVec::new();
        for ((meta, give), mut slots) in outputs.iter().zip(&plan.gives).zip(slots) {
            let placement = match give {
                Give::Cut(dim) => Placement::Shard { dim: *dim, pieces: pieces.clone() },
                Give::Whole => Placement::Replicate,
                Give::Partial(fold) => {
                    slots = self.all_reduce(session, mesh, &slots, *fold, meta.bytes(), sink);
                    Placement::Replicate
                }
            };
            results.push((*meta, Layout { mesh: mesh.clone(), placement }, slots));
        }
        match plan.finish {
            Finish::Nothing => {}
            Finish::DivideBy(count) => {
                for (_, _, slots) in &mut results {
                    let divisor = |_: usize| Operand::Scalar(Scalar::Float(count));
                    *slots = self.divide(session, mesh, slots, divisor, sink);
                }
            }
            Finish::DivideByOutput1 => {
                let divisors =
                    results.get(1).map(|(_, _, slots)| slots.clone()).unwrap_or_default();
                if let Some((_, _, slots)) = results.first_mut() {
                    let divisor = |member: usize| {
                        let slot = divisors.get(member).copied().unwrap_or(u32::MAX);
                        Operand::Value(Id::slot(slot))
                    };
                    *slots = self.divide(session, mesh, slots, divisor, sink);
                }
            }
        }
        results
    }

    /// `slots / divisor` on each member; the dividend is freed.
    fn divide(
        &mut self,
        session: SessionId,
        mesh: &Mesh,
        slots: &[u32],
        divisor: impl Fn(usize) -> Operand,
        sink: &mut dyn Sink,
    ) -> SmallVec<[u32; 2]> {
        let mut quotients = SmallVec::new();
        for (member, (&worker, &slot)) in mesh.members().iter().zip(slots).enumerate() {
            let quotient = self.take_slot(worker);
            let mut word = self.word(Op::Div);
            word.consumes = 1;
            word.outputs.push(Id::slot(quotient));
            word.operands.push(Operand::Value(Id::slot(slot)));
            word.operands.push(divisor(member));
            self.send(session, worker, &word, sink);
            quotients.push(quotient);
        }
        self.free_members(session, mesh, slots, sink);
        quotients
    }

    pub(crate) fn free_members(
        &mut self,
        session: SessionId,
        mesh: &Mesh,
        slots: &[u32],
        sink: &mut dyn Sink,
    ) {
        for (&worker, &slot) in mesh.members().iter().zip(slots) {
            self.free_slots(session, worker, &[slot], sink);
        }
    }
}

/// The rule's attributes with the piece's size in place of the global one.
fn local_attrs(plan: &Spread, size: i64) -> SmallVec<[Attr; 2]> {
    let mut attrs = plan.attrs.clone();
    if let Some((position, dim)) = plan.local_size
        && let Some(Attr::Ints(dims)) = attrs.get_mut(position)
        && let Some(place) = dims.as_mut_slice().get_mut(dim)
    {
        *place = size;
    }
    attrs
}

fn whole_results(
    outputs: &[Meta],
    mesh: &Mesh,
    slots: SmallVec<[SmallVec<[u32; 2]>; 2]>,
) -> Placed {
    let layout = Layout { mesh: mesh.clone(), placement: Placement::Replicate };
    outputs.iter().zip(slots).map(|(meta, slots)| (*meta, layout.clone(), slots)).collect()
}
