//! The planner's output for programs, kept as files: each instruction of the client, and below it
//! the instructions for each worker. `just golden` rewrites them; read the difference.

#![allow(clippy::unwrap_used, reason = "the line of a panic says why a test cannot go on")]

use expect_test::{ExpectFile, expect_file};
use gt_dispatcher::{CostModel, Dispatcher, Event, SessionId, Sink, TraceNotes, WorkerIndex};
use gt_protocol::message::{Message, ToClient, ToWorker};
use gt_protocol::text::{Names, PayloadText, TextLine, parse};
use gt_protocol::{Family, Instruction, Op};
use std::fmt::Write;

/// Maximum bytes of a bucket.
const BUCKET: u64 = 1 << 20;
const PLAIN_SGD: &str = "lr=0.1 momentum=0.0 dampening=0.0 weight_decay=0.0 nesterov=false \
    maximize=false first_step=true";

/// Signals are named by their ids: `@1` is written `@"1"` in a program.
struct Numbers;

impl Names for Numbers {
    fn signal_name(&self, _id: u16) -> Option<&str> {
        None
    }

    fn signal_id(&mut self, name: &str) -> Option<u16> {
        name.parse().ok()
    }
}

#[derive(Default)]
struct Record {
    lines: String,
    collectives: usize,
    /// Number of values that one worker sends to another.
    transfers: usize,
}

impl Sink for Record {
    fn worker(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>) {
        if matches!(instruction.op, Op::Free | Op::Session) {
            return;
        }
        let mut shown = instruction.clone();
        shown.tag = 0;
        let of_group = shown.op.info().family == Family::Collective
            && !matches!(shown.op, Op::Send | Op::Receive);
        self.collectives += usize::from(of_group && worker == 0);
        self.transfers += usize::from(shown.op == Op::Send);
        let line =
            TextLine { instruction: &shown, names: &Numbers, payload: PayloadText::Reference };
        writeln!(self.lines, "    {worker}: {line}").unwrap();
    }

    fn worker_message(&mut self, worker: WorkerIndex, message: &ToWorker<'_>) {
        writeln!(self.lines, "    {worker}: {}", message.name()).unwrap();
    }

    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        panic!("worker {worker} is given up: {reason}");
    }

    fn session(&mut self, _session: SessionId, message: &ToClient<'_>) {
        writeln!(self.lines, "    to the client: {message:?}").unwrap();
    }

    fn trace(&mut self, _: SessionId, instruction: &Instruction<'_>, notes: &TraceNotes<'_>) {
        let line = TextLine { instruction, names: &Numbers, payload: PayloadText::Reference };
        let error =
            notes.error.as_deref().map(|error| format!(" ERROR {error}")).unwrap_or_default();
        let moved = match notes.moved_bytes {
            0 => String::new(),
            bytes => format!(" moved={bytes}"),
        };
        let together = notes.together();
        writeln!(self.lines, "# {line}  # {}{moved}{together}{error}", notes.results).unwrap();
    }
}

/// The plan of each line, with the client's line first.
fn planned(program: &str, workers: u32) -> Record {
    planned_by_line(program, workers, BUCKET, |_, _| {})
}

