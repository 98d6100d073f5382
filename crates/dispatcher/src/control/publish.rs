//! `publish` and `published`: values that a session keeps under a name, and their way back to a
//! client. A kept value is an alias: publishing moves no bytes.

use crate::event::ClientFault;
use crate::number::slot_of;
use crate::plan::{PlanStop, Results};
use crate::planner::Planner;
use crate::session::provenance::LayoutCause;
use crate::session::published::{GeneratorState, NAMES_MAX, VALUES_MAX};
use crate::session::requests::request_number;
use crate::session::value::{
    Borrowing, Handle, PendingLayout, Shards, Slots, Value, ValueState, slot_at,
};
use gt_protocol::message::{Failure, FailureClass, PUBLISHED_NAME_BYTES_MAX, ToClient};
use gt_protocol::rules::{ErrorClass, RuleError};
use gt_protocol::{Attr, Instruction, Meta, Operand};
use smallvec::smallvec;
use std::sync::Arc;

impl Planner<'_> {
    /// The instruction `publish`: all values of a name are replaced at once, so that a client that
    /// ends at any time leaves all of them or all of those before.
    pub(super) fn publish(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        let op = instruction.op;
        let request = request_number(instruction)?;
        let fault = |name| ClientFault::Attribute { op, name };
        let Attr::Text(name) = instruction.attr("name") else { return Err(fault("name")) };
        let (&Attr::Int(seed), &Attr::Int(draw)) =
            (instruction.attr("seed"), instruction.attr("draw"))
        else {
            return Err(fault("seed"));
        };
        if name.is_empty()
            || name.len() > PUBLISHED_NAME_BYTES_MAX
            || name.contains(char::is_control)
        {
            return Err(fault("name"));
        }
        let mut slots = Vec::with_capacity(instruction.operands.len());
        for operand in &instruction.operands {
            let slot = match operand {
                Operand::Value(id) => slot_of(*id),
                Operand::Absent | Operand::Scalar(_) => u32::MAX,
            };
            if matches!(self.session.handle(slot), Handle::Free) {
                return Err(ClientFault::UnknownSlot { op, slot: u64::from(slot) });
            }
            slots.push(slot);
        }
        self.trace_plain(instruction);
        if let Some(text) = self.exceeds(name, slots.len()) {
            let class = FailureClass::Quota;
            let (session, number, tag) = (self.id.0, 0, instruction.tag);
            let failure = Failure { session, number, class, op: Some(op), tag, text: &text };
            self.sink.session(self.id, &ToClient::FailedReply { request, failure });
            return Ok(());
        }
        let handles: Vec<Handle> = slots.into_iter().map(|slot| self.kept(slot)).collect();
        let replaced = self.session.unkeep(name);
        self.core.workers.free_all(replaced.into_iter(), self.sink);
        if handles.is_empty() {
            self.session.published.revoke_all(name);
        } else {
            self.session.keep(name, handles);
        }
        self.session.published.generator = Some(GeneratorState { seed, draw });
        self.sink.session(self.id, &ToClient::Done { request });
        Ok(())
    }

    /// The limit that a session would exceed with `count` values under a name.
    fn exceeds(&self, name: &str, count: usize) -> Option<String> {
        let published = &self.session.published;
        let replaced = published.entry(name).map_or(0, |entry| entry.slots.len());
        if published.values() - replaced + count > VALUES_MAX {
            return Some(format!("a session publishes at most {VALUES_MAX} values"));
        }
        let is_new = published.entry(name).is_none() && count > 0;
        (is_new && published.names() >= NAMES_MAX)
            .then(|| format!("a session publishes at most {NAMES_MAX} names"))
    }

    /// A value as the session keeps it: aliases of its shards, or its failure.
    fn kept(&mut self, slot: u32) -> Handle {
        self.materialize(slot, None);
        if let Some(value) = self.session.value(slot)
            && matches!(value.pending(), PendingLayout::Target(_) | PendingLayout::Rebalance(_))
        {
            self.take_pending(slot);
        }
        let value = match self.session.handle(slot) {
            Handle::Live(value) => value,
            Handle::Failed(failure) => return Handle::Failed(failure.clone()),
            Handle::Free => unreachable!("slot {slot} has been checked"),
        };
        let (number, output, site) = (value.number(), value.output, value.site);
        let (cause, provenance) = (value.cause(), value.provenance().cloned());
        let (meta, shards) = (*value.meta(), value.shards());
        let slots = self.on_behalf_of(number, |planner| planner.aliases(meta, &shards));
        let spec = self.session.specs.of(&meta, &shards.layout);
        let mut value = Value::new(spec, number, output, ValueState::Ready(slots));
        value.site = site;
        if cause != LayoutCause::AsMade {
            value.set_cause(cause);
        }
        if let Some(provenance) = provenance {
            value.set_provenance(provenance);
        }
        Handle::Live(value)
    }

    /// Moves a kept value that is to be elsewhere.
    fn take_pending_of_kept(&mut self, slot: u32) {
        if self.session.value(slot).is_some() {
            self.take_pending(slot);
        }
    }

    pub(crate) fn aliases(&mut self, meta: Meta, shards: &Shards) -> Slots {
        let members = shards.layout.mesh().members().iter().enumerate();
        members
            .map(|(place, &worker)| {
                let dims = shards.layout.local_dims(&meta.dims, place);
                self.alias(worker, slot_at(&shards.slots, place), Meta::new(meta.dtype, dims))
            })
            .collect()
    }

    /// The instruction `published`.
    pub(super) fn take_published(
        &mut self,
        instruction: &Instruction<'_>,
    ) -> Result<(), ClientFault> {
        let op = instruction.op;
        let fault = |name| ClientFault::Attribute { op, name };
        let output = instruction.outputs.first();
        let output = output.ok_or(ClientFault::Outputs { op, count: 0, expected: 1 })?;
        self.session.check_definable(op, *output)?;
        let Attr::Text(name) = instruction.attr("name") else { return Err(fault("name")) };
        let &Attr::Int(index) = instruction.attr("index") else { return Err(fault("index")) };
        let (Attr::Ints(dims), &Attr::Dtype(dtype)) =
            (instruction.attr("size"), instruction.attr("dtype"))
        else {
            return Err(fault("size"));
        };
        let asked = Meta::new(dtype, *dims);
        self.number = self.session.number(instruction.tag);
        let moved_before = self.core.moved_bytes;
        let planned = self.copy_of(name, index, asked);
        self.finish(instruction, planned);
        let kept = self.session.published.entry(name).map(|entry| &entry.slots);
        let kept = kept.and_then(|slots| slots.get(usize::try_from(index).ok()?).copied());
        let kept = kept.and_then(|slot| self.session.value(slot));
        if let Some(Borrowing::Borrower(token)) = kept.and_then(Value::borrowing)
            && let Some(slot) = output.as_slot()
        {
            let token = Arc::clone(token);
            self.session.note_borrowed(slot, token);
        }
        self.trace_line(instruction, moved_before);
        Ok(())
    }

    fn copy_of(&mut self, name: &str, index: i64, asked: Meta) -> Result<Results, PlanStop> {
        let mistake = |text| PlanStop::Error(RuleError { class: ErrorClass::Runtime, text });
        let slots = self.session.published.entry(name).map(|entry| &entry.slots);
        let slot = slots.and_then(|slots| slots.get(usize::try_from(index).ok()?).copied());
        let Some(slot) = slot else {
            return Err(mistake(format!("published: {name:?} has no value number {index}")));
        };
        self.take_pending_of_kept(slot);
        let (meta, shards) = match self.session.handle(slot) {
            Handle::Live(value) => (*value.meta(), value.shards()),
            Handle::Failed(failure) => return Err(PlanStop::Operand(failure.clone())),
            Handle::Free => unreachable!("slot {slot} is kept under {name:?}"),
        };
        if meta != asked {
            let text = format!("published: value {index} of {name:?} is {meta}, not {asked}");
            return Err(mistake(text));
        }
        let before = self.session.traffic;
        let slots = self.aliases(meta, &shards);
        let shards = Shards::new(shards.layout, slots);
        Ok(Results::ready(smallvec![(meta, shards)], before))
    }
}
