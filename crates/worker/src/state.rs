//! State of a worker: its engine, the values in their slots, and the collectives in flight.

mod in_flight;
mod negotiation;

pub use in_flight::{Awaited, InFlight};
pub use negotiation::{Negotiation, Stage};

use crate::engine::Engine;
use crate::failure::{Cause, FailedInstruction, Fault};
use crate::incarnations::Incarnations;
use crate::replies::Running;
use crate::rounding::Rounding;
use crate::table::{NoValue, SlotTable};
use crate::update_group::UpdateGroup;
use gt_protocol::message::FailureClass;
use gt_protocol::rules::{RuleArg, describe};
use gt_protocol::{Attr, Family, Instruction, Kind, Meta, Operand};
use smallvec::SmallVec;

pub type InFlightOf<E> = InFlight<<E as Engine>::Value, <E as Engine>::Rendezvous>;

pub struct MachineState<E: Engine> {
    pub engine: E,
    pub table: SlotTable<E::Value>,
    /// This worker's index, by which collectives name it.
    pub index: u32,
    /// The workers that collectives mean by other indices.
    pub incarnations: Incarnations,
    pub session: u32,
    /// Collectives in flight, in the order of their instructions.
    pub in_flight: Vec<InFlightOf<E>>,
    /// Rounding for other hosts, if it is on.
    pub rounding: Option<Rounding>,
    /// Updates whose results were computed before their turn.
    pub group: UpdateGroup<E::Value>,
    /// Number of instructions that ran together with one before them.
    pub joined: u64,
    /// True while a collective is started that is cancelled.
    pub cancels_collective: bool,
    tickets: u64,
}

impl<E: Engine> MachineState<E> {
    pub fn new(engine: E) -> Self {
        let (table, in_flight) = (SlotTable::default(), Vec::new());
        let incarnations = Incarnations::default();
        Self {
            engine,
            table,
            index: 0,
            incarnations,
            session: 0,
            in_flight,
            rounding: None,
            group: UpdateGroup::default(),
            joined: 0,
            cancels_collective: false,
            tickets: 0,
        }
    }

    pub fn allocate(&mut self, meta: &Meta) -> Result<E::Value, Fault> {
        if meta.dims.iter().any(|&size| size < 0) || meta.dims.elements().is_none() {
            return Err(Fault::protocol(format!("{meta} is no shape")));
        }
        self.engine.allocate(meta)
    }

    /// A collective that is about to start, without results yet.
    pub fn in_flight_new(&mut self, instruction: &Instruction<'_>) -> InFlightOf<E> {
        self.tickets += 1;
        self.engine.begin_transfer(self.tickets);
        let origin =
            FailedInstruction { session: self.session, tag: instruction.tag, op: instruction.op };
        InFlight::new(self.tickets, origin)
    }

    /// An instruction that is about to run, unless it computes nothing.
    #[inline]
    pub fn running(&self, instruction: &Instruction<'_>) -> Option<Running> {
        let (session, tag, op) = (self.session, instruction.tag, instruction.op);
        (op.info().kind() != Kind::Control).then_some(Running { session, tag, op })
    }

    /// The cause of an instruction's failure.
    pub fn cause(&self, instruction: &Instruction<'_>, why: &NoValue) -> Cause {
        match why {
            NoValue::Failed(cause) => Cause::clone(cause),
            NoValue::Fault(fault) => self.cause_of(instruction, fault.clone()),
        }
    }

    pub fn cause_of(&self, instruction: &Instruction<'_>, mut fault: Fault) -> Cause {
        let (session, tag, op) = (self.session, instruction.tag, Some(instruction.op));
        // Operands of computing instructions come from the user.
        if instruction.op.info().kind() == Kind::Compute && fault.class != FailureClass::Protocol {
            fault.text.push_str("; ");
            fault.text.push_str(&self.described(instruction));
        }
        Cause { session, tag, op, fault }
    }

    /// The operator with its operands as this worker has them: `gather f32[3] i64[1]`,
    /// `aten::linalg_inv f32[2,2]`.
    #[cold]
    fn described(&self, instruction: &Instruction<'_>) -> String {
        let operands: SmallVec<[RuleArg<'_>; 4]> = instruction
            .operands
            .iter()
            .map(|operand| match operand {
                Operand::Absent => RuleArg::Absent,
                Operand::Scalar(scalar) => RuleArg::Scalar(*scalar),
                Operand::Value(id) => match self.table.held(*id) {
                    Ok(held) => RuleArg::Value(&held.meta),
                    Err(_) => RuleArg::Absent,
                },
            })
            .collect();
        let text = describe(instruction.op, &operands);
        let info = instruction.op.info();
        match (info.family, instruction.attrs.first()) {
            (Family::Generic, Some(Attr::Text(overload))) => {
                text.replacen(info.name, &format!("aten::{overload}"), 1)
            }
            _ => text,
        }
    }
}
