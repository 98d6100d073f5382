//! Memory quotas by user: who exceeds one gets a failed value, and no worker is told of it.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why a test cannot go on")]

use gt_dispatcher::{Dispatcher, Event, SessionId, Sink, TraceNotes, UserHolding, WorkerIndex};
use gt_protocol::message::{ToClient, ToWorker};
use gt_protocol::text::{NoNames, parse};
use gt_protocol::{Instruction, Op, wire};
use std::collections::BTreeMap;

/// Operators that a worker was sent, and failures of which sessions were told.
#[derive(Default)]
struct Cluster {
    sent: Vec<Op>,
    failures: Vec<(SessionId, String)>,
}

impl Sink for Cluster {
    fn worker(&mut self, _: WorkerIndex, instruction: &Instruction<'_>) {
        self.sent.push(instruction.op);
    }

    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        panic!("worker {worker} is given up: {reason}");
    }

    fn worker_message(&mut self, _: WorkerIndex, _: &ToWorker<'_>) {}

    fn session(&mut self, id: SessionId, message: &ToClient<'_>) {
        if let ToClient::Failure(failure) = message {
            self.failures.push((id, format!("{:?} {}", failure.class, failure.text)));
        }
    }

    fn trace(&mut self, _: SessionId, _: &Instruction<'_>, _: &TraceNotes<'_>) {}
}

struct World {
    core: Dispatcher,
    cluster: Cluster,
}

impl World {
    /// A dispatcher with workers, and a quota of 100 bytes for ada.
    fn new(workers: u32) -> Self {
        let (mut core, mut cluster) = (Dispatcher::new(), Cluster::default());
        for index in 0..workers {
            core.handle(Event::WorkerJoined { index }, &mut cluster);
        }
        core.set_quotas(BTreeMap::from([("ada".into(), 100)]));
        Self { core, cluster }
    }

    fn session(&mut self, user: &str) -> SessionId {
        let session = self.core.open_session();
        self.core.set_user(session, user);
        session
    }

    /// A turn of a session with these instructions; the number of new failures.
    fn turn(&mut self, session: SessionId, lines: &str) -> usize {
        let before = self.cluster.failures.len();
        self.core.begin_turn(session);
        for line in lines.lines() {
            let mut payload = Vec::new();
            let instruction = parse(line.trim(), &mut NoNames, &mut payload).unwrap().unwrap();
            let mut words = Vec::new();
            wire::encode(&instruction, &mut words).unwrap();
            self.core.instruction_words(session, &mut words, &mut self.cluster).unwrap();
        }
        self.cluster.failures.len() - before
    }
}

/// 40 bytes.
const TEN: &str = "full size=[10] value=1 dtype=f32";
const TEN_MORE: &str = "%2 = full size=[10] value=1 dtype=f32";

#[test]
fn over_quota_is_a_failure_that_names_the_holders() {
    let mut world = World::new(1);
    let (first, second, bob) = (world.session("ada"), world.session("ada"), world.session("bob"));
    assert_eq!(world.turn(first, &format!("%0 = {TEN}")), 0);
    assert_eq!(world.turn(second, &format!("%0 = {TEN}")), 0);
    let sent = world.cluster.sent.len();
    assert_eq!(world.turn(second, "%1 = add %0 %0"), 1);
    let (told, text) = world.cluster.failures.pop().unwrap();
    assert_eq!(told, second);
    let expected = format!(
        "OutOfMemory out of memory: user ada has a quota of 100 B, holds 80 B (session {} 40 B, \
         this session, session {}, 40 B) and needs 40 B more; add f32[10] f32[10]",
        first.0, second.0
    );
    assert_eq!(text, expected);
    assert_eq!(world.cluster.sent.len(), sent, "a worker was told of it");
    // A dependent value inherits the failure and tells nothing new; another user notices nothing.
    assert_eq!(world.turn(second, "%2 = add %1 %0"), 0);
    let lines = format!("%0 = {TEN}\n%1 = add %0 %0\n%2 = add %1 %1\n%3 = add %2 %2");
    assert_eq!(world.turn(bob, &lines), 0);
    assert_eq!(world.turn(second, "%3 = add %0 %0"), 1);
    // The other session frees: there is room again.
    assert_eq!(world.turn(first, "free %0"), 0);
    assert_eq!(world.turn(second, "%4 = add %0 %0"), 0);
    assert_eq!(world.turn(second, "%5 = mul %4 %0"), 1);
    let holdings = world.core.holdings();
    assert_eq!(holdings["ada"], UserHolding { sessions: 2, bytes: 80 });
    assert_eq!(holdings["bob"], UserHolding { sessions: 1, bytes: 160 });
}

