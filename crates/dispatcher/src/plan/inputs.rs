//! Operands of a plan: the session's values, and results of earlier steps of the plan.

use crate::session::Session;
use crate::session::value::Shards;
use crate::strategy::cache::Query;
use crate::strategy::choose::OperandSpec;
use gt_protocol::placement::{Layout, Mesh, Placement, Placements};
use gt_protocol::rules::RuleArg;
use gt_protocol::{Instruction, Meta, Operand, Scalar};
use smallvec::SmallVec;

/// An operand of a plan.
#[derive(Clone, Debug)]
pub(crate) enum PlanOperand {
    Absent,
    Scalar(Scalar),
    /// The session's value in this slot.
    Value(u32),
    /// Result of an earlier step of this plan.
    StepResult(Box<(Meta, Shards)>),
}

impl PlanOperand {
    /// The session's slot of the operand, if it has one.
    pub fn slot(&self) -> Option<u32> {
        match self {
            Self::Value(slot) => Some(*slot),
            Self::Absent | Self::Scalar(_) | Self::StepResult(..) => None,
        }
    }
}

/// The operands of a client's instruction.
pub(super) fn of(instruction: &Instruction<'_>) -> SmallVec<[PlanOperand; 4]> {
    let input = |operand: &Operand| match operand {
        Operand::Absent => PlanOperand::Absent,
        Operand::Scalar(scalar) => PlanOperand::Scalar(*scalar),
        Operand::Value(id) => id.as_slot().map_or(PlanOperand::Absent, PlanOperand::Value),
    };
    instruction.operands.iter().map(input).collect()
}

/// Returns true if all operands that are this value need it in one layout.
pub(super) fn needs_one_layout(
    slot: u32,
    need: &Layout,
    inputs: &[PlanOperand],
    needs: &[Layout],
) -> bool {
    let mut all = inputs.iter().zip(needs);
    all.all(|(input, other)| input.slot() != Some(slot) || other == need)
}

/// Position of an earlier operand that is the same value, if there is one.
fn twin(inputs: &[PlanOperand], position: usize) -> Option<usize> {
    let slot = inputs.get(position)?.slot()?;
    inputs.iter().take(position).position(|earlier| earlier.slot() == Some(slot))
}

/// Metadata and layout of an operand that is a value.
fn operand<'a>(session: &'a Session, input: &'a PlanOperand) -> Option<(&'a Meta, &'a Layout)> {
    match input {
        PlanOperand::Absent | PlanOperand::Scalar(_) => None,
        PlanOperand::Value(slot) => {
            session.value(*slot).map(|value| (value.meta(), value.layout()))
        }
        PlanOperand::StepResult(made) => Some((&made.0, &made.1.layout)),
    }
}

/// Metadata of an operand that is a value.
pub(super) fn meta(session: &Session, input: &PlanOperand) -> Meta {
    let Some((meta, _)) = operand(session, input) else { unreachable!("{input:?} is no value") };
    *meta
}

/// Adds the operands to the key of a plan.
pub(super) fn add_operands<'a>(
    query: &mut Query<'a>,
    session: &'a Session,
    inputs: &'a [PlanOperand],
) {
    for (position, input) in inputs.iter().enumerate() {
        let operand = operand(session, input);
        query.operands.push(operand);
        if position < 16 && twin(inputs, position).is_some() {
            query.twins |= 1 << position;
        }
    }
}

/// The operands in the form that the choice takes, seen from `mesh`.
pub(super) fn specs(
    session: &Session,
    inputs: &[PlanOperand],
    mesh: &Mesh,
) -> SmallVec<[OperandSpec; 4]> {
    let spec = |(position, input)| {
        let twin = twin(inputs, position);
        let Some((meta, layout)) = operand(session, input) else {
            let placements = Placements::new();
            return OperandSpec { meta: None, layout: None, placements, elsewhere: None, twin };
        };
        let here = layout.mesh() == mesh;
        let same_shape = layout.mesh().shape() == mesh.shape();
        let placements = if same_shape && (here || !layout.is_partial()) {
            layout.placements().iter().cloned().collect()
        } else {
            Placements::from_elem(Placement::Replicate, mesh.rank())
        };
        let is_here = here || layout.is_whole() && layout.mesh().contains(mesh);
        let elsewhere = (!is_here).then(|| layout.mesh().clone());
        let layout = here.then(|| layout.clone());
        OperandSpec { meta: Some(*meta), layout, placements, elsewhere, twin }
    };
    inputs.iter().enumerate().map(spec).collect()
}

/// Metadata of the operands, in the form that shape rules take.
pub(super) fn args<'a>(
    session: &'a Session,
    inputs: &'a [PlanOperand],
) -> SmallVec<[RuleArg<'a>; 4]> {
    inputs
        .iter()
        .map(|input| match input {
            PlanOperand::Absent => RuleArg::Absent,
            PlanOperand::Scalar(scalar) => RuleArg::Scalar(*scalar),
            PlanOperand::Value(_) | PlanOperand::StepResult(..) => {
                operand(session, input).map_or(RuleArg::Absent, |(meta, _)| RuleArg::Value(meta))
            }
        })
        .collect()
}
