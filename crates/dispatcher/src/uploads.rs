//! Uploads: a client's bytes go to each member of the layout as its own piece, straight from the frame that they came in.
//! Nothing is whole anywhere but in the client.
//!
//! The layout is a scope's, or what earlier uploads of the same line were needed as; one that is known to nobody lies
//! where the session makes its tensors.

use crate::Dispatcher;
use crate::event::{Fault, SessionId, Sink};
use crate::handle::{Handle, Shards, Slots, Value};
use crate::note::{Laid, Why};
use crate::session::Session;
use gt_protocol::placement::{Footprint, Layout, Pieces, Placement};
use gt_protocol::{Attr, Dims, Id, Instruction, Meta, Op, Operand};
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Lines and shapes that are remembered; a program that uploads from more of them starts over.
const KINDS_MAX: usize = 1 << 10;

/// What a program uploads again and again: from the same line, of the same shape.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Kind {
    site: u32,
    meta: Meta,
}

/// How a session's uploads were needed at their uses; nothing where those differed.
#[derive(Default)]
pub(crate) struct Needs {
    #[allow(clippy::disallowed_types, reason = "looked up only: its order is never seen")]
    known: std::collections::HashMap<Kind, Option<Layout>, BuildHasherDefault<DefaultHasher>>,
}

impl Dispatcher {
    /// Defines a value whose bytes are on their way, to lie as `layout` says.
    pub(crate) fn upload(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        meta: Meta,
        layout: &Layout,
        sink: &mut dyn Sink,
    ) {
        let (layout, wish) = self.arrival(&meta, layout);
        let members = layout.mesh().members().iter();
        let slots: Slots = members.map(|&worker| self.take_slot(worker)).collect();
        let shards = Shards { layout, slots };
        let begun = Poured { meta, shards: &shards, offset: 0, op: Op::Upload };
        self.pour(session, &begun, instruction.payload, sink);
        self.define_values(session, instruction, number, [(meta, shards)]);
        let slot = instruction.outputs.first().copied().and_then(Id::as_slot);
        if let Some(value) = slot.and_then(|slot| self.value_mut(session, slot)) {
            value.wish = wish;
        }
    }

    /// An upload outside of all scopes, from a size on at which it matters: it lies as others from its line were needed.
    /// False where it is none of those.
    pub(crate) fn upload_as_known(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        outputs: &[Meta],
        sink: &mut dyn Sink,
    ) -> bool {
        let &[meta] = outputs else { return false };
        let alive = self.alive();
        let matters = meta.bytes() >= self.late_bytes_min && alive.len() > 1;
        if instruction.op != Op::Upload || !matters || instruction.tag == 0 {
            return false;
        }
        let Some(state) = self.sessions.get_mut(&session) else { return false };
        let kind = Kind { site: instruction.tag, meta };
        let need = state.needs.known.get(&kind).cloned();
        let has_left = |need: &Layout| need.mesh().members().iter().any(|w| !alive.contains(w));
        if need.as_ref().is_some_and(|need| need.as_ref().is_some_and(has_left)) {
            state.needs.known.remove(&kind);
            return false;
        }
        match need {
            Some(Some(need)) if need.single().is_none() => {
                let before = self.motion(session);
                self.brought.clear();
                self.upload(session, instruction, number, meta, &need, sink);
                self.note(session, instruction, Why::Habit, before);
            }
            Some(_) => return false,
            None => {
                let Some(home) = self.home(session) else { return false };
                self.upload(session, instruction, number, meta, &Layout::on(home), sink);
                let slot = instruction.outputs.first().copied().and_then(Id::as_slot);
                if let Some(value) = slot.and_then(|slot| self.value_mut(session, slot)) {
                    // Its first use is looked at, and says how the next one is to lie.
                    value.wish = Some(value.shards.layout.clone());
                    value.laid = Laid::Sent;
                }
            }
        }
        true
    }

