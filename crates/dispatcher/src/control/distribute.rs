//! `distribute` and `local_shard`: a value in the layout that its client requests, and one member's
//! shard of it.

use crate::event::ClientFault;
use crate::number::{first_slot, signed};
use crate::plan::{KeepCopy, PlanStop, Results};
use crate::planner::Planner;
use crate::session::provenance::{Decider, OverAll};
use crate::session::value::{Handle, Shards, Value, slot_at};
use gt_protocol::placement::{Layout, Mesh, Placement, ShardRanges};
use gt_protocol::rules::{ErrorClass, RuleError};
use gt_protocol::{Attr, Instruction, Meta};
use smallvec::smallvec;

/// Request of a client.
#[derive(Clone, Copy)]
enum LayoutRequest {
    Value,
    Shard(usize),
}

impl Planner<'_> {
    pub(super) fn distribute(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        self.redistributed(instruction, LayoutRequest::Value)
    }

    /// One member's shard of a value, as a value on that worker alone.
    pub(super) fn take_shard(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        let fault = ClientFault::Attribute { op: instruction.op, name: "member" };
        let Attr::Int(member) = *instruction.attr("member") else { return Err(fault) };
        let member = usize::try_from(member).map_err(|_| fault)?;
        self.redistributed(instruction, LayoutRequest::Shard(member))
    }

    fn redistributed(
        &mut self,
        instruction: &Instruction<'_>,
        request: LayoutRequest,
    ) -> Result<(), ClientFault> {
        let (op, slot) = (instruction.op, first_slot(instruction));
        let output = instruction.outputs.first();
        let output = output.ok_or(ClientFault::Outputs { op, count: 0, expected: 1 })?;
        self.session.check_definable(op, *output)?;
        let failed = match self.session.handle(slot) {
            Handle::Free => return Err(ClientFault::UnknownSlot { op, slot: u64::from(slot) }),
            Handle::Failed(failure) => Some(failure.clone()),
            Handle::Live(_) => None,
        };
        self.number = self.session.number(instruction.tag);
        if let Some(failure) = failed {
            self.inherit(instruction, &failure);
            return Ok(());
        }
        let moved_before = self.core.moved_bytes;
        let planned = match self.requested_layout(instruction, self.value(slot))? {
            Ok(layout) => {
                self.session.has_layouts = true;
                self.note_epoch();
                self.fulfil(slot, &layout, request, instruction)?
            }
            Err(error) => Err(PlanStop::Error(error)),
        };
        self.finish(instruction, planned);
        self.trace_line(instruction, moved_before);
        Ok(())
    }

    fn fulfil(
        &mut self,
        slot: u32,
        layout: &Layout,
        request: LayoutRequest,
        instruction: &Instruction<'_>,
    ) -> Result<Result<Results, PlanStop>, ClientFault> {
        let fault = ClientFault::Attribute { op: instruction.op, name: "member" };
        let member = match request {
            LayoutRequest::Shard(member) => {
                let worker = layout.mesh().members().get(member).ok_or(fault)?;
                Some((member, *worker))
            }
            LayoutRequest::Value => {
                self.record_upload_use(slot, layout);
                None
            }
        };
        self.take_pending(slot);
        self.materialize(slot, Some(layout));
        if let Some(failure) = self.failed_operand(instruction) {
            return Ok(Err(PlanStop::Operand(failure)));
        }
        let (meta, before) = (*self.value(slot).meta(), self.session.traffic);
        let result = if let Some((member, worker)) = member {
            let resharded = self.reshard(slot, layout, KeepCopy::Never);
            let meta = Meta::new(meta.dtype, layout.local_dims(&meta.dims, member));
            let own = self.alias(worker, slot_at(&resharded.slots, member), meta);
            self.discard(layout, &resharded);
            (meta, Shards::new(Layout::on(worker), smallvec![own]))
        } else {
            let resharded = self.reshard(slot, layout, KeepCopy::Reduced);
            (meta, Shards::new(layout.clone(), self.own(meta, layout, resharded)))
        };
        let decider = Some(Decider::Request(over_all(instruction, meta.dims.len())));
        Ok(Ok(Results { decider, ..Results::ready(smallvec![result], before) }))
    }

    /// The requested layout: a text, or one dimension over all workers. Workers that it names may
    /// have left meanwhile, which is no fault of the client's.
    fn requested_layout(
        &self,
        instruction: &Instruction<'_>,
        value: &Value,
    ) -> Result<Result<Layout, RuleError>, ClientFault> {
        let op = instruction.op;
        let mistake = |text: String| {
            Ok(Err(RuleError { class: ErrorClass::Runtime, text: format!("distribute: {text}") }))
        };
        let dims = &value.meta().dims;
        let alive = self.core.workers.alive();
        if let Attr::Text(text) = instruction.attr("layout") {
            let layout = match Layout::parse_over(text, dims, value.layout()) {
                Ok(layout) => layout,
                // The text is valid or not depending on the value's own layout.
                Err(error) if text.contains("keep") || text.contains("reduce") => {
                    return mistake(error.to_string());
                }
                Err(_) => return Err(ClientFault::Attribute { op, name: "layout" }),
            };
            let absent = layout.mesh().members().iter().find(|worker| !alive.contains(worker));
            return match absent {
                Some(worker) => mistake(format!(
                    "worker {worker} of layout {layout} is not connected; {alive:?} are"
                )),
                None => Ok(Ok(layout)),
            };
        }
        if alive.is_empty() {
            return mistake("no worker is connected to the dispatcher".to_owned());
        }
        let mesh = Mesh::line(alive);
        let rank = signed(dims.len());
        let Attr::Int(asked) = *instruction.attr("dim") else {
            return Ok(Ok(Layout::replicated(mesh)));
        };
        let dim = usize::try_from(if asked < 0 { asked + rank } else { asked }).ok();
        let Some((dim, &size)) = dim.and_then(|dim| Some((dim, dims.get(dim)?))) else {
            return Err(ClientFault::Attribute { op, name: "dim" });
        };
        let ranges = ShardRanges::even(size, mesh.len());
        Ok(Ok(Layout::new(mesh, [Placement::Shard { dim, ranges }].into_iter().collect())))
    }
}

/// The layout over all workers that an instruction asks for; `None` if it names the workers.
fn over_all(instruction: &Instruction<'_>, rank: usize) -> Option<OverAll> {
    if matches!(instruction.attr("layout"), Attr::Text(_)) {
        return None;
    }
    let Attr::Int(asked) = *instruction.attr("dim") else { return Some(OverAll::Replicated) };
    let dim = if asked < 0 { asked + signed(rank) } else { asked };
    usize::try_from(dim).ok().map(OverAll::Sharded)
}
