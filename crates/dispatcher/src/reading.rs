//! Reads: one worker is asked for a value that it holds whole, each holder for its piece of one that is cut. Pieces go on
//! to the client as they come; it puts them where they belong, so that no worker ever holds more than its share.

use crate::Dispatcher;
use crate::event::{Fault, SessionId, Sink};
use crate::handle::{Handle, Shards, Value};
use crate::motion::Mover;
use crate::planted;
use crate::request::{Part, Request, RequestKind, answer_failed, request_number};
use gt_protocol::message::Reply;
use gt_protocol::placement::{Footprint, Layout};
use gt_protocol::{Attr, Id, Instruction, Op, Operand};
use smallvec::{SmallVec, smallvec};

/// A worker, its slot, and which elements of its piece are wanted.
struct Asked {
    worker: u32,
    slot: u32,
    footprint: Footprint,
    from: u64,
    to: u64,
}

impl Dispatcher {
    pub(crate) fn read(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        let number = request_number(instruction)?;
        let id = instruction.values().next();
        let slot = id.and_then(Id::as_slot).unwrap_or(u32::MAX);
        self.make(session, slot, None, sink);
        let state = self.sessions.get(&session).ok_or(Fault::NoSession { session })?;
        let value = match state.handle(slot) {
            Handle::Free => return Err(Fault::UnknownSlot { op: Op::Read, slot: u64::from(slot) }),
            Handle::Failed(failure) => {
                answer_failed(session, number, &failure.clone(), sink);
                return Ok(());
            }
            Handle::Live(value) => value.clone(),
        };
        if self.tracing {
            self.trace_plain(session, instruction, sink);
        }
        self.planning = value.number;
        match parts(&value, instruction) {
            Some(parts) => self.read_parts(session, number, &value, parts, sink),
            None => self.read_whole(session, instruction, number, (slot, value), sink)?,
        }
        Ok(())
    }

    /// Asks one worker that has, or is brought, all of it.
    fn read_whole(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        (slot, value): (u32, Value),
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        let value_is_partial = value.shards.layout.is_partial();
        let mut mover = Mover::new(self, session, sink);
        let (from, target) = match read_from(&value.shards.layout) {
            None => (value.shards, None),
            Some(target) => {
                let brought = mover.redistribute(value.meta, &value.shards, &target);
                (Shards { layout: target, slots: brought.slots }, Some(brought.owned))
            }
        };
        let gathered = target == Some(true);
        let Some((worker, held)) = from.held().next() else {
            return Err(Fault::UnknownSlot { op: Op::Read, slot: u64::from(slot) });
        };
        // What was partial is whole now, for the next reader too.
        let remembered = gathered && value_is_partial;
        if remembered {
            mover.replace(slot, from.clone());
        }
        let temporary = gathered && !remembered;
        if temporary && planted::FREE_EARLY {
            mover.free_shards(&from);
        }
        let kind = RequestKind::Read { value: value.number };
        let request = self.open_request(session, number, smallvec![worker], kind);
        let mut word = self.word(Op::Read);
        word.operands.push(Operand::Value(Id::slot(held)));
        word.attrs.clone_from(&instruction.attrs);
        if let Some(first) = word.attrs.first_mut() {
            *first = Attr::Int(request);
        }
        self.send(session, worker, &word, sink);
        if temporary && !planted::FREE_EARLY {
            Mover::new(self, session, sink).free_shards(&from);
        }
        Ok(())
    }

    /// Asks each holder for its piece.
    fn read_parts(
        &mut self,
        session: SessionId,
        number: u64,
        value: &Value,
        parts: SmallVec<[Asked; 4]>,
        sink: &mut dyn Sink,
    ) {
        let total = parts.iter().map(|part| part.to - part.from).sum();
        for Asked { worker, slot, footprint, from, to } in parts {
            let part = Part { footprint, dims: value.meta.dims, total, last: None };
            let request = self.open(Request {
                session,
                number,
                waiting: smallvec![worker],
                kind: RequestKind::Read { value: value.number },
                received: 0,
                part: Some(Box::new(part)),
            });
            let mut word = self.word(Op::Read);
            word.operands.push(Operand::Value(Id::slot(slot)));
            let count = to - from;
            word.attrs.push(Attr::Int(request));
            word.attrs.extend([from, count].map(|of| Attr::Int(of.cast_signed())));
            self.send(session, worker, &word, sink);
        }
    }

