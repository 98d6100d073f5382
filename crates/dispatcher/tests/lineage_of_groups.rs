//! Workers that exchange values, of which any dies at any moment: all values are made again, and
//! those that the others have stay where they are.
//!
//! The workers are toys that know a few operators. Their messages arrive or not when the sender
//! dies, and a value has strides, on which results depend: a value that is sent gets those of the
//! receiver's.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "the line of a panic says why a test cannot go on"
)]

mod common;

use common::{
    Draws, add, all_reduce, all_reduce_in_place, encoded, free, full, neg, read, receive, send,
    session,
};
use gt_dispatcher::{Lineage, Vacancies, WantedValues, WorkerIndex, WorkerLosses};
use gt_protocol::wire::{self, cut::frames};
use gt_protocol::{Attr, Instruction, Op, Scalar};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A number, and if its strides are those of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strided(i64, bool);

impl Strided {
    /// Kernels round depending on strides.
    fn seen(self) -> i64 {
        self.0.wrapping_mul(3).wrapping_add(i64::from(self.1))
    }
}

/// A value, or the loss of a worker.
type Held = Option<Strided>;

#[derive(Debug, Default)]
struct Toy {
    /// Number of workers before it in its place.
    incarnation: u32,
    stream: VecDeque<Vec<u32>>,
    values: BTreeMap<u32, Held>,
    session: i64,
    executed: usize,
}

/// Message of a worker with this incarnation to another one.
type Letter = (i64, (WorkerIndex, u32), (WorkerIndex, u32));

#[derive(Debug, Default)]
struct Cluster {
    toys: Vec<Toy>,
    letters: BTreeMap<Letter, Vec<Held>>,
    /// Tags whose letters a worker has sent.
    sent: BTreeSet<(WorkerIndex, u32, i64)>,
    reads: BTreeMap<i64, Held>,
}

fn slots(instruction: &Instruction<'_>) -> Vec<u32> {
    instruction.values().map(|id| id.as_slot().unwrap()).collect()
}

fn int(instruction: &Instruction<'_>, name: &str) -> i64 {
    let Attr::Int(number) = instruction.attr(name) else { panic!("{instruction:?}") };
    *number
}

impl Cluster {
    fn of(count: usize) -> Self {
        Self { toys: (0..count).map(|_| Toy::default()).collect(), ..Self::default() }
    }

    fn id(&self, worker: WorkerIndex) -> (WorkerIndex, u32) {
        (worker, self.toys[usize::try_from(worker).unwrap()].incarnation)
    }

    /// Executes the next instruction of a worker; returns false where it has none, or waits.
    fn step(&mut self, worker: WorkerIndex) -> bool {
        let place = usize::try_from(worker).unwrap();
        let Some(frame) = self.toys[place].stream.front().cloned() else { return false };
        let (instruction, _) = wire::decode(&frame).unwrap();
        if matches!(instruction.op, Op::Send | Op::Receive | Op::AllReduce | Op::AllReduceCoalesced)
        {
            if !self.exchange(worker, &instruction) {
                return false;
            }
        } else {
            let toy = &mut self.toys[place];
            toy.execute(&instruction, &mut self.reads);
        }
        self.toys[place].stream.pop_front();
        self.toys[place].executed += 1;
        true
    }

