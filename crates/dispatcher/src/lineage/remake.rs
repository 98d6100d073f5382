//! The words that make values again, for each worker.
//!
//! A wanted value goes into its own slot, everything else into vacant ones that are freed after the
//! last use: so what a worker still has is neither moved nor written. Collectives get new tags, since
//! messages of the old ones may still be in flight. What was written down and not sent is part of
//! it: needed steps run, and values that it frees are freed.

use super::history::{History, LoggedStep, NONE, StepIndex, StepKind, VersionIndex, operands};
use super::log::Lineage;
use super::needed::{Needed, Outcomes, RunOutcome, WantedValues, WorkerLosses};
use crate::event::WorkerIndex;
use gt_protocol::integer::to_usize;
use gt_protocol::{Attr, Id, Instruction, Kind, Operand, wire};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Slots and tags that nothing uses.
pub trait Vacancies {
    /// Takes a slot of a worker.
    fn slot(&mut self, worker: WorkerIndex) -> u32;
    /// Takes a tag for a collective.
    fn tag(&mut self) -> i64;
}

/// Words that make values again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Remake {
    pub words: BTreeMap<WorkerIndex, Vec<u32>>,
    /// Number of instructions among them that compute.
    pub instructions: usize,
    /// Slots that were taken; the words leave them vacant.
    pub taken: Vec<(WorkerIndex, u32)>,
}

impl Lineage {
    /// The words after which the workers have the wanted values, all of which are
    /// [possible](Lineage::possible), and have freed what the log frees.
    pub fn remake(
        &self,
        wanted: &WantedValues,
        losses: &WorkerLosses,
        vacancies: &mut dyn Vacancies,
    ) -> Remake {
        let mut history = History::of(self);
        let needed = Needed::of(&mut history, wanted, losses);
        // A transfer that was held back, and that cannot be made, is left out.
        let outcomes = Outcomes::of(&history, &needed, losses);
        let is_run = |step| needed.is_needed(step) && outcomes.step(step) == RunOutcome::Made;
        let mut writer = Writer::new(&history, &needed, vacancies);
        for &(worker, slot) in losses.failed.iter().filter(|(one, _)| losses.alive.contains(one)) {
            writer.free(worker, &[slot]);
        }
        for (step, one) in (0..).zip(&history.steps) {
            if is_run(step) {
                writer.run(step, one);
            } else {
                writer.free_ended(step, one);
            }
        }
        let taken = writer.taken.into_iter().collect();
        Remake { taken, ..writer.remake }
    }
}

struct Writer<'h, 'a> {
    history: &'h History<'a>,
    needed: &'h Needed,
    vacancies: &'h mut dyn Vacancies,
    remake: Remake,
    /// Slots of the versions that are made.
    slots: Vec<u32>,
    /// The last step that takes a version.
    last_use: Vec<StepIndex>,
    /// Versions that stay in their slots.
    is_wanted: Vec<bool>,
    /// The session that a worker was told last.
    sessions: BTreeMap<WorkerIndex, &'a [u32]>,
    taken: BTreeSet<(WorkerIndex, u32)>,
    /// Those among them that are vacant again.
    spare: BTreeMap<WorkerIndex, Vec<u32>>,
    tags: BTreeMap<i64, i64>,
}

impl<'h, 'a> Writer<'h, 'a> {
    fn new(history: &'h History<'a>, needed: &'h Needed, vacancies: &'h mut dyn Vacancies) -> Self {
        let count = history.versions.len();
        let mut is_wanted = vec![false; count];
        needed.wanted.iter().for_each(|&version| is_wanted[to_usize(version)] = true);
        let mut last_use = vec![NONE; count];
        for (step, one) in (0..).zip(&history.steps).filter(|(step, _)| needed.is_needed(*step)) {
            let taken = history.operands(one).iter().filter(|&&id| !needed.has(history, id, step));
            for &version in history.results(one).iter().chain(taken) {
                last_use[to_usize(version)] = step;
            }
        }
        Self {
            history,
            needed,
            vacancies,
            remake: Remake::default(),
            slots: vec![NONE; count],
            last_use,
            is_wanted,
            sessions: BTreeMap::new(),
            taken: BTreeSet::new(),
            spare: BTreeMap::new(),
            tags: BTreeMap::new(),
        }
    }

    fn free(&mut self, worker: WorkerIndex, slots: &[u32]) {
        if slots.is_empty() {
            return;
        }
        wire::encode_free(slots, self.remake.words.entry(worker).or_default());
    }

    /// Frees what a step that is not run frees of what the workers still have, or would put another
    /// value in place of. The frees among the words that were sent have run.
    fn free_ended(&mut self, step: StepIndex, one: &LoggedStep<'_>) {
        let history = self.history;
        let ended = |version: &&VersionIndex| {
            history.one(**version).ended == step && self.needed.is_present(**version)
        };
        let versions = history.operands(one).iter().filter(ended);
        let slots: Vec<u32> = versions.map(|&version| history.one(version).slot).collect();
        self.free(one.worker, &slots);
    }

