//! Values that sessions lend each other: who may borrow what, until when it is held, and whose it is.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why a test cannot go on")]

use gt_dispatcher::{Dispatcher, Event, SessionId, Sink, TraceNotes, WorkerIndex};
use gt_protocol::message::{ToClient, ToWorker};
use gt_protocol::text::{NoNames, parse};
use gt_protocol::{Id, Instruction, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Each worker's live slots, and what the clients were told.
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

    fn session(&mut self, id: SessionId, message: &ToClient<'_>) {
        match message {
            ToClient::Description { text, .. } => self.told.push((*text).to_owned()),
            ToClient::FailedReply { failure, .. } | ToClient::Failure(failure) => {
                assert_eq!(failure.session, id.0);
                self.told.push(format!("{:?}: {}", failure.class, failure.text));
            }
            ToClient::Done { .. }
            | ToClient::Reply(_)
            | ToClient::SpacedReply(_)
            | ToClient::WorkerStats { .. }
            | ToClient::WorkerJoined { .. }
            | ToClient::WorkerLeft { .. }
            | ToClient::Goodbye { .. } => {}
        }
    }

    fn trace(&mut self, _: SessionId, _: &Instruction<'_>, _: &TraceNotes<'_>) {}
}

/// A session `train` of ada, which publishes 40 bytes as `w`, and one of bob.
struct World {
    core: Dispatcher,
    cluster: Cluster,
    ada: SessionId,
    bob: SessionId,
}

impl World {
    fn new() -> Self {
        let (mut core, mut cluster) = (Dispatcher::new(), Cluster::default());
        for index in 0..2 {
            core.handle(Event::WorkerJoined { index }, &mut cluster);
        }
        let (ada, bob) = (core.attach("train", "ada").unwrap(), core.open_session());
        core.set_user(ada, "ada");
        core.set_user(bob, "bob");
        let mut world = Self { core, cluster, ada, bob };
        world.emit(
            ada,
            "%0 = full size=[10] value=1.5 dtype=f32
            publish %0 request=1 name=\"w\" seed=7 draw=3",
        );
        world
    }

    fn emit(&mut self, session: SessionId, lines: &str) {
        self.core.begin_turn(session);
        for line in lines.lines() {
            let mut payload = Vec::new();
            let instruction = parse(line.trim(), &mut NoNames, &mut payload).unwrap().unwrap();
            self.core.instruction(session, &instruction, &mut self.cluster).unwrap();
        }
    }

    /// The answer of an instruction that has one.
    fn ask(&mut self, session: SessionId, line: &str) -> String {
        self.emit(session, line);
        self.cluster.told.pop().unwrap()
    }

    fn grant(&mut self, user: &str) -> String {
        let (ada, line) =
            (self.ada, format!("grant request=2 name=\"w\" user=\"{user}\" what=grant"));
        self.ask(ada, &line)
    }

    fn borrow(&mut self) -> String {
        self.ask(self.bob, "borrow request=2 session=\"train\" name=\"w\"")
    }

    fn borrowed_value(&mut self) {
        assert_eq!(self.grant("bob"), "+");
        assert_eq!(self.borrow(), "+10");
        self.emit(
            self.bob,
            "%0 = published name=\"train\\tw\" index=0 size=[10] dtype=f32
            borrow request=3 session=\"\" name=\"\"",
        );
        assert_eq!(self.cluster.told.pop().unwrap(), "+");
    }

    fn held(&self) -> usize {
        self.cluster.held.values().map(BTreeSet::len).sum()
    }

    fn bytes(&self, user: &str) -> u64 {
        self.core.holdings().get(user).map_or(0, |holding| holding.bytes)
    }
}

#[test]
fn only_what_is_granted_is_borrowed() {
    let mut world = World::new();
    assert_eq!(
        world.borrow(),
        "-session \"train\" of user ada grants no \"w\" to user bob: it grants nothing; \
         gt.grant(\"w\", \"bob\") there changes that"
    );
    assert_eq!(world.grant("carol"), "+");
    assert!(world.borrow().starts_with("-session \"train\""));
    assert_eq!(world.grant(""), "+");
    assert_eq!(world.borrow(), "+10");
    let (ada, bob) = (world.ada, world.bob);
    assert_eq!(world.ask(bob, "borrow request=2 session=\"train\" name=\"\""), "+w");
    assert_eq!(world.ask(ada, "grant request=2 name=\"w\" user=\"\" what=revoke"), "+");
    assert!(world.borrow().contains("it grants nothing"));
    let again = world.ask(ada, "grant request=2 name=\"w\" user=\"\" what=revoke");
    assert_eq!(again, "-\"w\" is not granted to everybody");
    let none = world.ask(ada, "grant request=2 name=\"v\" user=\"bob\" what=grant");
    assert_eq!(none, "-nothing is published as \"v\"; the session holds \"w\"");
    assert_eq!(
        world.ask(bob, "borrow request=2 session=\"trian\" name=\"w\""),
        "-there is no session \"trian\"; sessions that grant something to user bob: nothing"
    );
    assert!(
        world.ask(ada, "borrow request=2 session=\"train\" name=\"w\"").contains("is this one")
    );
}

