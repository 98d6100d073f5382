//! `rebalance`: values of a session go to workers that have joined after their layouts were decided.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why a test cannot go on")]

use gt_dispatcher::{Dispatcher, Event, SessionId, Sink, TraceNotes, WorkerIndex};
use gt_protocol::Instruction;
use gt_protocol::message::{ToClient, ToWorker};
use gt_protocol::text::{NoNames, parse};

/// Number of words to workers, and what the client was told.
#[derive(Default)]
struct Cluster {
    sent: usize,
    told: Vec<String>,
}

impl Sink for Cluster {
    fn worker(&mut self, _: WorkerIndex, _: &Instruction<'_>) {
        self.sent += 1;
    }

    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        panic!("worker {worker} is given up: {reason}");
    }

    fn worker_message(&mut self, _: WorkerIndex, _: &ToWorker<'_>) {}

    fn session(&mut self, _: SessionId, message: &ToClient<'_>) {
        if let ToClient::Description { text, .. } = message {
            self.told.push((*text).to_owned());
        }
    }

    fn trace(&mut self, _: SessionId, _: &Instruction<'_>, _: &TraceNotes<'_>) {}
}

struct World {
    core: Dispatcher,
    cluster: Cluster,
    session: SessionId,
    workers: u32,
}

impl World {
    fn new(workers: u32) -> Self {
        let mut core = Dispatcher::new();
        let session = core.open_session();
        let mut world = Self { core, cluster: Cluster::default(), session, workers: 0 };
        world.join(workers);
        world
    }

    fn join(&mut self, count: u32) {
        for index in self.workers..self.workers + count {
            self.core.handle(Event::WorkerJoined { index }, &mut self.cluster);
        }
        self.workers += count;
    }

    fn emit_in(&mut self, session: SessionId, lines: &str) {
        for line in lines.lines() {
            let mut payload = Vec::new();
            let instruction = parse(line.trim(), &mut NoNames, &mut payload).unwrap().unwrap();
            self.core.instruction(session, &instruction, &mut self.cluster).unwrap();
        }
    }

    fn emit(&mut self, lines: &str) {
        self.emit_in(self.session, lines);
    }

    /// Number of values that a rebalance moves.
    fn rebalance(&mut self) -> String {
        self.emit("rebalance request=1");
        self.cluster.told.pop().unwrap()
    }

    fn layout(&self, slot: u32) -> String {
        self.core.layout_of(self.session, slot).unwrap()
    }

    fn explain(&mut self, slot: u32) -> String {
        self.emit(&format!("describe %{slot} request=2 what=explanation"));
        self.cluster.told.pop().unwrap()
    }
}

/// Checks the layout of `%1`, made of `%0` of [8, 6], before and after two workers became four.
fn check(workers: u32, line: &str, before: &str, after: &str) {
    let mut world = World::new(workers);
    world.emit("%0 = full size=[8,6] value=1 dtype=f32");
    world.emit(line);
    assert_eq!(world.layout(1), before, "{line}");
    world.join(4 - workers);
    let count = u32::from(before != after);
    assert_eq!(world.rebalance(), format!("values={count}"), "{line}");
    let sent = world.cluster.sent;
    let text = world.explain(1);
    assert!(text.contains(&format!("layout: {after}\n")), "{line}: {text}");
    assert_eq!((world.layout(1), world.cluster.sent), (before.to_owned(), sent), "it moves later");
    world.emit("%2 = relu %1");
    assert_eq!(world.layout(1), after, "{line}");
    assert_eq!(world.layout(2), after, "{line}");
    let text = world.explain(1);
    let said = "why: gt.rebalance() gave it this layout, over the workers that were there";
    assert_eq!(text.contains(said), before != after, "{line}: {text}");
    assert_eq!(world.rebalance(), "values=0", "{line}");
}