    /// Takes part in an exchange; returns false while letters are missing.
    fn exchange(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>) -> bool {
        let place = usize::try_from(worker).unwrap();
        let (me, tag) = (self.id(worker), int(instruction, "tag"));
        let members: Vec<WorkerIndex> = match (instruction.op, instruction.attr("group")) {
            (_, Attr::List(group)) => group.iter().map(|&one| one.try_into().unwrap()).collect(),
            _ => vec![worker, int(instruction, "peer").try_into().unwrap()],
        };
        let operands = slots(instruction);
        if self.sent.insert((worker, me.1, tag)) {
            let toy = &mut self.toys[place];
            if instruction.op == Op::Send
                && let Some(sent) = toy.values.get_mut(&operands[0]).unwrap()
            {
                sent.1 = false;
            }
            let own: Vec<Held> = operands.iter().map(|slot| toy.values[slot]).collect();
            for &other in members.iter().filter(|&&other| other != worker) {
                let to = self.id(other);
                self.letters.insert((tag, me, to), own.clone());
            }
        }
        if instruction.op == Op::Send {
            return true;
        }
        let mut all = Vec::new();
        for &other in &members {
            if other == worker {
                if instruction.op != Op::Receive {
                    all.push(operands.iter().map(|slot| self.toys[place].values[slot]).collect());
                }
                continue;
            }
            // An incarnation that was current when this was planned: any that has sent it, or the
            // present one.
            let from = self
                .letters
                .iter()
                .find(|((one, from, to), _)| *one == tag && from.0 == other && *to == me);
            match from {
                Some((_, letter)) => all.push(letter.clone()),
                None if self.is_lost(tag, other) => {
                    all.push(vec![None; operands.len().max(1)]);
                }
                None => return false,
            }
        }
        let reduced = |at: usize| {
            let mut sum = Some(Strided(0, false));
            for one in &all {
                sum = sum
                    .zip(one[at])
                    .map(|(sum, one)| Strided(sum.0.wrapping_mul(5).wrapping_add(one.0), false));
            }
            sum
        };
        let toy = &mut self.toys[place];
        match instruction.op {
            Op::Receive => toy.put(instruction, all[0][0].map(|one| Strided(one.0, false))),
            Op::AllReduce => toy.put(instruction, reduced(0)),
            _ => {
                for (at, slot) in operands.iter().enumerate() {
                    toy.values.insert(*slot, reduced(at));
                }
            }
        }
        true
    }

    /// Returns true if no letter of this tag will come from a worker: whoever was to send it is
    /// gone, and the present one has no such instruction.
    fn is_lost(&self, tag: i64, from: WorkerIndex) -> bool {
        let stream = &self.toys[usize::try_from(from).unwrap()].stream;
        !stream.iter().any(|frame| {
            let (instruction, _) = wire::decode(frame).unwrap();
            instruction.op.info().attr_index("tag").is_some() && int(&instruction, "tag") == tag
        })
    }

    /// Runs some instructions, of workers in any order.
    fn run_some(&mut self, steps: usize, draws: &mut Draws) {
        for _ in 0..steps {
            let worker = draws.below(self.toys.len());
            self.step(worker.try_into().unwrap());
        }
    }

    fn run_all(&mut self) {
        let count = u32::try_from(self.toys.len()).unwrap();
        while (0..count).filter(|&worker| self.step(worker)).count() > 0 {}
        for (worker, toy) in self.toys.iter().enumerate() {
            assert!(toy.stream.is_empty(), "worker {worker} waits: {:?}", toy.stream.front());
        }
    }

    /// Another worker takes the place of one; letters of the dead one arrive or not.
    fn kill(&mut self, worker: WorkerIndex, draws: &mut Draws) {
        let dead = self.id(worker);
        self.letters
            .retain(|(_, from, to), _| *to != dead && (*from != dead || draws.below(2) == 0));
        let toy = &mut self.toys[usize::try_from(worker).unwrap()];
        *toy = Toy { incarnation: dead.1 + 1, ..Toy::default() };
    }
}

impl Toy {
    fn put(&mut self, instruction: &Instruction<'_>, value: Held) {
        let slot = instruction.outputs[0].as_slot().unwrap();
        assert!(self.values.insert(slot, value).is_none(), "slot {slot} is taken: {instruction:?}");
    }

