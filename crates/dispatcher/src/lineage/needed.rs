//! The part of the log that is run again: the steps on which wanted values depend, as far as what
//! the living workers still have does not give their operands.

use super::history::{
    History, LoggedStep, NONE, StepIndex, StepKind, VersionIndex, index, named, request,
};
use super::log::Lineage;
use crate::event::WorkerIndex;
use gt_protocol::integer::to_usize;
use std::collections::BTreeSet;

/// Values to be there again, by worker and slot, and questions to be answered.
#[derive(Clone, Debug, Default)]
pub struct WantedValues {
    pub slots: BTreeSet<(WorkerIndex, u32)>,
    /// Requests of reads and synchronizes that are open.
    pub requests: BTreeSet<(WorkerIndex, i64)>,
}

/// The difference between what the workers have and what the log says that they have.
#[derive(Clone, Debug, Default)]
pub struct WorkerLosses {
    pub alive: BTreeSet<WorkerIndex>,
    /// Workers among them that have nothing: others were in their place.
    pub empty: BTreeSet<WorkerIndex>,
    /// Slots of the others that hold the loss of a worker in place of a value.
    pub failed: BTreeSet<(WorkerIndex, u32)>,
    /// Requests that the others have answered with such a loss.
    pub failed_requests: BTreeSet<(WorkerIndex, i64)>,
    /// Instructions that are not run again, by session and tag.
    pub refused: BTreeSet<(u32, u32)>,
    /// True if nothing is run again.
    pub are_given_up: bool,
}

/// Wanted values that are there or can be made, and those that cannot.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Possible {
    pub slots: BTreeSet<(WorkerIndex, u32)>,
    /// The slots among them that are made again.
    pub made: BTreeSet<(WorkerIndex, u32)>,
    pub requests: BTreeSet<(WorkerIndex, i64)>,
    /// Requests that would be asked again, and have no answer.
    pub lost_requests: BTreeSet<(WorkerIndex, i64)>,
    /// The wanted slots and requests without a value because an instruction is refused.
    pub refused: BTreeSet<(WorkerIndex, u32)>,
    pub refused_requests: BTreeSet<(WorkerIndex, i64)>,
}

/// Outcome of a step that is run again, or a version that is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunOutcome {
    Made,
    /// It cannot be made.
    Lost,
    /// It depends on a refused instruction.
    Refused,
}

/// Steps that are run again, and the versions that they give and take.
#[derive(Debug)]
pub(super) struct Needed {
    pub steps: Vec<bool>,
    /// Versions that these steps define.
    pub made: Vec<bool>,
    /// Versions that living workers have in their slots.
    pub present: Vec<bool>,
    /// Wanted versions that are not there.
    pub wanted: Vec<VersionIndex>,
}

impl Lineage {
    /// Returns what of the wanted values is there or can be made.
    pub fn possible(&self, wanted: &WantedValues, losses: &WorkerLosses) -> Possible {
        let mut history = History::of(self);
        let needed = Needed::of(&mut history, wanted, losses);
        let outcomes = Outcomes::of(&history, &needed, losses);
        let mut possible = Possible::default();
        for &(worker, slot) in &wanted.slots {
            let version = history.version(worker, slot);
            let one = (worker, slot);
            if needed.is_present(version) {
                possible.slots.insert(one);
                continue;
            }
            match outcomes.version(version) {
                RunOutcome::Made => {
                    possible.slots.insert(one);
                    possible.made.insert(one);
                }
                RunOutcome::Refused => drop(possible.refused.insert(one)),
                RunOutcome::Lost => {}
            }
        }
        for (step, one) in (0..).zip(&history.steps) {
            let Some(request) = asked(one).filter(|_| needed.is_needed(step)) else { continue };
            let requests = match outcomes.step(step) {
                RunOutcome::Made => &mut possible.requests,
                RunOutcome::Refused => &mut possible.refused_requests,
                RunOutcome::Lost => &mut possible.lost_requests,
            };
            requests.insert((one.worker, request));
        }
        possible
    }
}

/// The request that a step answers.
fn asked(step: &LoggedStep<'_>) -> Option<i64> {
    match step.kind {
        StepKind::Read | StepKind::Synchronize => request(step.frame),
        StepKind::Define | StepKind::Free | StepKind::Chunk | StepKind::Omitted => None,
    }
}

