//! Reads: for a replicated value one worker is asked, for a sharded one each holder for its shard.
//! Shards are passed on to the client as they arrive; the client places them, so that no worker
//! ever holds more than its share.

use crate::event::ClientFault;
use crate::number::first_slot;
use crate::plan::KeepCopy;
use crate::planner::Planner;
use crate::session::requests::{
    ReadElements, ReadPart, Request, RequestKind, answer_failed, request_number,
};
use crate::session::value::{Handle, Value};
use gt_protocol::placement::{Footprint, Layout};
use gt_protocol::{Attr, Id, Instruction, Meta, Op, Operand};
use smallvec::{SmallVec, smallvec};

/// A worker, its slot, and the requested elements of its shard.
struct ShardRead {
    worker: u32,
    slot: u32,
    footprint: Footprint,
    from: u64,
    to: u64,
}

impl Planner<'_> {
    pub(super) fn read(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        let number = request_number(instruction)?;
        let slot = first_slot(instruction);
        self.materialize(slot, None);
        let value = match self.session.handle(slot) {
            Handle::Free => {
                return Err(ClientFault::UnknownSlot { op: Op::Read, slot: u64::from(slot) });
            }
            Handle::Failed(failure) => {
                answer_failed(self.id, number, failure, self.sink);
                return Ok(());
            }
            Handle::Live(value) => value,
        };
        let (parts, value_number) = (parts(value, instruction), value.number());
        self.trace_plain(instruction);
        self.number = value_number;
        match parts {
            Some(parts) => self.read_parts(number, slot, parts),
            None => self.read_whole(instruction, number, slot)?,
        }
        Ok(())
    }

    /// Asks one worker that holds, or gets, the whole value.
    fn read_whole(
        &mut self,
        instruction: &Instruction<'_>,
        number: u64,
        slot: u32,
    ) -> Result<(), ClientFault> {
        let value = self.value(slot);
        let elements = requested(instruction, value)?;
        let kind = RequestKind::Read { value: value.number(), elements };
        let layout = value.layout();
        let target = read_layout(layout).unwrap_or_else(|| layout.clone());
        let resharded = self.reshard(slot, &target, KeepCopy::Reduced);
        let (Some(&worker), Some(&shard_slot)) =
            (target.mesh().members().first(), resharded.slots.first())
        else {
            unreachable!("{target} has members")
        };
        let request = Request {
            session: self.id,
            number,
            waiting: smallvec![worker],
            kind,
            received: 0,
            part: None,
        };
        let request = self.core.requests.open(request);
        let mut word = self.word(Op::Read);
        word.operands.push(Operand::Value(Id::slot(shard_slot)));
        word.attrs.clone_from(&instruction.attrs);
        if let Some(first) = word.attrs.first_mut() {
            *first = Attr::Int(request);
        }
        self.send(worker, &word);
        self.discard(&target, &resharded);
        Ok(())
    }

    /// Asks each holder for its shard.
    fn read_parts(&mut self, number: u64, slot: u32, parts: SmallVec<[ShardRead; 4]>) {
        let value = self.value(slot);
        let (Meta { dims, dtype }, value) = (*value.meta(), value.number());
        let total = parts.iter().map(|part| part.to - part.from).sum();
        for ShardRead { worker, slot, footprint, from, to } in parts {
            let part = ReadPart { footprint, dims, total, last: None };
            let elements = ReadElements { start: from, count: to - from, dtype };
            let kind = RequestKind::Read { value, elements };
            let request = self.core.requests.open(Request {
                session: self.id,
                number,
                waiting: smallvec![worker],
                kind,
                received: 0,
                part: Some(Box::new(part)),
            });
            let mut word = self.word(Op::Read);
            word.operands.push(Operand::Value(Id::slot(slot)));
            let count = to - from;
            word.attrs.push(Attr::Int(request));
            word.attrs.extend([from, count].map(|of| Attr::Int(of.cast_signed())));
            self.send(worker, &word);
        }
    }
}

/// The elements that a read asks for. A negative number is none that any answer has: the worker
/// fails the read.
fn requested(instruction: &Instruction<'_>, value: &Value) -> Result<ReadElements, ClientFault> {
    let number = |name: &'static str| {
        let Attr::Int(number) = instruction.attr(name) else {
            return Err(ClientFault::Attribute { op: Op::Read, name });
        };
        Ok(number.cast_unsigned())
    };
    let dtype = value.meta().dtype;
    Ok(ReadElements { start: number("start")?, count: number("count")?, dtype })
}

/// The shards of a sharded value that hold the requested elements; `None` where the value has to be
/// gathered.
fn parts(value: &Value, instruction: &Instruction<'_>) -> Option<SmallVec<[ShardRead; 4]>> {
    let (layout, slots) = (value.layout(), value.slots());
    let (&Attr::Int(start), &Attr::Int(count)) =
        (instruction.attr("start"), instruction.attr("count"))
    else {
        return None;
    };
    let (start, count) = (u64::try_from(start).ok()?, u64::try_from(count).ok()?);
    let end = start.checked_add(count)?;
    let elements = u64::try_from(value.meta().elements()).ok()?;
    if layout.is_whole() || end > elements {
        return None;
    }
    let mut parts = SmallVec::new();
    for (place, (&worker, &slot)) in layout.mesh().members().iter().zip(slots).enumerate() {
        let footprint = Footprint::new(layout, &value.meta().dims, place, 1)?;
        let (from, to) = (footprint.before(start), footprint.before(end));
        // A holder without any of the elements is asked too: the value may have failed there.
        if is_first_copy(layout, place) {
            parts.push(ShardRead { worker, slot, footprint, from, to });
        }
    }
    Some(parts)
}

/// Returns true if no member before this one holds the same shard.
fn is_first_copy(layout: &Layout, place: usize) -> bool {
    let axes = layout.placements().iter().enumerate();
    axes.filter(|(_, placement)| placement.cut().is_none())
        .all(|(axis, _)| layout.mesh().coordinate(place, axis) == 0)
}

/// The layout in which a value is read, on its first member. `None` where that member holds the
/// whole value.
fn read_layout(layout: &Layout) -> Option<Layout> {
    if layout.is_whole() {
        return None;
    }
    let mesh = layout.mesh();
    if layout.is_partial() {
        return Some(Layout::replicated(mesh.clone()));
    }
    mesh.members().first().map(|&first| Layout::on(first))
}
