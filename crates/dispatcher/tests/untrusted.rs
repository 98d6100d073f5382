//! Words of a client have the same effect, for workers and client, as the instruction that they
//! encode.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "the line of a panic says why a test cannot go on"
)]

use gt_dispatcher::{ClientFault, Dispatcher, Event, SessionId, Sink, TraceNotes, WorkerIndex};
use gt_protocol::message::{ToClient, ToWorker};
use gt_protocol::text::{NoNames, parse};
use gt_protocol::{Instruction, wire};

const PROGRAM: &str = "
    %0 = full size=[2,3] value=1.0 dtype=f32
    %1 = full size=[3,2] value=2 dtype=i64
    %2 = full size=[3,4] value=2.0 dtype=f32
    %3 = add %0 %0
    %4 = add %3! %0
    free %3
    %5 = add %0 2.5
    %6 = add %1 true
    %7 = matmul %0 %2
    %8 = sum %7 dim=[1] keepdim=true
    %9 = mul %8 %7 ~12
    %10 = neg %9!
    free %9 %8
    %11 %12 = max_dim %7 dim=0 keepdim=false
    %13 = clamp %7 _ 0.5
    %14 = cat %0 %0 dim=0
    %15 = add %0 %2
    %16 = neg %15
    %17 = relu %4
    free %0 %4 %17
    synchronize request=3
";

/// Output to workers and client.
#[derive(Default)]
struct Sent {
    words: Vec<(WorkerIndex, Vec<u32>)>,
    messages: Vec<String>,
    /// Number of words that were passed on in place.
    rewritten: usize,
}

impl Sink for Sent {
    fn worker(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>) {
        let mut words = Vec::new();
        wire::encode(instruction, &mut words).unwrap();
        self.words.push((worker, words));
    }

    fn words(&mut self, worker: WorkerIndex, words: &[u32]) {
        self.rewritten += 1;
        self.words.push((worker, words.to_vec()));
    }

    fn worker_message(&mut self, worker: WorkerIndex, message: &ToWorker<'_>) {
        self.messages.push(format!("{worker}: {message:?}"));
    }

    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        panic!("worker {worker} is given up: {reason}");
    }

    fn session(&mut self, session: SessionId, message: &ToClient<'_>) {
        self.messages.push(format!("{session:?}: {message:?}"));
    }

    fn trace(&mut self, _: SessionId, _: &Instruction<'_>, _: &TraceNotes<'_>) {}
}

/// Runs the program on so many workers, as instructions and as words.
fn both(program: &str, workers: u32) -> [Sent; 2] {
    [false, true].map(|as_words| {
        let (mut core, mut sent) = (Dispatcher::new(), Sent::default());
        for index in 0..workers {
            core.handle(Event::WorkerJoined { index }, &mut sent);
        }
        let session = core.open_session();
        for line in program.lines() {
            let mut payload = Vec::new();
            let Some(instruction) = parse(line.trim(), &mut NoNames, &mut payload).unwrap() else {
                continue;
            };
            if as_words {
                let mut words = Vec::new();
                wire::encode(&instruction, &mut words).unwrap();
                core.instruction_words(session, &mut words, &mut sent).unwrap();
            } else {
                core.instruction(session, &instruction, &mut sent).unwrap();
            }
        }
        sent
    })
}

#[test]
fn words_become_what_instructions_become() {
    let [instructions, words] = both(PROGRAM, 1);
    assert_eq!(words.words, instructions.words);
    assert_eq!(words.messages, instructions.messages);
    assert!(words.rewritten >= 9, "{} were rewritten where they stood", words.rewritten);
}

#[test]
fn words_of_spread_values_go_the_general_way() {
    let program = "
        %0 = full size=[4,4] value=1.0 dtype=f32
        %1 = distribute %0 layout=\"shard(0)@[0,1]\"
        %2 = add %1 %1
        %3 = matmul %2 %1
        free %0 %1 %2
    ";
    let [instructions, words] = both(program, 2);
    assert_eq!(words.words, instructions.words);
    assert_eq!(words.messages, instructions.messages);
}

#[test]
fn words_that_break_the_protocol_are_refused() {
    let (mut core, mut sent) = (Dispatcher::new(), Sent::default());
    core.handle(Event::WorkerJoined { index: 0 }, &mut sent);
    let session = core.open_session();
    let mut refused = |words: &[u32]| {
        core.instruction_words(session, &mut words.to_vec(), &mut sent).unwrap_err()
    };
    assert!(matches!(
        refused(&[0x0006_0324, 0, 0, 1, 7, 7]),
        ClientFault::UnknownSlot { slot: 7, .. }
    ));
    assert!(matches!(
        refused(&[0x0005_0b01, 0, 0, 1, 7]),
        ClientFault::UnknownSlot { slot: 7, .. }
    ));
    for words in
        [&[0x0003_ffff, 0, 0][..], &[0x0006_0324, 0, 0, 1, 7], &[0x0006_0324, 0, 4, 1, 0, 0]]
    {
        assert!(matches!(refused(words), ClientFault::Wire(_)), "{words:?}");
    }
    assert!(sent.words.is_empty());
}