#[test]
fn a_session_without_a_name_grants_nothing() {
    let mut world = World::new();
    let bob = world.bob;
    let line = "grant request=2 name=\"w\" user=\"ada\" what=grant";
    assert!(world.ask(bob, line).starts_with("-this session has no name"));
}

#[test]
fn without_users_a_grant_is_for_every_session() {
    let mut world = World::new();
    let (ada, bob) = (world.ada, world.bob);
    world.core.set_user(ada, "");
    world.core.set_user(bob, "");
    assert!(world.grant("bob").starts_with("-this dispatcher knows no users"));
    assert!(world.borrow().ends_with("gt.grant(\"w\") there changes that"));
    assert_eq!(world.grant(""), "+");
    assert_eq!(world.borrow(), "+10");
}

#[test]
fn a_borrowed_value_is_one_moments_and_is_freed_when_both_let_go() {
    let mut world = World::new();
    world.borrowed_value();
    let ada = world.ada;
    assert_eq!(world.held(), 3);
    assert_eq!((world.bytes("ada"), world.bytes("bob")), (80, 0));
    // The owner goes on; what was borrowed is the value of that moment, and still the owner's bytes.
    world.emit(
        ada,
        "%1 = add %0 %0
        publish %1 request=1 name=\"w\" seed=7 draw=3",
    );
    assert_eq!((world.bytes("ada"), world.core.borrowed_count()), (160, 1));
    world.emit(ada, "publish request=1 name=\"w\" seed=7 draw=3\nfree %0\nfree %1");
    assert_eq!((world.bytes("ada"), world.bytes("bob"), world.held()), (40, 0, 1));
    // The grant ended with the name.
    assert!(world.borrow().starts_with("-session"));
    world.emit(world.bob, "%1 = add %0 %0\nfree %1\nfree %0");
    assert_eq!((world.bytes("ada"), world.bytes("bob"), world.held()), (0, 0, 0));
    assert_eq!(world.core.borrowed_count(), 0);
}

#[test]
fn a_borrowed_value_outlives_its_owners_session_and_its_bytes_stay_the_owners() {
    let mut world = World::new();
    world.borrowed_value();
    world.core.handle(Event::SessionClosed { session: world.ada }, &mut world.cluster);
    assert_eq!((world.bytes("ada"), world.held()), (40, 1));
    world.core.set_quotas(BTreeMap::from([("ada".into(), 60)]));
    let next = world.core.open_session();
    world.core.set_user(next, "ada");
    world.emit(next, "%0 = full size=[10] value=1 dtype=f32");
    let text = world.cluster.told.pop().unwrap();
    assert!(text.contains("holds 40 B (this session"), "{text}");
    assert!(text.contains("40 B of it borrowed by sessions that still hold it"), "{text}");
    world.core.handle(Event::SessionClosed { session: world.bob }, &mut world.cluster);
    assert_eq!((world.bytes("ada"), world.held()), (0, 0));
    world.emit(next, "%1 = full size=[10] value=1 dtype=f32");
    assert_eq!(world.cluster.told, Vec::<String>::new());
}

#[test]
fn what_a_client_has_borrowed_goes_with_it() {
    let mut world = World::new();
    assert_eq!(world.grant("bob"), "+");
    let eval = world.core.attach("eval", "bob").unwrap();
    world.core.set_user(eval, "bob");
    assert_eq!(world.ask(eval, "borrow request=2 session=\"train\" name=\"w\""), "+10");
    assert_eq!(world.ask(eval, "describe _ request=9 what=published"), "next=0");
    assert_eq!((world.held(), world.core.borrowed_count()), (3, 1));
    world.core.handle(Event::SessionDetached { session: eval }, &mut world.cluster);
    assert_eq!((world.held(), world.core.borrowed_count()), (2, 0));
}

#[test]
fn a_lost_worker_takes_a_borrowed_value_too() {
    let mut world = World::new();
    world.borrowed_value();
    let reason = "killed";
    let left = Event::WorkerLeft { index: 0, reason };
    world.core.handle(left, &mut world.cluster);
    world.emit(world.bob, "%1 = add %0 %0\nread %1 request=5 start=0 count=1");
    let text = world.cluster.told.pop().unwrap();
    assert!(text.starts_with("WorkerLost: worker 0 is gone (killed)"), "{text}");
    assert_eq!(world.borrow(), "+0");
    world.emit(
        world.bob,
        "%2 = published name=\"train\\tw\" index=0 size=[10] dtype=f32\nread %2 request=6 start=0 count=1",
    );
    let text = world.cluster.told.pop().unwrap();
    assert!(text.ends_with("(in session \"train\", which lends it)"), "{text}");
    assert_eq!((world.bytes("ada"), world.bytes("bob")), (0, 0));
}
