//! What the dispatcher knows of a worker: whether it lives, and which of its slots are taken.

use crate::event::low_half;
use crate::handle::Value;
use crate::note::Traffic;
use crate::{Dispatcher, SessionId, WorkerIndex};
use gt_protocol::message::Ways;
use gt_protocol::{Attr, Instruction, Op};
use smallvec::SmallVec;

#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub alive: bool,
    free: Vec<u32>,
    next: u32,
    /// Session whose instructions the worker's stream carries at present.
    pub session: Option<SessionId>,
    /// What it has said of its ways, in the order of the choice of a collective's `way`.
    ways: [Box<str>; 2],
    /// It shares memory with no other worker.
    is_far: bool,
}

impl Worker {
    /// A slot for a new value. A freed slot is taken again at once: the stream is ordered and has one lane.
    pub fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let slot = self.next;
            self.next += 1;
            slot
        })
    }

    pub fn return_slot(&mut self, slot: u32) {
        self.free.push(slot);
    }

    pub fn used_slots(&self) -> usize {
        usize::try_from(self.next).unwrap_or(usize::MAX).saturating_sub(self.free.len())
    }
}

impl Dispatcher {
    pub(crate) fn worker_joined(&mut self, index: WorkerIndex) {
        let place = usize::try_from(index).unwrap_or(usize::MAX);
        if place >= self.workers.len() {
            self.workers.resize_with(place + 1, Worker::default);
        }
        if let Some(worker) = self.workers.get_mut(place) {
            *worker = Worker { alive: true, ..Worker::default() };
        }
    }

    pub(crate) fn worker_ways(&mut self, index: WorkerIndex, ways: Ways<'_>) {
        if let Some(worker) = self.worker_mut(index) {
            worker.ways = [ways.device.into(), ways.group.into()];
            worker.is_far = ways.is_far;
        }
    }

    /// The `way` of a collective: the first that all its members can go with each other, else by bytes. All of them are told the
    /// same, so it is decided here and not by what each knows of the others.
    pub(crate) fn way(&self, members: &[WorkerIndex]) -> Attr {
        let said = |index: WorkerIndex, way: usize| {
            let worker = self.workers.get(usize::try_from(index).ok()?)?;
            worker.ways.get(way).filter(|text| !text.is_empty())
        };
        let is_far = |&index: &WorkerIndex| {
            usize::try_from(index)
                .ok()
                .and_then(|place| self.workers.get(place))
                .is_some_and(|one| one.is_far)
        };
        // Where all share memory, nothing is gained by a process group.
        let ways = if members.iter().any(is_far) { 2 } else { 1 };
        for (way, choice) in (0..ways).zip(0..) {
            let mut all = members.iter().map(|&index| said(index, way));
            if let Some(Some(first)) = all.next()
                && all.all(|other| other == Some(first))
            {
                return Attr::Choice(choice);
            }
        }
        Attr::Absent
    }

    /// Indexes of the workers that live, in order.
    pub(crate) fn alive(&self) -> SmallVec<[u32; 8]> {
        (0..)
            .zip(&self.workers)
            .filter(|(_, worker)| worker.alive)
            .map(|(index, _)| index)
            .collect()
    }

    pub(crate) fn worker_mut(&mut self, index: WorkerIndex) -> Option<&mut Worker> {
        self.workers.get_mut(usize::try_from(index).ok()?)
    }

    pub(crate) fn take_slot(&mut self, index: WorkerIndex) -> u32 {
        self.worker_mut(index).map_or(0, Worker::take_slot)
    }

    pub(crate) fn take_tag(&mut self) -> i64 {
        let tag = self.next_tag;
        self.next_tag = self.next_tag.wrapping_add(1);
        tag
    }

    /// Bytes that travel from worker to worker for a session, and how.
    pub(crate) fn count_moved(&mut self, session: SessionId, traffic: Traffic, bytes: u64) {
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
        if let Some(state) = self.sessions.get_mut(&session) {
            state.motion.count(traffic, bytes);
        }
    }

    /// An instruction of the plan's own, for the number that is being planned.
    pub(crate) fn word(&self, op: Op) -> Instruction<'static> {
        let mut word = Instruction::new(op);
        word.tag = low_half(self.planning);
        word
    }

    /// Sends `instruction` to a worker, after a word on whose it is where that changed.
    pub(crate) fn send(
        &mut self,
        session: SessionId,
        index: WorkerIndex,
        instruction: &Instruction<'_>,
        sink: &mut dyn crate::Sink,
    ) {
        if self.address(session, index, sink) {
            sink.worker(index, instruction);
        }
    }

    /// [`Self::send`] for an encoded instruction.
    pub(crate) fn send_words(
        &mut self,
        session: SessionId,
        index: WorkerIndex,
        words: &[u32],
        sink: &mut dyn crate::Sink,
    ) {
        if self.address(session, index, sink) {
            sink.words(index, words);
        }
    }

    /// Tells a worker whose instructions follow, where that changed; false if it is gone.
    fn address(
        &mut self,
        session: SessionId,
        index: WorkerIndex,
        sink: &mut dyn crate::Sink,
    ) -> bool {
        let Some(worker) = self.worker_mut(index) else { return false };
        if !worker.alive {
            return false;
        }
        if worker.session != Some(session) {
            worker.session = Some(session);
            let mut word = Instruction::new(Op::Session);
            word.attrs.push(Attr::Int(i64::from(session.0)));
            sink.worker(index, &word);
        }
        true
    }

    pub(crate) fn free_slots(
        &mut self,
        index: WorkerIndex,
        slots: &[u32],
        sink: &mut dyn crate::Sink,
    ) {
        free_on(&mut self.workers, index, slots, sink);
    }
}

/// Frees slots on a worker. No word on whose they are: a slot is the worker's, whatever the session.
fn free_on(workers: &mut [Worker], index: WorkerIndex, slots: &[u32], sink: &mut dyn crate::Sink) {
    let worker = usize::try_from(index).ok().and_then(|place| workers.get_mut(place));
    let Some(worker) = worker.filter(|worker| worker.alive && !slots.is_empty()) else { return };
    for &slot in slots {
        worker.return_slot(slot);
    }
    sink.free(index, slots);
}

/// Frees a value's slots on all workers that hold it.
pub(crate) fn free_value(workers: &mut [Worker], value: &Value, sink: &mut dyn crate::Sink) {
    for (worker, slot) in value.held() {
        free_on(workers, worker, &[slot], sink);
    }
}
