//! Uploads: each member of the layout gets its own shard of a client's bytes, straight from the
//! frame in which they arrived. Only the client has the whole value.

use crate::event::ClientFault;
use crate::number::{first_slot, wide};
use crate::planner::Planner;
use crate::session::value::{Handle, Shards, Slots};
use gt_protocol::placement::{Footprint, Layout, Placement, ShardRanges};
use gt_protocol::{Attr, Dims, Id, Instruction, Meta, Op, Operand};

impl Planner<'_> {
    /// Starts a value whose bytes are arriving, with the layout that it takes at its first use if
    /// that is not the layout of arrival.
    pub(super) fn upload(
        &mut self,
        instruction: &Instruction<'_>,
        meta: Meta,
        layout: &Layout,
    ) -> (Shards, Option<Layout>) {
        let (layout, target) = self.arrival(&meta, layout);
        let members = layout.mesh().members().iter();
        let slots: Slots = members.map(|&worker| self.core.workers.take_slot(worker)).collect();
        let shards = Shards::new(layout, slots);
        let first = UploadChunk { meta, shards: &shards, offset: 0, op: Op::Upload };
        self.send_bytes(&first, instruction.payload);
        (shards, target)
    }

    /// The layout in which a value arrives, and the one that it takes at its first use, if that
    /// differs.
    fn arrival(&self, meta: &Meta, layout: &Layout) -> (Layout, Option<Layout>) {
        if Footprint::new(layout, &meta.dims, 0, 1).is_none() {
            // A layout whose shards are not in the order of the bytes: a worker gets them all and
            // reorders them.
            let first = layout.mesh().members().first().copied();
            let Some(first) = first else { unreachable!("{layout} has members") };
            return (Layout::on(first), Some(layout.clone()));
        }
        let large = meta.bytes() >= self.core.config.defer_bytes_min;
        match scattered(layout, &meta.dims).filter(|_| large) {
            Some(scattered) => (scattered, Some(layout.clone())),
            None => (layout.clone(), None),
        }
    }

    /// The instruction `chunk`.
    pub(crate) fn chunk(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        let op = instruction.op;
        let slot = first_slot(instruction);
        let value = match self.session.handle(slot) {
            Handle::Live(value) => value,
            Handle::Failed(_) => return Ok(()),
            Handle::Free => return Err(ClientFault::UnknownSlot { op, slot: u64::from(slot) }),
        };
        let fault = ClientFault::Attribute { op, name: "offset" };
        let &Attr::Int(offset) = instruction.attr("offset") else { return Err(fault) };
        let length = wide(instruction.payload.len());
        let meta = *value.meta();
        let fits = |offset: &u64| offset.checked_add(length).is_some_and(|end| end <= meta.bytes());
        let Some(offset) = u64::try_from(offset).ok().filter(fits) else { return Err(fault) };
        if value.deferred().is_some() {
            // A mistake of the client: the value is no upload.
            return Err(ClientFault::Attribute { op, name: "self" });
        }
        let (shards, number) = (value.shards(), value.number());
        self.number = number;
        self.send_bytes(&UploadChunk { meta, shards: &shards, offset, op }, instruction.payload);
        Ok(())
    }

    /// Sends each member its part of the bytes.
    fn send_bytes(&mut self, arrived: &UploadChunk<'_>, payload: &[u8]) {
        let &UploadChunk { meta, shards, offset, op } = arrived;
        let end = offset + wide(payload.len());
        let mut gathered = std::mem::take(&mut self.core.bytes);
        for (place, (worker, slot)) in shards.worker_slots().enumerate() {
            let footprint = Footprint::new(&shards.layout, &meta.dims, place, meta.dtype.size());
            // A layout without footprints accepts no further bytes.
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
            self.send(worker, &word);
        }
        self.core.bytes = gathered;
    }
}

/// Bytes of a value from its client.
#[derive(Clone, Copy)]
struct UploadChunk<'p> {
    meta: Meta,
    shards: &'p Shards,
    /// Offset in the whole value.
    offset: u64,
    /// Operator of the bytes: the first ones define the value, later ones are chunks.
    op: Op,
}

/// The bytes `from..to` of a shard, from a payload that begins at `offset` of the whole: a slice of
/// it, or assembled in a buffer.
fn part<'b>(
    footprint: &Footprint,
    (from, to): (u64, u64),
    (offset, payload): (u64, &'b [u8]),
    gathered: &'b mut Vec<u8>,
) -> &'b [u8] {
    let run_at = |start: u64, length: u64| {
        let run = start.checked_sub(offset).and_then(|start| {
            let start = usize::try_from(start).ok()?;
            payload.get(start..start.checked_add(usize::try_from(length).ok()?)?)
        });
        run.unwrap_or_else(|| {
            let payload = payload.len();
            unreachable!("{length} bytes at {start} of {payload} that begin at {offset}")
        })
    };
    gathered.clear();
    for range in footprint.ranges(from, to) {
        if range.len() == to - from && range.count == 1 {
            return run_at(range.start, range.run);
        }
        for start in range.starts() {
            gathered.extend_from_slice(run_at(start, range.run));
        }
    }
    gathered
}

/// The layout with its replicated mesh dimensions sharded as well: each byte is sent once, and the
/// members gather the copies.
fn scattered(layout: &Layout, dims: &Dims) -> Option<Layout> {
    let mut cut = layout.clone();
    for (axis, placement) in layout.placements().iter().enumerate() {
        let members = layout.mesh().size(axis);
        let enough = |size: i64| usize::try_from(size).is_ok_and(|size| size >= members);
        let mut free = dims.iter().enumerate();
        let free = free.find(|&(dim, &size)| enough(size) && cut.cut_of(dim).is_none());
        if let (Placement::Replicate, true, Some((dim, &size))) = (placement, members > 1, free) {
            cut =
                cut.with(axis, Placement::Shard { dim, ranges: ShardRanges::even(size, members) });
        }
    }
    (cut != *layout).then_some(cut)
}
