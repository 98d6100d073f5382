//! What the dispatcher knows of its workers: which live, which of their slots are assigned, how they exchange.

use crate::event::{SessionId, Sink, WorkerIndex};
use crate::number::place;
use gt_protocol::message::Backends;
use gt_protocol::{Attr, Instruction, Op};
use smallvec::SmallVec;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(crate) struct WorkerSlots {
    pub alive: bool,
    free: Vec<u32>,
    next: u32,
    /// Session whose instructions the worker's stream carries at present.
    session: Option<SessionId>,
    /// Sessions that make their new tensors here.
    homes: usize,
    /// Backends that it can reach others by, in the order of the choice of a collective's `way`.
    backends: [Box<str>; 2],
    /// It shares memory with no other worker.
    is_far: bool,
    /// Its process, where that is on the dispatcher's host.
    process: Option<u32>,
    /// Sessions that have sent it instructions, and so wait for it when they synchronize.
    users: BTreeSet<SessionId>,
}

impl WorkerSlots {
    /// A slot for a new value. A freed slot is assigned again at once: the stream is ordered, in one queue.
    #[inline]
    pub fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let slot = self.next;
            self.next += 1;
            slot
        })
    }

    fn used_slots(&self) -> usize {
        let assigned = place(self.next);
        assert!(self.free.len() <= assigned, "{} slots are free of {assigned}", self.free.len());
        assigned - self.free.len()
    }
}

/// All workers that ever joined, by index.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    all: Vec<WorkerSlots>,
    /// Indexes of those that live, in order.
    alive: Vec<WorkerIndex>,
    /// Counts the times that one has joined or left.
    epoch: u64,
}

impl Workers {
    #[inline]
    pub fn get(&self, index: WorkerIndex) -> Option<&WorkerSlots> {
        self.all.get(usize::try_from(index).ok()?)
    }

    #[inline]
    pub fn get_mut(&mut self, index: WorkerIndex) -> Option<&mut WorkerSlots> {
        self.all.get_mut(usize::try_from(index).ok()?)
    }

    /// Indexes of the workers that live, in order.
    pub fn alive(&self) -> &[WorkerIndex] {
        &self.alive
    }

    pub fn is_alive(&self, index: WorkerIndex) -> bool {
        self.get(index).is_some_and(|worker| worker.alive)
    }