    /// The last version that takes the slot of this one in place.
    fn last_in_place(&self, version: VersionIndex) -> VersionIndex {
        let mut last = version;
        // The loop ends: a successor is defined later.
        while let Some(successor) = self.successor(last) {
            last = successor;
        }
        last
    }

    /// The version that takes the slot of one that is made.
    fn successor(&self, version: VersionIndex) -> Option<VersionIndex> {
        let successor = self.made_in_place(version)?;
        let step = self.history.one(successor).defined;
        (!self.needed.has(self.history, version, step)).then_some(successor)
    }

    /// The version that is made in the place of one, wherever that is.
    fn made_in_place(&self, version: VersionIndex) -> Option<VersionIndex> {
        let successor = self.history.one(version).successor;
        (successor != NONE && self.needed.made[to_usize(successor)]).then_some(successor)
    }

    /// The slot into which a version is made.
    fn slot_of(&mut self, version: VersionIndex) -> u32 {
        let last = self.last_in_place(version);
        let known = self.slots[to_usize(last)];
        if known != NONE {
            return known;
        }
        let one = self.history.one(last);
        let slot = if self.is_wanted[to_usize(last)] {
            one.slot
        } else {
            let spare = self.spare.entry(one.worker).or_default();
            spare.pop().unwrap_or_else(|| {
                let slot = self.vacancies.slot(one.worker);
                self.taken.insert((one.worker, slot));
                slot
            })
        };
        self.slots[to_usize(last)] = slot;
        slot
    }

    fn run(&mut self, step: StepIndex, one: &LoggedStep<'a>) {
        let (history, needed) = (self.history, self.needed);
        if one.kind == StepKind::Omitted {
            return;
        }
        let Ok((mut instruction, _)) = wire::decode(one.frame) else { return };
        let mut placed: SmallVec<[(u32, u32); 4]> = SmallVec::new();
        let slots: SmallVec<[u32; 4]> = operands(&instruction).collect();
        for (&slot, &version) in slots.iter().zip(history.operands(one)) {
            let is_there = needed.has(history, version, step);
            placed.push((slot, if is_there { slot } else { self.slot_of(version) }));
            if let Some(successor) = self.made_in_place(version).filter(|_| is_there) {
                let last = self.last_in_place(successor);
                self.slots[to_usize(last)] = slot;
            }
        }
        for operand in &mut instruction.operands {
            let Operand::Value(id) = operand else { continue };
            let slot = id.as_slot().and_then(|slot| placed.iter().find(|(old, _)| *old == slot));
            if let Some((_, slot)) = slot {
                *id = Id::slot(*slot);
            }
        }
        // A reduction in place names no results of its own.
        for (output, &version) in instruction.outputs.iter_mut().zip(history.results(one)) {
            *output = Id::slot(self.slot_of(version));
        }
        instruction.consumes = 0;
        self.retag(&mut instruction);
        let session = history.session(one);
        let words = self.remake.words.entry(one.worker).or_default();
        if self.sessions.insert(one.worker, session) != Some(session) {
            words.extend_from_slice(session);
        }
        // It has the length of the instruction that was sent.
        wire::encode(&instruction, words).expect("an instruction of the log with other slots");
        self.remake.instructions += usize::from(one.kind == StepKind::Define);
        self.free_unused(step, one);
    }

    /// Gives a collective a tag that no message has.
    fn retag(&mut self, instruction: &mut Instruction<'_>) {
        let info = instruction.op.info();
        if info.kind() != Kind::Collective {
            return;
        }
        let tag = info.attr_index("tag").and_then(|place| instruction.attrs.get_mut(place));
        let Some(Attr::Int(tag)) = tag else { return };
        *tag = *self.tags.entry(*tag).or_insert_with(|| self.vacancies.tag());
    }

    /// Frees the versions that nothing takes after a step.
    fn free_unused(&mut self, step: StepIndex, one: &LoggedStep<'_>) {
        let history = self.history;
        let mut unused: Vec<u32> = Vec::new();
        for &version in history.operands(one).iter().chain(history.results(one)) {
            let is_last = self.last_use[to_usize(version)] == step
                && !self.is_wanted[to_usize(version)]
                && self.successor(version).is_none();
            let slot = self.slots[to_usize(version)];
            if is_last && slot != NONE && !unused.contains(&slot) {
                unused.push(slot);
            }
        }
        self.free(one.worker, &unused);
        let taken = unused.into_iter().filter(|&slot| self.taken.contains(&(one.worker, slot)));
        self.spare.entry(one.worker).or_default().extend(taken);
    }
}
