//! Backends of collectives, by the members' reports of their own backends.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why a test cannot go on")]

use gt_dispatcher::{Dispatcher, Event, SessionId, Sink, TraceNotes, WorkerIndex};
use gt_protocol::message::{Backends, FromWorker, ToClient, ToWorker};
use gt_protocol::text::{NoNames, PayloadText, format, parse};
use gt_protocol::{Family, Instruction};

/// The backends of the collectives that workers were sent, `send` and `receive` among them.
#[derive(Default)]
struct Told(Vec<(WorkerIndex, String)>);

impl Sink for Told {
    fn worker(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>) {
        if instruction.op.info().family == Family::Collective {
            let line = format(instruction, &NoNames, PayloadText::Full);
            let backend =
                line.split(' ').find_map(|word| word.strip_prefix("backend=")).unwrap_or("bytes");
            self.0.push((worker, format!("{} {backend}", instruction.op.info().name)));
        }
    }

    fn worker_message(&mut self, _: WorkerIndex, _: &ToWorker<'_>) {}
    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        panic!("worker {worker} is given up: {reason}");
    }

    fn session(&mut self, _: SessionId, _: &ToClient<'_>) {}
    fn trace(&mut self, _: SessionId, _: &Instruction<'_>, _: &TraceNotes<'_>) {}
}

const PROGRAM: [&str; 4] = [
    "%0 = normal size=[6] dtype=f32 mean=0.0 std=1.0 seed=1 draw=0",
    // Sends a shard from worker 0 to each other worker, then gathers all of them on each.
    "%1 = distribute %0 layout=\"shard(0)@[0,1,2]\"",
    "%2 = distribute %1 layout=\"replicate@[0,1,2]\"",
    "%3 = distribute %1 layout=\"shard(0)@[0,1]\"",
];

/// Backends that worker 1 is told, after it and its neighbours 0 and 2 have reported these: for
/// values from worker 0, and for a gather over all three.
fn told(backends: [[&str; 2]; 3], far: u32) -> Vec<String> {
    let (mut core, mut told) = (Dispatcher::new(), Told::default());
    for (index, [device, group]) in (0..).zip(backends) {
        core.handle(Event::WorkerJoined { index }, &mut told);
        let message = FromWorker::Backends(Backends { device, group, is_far: index == far });
        core.handle(Event::FromWorker { index, message }, &mut told);
    }
    let session = core.open_session();
    for line in PROGRAM {
        let mut payload = Vec::new();
        let instruction = parse(line, &mut NoNames, &mut payload).unwrap().unwrap();
        core.instruction(session, &instruction, &mut told).unwrap();
    }
    told.0.into_iter().filter(|(worker, _)| *worker == 1).map(|(_, backend)| backend).collect()
}

#[test]
fn members_that_say_the_same_go_that_way() {
    let check = |backends, [between_two, between_three]: [&str; 2]| {
        let told = told(backends, 1);
        let of = |op: &str, backend: &str| told.contains(&format!("{op} {backend}"));
        assert!(of("receive", between_two), "{backends:?}: {told:?}");
        assert!(of("all_gather", between_three), "{backends:?}: {told:?}");
        assert_eq!(told.iter().filter(|one| one.starts_with("all_gather")).count(), 1);
    };
    check([["", ""], ["", ""], ["", ""]], ["bytes", "bytes"]);
    check([["a", ""], ["a", ""], ["a", ""]], ["device", "device"]);
    // The third worker is on another host.
    check([["a", "g"], ["a", "g"], ["b", "g"]], ["device", "group"]);
    check([["a", ""], ["a", ""], ["", ""]], ["device", "bytes"]);
    check([["", "g"], ["", "g"], ["", "h"]], ["group", "bytes"]);
    let all_near = told([["", "g"], ["", "g"], ["", "g"]], 3);
    assert!(all_near.contains(&"receive bytes".to_owned()), "{all_near:?}");
    assert!(all_near.contains(&"all_gather bytes".to_owned()), "{all_near:?}");
}
