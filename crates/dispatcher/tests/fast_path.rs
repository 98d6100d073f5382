//! The fast path against the general way, over random programs: the same words to the same workers,
//! and the same state.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why a test cannot go on")]

use gt_dispatcher::{Config, Dispatcher, Event, SessionId, Sink, TraceNotes, WorkerIndex};
use gt_protocol::message::{ToClient, ToWorker};
use gt_protocol::rules::{RuleArg, infer};
use gt_protocol::text::{Names, parse};
use gt_protocol::{Family, Instruction, Meta, Operand, wire};
use std::collections::BTreeMap;
use std::fmt::Write;

const PROGRAMS: u64 = 300;
const INSTRUCTIONS: usize = 60;
const WORKERS: u32 = 3;
/// Scopes of signals: none, no placement, one worker or another, several.
const SCOPES: [&str; 6] = [
    "",
    "compile=true",
    "workers=[0]",
    "workers=[1]",
    "workers=[0,1] axis=1",
    "workers=[2] replicated=true",
];

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

/// Everything that a core outputs, in order.
#[derive(Default, PartialEq, Debug)]
struct Record {
    words: Vec<(WorkerIndex, Vec<u32>)>,
    messages: Vec<String>,
}

impl Sink for Record {
    fn worker(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>) {
        let mut words = Vec::new();
        wire::encode(instruction, &mut words).unwrap();
        self.words.push((worker, words));
    }

    fn words(&mut self, worker: WorkerIndex, words: &[u32]) {
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

/// A core and its outputs.
struct Side {
    core: Dispatcher,
    session: SessionId,
    record: Record,
}

impl Side {
    fn new(fast_path: bool) -> Self {
        let defer_bytes_min = 64;
        let config = Config { fast_path, defer_bytes_min, ..Config::default() };
        let (mut core, mut record) = (Dispatcher::with(config), Record::default());
        for index in 0..WORKERS {
            core.handle(Event::WorkerJoined { index }, &mut record);
        }
        let session = core.open_session();
        Self { core, session, record }
    }

    /// Takes an instruction through each of the entry points in turn; `known` is the results'
    /// metadata if the client has inferred it.
    fn take(&mut self, turn: usize, instruction: &Instruction<'_>, known: Option<&[Meta]>) {
        let Self { core, session, record } = self;
        let result = match known {
            Some(known) if turn.is_multiple_of(3) && !instruction.op.info().has_list() => {
                let mut words = Vec::new();
                wire::encode(instruction, &mut words).unwrap();
                core.inferred_words(*session, instruction.op, &mut words, known, record)
            }
            Some(known) if turn % 3 == 1 => core.inferred(*session, instruction, known, record),
            Some(_) | None => core.instruction(*session, instruction, record),
        };
        record.messages.extend(result.err().map(|fault| fault.to_string()));
    }
}

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % u64::try_from(count).unwrap()).unwrap()
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words.get(self.below(words.len())).unwrap()
    }
}

/// The program so far: metadata of each live slot.
#[derive(Default)]
struct Program {
    live: BTreeMap<u32, Meta>,
    next_request: u32,
    /// Text of its instructions, without their results' slots.
    instructions: Vec<String>,
    text: String,
}

impl Program {
    fn slot(&mut self, random: &mut Random) -> Option<u32> {
        let slots: Vec<u32> = self.live.keys().copied().collect();
        (!slots.is_empty()).then(|| *slots.get(random.below(slots.len())).unwrap())
    }

    fn free_slot(&self, after: u32) -> u32 {
        (after..1000).find(|slot| !self.live.contains_key(slot)).unwrap()
    }

    /// The next line: every second one repeats an earlier one.
    fn line(&mut self, random: &mut Random) -> String {
        if random.below(2) == 0 && !self.instructions.is_empty() {
            let instruction = self.instructions.get(random.below(self.instructions.len())).unwrap();
            let out = self.free_slot(0);
            let second = self.free_slot(out + 1);
            let second =
                if instruction.starts_with("sgd") { format!(" %{second}") } else { String::new() };
            return format!("%{out}{second} = {instruction}");
        }
        let line = self.new_line(random);
        if let Some((_, instruction)) = line.split_once(" = ")
            && !instruction.starts_with("distribute")
        {
            self.instructions.push(instruction.to_owned());
        }
        line
    }