#[test]
fn layouts_over_all_workers_follow_those_that_join() {
    check(2, "%1 = distribute %0 dim=0", "shard(0)@[0,1]", "shard(0)@[0,1,2,3]");
    check(2, "%1 = distribute %0 dim=-1", "shard(1)@[0,1]", "shard(1)@[0,1,2,3]");
    check(2, "%1 = distribute %0", "replicate@[0,1]", "replicate@[0,1,2,3]");
    let text = "%1 = distribute %0 layout=\"shard(1)@[0,1]\"";
    check(2, text, "shard(1)@[0,1]", "shard(1)@[0,1,2,3]");
    // A cut over one worker is the whole, which the program did not ask for.
    check(1, "%1 = distribute %0 dim=0", "replicate@[0]", "shard(0)@[0,1,2,3]");
}

#[test]
fn layouts_over_chosen_workers_stay() {
    let chosen = "%1 = distribute %0 layout=\"shard(0)@[1,2]\"";
    check(3, chosen, "shard(0)@[1,2]", "shard(0)@[1,2]");
    let square = "%1 = distribute %0 layout=\"shard(0)@[0,1]\"";
    check(3, square, "shard(0)@[0,1]", "shard(0)@[0,1]");
}

#[test]
fn what_follows_its_operands_moves_with_them() {
    let mut world = World::new(2);
    world.emit(
        "%0 = full size=[8,6] value=1 dtype=f32
        %1 = distribute %0 dim=0
        %2 = mul %1 %1
        %3 = add %2 %1",
    );
    assert_eq!(world.layout(3), "shard(0)@[0,1]");
    world.join(1);
    assert_eq!(world.rebalance(), "values=3");
    world.emit("%4 = add %3 %1");
    assert_eq!(world.layout(4), "shard(0)@[0,1,2]");
    // A value that is only read stays where it is.
    assert_eq!(world.layout(2), "shard(0)@[0,1]");
}

#[test]
fn a_session_moves_to_a_worker_with_fewer_others() {
    let mut world = World::new(1);
    let other = world.core.open_session();
    world.emit_in(other, "%0 = full size=[4] value=1 dtype=f32");
    world.emit("%0 = full size=[4] value=1 dtype=f32");
    world.join(1);
    assert_eq!(world.rebalance(), "values=1");
    world.emit("%1 = relu %0\n%2 = full size=[4] value=1 dtype=f32");
    let layouts = [0, 1, 2].map(|slot| world.layout(slot));
    assert_eq!(layouts, ["replicate@[1]"; 3].map(str::to_owned));
    assert_eq!(world.rebalance(), "values=0", "nobody else is there");
}

#[test]
fn a_worker_that_leaves_before_the_move_ends_it() {
    let mut world = World::new(2);
    world.emit("%0 = full size=[8,6] value=1 dtype=f32\n%1 = distribute %0 dim=0");
    world.join(1);
    assert_eq!(world.rebalance(), "values=1");
    let left = Event::WorkerLeft { index: 2, reason: "killed" };
    world.core.handle(left, &mut world.cluster);
    assert!(world.explain(1).contains("why: asked for by the program\n"));
    world.emit("%2 = relu %1");
    assert_eq!(world.layout(2), "shard(0)@[0,1]");
}

#[test]
fn kept_values_are_moved_when_they_are_taken() {
    let mut world = World::new(2);
    world.emit(
        "%0 = full size=[8,6] value=1 dtype=f32
        %1 = distribute %0 dim=0
        publish %1 request=1 name=\"w\" seed=7 draw=3
        free %1",
    );
    world.join(2);
    assert_eq!(world.rebalance(), "values=1");
    world.emit("%1 = published name=\"w\" index=0 size=[8,6] dtype=f32");
    assert_eq!(world.layout(1), "shard(0)@[0,1,2,3]");
}

#[test]
fn only_sessions_with_layouts_are_told_of_workers_that_join() {
    let mut world = World::new(2);
    let session = world.session;
    world.emit("%0 = full size=[8,6] value=1 dtype=f32");
    assert!(!world.core.has_layouts(session));
    world.emit("%1 = distribute %0 dim=0");
    assert!(world.core.has_layouts(session));
}
