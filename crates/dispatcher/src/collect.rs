//! Moving pieces between workers: replicate, gather, cut, reduce. Only instructions pass here; bytes go worker to worker.

use crate::Dispatcher;
use crate::event::{SessionId, Sink};
use crate::planted;
use gt_protocol::placement::{Layout, Mesh, Pieces, Placement};
use gt_protocol::sharding::Fold;
use gt_protocol::{Attr, Id, Meta, Op, Operand};
use smallvec::{SmallVec, smallvec};

/// A value is spread over at most this many workers: a collective names its group in a list of this length. Later workers
/// hold other sessions' values.
const MESH_MEMBERS_MAX: usize = gt_protocol::wire::LIST_MAX;

/// The pieces of a value.
pub(crate) struct Shards {
    pub layout: Layout,
    pub slots: SmallVec<[u32; 2]>,
}

type Slots = SmallVec<[u32; 2]>;

impl Dispatcher {
    /// Makes a value that is whole somewhere whole on every member of `mesh`, and remembers it so.
    pub(crate) fn replicate(
        &mut self,
        session: SessionId,
        slot: u32,
        mesh: &Mesh,
        sink: &mut dyn Sink,
    ) -> Slots {
        let Some(shards) = self.shards_of(session, slot) else { return Slots::new() };
        let Some(meta) = self.meta_of(session, slot) else { return Slots::new() };
        let (Some(&source), Some(&held)) =
            (shards.layout.mesh.members().first(), shards.slots.first())
        else {
            return Slots::new();
        };
        let mut slots = Slots::new();
        for &member in mesh.members() {
            let here = shards.layout.mesh.members().iter().position(|&worker| worker == member);
            slots.push(match here.and_then(|place| shards.slots.get(place)) {
                Some(&slot) => slot,
                None => self.transfer(session, (source, held), member, meta, sink),
            });
        }
        for (&worker, &old) in shards.layout.mesh.members().iter().zip(&shards.slots) {
            if !mesh.members().contains(&worker) {
                self.free_slots(session, worker, &[old], sink);
            }
        }
        let layout = Layout { mesh: mesh.clone(), placement: Placement::Replicate };
        let value = self.sessions.get_mut(&session).and_then(|state| state.value_mut(slot));
        if let Some(value) = value
            && !planted::REPLICA_FORGOTTEN
        {
            value.layout = layout;
            value.slots.clone_from(&slots);
        }
        slots
    }

    /// A whole copy of a sharded value on every member of `mesh`, in slots of its own.
    pub(crate) fn gather(
        &mut self,
        session: SessionId,
        slot: u32,
        mesh: &Mesh,
        sink: &mut dyn Sink,
    ) -> Slots {
        let Some(shards) = self.shards_of(session, slot) else { return Slots::new() };
        let Some(meta) = self.meta_of(session, slot) else { return Slots::new() };
        let Placement::Shard { dim, pieces } = &shards.layout.placement else {
            return Slots::new();
        };
        let gathered = self.all_gather(
            session,
            &shards.layout.mesh,
            &shards.slots,
            (*dim, pieces),
            meta,
            sink,
        );
        if shards.layout.mesh == *mesh {
            return gathered;
        }
        // Another mesh: from the first member to those who have no copy yet.
        let members = shards.layout.mesh.members();
        let (Some(&source), Some(&held)) = (members.first(), gathered.first()) else {
            return Slots::new();
        };
        let slots: Slots = mesh
            .members()
            .iter()
            .map(|&member| match members.iter().position(|&worker| worker == member) {
                Some(place) => gathered.get(place).copied().unwrap_or(u32::MAX),
                None => self.transfer(session, (source, held), member, meta, sink),
            })
            .collect();
        for (&worker, &old) in members.iter().zip(&gathered) {
            if !mesh.members().contains(&worker) {
                self.free_slots(session, worker, &[old], sink);
            }
        }
        slots
    }

    /// The pieces of a whole value, cut on each member without moving anything.
    pub(crate) fn cut_whole(
        &mut self,
        session: SessionId,
        mesh: &Mesh,
        slots: &[u32],
        dim: usize,
        pieces: &Pieces,
        sink: &mut dyn Sink,
    ) -> Slots {
        let mut cut = Slots::new();
        for ((&worker, &slot), intervals) in mesh.members().iter().zip(slots).zip(pieces.iter()) {
            let (start, end) = intervals.first().map_or((0, 0), |part| (part.start, part.end));
            cut.push(self.slice(session, worker, slot, (dim, start, end), sink));
        }
        cut
    }