    /// The last elements of a piece. They go on when all other pieces are there: a value that has failed on one worker has
    /// failed, whichever part of it is read.
    pub(crate) fn part_is_there(&mut self, key: i64, reply: &Reply<'_>, sink: &mut dyn Sink) {
        let Some(open) = self.requests.get_mut(&key) else { return };
        open.waiting.clear();
        let (session, number) = (open.session, open.number);
        if let Some(part) = &mut open.part {
            let Reply { request, start, count, total, dtype, dims, .. } = *reply;
            let places = Reply { request, start, count, total, dtype, dims, bytes: &[] };
            part.last = Some((places, reply.bytes.to_vec()));
        }
        let is_of_it = |request: &Request| {
            request.part.is_some() && request.session == session && request.number == number
        };
        let all = || self.requests.values().filter(|request| is_of_it(request));
        if all().any(|request| !request.waiting.is_empty()) {
            return;
        }
        for (place, part) in all().filter_map(|request| request.part.as_ref()).enumerate() {
            if part.total == 0 && place > 0 {
                break; // nothing was asked for, and one says so
            }
            if let Some((reply, bytes)) = &part.last {
                let reply = Reply { bytes, ..*reply };
                part.pass_on(number, &reply, &mut |whole| sink.session(session, whole));
            }
        }
        self.forget_parts(session, number);
    }

    /// One piece of a read has failed, and so has the read: what other workers still answer is nobody's.
    pub(crate) fn forget_parts(&mut self, session: SessionId, number: u64) {
        self.requests.retain(|_, request| {
            request.part.is_none() || request.session != session || request.number != number
        });
    }
}

/// The pieces of a value that is cut which hold what is asked for; nothing where it has to be brought together.
fn parts(value: &Value, instruction: &Instruction<'_>) -> Option<SmallVec<[Asked; 4]>> {
    let Shards { layout, slots } = &value.shards;
    let (&Attr::Int(start), &Attr::Int(count)) =
        (instruction.attr("start"), instruction.attr("count"))
    else {
        return None;
    };
    let (start, count) = (u64::try_from(start).ok()?, u64::try_from(count).ok()?);
    let end = start.checked_add(count)?;
    let elements = u64::try_from(value.meta.elements()).ok()?;
    if layout.is_whole() || end > elements || planted::FREE_EARLY {
        return None;
    }
    let mut parts = SmallVec::new();
    for (place, (&worker, &slot)) in layout.mesh().members().iter().zip(slots).enumerate() {
        let footprint = Footprint::new(layout, &value.meta.dims, place, 1)?;
        let (from, to) = (footprint.before(start), footprint.before(end));
        // Who has none of it is asked too: the value may have failed there.
        if is_first_copy(layout, place) {
            parts.push(Asked { worker, slot, footprint, from, to });
        }
    }
    Some(parts)
}

/// Whether no member before this one holds the same piece.
fn is_first_copy(layout: &Layout, place: usize) -> bool {
    let axes = layout.placements().iter().enumerate();
    axes.filter(|(_, placement)| placement.cut().is_none())
        .all(|(axis, _)| layout.mesh().coordinate(place, axis) == 0)
}

/// Where a value is brought together to be read: on its first member. Nothing where that holds it all.
fn read_from(layout: &Layout) -> Option<Layout> {
    if layout.is_whole() {
        return None;
    }
    let mesh = layout.mesh();
    if layout.is_partial() {
        return Some(Layout::replicated(mesh.clone()));
    }
    mesh.members().first().map(|&first| Layout::on(first))
}