    /// An instruction needs the session's value as `need`: so will those that come from the same line, if it was sent
    /// without anybody's knowing.
    pub(crate) fn learn_need(&mut self, session: SessionId, slot: u32, need: &Layout) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let Some(value) = state.value(slot).filter(|value| value.laid == Laid::Sent) else {
            return;
        };
        let kind = Kind { site: value.site, meta: value.meta };
        let need = Some(need).filter(|need| !need.is_partial());
        if state.needs.known.len() >= KINDS_MAX {
            state.needs.known.clear();
        }
        let known = state.needs.known.entry(kind).or_insert_with(|| need.cloned());
        if known.as_ref() != need {
            *known = None;
        }
    }

    /// Where an instruction's operands lie is where it needs them.
    pub(crate) fn learn_stays(&mut self, session: SessionId, instruction: &Instruction<'_>) {
        for slot in instruction.values().filter_map(Id::as_slot) {
            let lies = |state: &Session| state.value(slot).map(|value| value.shards.layout.clone());
            if let Some(layout) = self.sessions.get(&session).and_then(lies) {
                self.learn_need(session, slot, &layout);
            }
        }
    }

    /// How a value arrives that is to lie as `layout`, and as what it is to lie from its first use on, if otherwise.
    fn arrival(&self, meta: &Meta, layout: &Layout) -> (Layout, Option<Layout>) {
        if Footprint::new(layout, &meta.dims, 0, 1).is_none() {
            // Bytes in another order than they come in: put in order by a worker.
            let first = layout.mesh().members().first().copied().unwrap_or(0);
            return (Layout::on(first), Some(layout.clone()));
        }
        let large = meta.bytes() >= self.late_bytes_min;
        match scattered(layout, &meta.dims).filter(|_| large) {
            Some(scattered) => (scattered, Some(layout.clone())),
            None => (layout.clone(), None),
        }
    }

    /// The instruction `chunk`.
    pub(crate) fn chunk(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        let op = instruction.op;
        let slot = instruction.values().next().and_then(Id::as_slot).unwrap_or(u32::MAX);
        let state = self.sessions.get(&session).ok_or(Fault::NoSession { session })?;
        let Value { meta, number, shards, .. } = match state.handle(slot) {
            Handle::Live(value) => value.clone(),
            Handle::Failed(_) => return Ok(()),
            Handle::Free => return Err(Fault::UnknownSlot { op, slot: u64::from(slot) }),
        };
        let fault = Fault::Attribute { op, name: "offset" };
        let &Attr::Int(offset) = instruction.attr("offset") else { return Err(fault) };
        let length = u64::try_from(instruction.payload.len()).unwrap_or(u64::MAX);
        let fits = |offset: &u64| offset.checked_add(length).is_some_and(|end| end <= meta.bytes());
        let Some(offset) = u64::try_from(offset).ok().filter(fits) else { return Err(fault) };
        self.planning = number;
        let poured = Poured { meta, shards: &shards, offset, op };
        self.pour(session, &poured, instruction.payload, sink);
        Ok(())
    }

    /// Gives each member its part of bytes of the whole.
    fn pour(
        &mut self,
        session: SessionId,
        poured: &Poured<'_>,
        payload: &[u8],
        sink: &mut dyn Sink,
    ) {
        let &Poured { meta, shards, offset, op } = poured;
        let end = offset + u64::try_from(payload.len()).unwrap_or(0);
        let mut gathered = std::mem::take(&mut self.cut);
        for (place, (worker, slot)) in shards.held().enumerate() {
            let footprint = Footprint::new(&shards.layout, &meta.dims, place, meta.dtype.size());
            // What is in no order any more is nothing that can still be sent.
            let Some(footprint) = footprint else { break };
            let (from, to) = (footprint.before(offset), footprint.before(end));
            if from == to && op == Op::Chunk {
                continue;
            }
            let mut word = self.word(op);
            if op == Op::Chunk {
                word.operands.push(Operand::Value(Id::slot(slot)));
                word.attrs.push(Attr::Int(from.cast_signed()));
            } else {
                let dims = shards.layout.local_dims(&meta.dims, place);
                word.outputs.push(Id::slot(slot));
                word.attrs.extend([Attr::Ints(dims), Attr::Dtype(meta.dtype)]);
            }
            word.payload = part(&footprint, (from, to), (offset, payload), &mut gathered);
            self.send(session, worker, &word, sink);
        }
        self.cut = gathered;
    }
}

/// Bytes of a value that come from its client.
#[derive(Clone, Copy)]
struct Poured<'p> {
    meta: Meta,
    shards: &'p Shards,
    /// Where they belong in the whole.
    offset: u64,
    /// Whether they are the first, and define the value, or not.
    op: Op,
}

/// The bytes `from..to` of a piece, out of a payload that begins at `offset` of the whole: where they lie, or put together.
fn part<'b>(
    footprint: &Footprint,
    (from, to): (u64, u64),
    (offset, payload): (u64, &'b [u8]),
    gathered: &'b mut Vec<u8>,
) -> &'b [u8] {
    let run_at = |start: u64, length: u64| {
        let start = usize::try_from(start - offset).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        payload.get(start..end)
    };
    gathered.clear();
    for stretch in footprint.stretches(from, to) {
        if stretch.len() == to - from && stretch.count == 1 {
            return run_at(stretch.start, stretch.run).unwrap_or_default();
        }
        for start in stretch.starts() {
            gathered.extend_from_slice(run_at(start, stretch.run).unwrap_or_default());
        }
    }
    gathered
}

/// The layout with its copies cut as well: each byte comes once, and the members bring it together.
fn scattered(layout: &Layout, dims: &Dims) -> Option<Layout> {
    let mut cut = layout.clone();
    for (axis, placement) in layout.placements().iter().enumerate() {
        let members = layout.mesh().size(axis);
        let enough = |size: i64| usize::try_from(size).is_ok_and(|size| size >= members);
        let mut free = dims.iter().enumerate();
        let free = free.find(|&(dim, &size)| enough(size) && cut.cut_of(dim).is_none());
        if let (Placement::Replicate, true, Some((dim, &size))) = (placement, members > 1, free) {
            cut = cut.with(axis, Placement::Shard { dim, pieces: Pieces::even(size, members) });
        }
    }
    (cut != *layout).then_some(cut)
}