/// [`planned`], with a callback on the plan of each of the client's instructions.
fn planned_by_line(
    program: &str,
    workers: u32,
    bucket: u64,
    mut look: impl FnMut(&Instruction<'_>, &Record),
) -> Record {
    let mut dispatcher = Dispatcher::new();
    dispatcher.set_tracing(true);
    // Shapes are small, so that a file can be read: messages and kernels are free, bytes and work
    // are not.
    dispatcher.set_cost_model(CostModel {
        message: 0.0,
        kernel: 0.0,
        bucket,
        ..CostModel::default()
    });
    let mut all = Record::default();
    for index in 0..workers {
        dispatcher.handle(Event::WorkerJoined { index }, &mut all);
    }
    let session = dispatcher.open_session();
    for line in program.lines() {
        let mut payload = Vec::new();
        let Some(instruction) = parse(line.trim(), &mut Numbers, &mut payload).unwrap() else {
            continue;
        };
        let mut record = Record::default();
        dispatcher.instruction(session, &instruction, &mut record).unwrap();
        look(&instruction, &record);
        // The trace is written last and printed first.
        let (head, tail): (Vec<&str>, Vec<&str>) =
            record.lines.lines().partition(|line| line.starts_with('#'));
        for line in head.into_iter().chain(tail) {
            writeln!(all.lines, "{line}").unwrap();
        }
        all.collectives += record.collectives;
        all.transfers += record.transfers;
    }
    all
}

fn check(program: &str, workers: u32, collectives: usize, file: &ExpectFile) {
    let record = planned(program, workers);
    file.assert_eq(&record.lines);
    assert_eq!(record.collectives, collectives, "collectives that worker 0 takes part in");
}

/// A value that a scope shards is sharded before it is sent; a large replicated one is sent once,
/// and gathered by all.
#[test]
fn uploads_in_scopes() {
    let program = r#"
        configure signal=1 text="workers=[0,1] axis=0"
        configure signal=2 text="workers=[0,1] axis=1"
        configure signal=3 text="workers=[0,1] replicated=true"
        configure signal=4 text="workers=[0,1] axis=0 blocks=2"
        %0 = upload size=[3,2] dtype=u8 @"1" payload=0x000102030405
        %1 = upload size=[2,3] dtype=u8 @"2" payload=0x000102
        chunk %1 offset=3 payload=0x030405
        %2 = upload size=[3] dtype=u8 @"3" payload=0x000102
        %3 = upload size=[1024,1024] dtype=u8 @"3" payload=0x0001
        %4 = upload size=[4] dtype=u8 @"4" payload=0x00010203
        read %1 request=1 start=1 count=4
        %5 = neg %3
    "#;
    check(program, 2, 1, &expect_file!["golden/uploads.txt"]);
}

/// The layout in which the first batch was needed is the layout of the second one.
#[test]
fn batches_from_one_line() {
    let batch = |id: u32| {
        format!(
            "%{id} = upload size=[1024,1024] dtype=u8 ~7 payload=0x0001\n%{} = distribute %{id} dim=0\n",
            id + 1
        )
    };
    let program = format!("{}{}free %0 %1 %2 %3", batch(0), batch(2));
    check(&program, 2, 0, &expect_file!["golden/batches.txt"]);
}

/// Column-parallel up, row-parallel down: one all-reduce forward, one backward, and nothing else
/// moves.
#[test]
fn a_block_of_two_layers_over_two_workers() {
    let program = r#"
        configure signal=1 text="workers=[0,1] axis=1"
        configure signal=2 text="workers=[0,1] axis=0"
        configure signal=3 text="workers=[0,1]"
        %0 = normal size=[16,8] dtype=f32 mean=0.0 std=1.0 seed=1 draw=0
        %1 = normal size=[8,16] dtype=f32 mean=0.0 std=1.0 seed=1 draw=1
        %2 = normal size=[4,8] dtype=f32 mean=0.0 std=1.0 seed=1 draw=2 @"3"
        %3 = linear %2 %0 _ @"1"
        %4 = gelu %3 approximate=none @"1"
        %5 = linear %4 %1 _ @"2"
        %6 = add %2 %5
        %7 = full_like %6 size=[4,8] value=1.0 dtype=f32
        %8 = matmul %7 %1 @"3"
        %9 = gelu_backward %8 %3 approximate=none @"3"
        %10 = matmul %9 %0 @"3"
        %11 = permute %9 dims=[1,0] @"3"
        %12 = matmul %11 %2 @"3"
        %13 = add %7 %10
        %14 %15 = sgd %0! %12 _ lr=0.1 momentum=0.0 dampening=0.0 weight_decay=0.0 nesterov=false maximize=false first_step=true
    "#;
    check(program, 2, 2, &expect_file!["golden/two_layers.txt"]);
}

/// A batch sharded over workers: gradients are sums over the shards, reduced once where the update
/// needs them.
#[test]
fn a_cut_batch() {
    let program = r"
        %0 = normal size=[3,8] dtype=f32 mean=0.0 std=1.0 seed=1 draw=0
        %1 = normal size=[7,8] dtype=f32 mean=0.0 std=1.0 seed=1 draw=1
        %2 = distribute %1 dim=0
        %3 = linear %2 %0 _
        %4 = mean %3 dim=[0] keepdim=false
        %5 = full_like %3 size=[7,3] value=1.0 dtype=f32
        %6 = permute %5 dims=[1,0]
        %7 = matmul %6 %2
        %8 %9 = sgd %0! %7 _ lr=0.1 momentum=0.0 dampening=0.0 weight_decay=0.0 nesterov=false maximize=false first_step=true
    ";
    check(program, 2, 1, &expect_file!["golden/cut_batch.txt"]);
}

/// A convolution over an image sharded along its height, and its gradients: one row is fetched from
/// each neighbour, the result stays sharded, and the weight's gradient is a sum over the members.
#[test]
fn an_image_that_is_cut() {
    let program = r#"
        %0 = normal size=[1,2,8,5] dtype=f32 mean=0.0 std=1.0 seed=1 draw=0
        %1 = distribute %0 layout="shard(2)@[0,1]"
        %2 = normal size=[3,2,3,3] dtype=f32 mean=0.0 std=1.0 seed=1 draw=1
        %3 = distribute %2 layout="replicate@[0,1]"
        %4 = aten %1 %3 overload="conv2d" arguments="_0, _1, None, [1, 1], [1, 1], [1, 1], 1" wanted=[] results=[8,4,1,3,8,5] differentiable=true default=f32 windows=[0,-1,0,2,2,3,1,1,1,0,0,3,3,3,1,1,1,0]
        %5 = full_like %4 size=[1,3,8,5] value=1.0 dtype=f32
        %6 %7 = aten_vjp %1 %3 %5 overload="conv2d" arguments="_0, _1, None, [1, 1], [1, 1], [1, 1], 1" wanted=[0,1,-1] results=[8,4,1,2,8,5,8,4,3,2,3,3] differentiable=true default=f32 windows=[2,0,0,2,2,3,1,1,1,0,0,3,3,3,1,1,1,0]
    "#;
    check(program, 2, 0, &expect_file!["golden/cut_image.txt"]);
}

/// From layout to layout: cuts are local, all other changes are one collective each; another mesh
/// is reached point to point.
#[test]
fn from_layout_to_layout() {
    let program = r#"
        %0 = normal size=[4,6] dtype=f32 mean=0.0 std=1.0 seed=1 draw=0
        %1 = distribute %0 layout="shard(0)@[0,1]"
        %2 = distribute %1 layout="shard(1)@[0,1]"
        %3 = distribute %2 layout="replicate@[0,1]"
        %4 = distribute %3 layout="shard(0)[0:1|1:4]@[0,1]"
        %5 = distribute %4 layout="shard(0),shard(1)@[[0,1],[2,3]]"
        %6 = distribute %5 layout="shard(1)@[2,3]"
        %7 = distribute %6 layout="partial(sum)@[2,3]"
        %8 = distribute %7 layout="shard(0)@[2,3]"
        %9 = distribute %3 layout="shard(1,blocks=3)@[0,1]"
        %10 = distribute %9 layout="replicate@[0,1]"
    "#;
    check(program, 4, 5, &expect_file!["golden/layouts.txt"]);
}

/// Two all-reduces forward and two backward a layer, one for the embedding, two small ones for the
/// cross-entropy, one for the input gradient of the sharded class weight; nothing else moves.
#[test]
fn a_megatron_layer_from_tokens_to_gradients() {
    let program = include_str!("golden/megatron.program");
    let mut moved = Vec::new();
    let record = planned_by_line(program, 2, BUCKET, |instruction, record| {
        if record.collectives + record.transfers > 0 {
            moved.push((instruction.op, record.collectives));
        }
    });
    expect_file!["golden/megatron.txt"].assert_eq(&record.lines);
    let expected = [
        // Embedding, attention's output, the MLP's.
        (Op::Distribute, 1),
        (Op::Distribute, 1),
        (Op::Distribute, 1),
        (Op::CrossEntropy, 2),
        // Before the last norm, the MLP's, attention's.
        (Op::LayerNormBackward, 1),
        (Op::LayerNormBackward, 1),
        (Op::LayerNormBackward, 1),
    ];
    assert_eq!(moved, expected);
    assert_eq!((record.collectives, record.transfers), (8, 0));
}

/// Large tensors are created at their first use, in the layout that it needs: none is created whole
/// on one worker and then sharded.
#[test]
fn large_tensors_wait_for_their_first_use() {
    let program = r#"
        configure signal=1 text="workers=[1]"
        configure signal=2 text="workers=[0,1] axis=1"
        %0 = normal size=[1024,512] dtype=f32 mean=0.0 std=1.0 seed=1 draw=0
        %1 = distribute %0 dim=0
        %2 = full size=[1024,512] value=1.0 dtype=f32 @"1"
        %3 = distribute %2 layout="shard(1)[0:500|500:512]@[0,1]"
        %4 = full size=[1024,512] value=2.0 dtype=f32
        %5 = neg %4
        %6 = full size=[1024,512] value=3.0 dtype=f32 @"1"
        %7 = neg %6
        %8 = uniform size=[512,1024] dtype=f32 low=0.0 high=1.0 seed=1 draw=1
        %9 = normal size=[2,1024] dtype=f32 mean=0.0 std=1.0 seed=1 draw=2
        %10 = linear %9 %8 _ @"2"
        %11 = full size=[1024,512] value=4.0 dtype=f32
        free %11
        %12 = full size=[4,4] value=5.0 dtype=f32
        read %4 request=1 start=0 count=1
        %13 = arange start=7 end=-1048570 step=-2 dtype=f32
        %14 = distribute %13 dim=0
    "#;
    check(program, 2, 0, &expect_file!["golden/deferred.txt"]);
}

/// A draw in the layout of a tensor is made there, shard by shard; it is deferred where the tensor
/// still is.
#[test]
fn random_values_lie_as_what_they_are_like() {
    let program = r#"
        configure signal=1 text="workers=[0,1] axis=0"
        %0 = full size=[1024,512] value=1.0 dtype=f32
        %1 = random_like %0 size=[1024,512] dtype=f32 kind=normal first=0.0 second=1.0 seed=1 draw=0
        %2 = distribute %1 dim=0
        %3 = distribute %0 dim=1
        %4 = random_like %3 size=[1024,512] dtype=f32 kind=uniform first=0.0 second=1.0 seed=1 draw=1
        %5 = full size=[6] value=1.0 dtype=f32
        %6 = random_like %5 size=[6] dtype=i64 kind=randint first=0 second=9 seed=1 draw=2 @"1"
        %7 = distribute %5 layout="shard(0,blocks=2)@[0,1]"
        %8 = random_like %7 size=[6] dtype=bool kind=bernoulli first=0.5 second=0 seed=1 draw=3
    "#;
    check(program, 2, 0, &expect_file!["golden/random_like.txt"]);
}

/// Three steps over a sharded batch: two gradients, and an update of each.
fn three_steps() -> String {
    let mut program = r"
        %0 = normal size=[3,8] dtype=f32 mean=0.0 std=1.0 seed=1 draw=0
        %1 = normal size=[5,8] dtype=f32 mean=0.0 std=1.0 seed=1 draw=1
        %2 = normal size=[7,8] dtype=f32 mean=0.0 std=1.0 seed=1 draw=2
        %3 = distribute %2 dim=0
        %4 = full_like %3 size=[3,7] value=1.0 dtype=f32
        %5 = full_like %3 size=[5,7] value=1.0 dtype=f32
        %6 = distribute %4 dim=1
        %7 = distribute %5 dim=1
    "
    .to_owned();
    for (first, second, next) in [(0, 1, 10), (12, 14, 20), (22, 24, 30)] {
        let (left, right) = (next, next + 1);
        for line in [
            format!("%{left} = matmul %6 %3 ~1"),
            format!("%{right} = matmul %7 %3 ~2"),
            format!("%{} %{} = sgd %{first}! %{left} _ {PLAIN_SGD}", next + 2, next + 3),
            format!("%{} %{} = sgd %{second}! %{right} _ {PLAIN_SGD}", next + 4, next + 5),
        ] {
            program.push_str(&line);
            program.push('\n');
        }
    }
    program
}

/// Instructions that were preceded by collectives, with the number of these.
fn reductions(program: &str, bucket: u64) -> (Vec<(Op, usize)>, String) {
    let mut reductions = Vec::new();
    let record = planned_by_line(program, 2, bucket, |instruction, record| {
        if record.collectives > 0 {
            reductions.push((instruction.op, record.collectives));
        }
    });
    (reductions, record.lines)
}

/// The first step reduces each gradient where its update reads it, the next ones as soon as it
/// exists.
#[test]
fn a_second_step_reduces_gradients_when_they_are_made() {
    let (reductions, lines) = reductions(&three_steps(), 0);
    expect_file!["golden/steps.txt"].assert_eq(&lines);
    let (early, late) = ([(Op::Matmul, 1); 2], [(Op::Sgd, 1); 2]);
    assert_eq!(reductions, [late, early, early].concat());
}

/// Gradients are reduced together: when their bytes fill the bucket, and at the latest when an
/// update needs one of them.
#[test]
fn gradients_are_reduced_together() {
    let (at_need, lines) = reductions(&three_steps(), BUCKET);
    expect_file!["golden/together.txt"].assert_eq(&lines);
    let (late, once) = ([(Op::Sgd, 1); 2], [(Op::Sgd, 1)]);
    assert_eq!(at_need, [&late[..], &once, &once].concat());
    // The gradients have 256 bytes together.
    let (when_full, _) = reductions(&three_steps(), 256);
    let once = [(Op::Matmul, 1)];
    assert_eq!(when_full, [&late[..], &once, &once].concat());
}

/// An instruction that needs one of them, or all: they are reduced before it, and freed ones are
/// not.
#[test]
fn who_needs_a_gradient_that_waits_reduces_those_with_it() {
    let three = three_steps();
    let steps: Vec<&str> = three.lines().filter(|line| !line.trim().is_empty()).collect();
    // The two gradients of the second step, by number: %20 and %21.
    let program = |rest: &str| format!("{}\n{rest}", steps[..14].join("\n"));
    for (rest, expected) in [
        ("read %20 request=1 start=0 count=1", vec![(Op::Read, 1)]),
        ("synchronize request=1", vec![(Op::Synchronize, 1)]),
        ("%22 = neg %21", vec![(Op::Neg, 1)]),
        ("%22 = distribute %21 layout=\"replicate@[0,1]\"", vec![(Op::Distribute, 1)]),
        ("describe %21 request=1 what=layout", vec![(Op::Describe, 1)]),
        ("free %20\nread %21 request=1 start=0 count=1", vec![(Op::Read, 1)]),
        ("free %20 %21\nsynchronize request=1", vec![]),
        ("%22 = full size=[2] value=1.0 dtype=f32\n%23 = neg %3", vec![]),
    ] {
        let (found, lines) = reductions(&program(rest), BUCKET);
        assert_eq!(found[2..], expected, "{rest}");
        let together = lines.contains("all_reduce_coalesced");
        assert_eq!(together, !expected.is_empty() && !rest.contains("free"), "{rest}");
    }
}

/// Operands of one instruction that need the same reduction, and values whose reduction such
/// instructions will need.
#[test]
fn what_one_instruction_needs_is_reduced_together() {
    let program = r#"
        %0 = normal size=[4,8] dtype=f32 mean=0.0 std=1.0 seed=1 draw=0
        %1 = distribute %0 layout="shard(0)@[0,1]"
        %2 = sum %1 dim=[0] keepdim=false ~1
        %3 = amax %1 dim=[0] keepdim=false ~2
        %4 = sum %1 dim=[0] keepdim=false dtype=f64 ~3
        %5 = square %1
        %6 = sum %5 dim=[0] keepdim=false ~4
        %7 = maximum %2 %6
        %8 = atan2 %3 %4
    "#;
    let (found, lines) = reductions(program, BUCKET);
    expect_file!["golden/operands.txt"].assert_eq(&lines);
    assert_eq!(found, [(Op::Maximum, 1), (Op::Atan2, 2)]);
}

/// Gradients of two batches are added before they are reduced: once in each step.
#[test]
fn what_is_read_unreduced_is_not_reduced_early() {
    let mut program = r"
        %0 = normal size=[3,8] dtype=f32 mean=0.0 std=1.0 seed=1 draw=0
        %1 = normal size=[7,8] dtype=f32 mean=0.0 std=1.0 seed=1 draw=1
        %2 = distribute %1 dim=0
        %3 = full_like %2 size=[3,7] value=1.0 dtype=f32
        %4 = distribute %3 dim=1
    "
    .to_owned();
    for (param, next) in [(0, 10), (13, 20), (23, 30)] {
        let (left, right, sum, new) = (next, next + 1, next + 2, next + 3);
        for line in [
            format!("%{left} = matmul %4 %2 ~1"),
            format!("%{right} = matmul %4 %2 ~1"),
            format!("%{sum} = add %{left} %{right} ~2"),
            format!("%{new} %{} = sgd %{param}! %{sum} _ {PLAIN_SGD}", next + 4),
        ] {
            program.push_str(&line);
            program.push('\n');
        }
    }
    assert_eq!(reductions(&program, 0).0, [(Op::Sgd, 1), (Op::Add, 1), (Op::Add, 1)]);
    assert_eq!(reductions(&program, BUCKET).0, [(Op::Sgd, 1); 3]);
}
