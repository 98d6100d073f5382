//! The meaning of the log: its instructions as steps, and the versions of each slot's value.
//!
//! A slot has many values one after the other: each is a version, which a step defines and a later
//! one ends. Steps on several workers that are one collective, or the two sides of a transfer, are a
//! group: none of them has a result without the others.

use super::log::{Frame, FramePlace, Lineage, is_session};
use crate::event::WorkerIndex;
use gt_protocol::integer::to_usize;
use gt_protocol::{Attr, Instruction, Kind, Op, Operand, wire};
use std::collections::BTreeMap;
use std::ops::Range;

/// Index of a step, in the order of the log.
pub(super) type StepIndex = u32;
/// Index of a version.
pub(super) type VersionIndex = u32;
/// An index that nothing has.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// Defines its results: an instruction that computes, or a member's part in a collective.
    Define,
    Free,
    Read,
    Synchronize,
    /// Writes bytes of an upload.
    Chunk,
    /// Would write bytes of an upload, which are not kept.
    Omitted,
}

#[derive(Debug)]
pub(super) struct LoggedStep<'a> {
    pub frame: &'a [u32],
    pub worker: WorkerIndex,
    pub kind: StepKind,
    /// Index of the frame that names its session.
    session: u32,
    /// Its operands' versions begin here among all ids, its results' behind them.
    operands_at: u32,
    results_at: u32,
    end_at: u32,
    /// Index of its group.
    pub group: u32,
}

/// One value of a slot.
#[derive(Debug)]
pub(super) struct Version {
    pub worker: WorkerIndex,
    pub slot: u32,
    /// The step that defines it; none for one from before the log.
    pub defined: StepIndex,
    /// The step that frees it, or puts another value into its slot.
    pub ended: StepIndex,
    /// The first step that sends it, after which it has the strides of the receiver's.
    pub sent: StepIndex,
    /// The step that takes over its memory; its slot is empty from then on, and still to be freed.
    pub consumed: StepIndex,
    /// The version that takes its slot in place.
    pub successor: VersionIndex,
}

/// Members of a collective, with the number that there have to be.
#[derive(Debug, Default)]
pub(super) struct StepGroup {
    pub steps: Vec<StepIndex>,
    members: usize,
}

impl StepGroup {
    pub const fn is_whole(&self) -> bool {
        self.steps.len() == self.members
    }
}

#[derive(Debug)]
pub(super) struct History<'a> {
    lineage: &'a Lineage,
    pub steps: Vec<LoggedStep<'a>>,
    pub versions: Vec<Version>,
    ids: Vec<VersionIndex>,
    pub groups: Vec<StepGroup>,
    /// Steps that write bytes of an upload, by its version.
    chunks: BTreeMap<VersionIndex, Vec<StepIndex>>,
    sessions: Vec<&'a [u32]>,
    /// The first step that was not sent.
    pub held_from: StepIndex,
    /// Versions at the end, by worker and slot.
    current: BTreeMap<WorkerIndex, Vec<VersionIndex>>,
}

/// State of the reading that no step needs later.
#[derive(Default)]
struct Reading {
    /// Index of each worker's session.
    sessions: BTreeMap<WorkerIndex, u32>,
    /// Groups by the tag of their instructions.
    tags: BTreeMap<i64, u32>,
}

impl<'a> History<'a> {
    pub fn of(lineage: &'a Lineage) -> Self {
        let mut history = Self {
            lineage,
            steps: Vec::new(),
            versions: Vec::new(),
            ids: Vec::new(),
            groups: Vec::new(),
            chunks: BTreeMap::new(),
            sessions: Vec::new(),
            held_from: NONE,
            current: BTreeMap::new(),
        };
        let mut reading = Reading::default();
        for (frame, place) in lineage.frames() {
            if place.is_held && history.held_from == NONE {
                history.held_from = index(history.steps.len());
            }
            match frame {
                Frame::Instruction(frame) => history.read(frame, place, &mut reading),
                Frame::Left => history.leave(place.worker),
                Frame::Omitted(slot) => {
                    let version = history.version(place.worker, slot);
                    history.begin((&[], place), StepKind::Omitted, &mut reading);
                    history.write_to(version);
                }
            }
        }
        history
    }

    pub fn operands(&self, step: &LoggedStep<'_>) -> &[VersionIndex] {
        &self.ids[range(step.operands_at, step.results_at)]
    }

    pub fn results(&self, step: &LoggedStep<'_>) -> &[VersionIndex] {
        &self.ids[range(step.results_at, step.end_at)]
    }

