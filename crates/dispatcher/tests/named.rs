//! Named sessions: published values outlive their client, and nothing else of it does.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why a test cannot go on")]

use gt_dispatcher::{Dispatcher, Event, SessionId, Sink, TraceNotes, WorkerIndex};
use gt_protocol::message::{FailureClass, ToClient, ToWorker};
use gt_protocol::text::{NoNames, parse};
use gt_protocol::{Id, Instruction, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Each worker's live slots, and what the client was told.
#[derive(Default)]
struct Cluster {
    held: BTreeMap<WorkerIndex, BTreeSet<u32>>,
    told: Vec<String>,
}

impl Sink for Cluster {
    fn worker(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>) {
        let held = self.held.entry(worker).or_default();
        for slot in instruction.values().filter_map(Id::as_slot) {
            assert!(held.contains(&slot), "slot {slot} is used: {instruction:?}");
            if instruction.op == Op::Free {
                held.remove(&slot);
            }
        }
        for slot in instruction.outputs.iter().filter_map(|id| id.as_slot()) {
            assert!(held.insert(slot), "slot {slot} is defined twice");
        }
    }

    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        panic!("worker {worker} is given up: {reason}");
    }

    fn worker_message(&mut self, _: WorkerIndex, _: &ToWorker<'_>) {}

    fn session(&mut self, _: SessionId, message: &ToClient<'_>) {
        match message {
            ToClient::Description { text, .. } => self.told.push((*text).to_owned()),
            ToClient::Done { request } => self.told.push(format!("done {request}")),
            ToClient::FailedReply { failure, .. } | ToClient::Failure(failure) => {
                self.told.push(format!("{:?}: {}", failure.class, failure.text));
            }
            ToClient::Reply(_)
            | ToClient::SpacedReply(_)
            | ToClient::WorkerStats { .. }
            | ToClient::WorkerJoined { .. }
            | ToClient::WorkerLeft { .. }
            | ToClient::Goodbye { .. } => {}
        }
    }

    fn trace(&mut self, _: SessionId, _: &Instruction<'_>, _: &TraceNotes<'_>) {}
}

struct World {
    core: Dispatcher,
    cluster: Cluster,
    session: SessionId,
}

impl World {
    /// A session of a name on this many workers.
    fn new(workers: u32) -> Self {
        let (mut core, mut cluster) = (Dispatcher::new(), Cluster::default());
        for index in 0..workers {
            core.handle(Event::WorkerJoined { index }, &mut cluster);
        }
        let session = core.attach("exp1", "ada").unwrap();
        Self { core, cluster, session }
    }

    fn emit(&mut self, lines: &str) {
        for line in lines.lines() {
            let mut payload = Vec::new();
            let instruction = parse(line.trim(), &mut NoNames, &mut payload).unwrap().unwrap();
            self.core.instruction(self.session, &instruction, &mut self.cluster).unwrap();
        }
    }

    fn refusal(&mut self, line: &str) -> String {
        let mut payload = Vec::new();
        let instruction = parse(line, &mut NoNames, &mut payload).unwrap().unwrap();
        let fault = self.core.instruction(self.session, &instruction, &mut self.cluster);
        fault.unwrap_err().to_string()
    }

    fn detach(&mut self) {
        let session = self.session;
        self.core.handle(Event::SessionDetached { session }, &mut self.cluster);
    }

    fn held(&self) -> usize {
        self.cluster.held.values().map(BTreeSet::len).sum()
    }

    fn published(&mut self) -> String {
        self.emit("describe _ request=9 what=published");
        self.cluster.told.pop().unwrap()
    }
}

#[test]
fn published_values_outlive_their_client_and_nothing_else_does() {
    let mut world = World::new(2);
    world.emit(
        "%0 = full size=[4] value=1.5 dtype=f32
        %1 = full size=[2] value=2 dtype=i64
        %2 = add %0 %0
        publish %2 %1 request=1 name=\"w\" seed=7 draw=3",
    );
    assert_eq!(world.cluster.told, ["done 1"]);
    assert_eq!(world.held(), 5);
    world.detach();
    assert_eq!(world.held(), 2);
    let named: Vec<_> = world.core.named().collect();
    let [named] = &*named else { panic!("{named:?}") };
    assert_eq!((named.name, named.user, named.is_attached), ("exp1", "ada", false));
    assert_eq!((named.names, named.values, named.bytes), (1, 2, 32));
    assert_eq!(world.core.attach("exp1", "ada"), Ok(world.session));
    assert_eq!(world.published(), "next=3 seed=7 draw=3\n2 32 4 w");
    // The next client numbers its slots anew.
    world.emit(
        "%0 = published name=\"w\" index=0 size=[4] dtype=f32
        %1 = add %0 %0
        free %0",
    );
    assert_eq!(world.held(), 3);
    let session = world.session;
    world.core.handle(Event::SessionClosed { session }, &mut world.cluster);
    assert_eq!((world.held(), world.core.named().count()), (0, 0));
    assert_eq!(world.core.statistics().worker_slots, 0);
}

#[test]
fn a_name_is_replaced_whole_and_freed() {
    let mut world = World::new(1);
    world.emit(
        "%0 = full size=[4] value=1.5 dtype=f32
        publish %0 request=1 name=\"w\" seed=7 draw=3
        publish %0 %0 request=2 name=\"v\" seed=7 draw=4
        publish %0 request=3 name=\"w\" seed=7 draw=5",
    );
    assert_eq!(world.published(), "next=1 seed=7 draw=5\n2 32 4 v\n1 16 4 w");
    assert_eq!(world.held(), 4);
    world.emit("publish request=4 name=\"v\" seed=7 draw=6\nfree %0");
    assert_eq!(world.published(), "next=1 seed=7 draw=6\n1 16 4 w");
    assert_eq!(world.held(), 1);
}

#[test]
fn a_sharded_value_keeps_its_layout() {
    let mut world = World::new(2);
    world.emit(
        "%0 = full size=[4] value=1.5 dtype=f32
        %1 = distribute %0 dim=0
        publish %1 request=1 name=\"w\" seed=7 draw=3",
    );
    world.detach();
    assert_eq!(world.held(), 2);
    world.core.attach("exp1", "ada").unwrap();
    world.emit("%5 = published name=\"w\" index=0 size=[4] dtype=f32");
    assert_eq!(world.core.layout_of(world.session, 5).unwrap(), "shard(0)@[0,1]");
}

#[test]
fn a_value_that_waits_for_its_use_is_made() {
    let mut world = World::new(1);
    world.emit(
        "%0 = full size=[1048576] value=1.5 dtype=f32
        publish %0 request=1 name=\"w\" seed=7 draw=3",
    );
    world.detach();
    assert_eq!(world.held(), 1);
}

#[test]
fn what_a_worker_took_along_fails_with_its_reason() {
    let mut world = World::new(2);
    world.emit(
        "%0 = full size=[4] value=1.5 dtype=f32
        publish %0 request=1 name=\"w\" seed=7 draw=3",
    );
    world.detach();
    let event = Event::WorkerLeft { index: 0, reason: "killed" };
    world.core.handle(event, &mut world.cluster);
    world.core.attach("exp1", "ada").unwrap();
    world.cluster.told.clear();
    world.emit(
        "%0 = published name=\"w\" index=0 size=[4] dtype=f32
        read %0 request=5 start=0 count=4",
    );
    let text = "worker 0 is gone (killed) and held this value";
    assert_eq!(world.cluster.told, [format!("{:?}: {text}", FailureClass::WorkerLost)]);
}

#[test]
fn what_is_wrong_is_an_error_of_the_value_or_a_breach() {
    let mut world = World::new(1);
    world.emit(
        "%0 = full size=[4] value=1.5 dtype=f32
        publish %0 request=1 name=\"w\" seed=7 draw=3
        %1 = published name=\"x\" index=0 size=[4] dtype=f32
        %2 = published name=\"w\" index=1 size=[4] dtype=f32
        %3 = published name=\"w\" index=-1 size=[4] dtype=f32
        %4 = published name=\"w\" index=0 size=[5] dtype=f32",
    );
    assert_eq!(
        world.cluster.told[1..],
        [
            "Runtime: published: \"x\" has no value number 0",
            "Runtime: published: \"w\" has no value number 1",
            "Runtime: published: \"w\" has no value number -1",
            "Runtime: published: value 0 of \"w\" is f32[4], not f32[5]",
        ]
    );
    assert!(world.refusal("publish %9 request=1 name=\"w\" seed=7 draw=3").contains("slot 9"));
    assert!(world.refusal("publish %0 request=1 name=\"\" seed=7 draw=3").contains("name"));
    let long = "n".repeat(129);
    let long = format!("publish %0 request=1 name=\"{long}\" seed=7 draw=3");
    assert!(world.refusal(&long).contains("name"));
    // A client cannot free what a name keeps.
    assert!(world.refusal("free %2147483648").contains("slot 2147483648"));
    assert!(world.refusal("%2147483648 = full size=[1] value=0 dtype=f32").contains("limit"));
}

#[test]
fn names_have_a_limit() {
    let mut world = World::new(1);
    world.emit("%0 = full size=[1] value=1.5 dtype=f32");
    for count in 0..256 {
        world.emit(&format!("publish %0 request=1 name=\"n{count}\" seed=7 draw=3"));
    }
    world.cluster.told.clear();
    world.emit("publish %0 request=1 name=\"one\" seed=7 draw=3");
    let text = "Quota: a session publishes at most 256 names";
    assert_eq!(world.cluster.told, [text]);
    world.emit("publish %0 request=2 name=\"n7\" seed=7 draw=3");
    assert_eq!(world.cluster.told, [text, "done 2"]);
    // All of them are listed in one description.
    assert_eq!(world.published().lines().count(), 257);
}

#[test]
fn a_session_has_one_client_and_one_user() {
    let mut world = World::new(1);
    let mut error = |name: &str, user: &str| world.core.attach(name, user).unwrap_err().to_string();
    assert!(error("exp1", "ada").contains("has a client already"));
    assert_eq!(error("exp1", "bob"), "session \"exp1\" belongs to another user");
    assert!(error("", "ada").contains("is no name of a session"));
    assert!(error("a b", "ada").contains("is no name of a session"));
    assert!(error(&"x".repeat(65), "ada").contains("is no name of a session"));
    world.detach();
    assert!(world.core.attach("exp1", "bob").is_err());
    assert!(world.core.attach("exp1", "ada").is_ok());
    world.core.attach("exp2", "ada").unwrap();
    let unknown = world.core.session_of("exp3", "ada").unwrap_err().to_string();
    assert_eq!(unknown, "there is no session \"exp3\"; there are exp1, exp2");
    let unknown = world.core.session_of("exp3", "bob").unwrap_err().to_string();
    assert_eq!(unknown, "there is no session \"exp3\"; no session has a name");
    assert!(world.core.session_of("exp1", "bob").is_err());
    for count in 0..64 {
        world.core.attach(&format!("of_bob_{count}"), "bob").unwrap();
    }
    let full = world.core.attach("one_more", "bob").unwrap_err().to_string();
    assert!(full.contains("gt kill"), "{full}");
    world.core.attach("one_more", "ada").unwrap();
}
