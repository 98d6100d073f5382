//! Effects of prices on plans, and their measurement by a probe, with a simulated clock and links.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why a test cannot go on")]

use gt_dispatcher::{
    CostModel, Dispatcher, Event, LinkCost, Measured, Probe, SessionId, Sink, TraceNotes,
    WorkerIndex,
};
use gt_protocol::message::{FromWorker, Reply, ToClient, ToWorker};
use gt_protocol::text::{Names, parse};
use gt_protocol::{Attr, Dims, Dtype, Instruction, Op};
use std::collections::BTreeMap;
use std::time::Duration;

/// Workers that take time for messages and bytes, and answer reads.
#[derive(Default)]
struct Cluster {
    links: BTreeMap<(u32, u32), (u32, f64)>,
    /// Microseconds since the start.
    now: f64,
    bytes: u64,
    transfers: u64,
    reads: Vec<(WorkerIndex, u64)>,
    /// Answers for sessions; true for a failure.
    answers: Vec<(SessionId, bool)>,
    layouts: String,
}

impl Sink for Cluster {
    fn worker(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>) {
        match (instruction.op, instruction.attrs.as_slice()) {
            (Op::Receive, [Attr::Int(peer), _, Attr::Ints(dims), Attr::Dtype(dtype), ..]) => {
                let bytes = dtype.size()
                    * dims.iter().map(|&size| u64::try_from(size).unwrap()).product::<u64>();
                let peer = u32::try_from(*peer).unwrap();
                let pair = (peer.min(worker), peer.max(worker));
                let (message, byte) = self.links.get(&pair).copied().unwrap();
                self.now += f64::from(message) + byte * f64::from(u32::try_from(bytes).unwrap());
                self.bytes += bytes;
                self.transfers += 1;
            }
            (Op::Read, [Attr::Int(request), ..]) => {
                self.now += 33.0;
                self.reads.push((worker, u64::try_from(*request).unwrap()));
            }
            _ => {}
        }
    }

    fn worker_message(&mut self, _: WorkerIndex, _: &ToWorker<'_>) {}

    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        panic!("worker {worker} is given up: {reason}");
    }

    fn session(&mut self, session: SessionId, message: &ToClient<'_>) {
        self.answers.push((session, matches!(message, ToClient::FailedReply { .. })));
    }

    fn trace(&mut self, _: SessionId, _: &Instruction<'_>, notes: &TraceNotes<'_>) {
        self.layouts.clone_from(&notes.results);
    }
}

impl Cluster {
    fn joined(&mut self, workers: u32) -> Dispatcher {
        let mut core = Dispatcher::new();
        for index in 0..workers {
            core.handle(Event::WorkerJoined { index }, self);
        }
        core
    }

    /// One turn of the core's owner; false when the probe has nothing left to do.
    fn turn(&mut self, core: &mut Dispatcher, probe: &mut Probe) -> bool {
        let mut went_on = probe.step(Duration::from_secs_f64(self.now / 1e6), core, self);
        for (index, request) in std::mem::take(&mut self.reads) {
            let reply = Reply {
                request,
                start: 0,
                count: 1,
                total: 1,
                dtype: Dtype::F32,
                dims: Dims::EMPTY,
                bytes: &[0; 4],
            };
            core.handle(Event::FromWorker { index, message: FromWorker::Reply(reply) }, self);
        }
        for (session, failed) in std::mem::take(&mut self.answers) {
            assert_eq!(probe.session(), Some(session));
            probe.answered(Duration::from_secs_f64(self.now / 1e6), failed, core, self);
            went_on = true;
        }
        went_on
    }
}