    pub fn step(&self, step: StepIndex) -> &LoggedStep<'a> {
        &self.steps[to_usize(step)]
    }

    pub fn one(&self, version: VersionIndex) -> &Version {
        &self.versions[to_usize(version)]
    }

    pub fn group(&self, step: &LoggedStep<'_>) -> Option<&StepGroup> {
        self.groups.get(to_usize(step.group))
    }

    /// Steps that write bytes of an upload.
    pub fn chunks(&self, version: VersionIndex) -> &[StepIndex] {
        self.chunks.get(&version).map_or(&[], Vec::as_slice)
    }

    /// The frame that names a step's session.
    pub fn session(&self, step: &LoggedStep<'_>) -> &'a [u32] {
        self.sessions.get(to_usize(step.session)).copied().unwrap_or_default()
    }

    /// The version that a slot has at the end, or had before the log.
    pub fn version(&mut self, worker: WorkerIndex, slot: u32) -> VersionIndex {
        let slots = self.current.entry(worker).or_default();
        match slots.get(to_usize(slot)) {
            Some(&version) if version != NONE => version,
            Some(_) | None => self.add(worker, slot, NONE),
        }
    }

    /// Adds a version, which its slot has from here on.
    fn add(&mut self, worker: WorkerIndex, slot: u32, defined: StepIndex) -> VersionIndex {
        let version = index(self.versions.len());
        let (ended, sent, consumed, successor) = (NONE, NONE, NONE, NONE);
        self.versions.push(Version { worker, slot, defined, ended, sent, consumed, successor });
        let slots = self.current.entry(worker).or_default();
        let place = to_usize(slot);
        if place >= slots.len() {
            slots.resize(place + 1, NONE);
        }
        let before = std::mem::replace(&mut slots[place], version);
        if before != NONE {
            self.versions[to_usize(before)].ended = defined;
        }
        version
    }

    /// Ends the version that a slot has.
    fn end(&mut self, version: VersionIndex, step: StepIndex) {
        let one = &mut self.versions[to_usize(version)];
        one.ended = step;
        if let Some(slots) = self.current.get_mut(&one.worker) {
            slots[to_usize(one.slot)] = NONE;
        }
    }

    /// Ends all versions of a worker.
    fn leave(&mut self, worker: WorkerIndex) {
        let step = index(self.steps.len());
        for version in self.current.remove(&worker).unwrap_or_default() {
            if version != NONE {
                self.versions[to_usize(version)].ended = step;
            }
        }
    }

    fn begin(
        &mut self,
        (frame, place): (&'a [u32], FramePlace),
        kind: StepKind,
        reading: &mut Reading,
    ) -> StepIndex {
        let step = index(self.steps.len());
        let at = index(self.ids.len());
        let (worker, lineage) = (place.worker, self.lineage);
        let session = *reading.sessions.entry(worker).or_insert_with(|| {
            self.sessions.push(lineage.first_session(worker));
            index(self.sessions.len() - 1)
        });
        self.steps.push(LoggedStep {
            frame,
            worker,
            kind,
            session,
            operands_at: at,
            results_at: at,
            end_at: at,
            group: NONE,
        });
        step
    }

    /// Adds the last step's operands, and then its results.
    fn extend(&mut self, operands: &[VersionIndex], results: &[VersionIndex]) {
        self.ids.extend_from_slice(operands);
        let results_at = index(self.ids.len());
        self.ids.extend_from_slice(results);
        let end_at = index(self.ids.len());
        if let Some(step) = self.steps.last_mut() {
            (step.results_at, step.end_at) = (results_at, end_at);
        }
    }

    /// The last step writes bytes of an upload.
    fn write_to(&mut self, version: VersionIndex) {
        self.extend(&[version], &[]);
        let step = index(self.steps.len() - 1);
        self.chunks.entry(version).or_default().push(step);
    }

    fn read(&mut self, frame: &'a [u32], place: FramePlace, reading: &mut Reading) {
        if is_session(frame) {
            self.sessions.push(frame);
            reading.sessions.insert(place.worker, index(self.sessions.len() - 1));
            return;
        }
        // The log has what we have encoded.
        let Ok((instruction, _)) = wire::decode(frame) else { return };
        let slots: Vec<u32> = operands(&instruction).collect();
        let versions: Vec<VersionIndex> =
            slots.iter().map(|&slot| self.version(place.worker, slot)).collect();
        let Some(kind) = kind_of(instruction.op) else { return };
        let step = self.begin((frame, place), kind, reading);
        match kind {
            StepKind::Chunk => {
                if let Some(&version) = versions.first() {
                    self.write_to(version);
                }
            }
            StepKind::Free => {
                self.extend(&versions, &[]);
                for &version in &versions {
                    self.end(version, step);
                }
            }
            StepKind::Define => self.define(&instruction, (step, place.worker), &versions, reading),
            StepKind::Read | StepKind::Synchronize | StepKind::Omitted => {
                self.extend(&versions, &[]);
            }
        }
    }

    fn define(
        &mut self,
        instruction: &Instruction<'_>,
        (step, worker): (StepIndex, WorkerIndex),
        operands: &[VersionIndex],
        reading: &mut Reading,
    ) {
        let is_in_place = instruction.op == Op::AllReduceCoalesced;
        let mut results = Vec::new();
        if is_in_place {
            for &operand in operands {
                let slot = self.one(operand).slot;
                self.end(operand, step);
                let result = self.add(worker, slot, step);
                self.versions[to_usize(operand)].successor = result;
                results.push(result);
            }
        }
        for slot in instruction.outputs.iter().filter_map(|id| id.as_slot()) {
            results.push(self.add(worker, slot, step));
        }
        self.extend(operands, &results);
        let given = (0..16).zip(&instruction.operands).filter(|(place, operand)| {
            matches!(operand, Operand::Value(_)) && instruction.consumes >> place & 1 != 0
        });
        for (place, _) in given {
            let before = instruction.operands[..place].iter();
            let values = before.filter(|operand| matches!(operand, Operand::Value(_))).count();
            self.versions[to_usize(operands[values])].consumed = step;
        }
        if instruction.op == Op::Send {
            for &operand in operands {
                let sent = &mut self.versions[to_usize(operand)].sent;
                *sent = step.min(*sent);
            }
        }
        if instruction.op.info().kind() == Kind::Collective {
            self.join(instruction, step, reading);
        }
    }

    /// Makes a step a member of its collective.
    fn join(&mut self, instruction: &Instruction<'_>, step: StepIndex, reading: &mut Reading) {
        let Attr::Int(tag) = instruction.attr("tag") else { return };
        let group = *reading.tags.entry(*tag).or_insert_with(|| {
            self.groups.push(StepGroup::default());
            index(self.groups.len() - 1)
        });
        let is_pair = matches!(instruction.op, Op::Send | Op::Receive);
        let Attr::List(members) = instruction.attr("group") else {
            assert!(is_pair, "{:?} without a group", instruction.op);
            return self.join_group(group, 2, step);
        };
        self.join_group(group, members.len(), step);
    }

    fn join_group(&mut self, group: u32, members: usize, step: StepIndex) {
        let joined = &mut self.groups[to_usize(group)];
        joined.members = members;
        joined.steps.push(step);
        self.steps[to_usize(step)].group = group;
    }
}

/// Kind of an operator's step; none for words that say nothing of values.
fn kind_of(op: Op) -> Option<StepKind> {
    if op == Op::Free {
        Some(StepKind::Free)
    } else if op == Op::Read {
        Some(StepKind::Read)
    } else if op == Op::Synchronize {
        Some(StepKind::Synchronize)
    } else if op == Op::Chunk {
        Some(StepKind::Chunk)
    } else {
        (op.info().kind() != Kind::Control).then_some(StepKind::Define)
    }
}

pub(super) fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or_else(|_| panic!("{length} do not fit an index"))
}

fn range(from: u32, to: u32) -> Range<usize> {
    to_usize(from)..to_usize(to)
}

pub(super) fn operands<'a>(instruction: &'a Instruction<'_>) -> impl Iterator<Item = u32> + 'a {
    instruction.operands.iter().filter_map(|operand| match operand {
        Operand::Value(id) => id.as_slot(),
        Operand::Absent | Operand::Scalar(_) => None,
    })
}

/// The request of a read or a synchronize.
pub(super) fn request(frame: &[u32]) -> Option<i64> {
    let (instruction, _) = wire::decode(frame).ok()?;
    let Attr::Int(request) = instruction.attr("request") else { return None };
    Some(*request)
}

/// The number of a session, and the tag of an instruction.
pub(super) fn named(session: &[u32], frame: &[u32]) -> Option<(u32, u32)> {
    let (word, _) = wire::decode(session).ok()?;
    let Attr::Int(id) = word.attr("id") else { return None };
    Some((u32::try_from(*id).ok()?, *frame.get(1)?))
}