#[test]
fn every_way_into_the_table_is_checked() {
    let upload = format!("%2 = upload size=[10] dtype=f32 payload=0x{}", "00".repeat(40));
    // The fast path, creations, an upload.
    for last in [
        "%2 = add %0 %0",
        "%2 = normal size=[10] dtype=f32 mean=0.0 std=1.0 seed=1 draw=0",
        TEN_MORE,
        &upload,
    ] {
        let mut world = World::new(1);
        let session = world.session("ada");
        assert_eq!(world.turn(session, &format!("%0 = {TEN}\n%1 = add %0 %0")), 0);
        assert_eq!(world.turn(session, last), 1, "of {last:?}");
    }
}

#[test]
fn a_replay_on_two_workers_is_checked() {
    let mut world = World::new(2);
    let session = world.session("ada");
    world.turn(session, &format!("%0 = {TEN}\n%1 = distribute %0 layout=\"shard(0)@[0,1]\""));
    world.turn(session, "free %0");
    for _ in 0..5 {
        assert_eq!(world.turn(session, "%0 = add %1 %1\nfree %0"), 0);
    }
    assert_eq!(world.turn(session, "%0 = add %1 %1"), 0);
    let sent = world.cluster.sent.len();
    assert_eq!(world.turn(session, "%2 = add %1 %1"), 1);
    assert_eq!(world.cluster.sent.len(), sent);
}

#[test]
fn a_raised_quota_lifts_the_limit_and_a_lowered_one_frees_nothing() {
    let mut world = World::new(1);
    let session = world.session("ada");
    assert_eq!(world.turn(session, &format!("%0 = {TEN}\n%1 = add %0 %0\n%2 = add %0 %0")), 1);
    world.core.set_quotas(BTreeMap::from([("ada".into(), 120)]));
    assert_eq!(world.turn(session, "%3 = add %0 %0"), 0);
    world.core.set_quotas(BTreeMap::from([("ada".into(), 10)]));
    assert_eq!(world.turn(session, "%4 = add %0 %0"), 1);
    assert_eq!(world.core.holdings()["ada"].bytes, 120);
    world.core.set_quotas(BTreeMap::new());
    assert_eq!(world.turn(session, "%5 = add %0 %0"), 0);
}

#[test]
fn a_session_has_a_quota_of_its_own() {
    let mut world = World::new(1);
    let (first, second) = (world.session("ada"), world.session("ada"));
    world.core.set_session_quotas(BTreeMap::from([(first, 60)]));
    assert_eq!(world.turn(first, &format!("%0 = {TEN}")), 0);
    assert_eq!(world.turn(first, "%1 = add %0 %0"), 1);
    let (_, text) = world.cluster.failures.pop().unwrap();
    let expected = format!(
        "OutOfMemory out of memory: session {} has a quota of 60 B, holds 40 B and needs 40 B more",
        first.0
    );
    assert!(text.starts_with(&expected), "{text}");
    // The other one has its user's alone.
    assert_eq!(world.turn(second, &format!("%0 = {TEN}")), 0);
    assert_eq!(world.turn(second, "%1 = add %0 %0"), 1);
    let (_, text) = world.cluster.failures.pop().unwrap();
    assert!(text.contains("user ada has a quota of 100 B, holds 80 B"), "{text}");
    // A user without a quota, and a session with one.
    let bob = world.session("bob");
    world.core.set_session_quotas(BTreeMap::from([(bob, 40)]));
    assert_eq!(world.turn(bob, &format!("%0 = {TEN}")), 0);
    assert_eq!(world.turn(bob, &format!("%1 = {TEN}")), 1);
    world.core.set_session_quotas(BTreeMap::new());
    assert_eq!(world.turn(bob, TEN_MORE), 0);
}