impl Needed {
    /// Finds the needed steps, from the wanted values back.
    pub fn of(history: &mut History<'_>, wanted: &WantedValues, losses: &WorkerLosses) -> Self {
        let ends: Vec<VersionIndex> =
            wanted.slots.iter().map(|&(worker, slot)| history.version(worker, slot)).collect();
        let versions = 0..history.versions.len();
        let present: Vec<bool> =
            versions.map(|version| is_present(history, index(version), losses)).collect();
        let (steps, made) = (vec![false; history.steps.len()], vec![false; present.len()]);
        let absent = ends.iter().copied().filter(|&version| !present[to_usize(version)]).collect();
        let mut needed = Self { steps, made, present, wanted: absent };
        let mut left = Vec::new();
        for &version in &ends {
            needed.take(history, (version, NONE), &mut left);
        }
        for (step, one) in (0..).zip(&history.steps) {
            if is_asked_again(history, (step, one), wanted, losses) {
                left.push(step);
            }
        }
        // The loop ends: each step is marked once.
        while let Some(step) = left.pop() {
            if !std::mem::replace(&mut needed.steps[to_usize(step)], true) {
                needed.add(history, step, &mut left);
            }
        }
        needed
    }

    /// Adds the steps on which one depends.
    fn add(&mut self, history: &History<'_>, step: StepIndex, left: &mut Vec<StepIndex>) {
        let one = history.step(step);
        for &result in history.results(one) {
            self.made[to_usize(result)] = true;
        }
        if let Some(group) = history.group(one) {
            left.extend_from_slice(&group.steps);
        }
        for &operand in history.operands(one) {
            self.take(history, (operand, step), left);
        }
    }

    /// Adds the steps after which a version is as a step takes it.
    fn take(
        &self,
        history: &History<'_>,
        (version, step): (VersionIndex, StepIndex),
        left: &mut Vec<StepIndex>,
    ) {
        let is_there = self.has(history, version, step);
        if !is_there {
            let defined = history.one(version).defined;
            left.extend((defined != NONE).then_some(defined));
            left.extend_from_slice(history.chunks(version));
        }
        // Once it was sent, its strides are those of the receiver's.
        let sent = history.one(version).sent;
        if sent < step && (!is_there || sent >= history.held_from) {
            left.push(sent);
        }
    }

    /// Returns true if a worker still has a version as this step takes it. One that was sent has
    /// other strides than before, which only its bytes do not show.
    pub fn has(&self, history: &History<'_>, version: VersionIndex, step: StepIndex) -> bool {
        let one = history.one(version);
        let sent = one.sent;
        let is_as_before = sent == NONE || sent >= history.held_from || sent <= step;
        let has_memory = one.consumed == NONE || one.consumed >= history.held_from;
        self.is_present(version) && is_as_before && has_memory
    }

    pub fn is_present(&self, version: VersionIndex) -> bool {
        self.present.get(to_usize(version)).is_some_and(|is_present| *is_present)
    }

    pub fn is_needed(&self, step: StepIndex) -> bool {
        self.steps[to_usize(step)]
    }
}

/// Returns true if a living worker has a version in its slot: it was there when the last words were
/// sent, and is no failure.
fn is_present(history: &History<'_>, version: VersionIndex, losses: &WorkerLosses) -> bool {
    let one = history.one(version);
    let was_sent = one.defined == NONE || one.defined < history.held_from;
    let is_there = one.ended == NONE || one.ended >= history.held_from;
    was_sent
        && is_there
        && losses.alive.contains(&one.worker)
        && !losses.empty.contains(&one.worker)
        && !losses.failed.contains(&(one.worker, one.slot))
}