    fn execute(&mut self, instruction: &Instruction<'_>, reads: &mut BTreeMap<i64, Held>) {
        let operands = slots(instruction);
        let value = |place: usize| {
            let held = self.values.get(&operands[place]);
            *held.unwrap_or_else(|| panic!("slot {} is empty: {instruction:?}", operands[place]))
        };
        let result = match instruction.op {
            Op::Session => return self.session = int(instruction, "id"),
            Op::Free => {
                for slot in operands {
                    assert!(self.values.remove(&slot).is_some(), "slot {slot} is free");
                }
                return;
            }
            Op::Read => {
                reads.insert(int(instruction, "request"), value(0));
                return;
            }
            Op::Full => {
                let Attr::Scalar(Scalar::Int(number)) = instruction.attrs[1] else { panic!() };
                Some(Strided(number, false))
            }
            Op::Neg => value(0).map(|one| Strided(one.seen(), true)),
            Op::Add => value(0).zip(value(1)).map(|(left, right)| {
                Strided(left.seen().wrapping_mul(7).wrapping_add(right.seen()), left.1 && right.1)
            }),
            other => panic!("{other:?}"),
        };
        assert!(self.session > 0, "an instruction of no session");
        self.put(instruction, result);
    }
}

/// Slots of one worker as the dispatcher assigns them.
#[derive(Debug, Default)]
struct Assigned {
    free: Vec<u32>,
    next: u32,
    live: Vec<u32>,
}

impl Assigned {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// A program over several workers, and what it has put where.
struct Program {
    assigned: Vec<Assigned>,
    lineage: Lineage,
    /// Words that are written down and not sent.
    is_held: bool,
    cluster: Cluster,
    /// A cluster in which nobody dies.
    oracle: Cluster,
    tag: u32,
    message: i64,
    requests: BTreeSet<(WorkerIndex, i64)>,
    /// Number of values that could not be made again.
    lost: usize,
}

struct Unused<'a> {
    assigned: &'a mut [Assigned],
    held: &'a BTreeSet<(WorkerIndex, u32)>,
    passed_over: Vec<(WorkerIndex, u32)>,
    message: &'a mut i64,
}

impl Vacancies for Unused<'_> {
    fn slot(&mut self, worker: WorkerIndex) -> u32 {
        loop {
            let slot = self.assigned[usize::try_from(worker).unwrap()].take();
            if !self.held.contains(&(worker, slot)) {
                return slot;
            }
            self.passed_over.push((worker, slot));
        }
    }

    fn tag(&mut self) -> i64 {
        *self.message += 1;
        *self.message
    }
}

impl Program {
    fn of(count: usize, words_max: usize) -> Self {
        let mut program = Self {
            assigned: (0..count).map(|_| Assigned::default()).collect(),
            lineage: Lineage::new(words_max),
            is_held: false,
            cluster: Cluster::of(count),
            oracle: Cluster::of(count),
            tag: 0,
            message: 0,
            requests: BTreeSet::new(),
            lost: 0,
        };
        for worker in 0..u32::try_from(count).unwrap() {
            program.emit(worker, &session(1));
        }
        program
    }

    fn emit(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>) {
        let words = encoded(instruction);
        self.lineage.append(worker, &words);
        let place = usize::try_from(worker).unwrap();
        self.oracle.toys[place].stream.push_back(words.clone());
        if !self.is_held {
            self.cluster.toys[place].stream.push_back(words);
        }
    }

    fn define(&mut self, worker: usize) -> u32 {
        let slot = self.assigned[worker].take();
        self.assigned[worker].live.push(slot);
        slot
    }

    /// Emits a random instruction.
    fn extend(&mut self, draws: &mut Draws) {
        self.tag += 1;
        let (count, tag) = (self.assigned.len(), self.tag);
        let at = draws.below(count);
        let worker = u32::try_from(at).unwrap();
        let live = self.assigned[at].live.clone();
        if live.len() > 6 || live.len() > 2 && draws.below(3) == 0 {
            let place = draws.below(live.len());
            let slot = self.assigned[at].live.swap_remove(place);
            self.assigned[at].free.push(slot);
            return self.emit(worker, &free(&[slot]));
        }
        match draws.below(8) {
            _ if live.is_empty() => {
                let out = self.define(at);
                self.emit(worker, &full(tag, out, i64::from(tag)));
            }
            0 => {
                let out = self.define(at);
                self.emit(worker, &full(tag, out, i64::from(tag)));
            }
            1 => {
                let out = self.define(at);
                self.emit(worker, &neg(tag, out, draws.pick(&live)));
            }
            2 => {
                self.message += 1;
                self.requests.insert((worker, self.message));
                self.emit(worker, &read(draws.pick(&live), self.message));
            }
            3 | 4 => self.exchange(at, draws),
            _ => {
                let out = self.define(at);
                self.emit(worker, &add(tag, out, [draws.pick(&live), draws.pick(&live)]));
            }
        }
    }

