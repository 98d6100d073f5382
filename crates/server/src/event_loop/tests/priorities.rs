//! Turns of two clients of different classes on one worker.

use super::*;
use crate::accounts::Accounts;
use crate::policy::ClusterPolicy;
use gt_dispatcher::SessionId;
use std::time::Duration;

const POLICY: &str = "users: {ada: {priority: low}, bob: {priority: high}}";

/// An event loop with a worker and two clients, ada's before bob's.
struct Two {
    event_loop: EventLoop,
    worker: Wires,
    clients: [Wires; 2],
    sessions: [SessionId; 2],
    slots: u32,
    /// Session whose instructions the worker's words carry.
    at: SessionId,
}

impl Two {
    fn new(policy: Option<&str>) -> Self {
        let waker = Arc::new(Waker::new().unwrap());
        let (_, events) = mpsc::unbounded_channel();
        let event_loop =
            EventLoop::new(Dispatcher::new(), Outbox::new(None), None, events, waker).unwrap();
        let policy = policy.map(|text| ClusterPolicy::parse(text).unwrap());
        let mut event_loop = event_loop.with_accounts(Accounts::new(policy));
        let (worker, clients) = (Wires::new(), [Wires::new(), Wires::new()]);
        event_loop.add_worker(0, worker.link(), Vec::new());
        let sessions = [0, 1].map(|_| event_loop.dispatcher.open_session());
        for ((session, user), wires) in sessions.into_iter().zip(["ada", "bob"]).zip(&clients) {
            event_loop.note_user(session, user, None);
            event_loop.add_client(session, user.to_owned(), wires.link());
        }
        let mut two = Self { event_loop, worker, clients, sessions, slots: 0, at: SessionId(0) };
        // Both are active from their first instruction on.
        two.round(|_| {});
        two
    }

    /// A round in which both clients have an instruction; returns whose the worker got, in order.
    fn round(&mut self, prepare: impl FnOnce(&mut EventLoop)) -> Vec<SessionId> {
        for client in &mut self.clients {
            let mut full = Instruction::new(Op::Full);
            full.outputs.push(Id::slot(self.slots));
            let value = Attr::Scalar(gt_protocol::Scalar::Int(1));
            full.attrs.extend([
                Attr::Ints(Dims::new(&[4]).unwrap()),
                value,
                Attr::Dtype(Dtype::F32),
            ]);
            client.send(&full);
        }
        self.slots += 1;
        prepare(&mut self.event_loop);
        let mut order = Vec::new();
        // The loop ends: the worker answers marks, so nobody waits for more than a few rounds.
        while order.len() < self.clients.len() {
            self.event_loop.round(Instant::now()).unwrap();
            while let Some(frame) = self.worker.frame() {
                order.extend(self.take(&frame));
            }
        }
        order
    }

    /// The worker takes a frame; returns whose it is.
    fn take(&mut self, frame: &[u32]) -> Option<SessionId> {
        if cut::is_message(frame[0]) {
            if let ToWorker::Mark { request } = message::decode(frame).unwrap().0 {
                let mut words = Vec::new();
                message::encode(&FromWorker::Done { request }, &mut words).unwrap();
                assert!(self.worker.producer.write(&[&words]));
            }
            return None;
        }
        let (instruction, _) = wire::decode(frame).unwrap();
        if instruction.op != Op::Session {
            return Some(self.at);
        }
        let Attr::Int(id) = instruction.attrs[0] else { panic!("{instruction:?}") };
        self.at = SessionId(u32::try_from(id).unwrap());
        None
    }
}

#[test]
fn a_higher_class_has_its_turn_first() {
    let mut two = Two::new(Some(POLICY));
    let [ada, bob] = two.sessions;
    for turn in 0..6 {
        assert_eq!(two.round(|_| {}), [bob, ada], "turn {turn}");
    }
    // Without classes the turns go round.
    let mut two = Two::new(None);
    let firsts: Vec<SessionId> = (0..4).map(|_| two.round(|_| {})[0]).collect();
    assert!(firsts.windows(2).all(|pair| pair[0] != pair[1]), "{firsts:?}");
}

#[test]
fn who_has_waited_for_long_goes_before_a_higher_class() {
    let mut two = Two::new(Some(POLICY));
    let [ada, bob] = two.sessions;
    assert_eq!(two.round(|_| {}), [bob, ada]);
    let waits = |event_loop: &mut EventLoop| {
        let client = event_loop.clients.iter_mut().find(|client| client.session == ada).unwrap();
        client.held_back = true;
        client.note_wait(Instant::now().checked_sub(Duration::from_secs(1)).unwrap());
        client.held_back = false;
    };
    assert_eq!(two.round(waits), [ada, bob]);
    assert_eq!(two.round(|_| {}), [bob, ada], "it has had its turn");
}