/// Returns true for a wanted answer that will not come by itself.
fn is_asked_again(
    history: &History<'_>,
    (step, one): (StepIndex, &LoggedStep<'_>),
    wanted: &WantedValues,
    losses: &WorkerLosses,
) -> bool {
    asked(one).is_some_and(|request| {
        let key = (one.worker, request);
        wanted.requests.contains(&key)
            && (step >= history.held_from
                || losses.empty.contains(&one.worker)
                || losses.failed_requests.contains(&key))
    })
}

/// Outcomes of the needed steps.
pub(super) struct Outcomes {
    steps: Vec<RunOutcome>,
    versions: Vec<RunOutcome>,
}

impl Outcomes {
    pub fn of(history: &History<'_>, needed: &Needed, losses: &WorkerLosses) -> Self {
        let steps = vec![RunOutcome::Made; history.steps.len()];
        let versions = vec![RunOutcome::Made; history.versions.len()];
        let mut outcomes = Self { steps, versions };
        let readers = readers(history, needed);
        let all = || (0..).zip(&history.steps).filter(|(step, _)| needed.is_needed(*step));
        let is_refused = |one: &LoggedStep<'_>| {
            let name = named(history.session(one), one.frame);
            name.is_some_and(|name| losses.refused.contains(&name))
        };
        let refused = all().filter(|(_, one)| is_refused(one)).map(|(step, _)| step).collect();
        outcomes.spread(history, &readers, refused, RunOutcome::Refused);
        let is_lost = |one: &LoggedStep<'_>| {
            losses.are_given_up
                || one.kind == StepKind::Omitted
                || !losses.alive.contains(&one.worker)
                || history.session(one).is_empty()
                || history.group(one).is_some_and(|group| !group.is_whole())
        };
        let mut lost: Vec<StepIndex> =
            all().filter(|(_, one)| is_lost(one)).map(|(step, _)| step).collect();
        // Values from before the log.
        let is_unknown = |version: VersionIndex| history.one(version).defined == NONE;
        lost.extend(readers.iter().filter(|(one, _)| is_unknown(*one)).map(|(_, step)| step));
        for (version, one) in (0..).zip(&history.versions) {
            if one.defined == NONE && !needed.is_present(version) {
                outcomes.versions[to_usize(version)] = RunOutcome::Lost;
            }
        }
        outcomes.spread(history, &readers, lost, RunOutcome::Lost);
        outcomes
    }

    /// Spreads an outcome to all that depends on these steps.
    fn spread(
        &mut self,
        history: &History<'_>,
        readers: &[(VersionIndex, StepIndex)],
        mut left: Vec<StepIndex>,
        outcome: RunOutcome,
    ) {
        // The loop ends: each step changes its outcome once.
        while let Some(step) = left.pop() {
            if self.steps[to_usize(step)] != RunOutcome::Made {
                continue;
            }
            self.steps[to_usize(step)] = outcome;
            let one = history.step(step);
            if let Some(group) = history.group(one) {
                left.extend_from_slice(&group.steps);
            }
            let mut versions = history.results(one).to_vec();
            let writes = matches!(one.kind, StepKind::Chunk | StepKind::Omitted);
            // A value that was to be sent has other strides where it was not.
            if writes || history.operands(one).iter().any(|&id| history.one(id).sent == step) {
                versions.extend_from_slice(history.operands(one));
            }
            for version in versions {
                if self.versions[to_usize(version)] == RunOutcome::Made {
                    self.versions[to_usize(version)] = outcome;
                    let from = readers.partition_point(|(other, _)| *other < version);
                    let of_it = readers[from..].iter().take_while(|(other, _)| *other == version);
                    left.extend(of_it.map(|(_, step)| step));
                }
            }
        }
    }

    pub fn step(&self, step: StepIndex) -> RunOutcome {
        self.steps[to_usize(step)]
    }

    /// The outcome of a version that is not present; one that was never seen is lost.
    fn version(&self, version: VersionIndex) -> RunOutcome {
        self.versions.get(to_usize(version)).copied().unwrap_or(RunOutcome::Lost)
    }
}

/// Versions that are made again, each with the steps that take it, in order.
fn readers(history: &History<'_>, needed: &Needed) -> Vec<(VersionIndex, StepIndex)> {
    let mut readers = Vec::new();
    for (step, one) in (0..).zip(&history.steps).filter(|(step, _)| needed.is_needed(*step)) {
        let absent = history.operands(one).iter().filter(|&&id| !needed.has(history, id, step));
        readers.extend(absent.map(|&id| (id, step)));
    }
    readers.sort_unstable();
    readers
}