    fn slice(
        &mut self,
        session: SessionId,
        worker: u32,
        slot: u32,
        (dim, start, end): (usize, i64, i64),
        sink: &mut dyn Sink,
    ) -> u32 {
        let piece = self.take_slot(worker);
        let mut word = self.word(Op::Slice);
        word.outputs.push(Id::slot(piece));
        word.operands.push(Operand::Value(Id::slot(slot)));
        let dim = i64::try_from(dim).unwrap_or(0);
        word.attrs = [dim, start, end, 1].into_iter().map(Attr::Int).collect();
        self.send(session, worker, &word, sink);
        piece
    }

    /// Spreads a value over all workers: cut along `dim`, or whole on each where there is none.
    pub(crate) fn spread_out(
        &mut self,
        session: SessionId,
        slot: u32,
        dim: Option<usize>,
        sink: &mut dyn Sink,
    ) -> Option<Shards> {
        let alive = self.alive();
        let mesh = Mesh::new(alive.get(..alive.len().min(MESH_MEMBERS_MAX))?);
        let meta = self.meta_of(session, slot)?;
        let shards = self.shards_of(session, slot)?;
        // One worker holds the whole, however it is cut.
        let Some(dim) = dim.filter(|_| mesh.len() > 1) else {
            // In slots of its own: the source keeps its layout.
            let slots = match &shards.layout.placement {
                Placement::Replicate => self.copies(session, &shards, &mesh, meta, sink),
                Placement::Shard { .. } => self.gather(session, slot, &mesh, sink),
            };
            return Some(Shards {
                layout: Layout { mesh, placement: Placement::Replicate },
                slots,
            });
        };
        let pieces = Pieces::even(*meta.dims.get(dim)?, mesh.len());
        let gathered = matches!(shards.layout.placement, Placement::Shard { .. });
        let slots = if gathered {
            let whole = self.gather(session, slot, &mesh, sink);
            let cut = self.cut_whole(session, &mesh, &whole, dim, &pieces, sink);
            self.free_members(session, &mesh, &whole, sink);
            cut
        } else {
            self.scatter(session, &shards, &mesh, (dim, &pieces), meta, sink)
        };
        Some(Shards { layout: Layout { mesh, placement: Placement::Shard { dim, pieces } }, slots })
    }

    /// A whole copy on each member, in slots of its own; members that hold one alias it.
    fn copies(
        &mut self,
        session: SessionId,
        shards: &Shards,
        mesh: &Mesh,
        meta: Meta,
        sink: &mut dyn Sink,
    ) -> Slots {
        let members = shards.layout.mesh.members();
        let (Some(&source), Some(&held)) = (members.first(), shards.slots.first()) else {
            return Slots::new();
        };
        let mut slots = Slots::new();
        for &member in mesh.members() {
            let here = members.iter().position(|&worker| worker == member);
            slots.push(match here.and_then(|place| shards.slots.get(place)) {
                Some(&slot) => self.alias(session, member, slot, meta, sink),
                None => self.transfer(session, (source, held), member, meta, sink),
            });
        }
        slots
    }

    fn alias(
        &mut self,
        session: SessionId,
        worker: u32,
        slot: u32,
        meta: Meta,
        sink: &mut dyn Sink,
    ) -> u32 {
        let twin = self.take_slot(worker);
        let mut word = self.word(Op::Reshape);
        word.outputs.push(Id::slot(twin));
        word.operands.push(Operand::Value(Id::slot(slot)));
        word.attrs.push(Attr::Ints(meta.dims));
        self.send(session, worker, &word, sink);
        twin
    }

    /// The pieces of a whole value, each sent to its member.
    fn scatter(
        &mut self,
        session: SessionId,
        shards: &Shards,
        mesh: &Mesh,
        (dim, pieces): (usize, &Pieces),
        meta: Meta,
        sink: &mut dyn Sink,
    ) -> Slots {
        let members = shards.layout.mesh.members();
        let (Some(&source), Some(&held)) = (members.first(), shards.slots.first()) else {
            return Slots::new();
        };
        let mut slots = Slots::new();
        for ((&member, intervals), size) in
            mesh.members().iter().zip(pieces.iter()).zip(pieces.sizes())
        {
            let (start, end) = intervals.first().map_or((0, 0), |part| (part.start, part.end));
            let here = members.iter().position(|&worker| worker == member);
            if let Some(&slot) = here.and_then(|place| shards.slots.get(place)) {
                slots.push(self.slice(session, member, slot, (dim, start, end), sink));
                continue;
            }
            let piece = self.slice(session, source, held, (dim, start, end), sink);
            let mut dims = meta.dims;
            if let Some(place) = dims.as_mut_slice().get_mut(dim) {
                *place = size;
            }
            slots.push(self.transfer(
                session,
                (source, piece),
                member,
                Meta::new(meta.dtype, dims),
                sink,
            ));
            self.free_slots(session, source, &[piece], sink);
        }
        slots
    }