    /// Emits an exchange of a worker with others.
    fn exchange(&mut self, at: usize, draws: &mut Draws) {
        let tag = self.tag;
        self.message += 1;
        let message = self.message;
        let has_values = |one: &usize| !self.assigned[*one].live.is_empty();
        let members: Vec<usize> = (0..self.assigned.len()).filter(has_values).collect();
        let other = draws.below(self.assigned.len());
        let number = |one: usize| i64::try_from(one).unwrap();
        let index = |one: usize| u32::try_from(one).unwrap();
        if draws.below(2) == 0 && other != at {
            let sent = draws.pick(&self.assigned[at].live.clone());
            let out = self.define(other);
            self.emit(index(at), &send(tag, sent, (number(other), message)));
            self.emit(index(other), &receive(tag, out, (number(at), message)));
            return;
        }
        let group: Vec<i64> = members.iter().copied().map(number).collect();
        let fewest = members.iter().map(|&one| self.assigned[one].live.len()).min().unwrap_or(0);
        let in_place = draws.below(3).min(fewest);
        for &one in &members {
            let live = self.assigned[one].live.clone();
            if in_place > 0 {
                let from = draws.below(live.len() + 1 - in_place);
                let slots = &live[from..from + in_place];
                self.emit(index(one), &all_reduce_in_place(tag, slots, (&group, message)));
            } else {
                let operand = draws.pick(&live);
                let out = self.define(one);
                self.emit(index(one), &all_reduce(tag, out, operand, (&group, message)));
            }
        }
    }

    fn live(&self) -> BTreeSet<(WorkerIndex, u32)> {
        let numbered = (0..).zip(&self.assigned);
        numbered
            .flat_map(|(worker, one)| one.live.iter().map(move |&slot| (worker, slot)))
            .collect()
    }

    /// Workers die while what was sent to them runs, and while that is made again.
    fn recover(&mut self, first: WorkerIndex, draws: &mut Draws) {
        let held = self.live();
        let mut dead = BTreeSet::from([first]);
        self.cluster.kill(first, draws);
        self.lineage.hold();
        self.is_held = true;
        if draws.below(4) == 0 {
            self.cluster.run_some(3, draws);
            let second = draws.below(self.assigned.len()).try_into().unwrap();
            dead.insert(second);
            self.cluster.kill(second, draws);
        }
        for _ in 0..draws.below(4) {
            self.extend(draws);
        }
        self.cluster.run_all();
        let losses = self.losses(&dead, &held);
        let answered = |request: &i64| self.cluster.reads.get(request).is_some_and(Option::is_some);
        let open = self.requests.iter().filter(|(_, request)| !answered(request));
        let mut wanted = WantedValues { slots: self.live(), requests: open.copied().collect() };
        let possible = self.lineage.possible(&wanted, &losses);
        for &(worker, slot) in wanted.slots.difference(&possible.slots) {
            let assigned = &mut self.assigned[usize::try_from(worker).unwrap()];
            self.lost += 1;
            assigned.live.retain(|one| *one != slot);
            assigned.free.push(slot);
            self.lineage.vacate(worker, &[slot]);
            let place = usize::try_from(worker).unwrap();
            self.oracle.toys[place].stream.push_back(encoded(&free(&[slot])));
        }
        let is_lost = |one: &(WorkerIndex, i64)| !possible.requests.contains(one);
        self.requests.retain(|one| !(wanted.requests.contains(one) && is_lost(one)));
        wanted = WantedValues { slots: self.live(), requests: possible.requests };
        let (assigned, message) = (&mut self.assigned[..], &mut self.message);
        let mut unused = Unused { assigned, held: &held, passed_over: Vec::new(), message };
        let remake = self.lineage.remake(&wanted, &losses, &mut unused);
        for (worker, slot) in unused.passed_over.into_iter().chain(remake.taken) {
            self.assigned[usize::try_from(worker).unwrap()].free.push(slot);
        }
        self.lineage.resume();
        self.is_held = false;
        for (worker, words) in remake.words {
            let place = usize::try_from(worker).unwrap();
            let stream = &mut self.cluster.toys[place].stream;
            stream.extend(frames(&words).map(<[u32]>::to_vec));
            // Its session is announced again.
            let words = encoded(&session(1));
            stream.push_back(words.clone());
            self.lineage.append(worker, &words);
        }
        for worker in dead {
            self.emit(worker, &session(1));
        }
    }