    /// Another number each time that a worker has joined or left.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    fn replace(&mut self, index: WorkerIndex, alive: bool) {
        if let Some(worker) = self.get_mut(index) {
            *worker = WorkerSlots { alive, homes: worker.homes, ..WorkerSlots::default() };
        }
        self.epoch += 1;
        let indexed = (0..).zip(&self.all).filter(|(_, worker)| worker.alive);
        self.alive = indexed.map(|(index, _)| index).collect();
    }

    pub fn join(&mut self, index: WorkerIndex) {
        let count = usize::try_from(index).map_or(usize::MAX, |place| place + 1);
        if count > self.all.len() {
            self.all.resize_with(count, WorkerSlots::default);
        }
        self.replace(index, true);
    }

    /// Whether it lived until now.
    pub fn leave(&mut self, index: WorkerIndex) -> bool {
        let lived = self.is_alive(index);
        if lived {
            self.replace(index, false);
        }
        lived
    }

    /// What a worker says of how it exchanges with others.
    pub fn set_backends(&mut self, index: WorkerIndex, backends: Backends<'_>) {
        if let Some(worker) = self.get_mut(index) {
            worker.backends = [backends.device.into(), backends.group.into()];
            worker.is_far = backends.is_far;
        }
    }

    /// Which process of the dispatcher's host a worker is.
    pub fn set_process(&mut self, index: WorkerIndex, process: u32) {
        if let Some(worker) = self.get_mut(index) {
            worker.process = Some(process);
        }
    }

    /// The process of a worker, where it is known.
    pub fn process(&self, index: WorkerIndex) -> Option<u32> {
        self.get(index)?.process
    }

    /// The living workers to which a session has sent instructions, in order.
    pub fn used_by(&self, id: SessionId) -> Vec<WorkerIndex> {
        let is_used =
            |&index: &WorkerIndex| self.get(index).is_some_and(|one| one.users.contains(&id));
        self.alive.iter().copied().filter(is_used).collect()
    }

    /// A session has ended.
    pub fn forget_user(&mut self, id: SessionId) {
        for worker in &mut self.all {
            worker.users.remove(&id);
        }
    }

    /// The `way` of a collective: the first backend that all its members share, else none, which is bytes. All of them are
    /// told the same, so it is decided here and not by what each knows of the others.
    pub fn backend(&self, members: &[WorkerIndex]) -> Attr {
        let backend = |index: WorkerIndex, place: usize| {
            self.get(index)?.backends.get(place).filter(|text| !text.is_empty())
        };
        let is_far = |&index: &WorkerIndex| self.get(index).is_some_and(|one| one.is_far);
        // Where all share memory, nothing is gained by a process group.
        let backends = if members.iter().any(is_far) { 2 } else { 1 };
        for (place, choice) in (0..backends).zip(0..) {
            let mut all = members.iter().map(|&index| backend(index, place));
            if let Some(Some(first)) = all.next()
                && all.all(|other| other == Some(first))
            {
                return Attr::Choice(choice);
            }
        }
        Attr::Absent
    }

    /// The worker with the fewest sessions becomes the home of one more, which leaves the home that it had.
    pub fn choose_home(&mut self, old: Option<WorkerIndex>) -> Option<WorkerIndex> {
        self.leave_home(old);
        let homes = |index: WorkerIndex| self.get(index).map_or(0, |worker| worker.homes);
        let home = self.alive.iter().copied().min_by_key(|&index| (homes(index), index))?;
        self.get_mut(home)?.homes += 1;
        Some(home)
    }

    /// A session makes no more tensors there.
    pub fn leave_home(&mut self, home: Option<WorkerIndex>) {
        if let Some(worker) = home.and_then(|home| self.get_mut(home)) {
            worker.homes -= 1;
        }
    }

    pub fn take_slot(&mut self, index: WorkerIndex) -> u32 {
        let Some(worker) = self.get_mut(index) else { unreachable!("worker {index} never joined") };
        worker.take_slot()
    }

    pub fn used_slots(&self) -> usize {
        self.all.iter().map(WorkerSlots::used_slots).sum()
    }

    /// Tells a worker whose instructions follow, where that changed; false if it is gone.
    #[inline]
    pub fn address(&mut self, id: SessionId, index: WorkerIndex, sink: &mut dyn Sink) -> bool {
        let Some(worker) = self.get_mut(index).filter(|worker| worker.alive) else { return false };
        if worker.session != Some(id) {
            worker.session = Some(id);
            worker.users.insert(id);
            let mut word = Instruction::new(Op::Session);
            word.attrs.push(Attr::Int(i64::from(id.0)));
            sink.worker(index, &word);
        }
        true
    }

    /// Whether a worker's stream carries this session's instructions at present, and it lives.
    #[inline]
    pub fn is_addressed(&self, index: WorkerIndex, id: SessionId) -> bool {
        self.get(index).is_some_and(|worker| worker.alive && worker.session == Some(id))
    }

    /// Frees slots on a worker. No word on whose they are: a slot is the worker's, whatever the session.
    #[inline]
    pub fn free(&mut self, index: WorkerIndex, slots: &[u32], sink: &mut dyn Sink) {
        let worker = self.get_mut(index).filter(|worker| worker.alive && !slots.is_empty());
        if let Some(worker) = worker {
            worker.free.extend_from_slice(slots);
            sink.free(index, slots);
        }
    }

    /// Frees slots on several workers.
    pub fn free_all(&mut self, held: impl Iterator<Item = (u32, u32)>, sink: &mut dyn Sink) {
        for (index, slot) in held {
            self.free(index, &[slot], sink);
        }
    }
}

/// Workers of a line of a mesh with their slots, in the line's order.
pub(crate) type MeshLine = SmallVec<[(u32, u32); 8]>;
