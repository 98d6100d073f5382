//! Failures on workers as a session sees them.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why a test cannot go on")]

use gt_dispatcher::{Dispatcher, Event, SessionId, Sink, TraceNotes, WorkerIndex};
use gt_protocol::message::{Failure, FailureClass, FromWorker, ToClient, ToWorker};
use gt_protocol::text::{NoNames, parse};
use gt_protocol::{Attr, Instruction, Op};

#[derive(Default)]
struct Received {
    /// Requests that workers were sent.
    reads: Vec<u64>,
    /// Failures of reads.
    failed: Vec<(u64, FailureClass, String)>,
    /// Instructions whose failure was reported without a read.
    reported: Vec<u64>,
}

impl Sink for Received {
    fn worker(&mut self, _: WorkerIndex, instruction: &Instruction<'_>) {
        if let (Op::Read, [Attr::Int(request), ..]) = (instruction.op, &*instruction.attrs) {
            self.reads.push(u64::try_from(*request).unwrap());
        }
    }

    fn worker_message(&mut self, _: WorkerIndex, _: &ToWorker<'_>) {}

    fn session(&mut self, _: SessionId, message: &ToClient<'_>) {
        if let ToClient::FailedReply { request, failure } = message {
            self.failed.push((*request, failure.class, failure.text.to_owned()));
        } else if let ToClient::Failure(failure) = message {
            self.reported.push(failure.number);
        }
    }

    fn trace(&mut self, _: SessionId, _: &Instruction<'_>, _: &TraceNotes<'_>) {}
}

#[test]
fn who_reads_an_operand_is_told_what_befell_that_and_not_its_reader() {
    let (mut core, mut received) = (Dispatcher::new(), Received::default());
    core.handle(Event::WorkerJoined { index: 0 }, &mut received);
    let session = core.open_session();
    for line in [
        "%0 = full size=[1] value=0 dtype=i64",
        "%1 = index_select %0 %0 dim=0",
        "read %1 request=1 start=0 count=1",
        "read %0 request=2 start=0 count=1",
    ] {
        let mut payload = Vec::new();
        let instruction = parse(line, &mut NoNames, &mut payload).unwrap().unwrap();
        core.instruction(session, &instruction, &mut received).unwrap();
    }
    let failure =
        |class, text| Failure { session: session.0, number: 1, class, op: None, tag: 0, text };
    // The index is wrong, and the operand from instruction 1 has not arrived whole.
    let index = failure(FailureClass::Index, "the whole text");
    core.handle(Event::FromWorker { index: 0, message: FromWorker::Failure(index) }, &mut received);
    let causes = [(FailureClass::Index, "a part"), (FailureClass::WorkerLost, "worker 1 is gone")];
    for (request, (class, text)) in received.reads.clone().into_iter().zip(causes) {
        let message = FromWorker::FailedReply { request, failure: failure(class, text) };
        core.handle(Event::FromWorker { index: 0, message }, &mut received);
    }
    let text = |text: &str| text.to_owned();
    assert_eq!(
        received.failed,
        [
            (1, FailureClass::Index, text("the whole text")),
            (2, FailureClass::WorkerLost, text("worker 1 is gone")),
        ]
    );
}

#[test]
fn a_failure_that_was_read_before_its_report_came_is_not_reported() {
    let (mut core, mut received) = (Dispatcher::new(), Received::default());
    core.handle(Event::WorkerJoined { index: 0 }, &mut received);
    let session = core.open_session();
    for line in [
        "%0 = full size=[1] value=0 dtype=i64",
        "%1 = index_select %0 %0 dim=0",
        "read %1 request=1 start=0 count=1",
    ] {
        let mut payload = Vec::new();
        let instruction = parse(line, &mut NoNames, &mut payload).unwrap().unwrap();
        core.instruction(session, &instruction, &mut received).unwrap();
    }
    let (class, text) = (FailureClass::Index, "out of range");
    let failure = Failure { session: session.0, number: 1, class, op: None, tag: 0, text };
    let request = received.reads[0];
    let reply = FromWorker::FailedReply { request, failure };
    core.handle(Event::FromWorker { index: 0, message: reply }, &mut received);
    core.handle(
        Event::FromWorker { index: 0, message: FromWorker::Failure(failure) },
        &mut received,
    );
    assert_eq!(received.failed, [(1, class, text.to_owned())]);
    assert_eq!(received.reported, []);
}
