//! The dispatcher's workers: which are alive, which of their slots are assigned, and the backends
//! of their exchanges.

use crate::event::{SessionId, Sink, WorkerIndex};
use crate::number::place;
use gt_protocol::message::Backends;
use gt_protocol::{Attr, Instruction, Op};
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};

/// Number of earlier sets of workers that are known: layouts over all of them can be told from those
/// over chosen ones.
const EARLIER_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct WorkerSlots {
    pub alive: bool,
    free: Vec<u32>,
    next: u32,
    /// Session whose instructions the worker's stream carries at present.
    session: Option<SessionId>,
    /// Number of sessions whose new tensors are created here.
    homes: usize,
    /// Domains of its backends, in the order of the choice `way` of a collective.
    backends: [Box<str>; 2],
    /// True if it shares memory with no other worker.
    is_far: bool,
    /// Number of its process, if that is on the dispatcher's host.
    process: Option<u32>,
    /// Sessions that have sent it instructions, and so wait for it when they synchronize.
    users: BTreeSet<SessionId>,
}

impl WorkerSlots {
    /// Assigns a slot for a new value. A freed slot is assigned again at once: the stream is
    /// ordered, in one queue.
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
    /// Indices of the living workers, ascending.
    alive: Vec<WorkerIndex>,
    /// Number of joins and departures so far.
    epoch: u64,
    /// All workers of earlier epochs, with the epoch, the latest last.
    earlier: VecDeque<(u64, SmallVec<[WorkerIndex; 8]>)>,
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

    /// Indices of the living workers, ascending.
    pub fn alive(&self) -> &[WorkerIndex] {
        &self.alive
    }

    pub fn is_alive(&self, index: WorkerIndex) -> bool {
        self.get(index).is_some_and(|worker| worker.alive)
    }

    /// Returns true if these were all workers at some time since an epoch, and are not now.
    pub fn were_all(&self, members: &[WorkerIndex], since: u64) -> bool {
        let mut sorted: SmallVec<[WorkerIndex; 8]> = members.iter().copied().collect();
        sorted.sort_unstable();
        let mut later = self.earlier.iter().filter(|(epoch, _)| *epoch >= since);
        *sorted != *self.alive && later.any(|(_, all)| *all == sorted)
    }

    /// A number that changes each time that a worker joins or leaves.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    fn replace(&mut self, index: WorkerIndex, alive: bool) {
        if let Some(worker) = self.get_mut(index) {
            *worker = WorkerSlots { alive, homes: worker.homes, ..WorkerSlots::default() };
        }
        self.earlier.push_back((self.epoch, self.alive.iter().copied().collect()));
        self.epoch += 1;
        if self.earlier.len() > EARLIER_MAX {
            self.earlier.pop_front();
        }
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

    /// Puts another worker in the place of one that is gone; its slots stay assigned.
    pub fn succeed(&mut self, index: WorkerIndex) {
        if let Some(worker) = self.get_mut(index) {
            (worker.session, worker.process) = (None, None);
            (worker.backends, worker.is_far) = Default::default();
        }
        self.epoch += 1;
    }

    /// Takes back a slot without a word to the worker.
    pub fn vacate(&mut self, index: WorkerIndex, slot: u32) {
        if let Some(worker) = self.get_mut(index) {
            worker.free.push(slot);
        }
    }

    /// Tells each worker its session again before the next instruction.
    pub fn forget_sessions(&mut self) {
        self.all.iter_mut().for_each(|worker| worker.session = None);
    }

    /// Removes a worker; returns true if it was alive.
    pub fn leave(&mut self, index: WorkerIndex) -> bool {
        let lived = self.is_alive(index);
        if lived {
            self.replace(index, false);
        }
        lived
    }

    /// Sets a worker's backends, as it reports them.
    pub fn set_backends(&mut self, index: WorkerIndex, backends: Backends<'_>) {
        if let Some(worker) = self.get_mut(index) {
            worker.backends = [backends.device.into(), backends.group.into()];
            worker.is_far = backends.is_far;
        }
    }

    /// Sets the number of a worker's process on the dispatcher's host.
    pub fn set_process(&mut self, index: WorkerIndex, process: u32) {
        if let Some(worker) = self.get_mut(index) {
            worker.process = Some(process);
        }
    }

    /// The process of a worker, if it is known.
    pub fn process(&self, index: WorkerIndex) -> Option<u32> {
        self.get(index)?.process
    }

    /// The living workers to which a session has sent instructions, ascending.
    pub fn used_by(&self, id: SessionId) -> Vec<WorkerIndex> {
        let is_used =
            |&index: &WorkerIndex| self.get(index).is_some_and(|one| one.users.contains(&id));
        self.alive.iter().copied().filter(is_used).collect()
    }

    /// Forgets a session that has ended.
    pub fn forget_user(&mut self, id: SessionId) {
        for worker in &mut self.all {
            worker.users.remove(&id);
        }
    }

    /// The `way` of a collective: the first backend that all its members share, else none, which
    /// means messages. All members get the same one, so it is decided here and not from each
    /// member's knowledge of the others.
    pub fn backend(&self, members: &[WorkerIndex]) -> Attr {
        let backend = |index: WorkerIndex, place: usize| {
            self.get(index)?.backends.get(place).filter(|text| !text.is_empty())
        };
        let is_far = |&index: &WorkerIndex| self.get(index).is_some_and(|one| one.is_far);
        // A process group gains nothing where all share memory.
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

    /// Makes the worker with the fewest sessions the home of one more session, which leaves its old
    /// home.
    pub fn choose_home(&mut self, old: Option<WorkerIndex>) -> Option<WorkerIndex> {
        self.leave_home(old);
        let homes = |index: WorkerIndex| self.get(index).map_or(0, |worker| worker.homes);
        let home = self.alive.iter().copied().min_by_key(|&index| (homes(index), index))?;
        self.get_mut(home)?.homes += 1;
        Some(home)
    }

    /// Chooses a session's home anew: another worker, if that has fewer other sessions.
    pub fn better_home(&mut self, old: WorkerIndex) -> Option<WorkerIndex> {
        self.leave_home(Some(old));
        let homes = |index: WorkerIndex| self.get(index).map_or(0, |worker| worker.homes);
        let best = self.alive.iter().copied().min_by_key(|&index| (homes(index), index != old));
        if let Some(worker) = best.and_then(|best| self.get_mut(best)) {
            worker.homes += 1;
        }
        best
    }

    /// Removes a session from its home.
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

    /// Tells a worker the session of the following instructions, if that changed; returns false if
    /// the worker is gone.
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

    /// Returns true if a worker is alive and its stream carries this session's instructions at
    /// present.
    #[inline]
    pub fn is_addressed(&self, index: WorkerIndex, id: SessionId) -> bool {
        self.get(index).is_some_and(|worker| worker.alive && worker.session == Some(id))
    }

    /// Frees slots on a worker. The session is not announced: a slot is the worker's, whatever the
    /// session.
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

/// The workers of a line of a mesh with their slots, in the line's order.
pub(crate) type MeshLine = SmallVec<[(u32, u32); 8]>;
