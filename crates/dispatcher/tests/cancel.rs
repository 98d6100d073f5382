//! Instructions that a client cancelled before they were planned.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why a test cannot go on")]

use gt_dispatcher::{ClientFault, Dispatcher, Event, SessionId, Sink, TraceNotes, WorkerIndex};
use gt_protocol::message::{CANCELLED, FailureClass, FromWorker, ToClient, ToWorker};
use gt_protocol::text::{self, NoNames, PayloadText, parse};
use gt_protocol::{Instruction, KEPT, Op};

#[derive(Default)]
struct Received {
    /// Instructions for workers.
    lines: Vec<String>,
    kept: Vec<Op>,
    /// Failures of reads: request, text and site.
    failed: Vec<(u64, String, u32)>,
    reported: usize,
}

impl Sink for Received {
    fn worker(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>) {
        if instruction.signal == KEPT {
            self.kept.push(instruction.op);
        }
        let plain = Instruction { signal: 0, tag: 0, ..instruction.clone() };
        let line = text::format(&plain, &NoNames, PayloadText::Reference);
        self.lines.push(format!("{worker}: {line}"));
    }

    fn worker_message(&mut self, _: WorkerIndex, _: &ToWorker<'_>) {}

    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        panic!("worker {worker} is given up: {reason}");
    }

    fn session(&mut self, _: SessionId, message: &ToClient<'_>) {
        if let ToClient::FailedReply { request, failure } = message {
            assert_eq!(failure.class, FailureClass::Cancelled);
            self.failed.push((*request, failure.text.to_owned(), failure.tag));
        }
        self.reported += usize::from(matches!(message, ToClient::Failure(_)));
    }

    fn trace(&mut self, _: SessionId, _: &Instruction<'_>, _: &TraceNotes<'_>) {}
}

struct Client {
    core: Dispatcher,
    session: SessionId,
    received: Received,
}

impl Client {
    fn new(workers: u32) -> Self {
        let (mut core, mut received) = (Dispatcher::new(), Received::default());
        for index in 0..workers {
            core.handle(Event::WorkerJoined { index }, &mut received);
        }
        let session = core.open_session();
        Self { core, session, received }
    }

    fn take(&mut self, line: &str, is_cancelled: bool) -> Result<(), ClientFault> {
        let mut payload = Vec::new();
        let instruction = parse(line, &mut NoNames, &mut payload).unwrap().unwrap();
        let Self { core, session, received } = self;
        if is_cancelled {
            core.cancel(*session, &instruction, received)
        } else {
            core.instruction(*session, &instruction, received)
        }
    }

    fn run(&mut self, lines: &[&str]) {
        for line in lines {
            self.take(line, false).unwrap();
        }
        self.received.lines.clear();
    }

    fn cancel(&mut self, lines: &[&str]) {
        for line in lines {
            self.take(line, true).unwrap();
        }
    }
}

#[test]
fn results_fail_for_the_first_ones_reason_and_workers_hear_nothing() {
    let mut client = Client::new(1);
    client.run(&["%0 = full size=[2] value=1 dtype=f32"]);
    client.cancel(&["%1 = add %0 %0 ~7", "%2 = add %1 %0 ~8", "free %1"]);
    assert_eq!(client.received.lines, ["0: free %1"; 0], "nothing was planned");
    client.run(&["%3 = add %2 %2 ~9", "read %2 request=1 start=0 count=2"]);
    client.run(&["read %3 request=2 start=0 count=2"]);
    let text = format!("{CANCELLED}; add f32[2] f32[2]");
    assert_eq!(client.received.failed, [(1, text.clone(), 7), (2, text, 7)]);
    assert_eq!(client.received.reported, 0);
    assert_eq!(client.core.statistics().values, 1);
}

#[test]
fn what_computes_nothing_is_handled_as_ever() {
    let mut client = Client::new(1);
    client.run(&["%0 = full size=[2] value=1 dtype=f32"]);
    client.cancel(&["read %0 request=1 start=0 count=2", "synchronize request=2", "free %0"]);
    let ops: Vec<&str> =
        client.received.lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(ops, ["read", "synchronize", "free"]);
    assert_eq!(client.core.statistics().values, 0);
}

#[test]
fn a_step_leaves_the_parameter_as_it_was() {
    let mut client = Client::new(2);
    client.run(&[
        "%0 = full size=[4] value=1 dtype=f32",
        "%1 = full size=[4] value=1 dtype=f32",
        "%2 = distribute %0 dim=0",
    ]);
    let step = "%3 %4 = sgd %2 %1 _ lr=0.1 momentum=0.5 dampening=0.0 weight_decay=0.0 \
                nesterov=false maximize=false first_step=true";
    client.cancel(&[step, "free %2"]);
    let (session, core) = (client.session, &client.core);
    assert_eq!(core.layout_of(session, 3), Some("shard(0)@[0,1]".to_owned()));
    assert_eq!(core.layout_of(session, 4), None, "there was no momentum yet");
    let reshapes = client.received.lines.iter().filter(|line| line.contains("reshape"));
    assert_eq!(reshapes.count(), 2, "{:?}", client.received.lines);
}

#[test]
fn breaches_are_breaches() {
    let mut client = Client::new(1);
    client.run(&["%0 = full size=[2] value=1 dtype=f32"]);
    for line in ["%1 = add %0 %5", "%0 = add %0 %0"] {
        assert!(client.take(line, true).is_err(), "{line}");
    }
}

#[test]
fn workers_execute_what_a_value_from_before_depends_on() {
    let mut client = Client::new(2);
    // Too large to be created before its first use, and replicated for good by the product.
    client.run(&[
        "%0 = full size=[1024,1024] value=1 dtype=f32",
        "%1 = full size=[2,1024] value=1 dtype=f32",
        "%2 = distribute %1 dim=0",
    ]);
    client.received.kept.clear();
    client.run(&["%3 = matmul %2 %0"]);
    assert!(client.received.kept.contains(&Op::Full), "{:?}", client.received.kept);
    assert!(!client.received.kept.contains(&Op::Matmul), "{:?}", client.received.kept);
}

#[test]
fn a_workers_report_of_a_cancelled_instruction_is_not_passed_on() {
    let mut client = Client::new(1);
    client.run(&["%0 = full size=[2] value=1 dtype=f32"]);
    let failure = gt_protocol::message::Failure {
        session: client.session.0,
        number: 0,
        class: FailureClass::Cancelled,
        op: None,
        tag: 0,
        text: CANCELLED,
    };
    let message = FromWorker::Failure(failure);
    client.core.handle(Event::FromWorker { index: 0, message }, &mut client.received);
    assert_eq!(client.received.reported, 0);
}
