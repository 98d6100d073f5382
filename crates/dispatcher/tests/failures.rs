//! Failures on workers as a session sees them.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why a test cannot go on")]

use gt_dispatcher::{Dispatcher, Event, SessionId, Sink, TraceNotes, WorkerIndex};
use gt_protocol::message::{Failure, FailureClass, FromWorker, Reply, Stats, ToClient, ToWorker};
use gt_protocol::text::{NoNames, parse};
use gt_protocol::{Attr, Dims, Dtype, Instruction, Op};

#[derive(Default)]
struct Received {
    /// Requests that workers were sent.
    reads: Vec<u64>,
    /// Failures of reads.
    failed: Vec<(u64, FailureClass, String)>,
    /// Instructions whose failure was reported without a read.
    reported: Vec<u64>,
    /// Workers that broke the protocol.
    given_up: Vec<(WorkerIndex, String)>,
    /// Number of elements that the client got.
    elements: u64,
    /// Requests that were answered without elements.
    done: Vec<u64>,
}

impl Sink for Received {
    fn worker(&mut self, _: WorkerIndex, instruction: &Instruction<'_>) {
        if let (Op::Read | Op::Synchronize, [Attr::Int(request), ..]) =
            (instruction.op, &*instruction.attrs)
        {
            self.reads.push(u64::try_from(*request).unwrap());
        }
    }

    fn worker_message(&mut self, _: WorkerIndex, _: &ToWorker<'_>) {}

    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        self.given_up.push((worker, reason.to_owned()));
    }

    fn session(&mut self, _: SessionId, message: &ToClient<'_>) {
        if let ToClient::Reply(reply) = message {
            self.elements += reply.count;
        } else if let ToClient::Done { request } = message {
            self.done.push(*request);
        } else if let ToClient::FailedReply { request, failure } = message {
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

/// A dispatcher with two workers, after these lines.
fn planned(lines: &[&str]) -> (Dispatcher, Received) {
    let (mut core, mut received) = (Dispatcher::new(), Received::default());
    for index in 0..2 {
        core.handle(Event::WorkerJoined { index }, &mut received);
    }
    let session = core.open_session();
    for line in lines {
        let mut payload = Vec::new();
        let instruction = parse(line, &mut NoNames, &mut payload).unwrap().unwrap();
        core.instruction(session, &instruction, &mut received).unwrap();
    }
    (core, received)
}

const WHOLE: &[&str] =
    &["%0 = full size=[8] value=0 dtype=f32", "read %0 request=5 start=2 count=4"];
const SHARDED: &[&str] = &[
    "%0 = full size=[8] value=0 dtype=f32",
    "%1 = distribute %0 dim=0",
    "read %1 request=5 start=0 count=8",
];

/// The next elements of the first worker's shard of either program.
fn reply(request: u64, start: u64) -> Reply<'static> {
    let dims = Dims::new(&[8]).unwrap();
    Reply { request, start, count: 4, total: 4, dtype: Dtype::F32, dims, bytes: &[0; 16] }
}

/// Makes a right reply wrong.
type Spoil = fn(Reply<'static>) -> Reply<'static>;
/// The answer to the request with this number.
type Answer = fn(u64) -> FromWorker<'static>;

#[test]
fn a_worker_that_sends_other_elements_than_it_was_asked_for_is_given_up() {
    for (lines, start) in [(WHOLE, 2), (SHARDED, 0)] {
        let good = |request| reply(request, start);
        let half = |request| Reply { count: 2, bytes: &[0; 8], ..good(request) };
        let wrongs: [(&str, Spoil); 6] = [
            ("2 of 2 f32", |good| Reply { count: 2, total: 2, bytes: &[0; 8], ..good }),
            ("0 of 4 f32", |good| Reply { count: 0, bytes: &[], ..good }),
            ("2 of 4 i64", |good| Reply { count: 2, dtype: Dtype::I64, ..good }),
            ("f32 from 3 on", |good| Reply { start: 3, ..good }),
            ("in 12 bytes", |good| Reply { bytes: &[0; 12], ..good }),
            ("5 of 5 f32", |good| Reply { count: 5, total: 5, bytes: &[0; 20], ..good }),
        ];
        for (text, wrong) in wrongs {
            let (mut core, mut received) = planned(lines);
            let request = received.reads[0];
            let message = FromWorker::Reply(wrong(good(request)));
            core.handle(Event::FromWorker { index: 0, message }, &mut received);
            assert!(received.given_up[0].1.contains(text), "{:?}", received.given_up);
            assert_eq!((received.elements, received.failed.len()), (0, 0));
            fails_with_the_worker(&mut core, &mut received);
        }
        // The first half is right, and then it comes once more.
        let (mut core, mut received) = planned(lines);
        for expected in [0, 1] {
            let message = FromWorker::Reply(half(received.reads[0]));
            core.handle(Event::FromWorker { index: 0, message }, &mut received);
            assert_eq!(received.given_up.len(), expected);
        }
        fails_with_the_worker(&mut core, &mut received);
    }
}

/// The loss of a worker that was given up answers the client's read, with the reason.
fn fails_with_the_worker(core: &mut Dispatcher, received: &mut Received) {
    let [(index, reason)] = &*received.given_up.clone() else { panic!("{:?}", received.given_up) };
    core.handle(Event::WorkerLeft { index: *index, reason }, received);
    let [(5, FailureClass::WorkerLost, text)] = &*received.failed else {
        panic!("{:?}", received.failed)
    };
    assert!(text.contains(reason), "{text}");
    assert_eq!(core.statistics().requests, 0);
}

#[test]
fn an_answer_of_another_kind_or_of_another_worker_is_no_answer() {
    let done = |request| FromWorker::Done { request };
    let stats = |request| FromWorker::Stats(Stats { request, ..Stats::default() });
    let elements = |request| FromWorker::Reply(reply(request, 2));
    let synchronize: &[&str] = &["%0 = full size=[8] value=0 dtype=f32", "synchronize request=5"];
    let rows: [(&[&str], Answer, u32, &str); 6] = [
        (WHOLE, done, 0, "a read with \"done\""),
        (WHOLE, stats, 0, "a read with counters"),
        (WHOLE, elements, 1, "a read of another worker"),
        (synchronize, stats, 0, "a synchronize with counters"),
        (synchronize, elements, 0, "a synchronize with elements"),
        (synchronize, done, 1, "for a request that it has answered"),
    ];
    for (lines, answer, index, text) in rows {
        let (mut core, mut received) = planned(lines);
        let message = answer(received.reads[0]);
        core.handle(Event::FromWorker { index, message }, &mut received);
        assert_eq!(received.given_up.len(), 1, "{text}");
        assert!(received.given_up[0].1.contains(text), "{:?}", received.given_up);
        assert_eq!((received.elements, &*received.done), (0, &[][..]), "{text}");
        assert_eq!(core.statistics().requests, 1, "{text}");
    }
}