    fn losses(
        &self,
        dead: &BTreeSet<WorkerIndex>,
        held: &BTreeSet<(WorkerIndex, u32)>,
    ) -> WorkerLosses {
        let mut losses = WorkerLosses { empty: dead.clone(), ..WorkerLosses::default() };
        for (worker, toy) in (0..).zip(&self.cluster.toys) {
            losses.alive.insert(worker);
            if dead.contains(&worker) {
                continue;
            }
            let lost = toy.values.iter().filter(|(_, held)| held.is_none());
            let lost = lost.map(|(&slot, _)| (worker, slot));
            losses.failed.extend(lost.filter(|one| held.contains(one)));
        }
        let failed = |request: &i64| self.cluster.reads.get(request) == Some(&None);
        losses.failed_requests =
            self.requests.iter().filter(|(_, request)| failed(request)).copied().collect();
        losses
    }

    /// All live values and answers are those of the program in which nobody died.
    fn check(&mut self, seed: u64) {
        self.cluster.run_all();
        self.oracle.run_all();
        for (worker, slot) in self.live() {
            let place = usize::try_from(worker).unwrap();
            let (have, expected) = (&self.cluster.toys[place], &self.oracle.toys[place]);
            let have = have.values.get(&slot).copied().flatten();
            assert_eq!(have, expected.values[&slot], "seed {seed}: slot {slot} of worker {worker}");
        }
        for (worker, toy) in self.cluster.toys.iter().enumerate() {
            let held = self.assigned[worker].live.len();
            assert_eq!(toy.values.len(), held, "seed {seed}: worker {worker} {:?}", toy.values);
        }
        for (_, request) in &self.requests {
            assert_eq!(
                self.cluster.reads.get(request),
                self.oracle.reads.get(request),
                "seed {seed}: {request}"
            );
        }
    }
}

/// A program whose workers die `deaths` times, and whose log is lost one time in `forgets`; returns
/// the number of values that were lost.
fn run(seed: u64, length: usize, deaths: usize, forgets: usize) -> usize {
    let mut draws = Draws::new(seed);
    let mut program = Program::of(2 + draws.below(3), 1 << 24);
    for _ in 0..deaths {
        for _ in 0..draws.below(length) {
            program.extend(&mut draws);
            let steps = draws.below(4);
            program.cluster.run_some(steps, &mut draws);
            if draws.below(forgets) == 1 {
                program.lineage.forget();
            }
        }
        let dead = draws.below(program.assigned.len());
        program.recover(dead.try_into().unwrap(), &mut draws);
    }
    program.check(seed);
    program.lost
}

#[test]
fn all_values_come_back_wherever_a_worker_dies() {
    for seed in 0..400 {
        assert_eq!(run(seed, 60, 1, usize::MAX), 0, "seed {seed}");
    }
}

#[test]
fn all_values_come_back_however_often_workers_die() {
    for seed in 0..60 {
        assert_eq!(run(seed, 30, 12, usize::MAX), 0, "seed {seed}");
    }
}

#[test]
fn no_value_is_wrong_where_the_log_lacks_what_led_to_some() {
    let lost: usize = (0..100).map(|seed| run(seed, 30, 8, 60)).sum();
    assert!(lost > 100, "{lost} values were lost");
}