    /// A line that need not resemble an earlier one.
    fn new_line(&mut self, random: &mut Random) -> String {
        let signal = match random.below(8) {
            0..4 => String::new(),
            signal => format!(" @\"{}\"", signal - 3),
        };
        let out = self.free_slot(0);
        let second = self.free_slot(out + 1);
        let (Some(a), Some(b)) = (self.slot(random), self.slot(random)) else {
            return format!("%{out} = full size=[4,4] value=1.0 dtype=f32{signal} ~5");
        };
        match random.below(22) {
            0 => format!("%{out} = full size=[4,4] value=1.0 dtype=f32{signal}"),
            1 => format!("%{out} = full size=[2] value=2.0 dtype=f32{signal}"),
            2 => {
                let (mean, draw) = ("mean=0.0 std=1.0", self.text.len());
                format!("%{out} = normal size=[4,4] dtype=f32 {mean} seed=1 draw={draw}{signal}")
            }
            3 => format!("%{out} = full_like %{a} size=[4,4] value=1.0 dtype=f32{signal}"),
            4 | 20 | 21 => {
                let layout = random.of(&["shard(0)@[0,1]", "replicate@[1]", "replicate@[0,2]"]);
                format!("%{out} = distribute %{a} layout=\"{layout}\"")
            }
            5 => format!("%{out} = cat %{a} %{b} %{a} dim=0{signal}"),
            6 => {
                let lr = "lr=0.1 momentum=0.0 dampening=0.0 weight_decay=0.0";
                let rest = "nesterov=false maximize=false first_step=true";
                format!("%{out} %{second} = sgd %{a} %{b} _ {lr} {rest}{signal}")
            }
            7 => format!("configure signal={} text=\"{}\"", random.below(6), random.of(&SCOPES)),
            8 => {
                self.next_request += 1;
                format!("read %{a} request={} start=0 count=1", self.next_request)
            }
            9 | 10 => format!("free %{a}"),
            11 => format!("%{out} = matmul %{a} %{b}{signal}"),
            12 => format!("%{out} = linear %{a} %{b} _{signal}"),
            13 => format!("%{out} = sum %{a} dim=[0] keepdim=false{signal} ~9"),
            14 => format!("%{out} = permute %{a} dims=[1,0]{signal}"),
            15 => format!("%{out} = mul %{a} 0.5{signal}"),
            16 => format!("%{out} = where %{a} %{b} 0.0{signal}"),
            _ => format!("%{out} = {} %{a} %{b}{signal}", random.of(&["add", "mul", "maximum"])),
        }
    }

    /// Metadata of the results as the client infers it; `None` for an instruction that its rule
    /// refuses.
    fn metas(&self, instruction: &Instruction<'_>) -> Option<Vec<Meta>> {
        let arg = |operand: &Operand| match operand {
            Operand::Absent => Some(RuleArg::Absent),
            Operand::Scalar(scalar) => Some(RuleArg::Scalar(*scalar)),
            Operand::Value(id) => Some(RuleArg::Value(self.live.get(&id.as_slot()?)?)),
        };
        let args: Vec<RuleArg<'_>> = instruction.operands.iter().map(arg).collect::<Option<_>>()?;
        let metas = infer(instruction.op, &args, &instruction.attrs).ok()?;
        Some(metas.to_vec())
    }
}

#[test]
fn the_fast_path_does_as_the_general_way() {
    let mut rewritten = 0;
    for seed in 0..PROGRAMS {
        let mut random = Random(seed);
        let mut program = Program::default();
        let [mut fast, mut general] = [true, false].map(Side::new);
        for turn in 0..INSTRUCTIONS {
            let line = program.line(&mut random);
            writeln!(program.text, "{line}").unwrap();
            let mut payload = Vec::new();
            let mut instruction = parse(&line, &mut Numbers, &mut payload).unwrap().unwrap();
            instruction.consumes = u16::try_from(random.below(2)).unwrap();
            if !matches!(instruction.operands.first(), Some(Operand::Value(_))) {
                instruction.consumes = 0;
            }
            let is_control = instruction.op.info().family == Family::Control;
            let known = if is_control { None } else { program.metas(&instruction) };
            if !is_control && known.is_none() {
                continue;
            }
            let before = fast.record.words.len();
            for side in [&mut fast, &mut general] {
                side.take(turn, &instruction, known.as_deref());
            }
            rewritten += usize::from(known.is_some() && fast.record.words.len() == before + 1);
            for (id, meta) in instruction.outputs.iter().zip(known.into_iter().flatten()) {
                program.live.insert(id.as_slot().unwrap(), meta);
            }
            if let ("distribute", Some(id)) =
                (instruction.op.info().name, instruction.values().next())
            {
                let meta = program.live[&id.as_slot().unwrap()];
                program.live.insert(instruction.outputs[0].as_slot().unwrap(), meta);
            }
            if instruction.op.info().name == "free" {
                for id in instruction.values() {
                    program.live.remove(&id.as_slot().unwrap());
                }
            }
            let state = |side: &Side| -> Vec<_> {
                let of = |&slot: &u32| {
                    let (core, session) = (&side.core, side.session);
                    (
                        core.layout_of(session, slot),
                        core.is_deferred(session, slot),
                        core.copies_of(session, slot),
                    )
                };
                program.live.keys().map(of).collect()
            };
            assert_eq!(fast.record, general.record, "seed {seed}:\n{}", program.text);
            assert_eq!(state(&fast), state(&general), "seed {seed}:\n{}", program.text);
            assert_eq!(fast.core.statistics(), general.core.statistics(), "seed {seed}");
        }
    }
    assert!(rewritten > 3000, "{rewritten} instructions became one on one worker");
}
