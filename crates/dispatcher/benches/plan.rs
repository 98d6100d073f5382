//! Benchmarks of the planner for one instruction: on one worker (fast: the fast path; general: the
//! general way), on sharded operands with a cached plan (hit) and without (miss), on meshes of one,
//! two and three dimensions.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why the program cannot go on")]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gt_dispatcher::{
    Config, CostModel, Dispatcher, Event, SessionId, Sink, TraceNotes, WorkerIndex,
};
use gt_protocol::message::{ToClient, ToWorker};
use gt_protocol::text::{NoNames, parse};
use gt_protocol::{Dims, Dtype, Id, Instruction, Meta};
use std::hint::black_box;

/// Counts the words that a ring would take.
struct Ring(Vec<u32>);

impl Sink for Ring {
    fn worker(&mut self, _: WorkerIndex, instruction: &Instruction<'_>) {
        self.0.clear();
        gt_protocol::wire::encode(instruction, &mut self.0).unwrap();
        black_box(&self.0);
    }
    fn words(&mut self, _: WorkerIndex, words: &[u32]) {
        self.0.clear();
        self.0.extend_from_slice(words);
        black_box(&self.0);
    }
    fn free(&mut self, _: WorkerIndex, slots: &[u32]) {
        black_box(slots);
    }
    fn worker_message(&mut self, _: WorkerIndex, _: &ToWorker<'_>) {}
    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        panic!("worker {worker} is given up: {reason}");
    }

    fn session(&mut self, _: SessionId, _: &ToClient<'_>) {}
    fn trace(&mut self, _: SessionId, _: &Instruction<'_>, _: &TraceNotes<'_>) {}
}

fn instruction(line: &str) -> Instruction<'static> {
    let mut payload = Vec::new();
    let mut parsed = parse(line, &mut NoNames, &mut payload).unwrap().unwrap();
    parsed.payload = &[];
    let Instruction { op, tag, signal, consumes, outputs, operands, attrs, .. } = parsed;
    Instruction { op, tag, signal, consumes, outputs, operands, attrs, payload: &[] }
}

/// A product of two sharded matrices on such a mesh.
struct Case {
    dispatcher: Dispatcher,
    session: SessionId,
    ring: Ring,
    product: Instruction<'static>,
}

impl Case {
    fn new(config: Config, workers: u32, layouts: [&str; 2]) -> Self {
        let mut case = Self {
            dispatcher: Dispatcher::with(config),
            session: SessionId(0),
            ring: Ring(Vec::new()),
            product: instruction("%4 = matmul %2 %3"),
        };
        for index in 0..workers {
            case.dispatcher.handle(Event::WorkerJoined { index }, &mut case.ring);
        }
        case.session = case.dispatcher.open_session();
        let [left, right] = layouts;
        for line in [
            "%0 = full size=[8,512,512] value=0 dtype=f32".to_owned(),
            "%1 = full size=[8,512,512] value=0 dtype=f32".to_owned(),
            format!("%2 = distribute %0 layout=\"{left}\""),
            format!("%3 = distribute %1 layout=\"{right}\""),
        ] {
            case.emit(&instruction(&line));
        }
        case
    }

    fn emit(&mut self, instruction: &Instruction<'_>) {
        self.dispatcher.instruction(self.session, instruction, &mut self.ring).unwrap();
    }

    fn product(&mut self) {
        let product = std::mem::replace(&mut self.product, Instruction::new(gt_protocol::Op::Free));
        self.emit(&product);
        self.product = product;
        let slot = Id::slot(4).as_slot().unwrap();
        self.dispatcher.release(self.session, &[slot], &mut self.ring).unwrap();
    }
}

fn one_worker(criterion: &mut Criterion) {
    let layouts = ["replicate@[0]"; 2];
    for (name, fast_path) in [("fast", true), ("general", false)] {
        let config = Config { fast_path, ..Config::default() };
        let mut case = Case::new(config, 1, layouts);
        criterion.bench_function(&format!("plan/alone/{name}"), |bencher| {
            bencher.iter(|| case.product());
        });
    }
    let mut case = Case::new(Config::default(), 1, layouts);
    let mut words = Vec::new();
    gt_protocol::wire::encode(&case.product, &mut words).unwrap();
    let result = Meta::new(Dtype::F32, Dims::new(&[8, 512, 512]).unwrap());
    criterion.bench_function("plan/alone/words", |bencher| {
        bencher.iter(|| {
            let mut words: [u32; 6] = words.as_slice().try_into().unwrap();
            let Case { dispatcher, session, ring, .. } = &mut case;
            let op = gt_protocol::Op::Matmul;
            dispatcher.inferred_words(*session, op, &mut words, &[result], ring).unwrap();
            dispatcher.release(*session, &[4], ring).unwrap();
        });
    });
}

fn plan(criterion: &mut Criterion) {
    let cases = [
        ("one", 2, ["shard(1)@[0,1]", "replicate@[0,1]"]),
        ("two", 4, ["shard(0),shard(1)@[[0,1],[2,3]]", "shard(0),replicate@[[0,1],[2,3]]"]),
        (
            "three",
            8,
            [
                "shard(0),shard(1),shard(2)@[[[0,1],[2,3]],[[4,5],[6,7]]]",
                "shard(0),replicate,shard(1)@[[[0,1],[2,3]],[[4,5],[6,7]]]",
            ],
        ),
    ];
    for (name, workers, layouts) in cases {
        let mut case = Case::new(Config::default(), workers, layouts);
        criterion.bench_function(&format!("plan/hit/{name}"), |bencher| {
            bencher.iter(|| case.product());
        });
        let case = std::cell::RefCell::new(Case::new(Config::default(), workers, layouts));
        criterion.bench_function(&format!("plan/miss/{name}"), |bencher| {
            bencher.iter_batched(
                || case.borrow_mut().dispatcher.set_cost_model(CostModel::default()),
                |()| case.borrow_mut().product(),
                BatchSize::PerIteration,
            );
        });
    }
}

criterion_group!(benches, one_worker, plan);
criterion_main!(benches);