#[test]
fn a_probe_finds_out_what_links_cost() {
    let mut cluster = Cluster::default();
    cluster.links.extend([((0, 1), (5, 1e-4)), ((0, 2), (50, 2e-3)), ((1, 2), (20, 1e-3))]);
    let mut core = cluster.joined(3);
    let mut probe = Probe::default();
    for (from, to) in [(0, 1), (0, 2), (1, 2)] {
        probe.add(from, to);
    }
    assert!(probe.take_measured().is_empty());
    while cluster.turn(&mut core, &mut probe) {}
    let link = |message, byte| LinkCost { message, byte };
    assert_eq!(
        probe.take_measured(),
        [
            Measured { from: 0, to: 1, link: link(5.0, 1e-4) },
            Measured { from: 0, to: 2, link: link(50.0, 2e-3) },
            Measured { from: 1, to: 2, link: link(20.0, 1e-3) },
        ]
    );
    assert!(probe.is_idle());
    assert!(cluster.bytes <= 3 << 20, "{} bytes for three pairs", cluster.bytes);
    assert_eq!(cluster.transfers, 3 * 3 * (16 + 4));
    let held = core.statistics();
    assert_eq!((held.sessions, held.values, held.worker_slots, held.requests), (0, 0, 0, 0));
}

#[test]
fn a_worker_that_leaves_is_not_waited_for() {
    let mut cluster = Cluster::default();
    cluster.links.extend([((0, 1), (5, 1e-4)), ((0, 2), (50, 2e-3)), ((1, 2), (20, 1e-3))]);
    let mut core = cluster.joined(3);
    let mut probe = Probe::default();
    for (from, to) in [(0, 1), (0, 2), (1, 2)] {
        probe.add(from, to);
    }
    // The first lap's read is in flight to worker 0.
    assert!(probe.step(Duration::ZERO, &mut core, &mut cluster));
    assert!(probe.step(Duration::ZERO, &mut core, &mut cluster));
    assert_eq!(cluster.reads.len(), 1);
    cluster.reads.clear();
    probe.left(0);
    core.handle(Event::WorkerLeft { index: 0, reason: "test" }, &mut cluster);
    cluster.answers.retain(|(_, failed)| *failed);
    while cluster.turn(&mut core, &mut probe) {}
    let measured = probe.take_measured();
    assert_eq!(measured.iter().map(|pair| (pair.from, pair.to)).collect::<Vec<_>>(), [(1, 2)]);
    let held = core.statistics();
    assert_eq!((held.sessions, held.values, held.worker_slots, held.requests), (0, 0, 0, 0));
}

/// The layout of a product of a sharded and a replicated matrix.
fn product(cost_model: &str, workers: [u32; 2]) -> String {
    let mut cluster = Cluster::default();
    let mut core = cluster.joined(4);
    core.set_cost_model(cost_model.parse::<CostModel>().unwrap());
    core.set_tracing(true);
    let session = core.open_session();
    let [first, second] = workers;
    for line in [
        format!("configure signal=1 text=\"workers=[{first},{second}] replicated=true\""),
        "%0 = full size=[64,512] value=1 dtype=f32 @1".to_owned(),
        "%1 = full size=[512,512] value=1 dtype=f32 @1".to_owned(),
        format!("%2 = distribute %0 layout=\"shard(1)@[{first},{second}]\""),
        "%3 = matmul %2 %1".to_owned(),
    ] {
        let mut payload = Vec::new();
        let instruction = parse(&line, &mut Numbers, &mut payload).unwrap().unwrap();
        core.instruction(session, &instruction, &mut cluster).unwrap();
    }
    cluster.layouts
}

/// Signals are named by their ids.
struct Numbers;

impl Names for Numbers {
    fn signal_name(&self, _id: u16) -> Option<&str> {
        None
    }

    fn signal_id(&mut self, name: &str) -> Option<u16> {
        name.parse().ok()
    }
}

/// Each worker multiplies its half, and the sum is reduced where it is needed: on a slow link the
/// whole is gathered once instead.
#[test]
fn plans_follow_the_prices_of_the_link() {
    let slow = "byte[2,3]=0.05";
    assert_eq!(product("", [2, 3]), "f32[64,512] partial(sum)@[2,3]");
    assert_eq!(product(slow, [2, 3]), "f32[64,512] replicate@[2,3]");
    assert_eq!(product(slow, [0, 1]), "f32[64,512] partial(sum)@[0,1]");
    assert_eq!(product(slow, [1, 2]), "f32[64,512] partial(sum)@[1,2]");
}