    /// Sends one worker's value to another; the slot there.
    fn transfer(
        &mut self,
        session: SessionId,
        (source, slot): (u32, u32),
        target: u32,
        meta: Meta,
        sink: &mut dyn Sink,
    ) -> u32 {
        let tag = self.take_tag();
        let mut send = self.word(Op::Send);
        send.operands.push(Operand::Value(Id::slot(slot)));
        send.attrs = smallvec![Attr::Int(i64::from(target)), Attr::Int(tag)];
        self.send(session, source, &send, sink);
        let arrived = self.take_slot(target);
        let mut receive = self.word(Op::Receive);
        receive.outputs.push(Id::slot(arrived));
        receive.attrs = [
            Attr::Int(i64::from(source)),
            Attr::Int(tag),
            Attr::Ints(meta.dims),
            Attr::Dtype(meta.dtype),
        ]
        .into_iter()
        .collect();
        self.send(session, target, &receive, sink);
        self.moved_bytes = self.moved_bytes.saturating_add(meta.bytes());
        arrived
    }

    /// Folds the members' partial results; the old slots are freed.
    pub(crate) fn all_reduce(
        &mut self,
        session: SessionId,
        mesh: &Mesh,
        slots: &[u32],
        fold: Fold,
        bytes: u64,
        sink: &mut dyn Sink,
    ) -> Slots {
        if planted::DROPPED_FOLD {
            return slots.into();
        }
        let choice = match fold {
            Fold::Sum => 0,
            Fold::Max => 1,
            Fold::Min => 2,
        };
        let tag = self.take_tag();
        let attrs = [Attr::List(group(mesh)), Attr::Choice(choice), Attr::Int(tag)];
        let folded = self.collective(session, mesh, slots, Op::AllReduce, &attrs, sink);
        self.free_members(session, mesh, slots, sink);
        self.count_moved(mesh, bytes);
        folded
    }

    fn all_gather(
        &mut self,
        session: SessionId,
        mesh: &Mesh,
        slots: &[u32],
        (dim, pieces): (usize, &Pieces),
        meta: Meta,
        sink: &mut dyn Sink,
    ) -> Slots {
        let tag = self.take_tag();
        let mut members = group(mesh);
        let mut sizes: Box<[i64]> = pieces.sizes().collect();
        if planted::GATHER_ORDER {
            members.reverse();
            sizes.reverse();
        }
        let attrs = [
            Attr::List(members),
            Attr::Int(i64::try_from(dim).unwrap_or(0)),
            Attr::List(sizes),
            Attr::Int(tag),
        ];
        let gathered = self.collective(session, mesh, slots, Op::AllGather, &attrs, sink);
        self.count_moved(mesh, meta.bytes() / u64::try_from(mesh.len()).unwrap_or(1).max(1));
        gathered
    }

    fn collective(
        &mut self,
        session: SessionId,
        mesh: &Mesh,
        slots: &[u32],
        op: Op,
        attrs: &[Attr],
        sink: &mut dyn Sink,
    ) -> Slots {
        let mut results = Slots::new();
        for (&worker, &slot) in mesh.members().iter().zip(slots) {
            let result = self.take_slot(worker);
            let mut word = self.word(op);
            word.outputs.push(Id::slot(result));
            word.operands.push(Operand::Value(Id::slot(slot)));
            word.attrs = attrs.iter().cloned().collect();
            self.send(session, worker, &word, sink);
            results.push(result);
        }
        results
    }

    /// Every member sends `bytes` to each other one.
    fn count_moved(&mut self, mesh: &Mesh, bytes: u64) {
        let members = u64::try_from(mesh.len()).unwrap_or(1);
        self.moved_bytes =
            self.moved_bytes.saturating_add(bytes * members * members.saturating_sub(1));
    }

    fn take_tag(&mut self) -> i64 {
        let tag = self.next_tag;
        self.next_tag = self.next_tag.wrapping_add(1);
        tag
    }

    fn meta_of(&self, session: SessionId, slot: u32) -> Option<Meta> {
        Some(self.sessions.get(&session)?.value(slot)?.meta)
    }
}

/// The mesh's members as an attribute; [`MESH_MEMBERS_MAX`] sees to it that they fit.
fn group(mesh: &Mesh) -> Box<[i64]> {
    mesh.members().iter().map(|&worker| i64::from(worker)).collect()
}
