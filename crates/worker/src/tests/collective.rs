use super::links::together;
use super::*;

pub fn list(values: &[i64]) -> Attr {
    Attr::List(values.into())
}

pub fn all_reduce(out: u32, from: u32, group: &[i64]) -> Instruction<'static> {
    op(Op::AllReduce, &[out], &[from], &[list(group), Attr::Choice(0), Attr::Int(5)])
}

#[test]
fn every_member_reduces_in_the_same_order_in_one_hop_and_in_two() {
    // 40 bytes, and 24 kB whose shards are all uneven.
    for size in [5, 3_001] {
        let programs: Vec<_> = (1..=3)
            .map(|number| {
                vec![full(0, size, number), all_reduce(1, 0, &[0, 1, 2]), read(1, 9, size)]
            })
            .collect();
        let expected = vec![(3 + 2) * 3 + 3; usize::try_from(size).unwrap()];
        for answers in together(&programs) {
            assert_eq!(answers, [answer(9, &expected)]);
        }
    }
}

#[test]
fn an_operand_that_nobody_reads_again_becomes_the_result() {
    // The operand is freed in the same words: the reduction overwrites it while its bytes are still
    // being sent.
    for members in 2..=4_i64 {
        let group: Vec<i64> = (0..members).collect();
        for size in [5, 3_001] {
            let program = |number| {
                vec![full(0, size, number), all_reduce(1, 0, &group), free(&[0]), read(1, 9, size)]
            };
            let programs: Vec<_> = (1..=members).map(program).collect();
            let sum = (2..=members).fold(1, |sum, number| sum * 3 + number);
            let expected = vec![sum; usize::try_from(size).unwrap()];
            for answers in together(&programs) {
                assert_eq!(answers, [answer(9, &expected)], "{members} members");
            }
        }
    }
}

#[test]
fn a_failed_member_fails_the_others_and_nobody_waits() {
    for size in [5, 3_001] {
        let broken = [full(0, size, 1), full(2, 2, 1), op(Op::Add, &[3], &[0, 2], &[])];
        let mut first: Vec<_> = broken.into();
        first.extend([all_reduce(1, 3, &[0, 1]), read(1, 9, size)]);
        let second = vec![full(0, size, 1), all_reduce(1, 0, &[0, 1]), read(1, 8, size)];
        let answers = together(&[first, second]);
        let [Answer::Failure(cause), Answer::FailedReply(9, inherited)] = &answers[0][..] else {
            panic!("{:?}", answers[0])
        };
        assert_eq!(cause, inherited);
        assert_eq!(answers[1], [Answer::FailedReply(8, cause.clone())]);
    }
}

#[test]
fn uneven_and_empty_shards_are_gathered() {
    let sizes = [2, 0, 1];
    let gather = |dim: i64| {
        op(
            Op::AllGather,
            &[1],
            &[0],
            &[list(&[0, 1, 2]), Attr::Int(dim), list(&sizes), Attr::Int(4)],
        )
    };
    let shard = |number: i64, size: &[i64]| {
        let attrs = [ints(size), Attr::Scalar(Scalar::Int(number)), Attr::Dtype(Dtype::I64)];
        op(Op::Full, &[0], &[], &attrs)
    };
    let along = |dim: i64| {
        let programs = (0..3).map(|place| {
            let size = if dim == 0 { [sizes[place], 2] } else { [2, sizes[place]] };
            vec![shard(10 + i64::try_from(place).unwrap(), &size), gather(dim), read(1, 1, 6)]
        });
        together(&programs.collect::<Vec<_>>())
    };
    assert_eq!(along(0), vec![vec![answer(1, &[10, 10, 10, 10, 12, 12])]; 3]);
    assert_eq!(along(1), vec![vec![answer(1, &[10, 10, 12, 10, 10, 12])]; 3]);
}

/// Uploads a value whose elements are `first`, `first + 1` and so on in the whole of which it is a
/// shard.
fn upload(slot: u32, dims: &[i64], numbers: &[i64]) -> Instruction<'static> {
    let payload = bytes_of(numbers).leak();
    let attrs = [ints(dims), Attr::Dtype(Dtype::I64)];
    Instruction { payload, ..op(Op::Upload, &[slot], &[], &attrs) }
}

/// The shard from `start` on, `size` long, along `dim` of the two-dimensional whole that counts
/// from 0.
fn shard([rows, columns]: [i64; 2], dim: usize, start: i64, size: i64) -> ([i64; 2], Vec<i64>) {
    let within = |row: i64, column: i64| (start..start + size).contains(&[row, column][dim]);
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let numbers = places.filter(|&(row, column)| within(row, column));
    let dims = if dim == 0 { [size, columns] } else { [rows, size] };
    (dims, numbers.map(|(row, column)| row * columns + column).collect())
}

fn starts(sizes: &[i64]) -> Vec<i64> {
    (0..sizes.len()).map(|place| sizes[..place].iter().sum()).collect()
}

#[test]
fn shards_along_one_dimension_become_shards_along_another() {
    let whole = [7, 5];
    let cuts: [(usize, [i64; 3]); 4] =
        [(0, [4, 0, 3]), (1, [1, 1, 3]), (0, [2, 3, 2]), (1, [5, 0, 0])];
    for (from, from_sizes) in cuts {
        for (to, to_sizes) in cuts {
            let dim = |dim: usize| Attr::Int(i64::try_from(dim).unwrap());
            let attrs = [
                list(&[2, 0, 1]),
                dim(from),
                list(&from_sizes),
                dim(to),
                list(&to_sizes),
                Attr::Int(6),
            ];
            // The group's order differs from the workers': worker 2 holds the first shard.
            let mut programs = vec![Vec::new(); 3];
            let mut expected = vec![Vec::new(); 3];
            for (place, worker) in [2, 0, 1].into_iter().enumerate() {
                let (dims, numbers) =
                    shard(whole, from, starts(&from_sizes)[place], from_sizes[place]);
                let (_, wanted) = shard(whole, to, starts(&to_sizes)[place], to_sizes[place]);
                let count = i64::try_from(wanted.len()).unwrap();
                let change = op(Op::AllToAll, &[1], &[0], &attrs);
                programs[worker] = vec![upload(0, &dims, &numbers), change, read(1, 3, count)];
                expected[worker] = vec![answer(3, &wanted)];
            }
            assert_eq!(together(&programs), expected, "{from} {from_sizes:?} {to} {to_sizes:?}");
        }
    }
}

#[test]
fn each_member_gets_its_shard_of_the_reduction() {
    for (dim, sizes) in [(0, [4, 0, 3]), (1, [1, 1, 3]), (1, [5, 0, 0])] {
        let whole = [7, 5];
        let (_, numbers) = shard(whole, 0, 0, 7);
        let attrs = [list(&[0, 1, 2]), Attr::Choice(0), Attr::Int(dim), list(&sizes), Attr::Int(6)];
        let place = usize::try_from(dim).unwrap();
        let mut programs = Vec::new();
        let mut expected = Vec::new();
        for worker in 0..3 {
            let own: Vec<i64> =
                numbers.iter().map(|n| n + 100 * i64::try_from(worker).unwrap()).collect();
            let (_, wanted) = shard(whole, place, starts(&sizes)[worker], sizes[worker]);
            // The toy's sum is (a * 3 + b) * 3 + c.
            let wanted: Vec<i64> = wanted.iter().map(|n| (n * 3 + n + 100) * 3 + n + 200).collect();
            let scatter = op(Op::ReduceScatter, &[1], &[0], &attrs);
            let count = i64::try_from(wanted.len()).unwrap();
            programs.push(vec![upload(0, &whole, &own), scatter, read(1, 3, count)]);
            expected.push(vec![answer(3, &wanted)]);
        }
        assert_eq!(together(&programs), expected, "{dim} {sizes:?}");
    }
}

fn broadcast(out: u32, from: Option<u32>, root: i64, size: i64) -> Instruction<'static> {
    let attrs =
        [list(&[0, 1, 2]), Attr::Int(root), ints(&[size]), Attr::Dtype(Dtype::I64), Attr::Int(7)];
    let operand = from.map_or(Operand::Absent, |slot| Operand::Value(Id::slot(slot)));
    Instruction {
        operands: [operand].into_iter().collect(),
        ..op(Op::Broadcast, &[out], &[], &attrs)
    }
}

#[test]
fn the_root_s_value_arrives_everywhere() {
    let root = vec![full(0, 3, 9), broadcast(1, Some(0), 2, 3), read(1, 3, 3)];
    let other = vec![broadcast(1, None, 2, 3), read(1, 3, 3)];
    let answers = together(&[other.clone(), other, root]);
    assert_eq!(answers, vec![vec![answer(3, &[9; 3])]; 3]);
}

#[test]
fn a_root_without_the_value_tells_all() {
    for (first, text) in [
        (Vec::new(), "slot 0 holds no value"),
        (vec![full(0, 4, 9)], "a i64[4] where a i64[3] was announced"),
    ] {
        let mut root = first;
        root.extend([broadcast(1, Some(0), 0, 3), read(1, 3, 3)]);
        let other = vec![broadcast(1, None, 0, 3), read(1, 3, 3)];
        let answers = together(&[root, other.clone(), other]);
        let [Answer::Failure(cause), _] = &answers[0][..] else { panic!("{:?}", answers[0]) };
        assert!(cause.fault.text.contains(text), "{}", cause.fault.text);
        assert_eq!(answers[1], [Answer::FailedReply(3, cause.clone())]);
        assert_eq!(answers[2], answers[1]);
    }
}

#[test]
fn a_failed_operand_fails_every_kind_of_collective_everywhere() {
    let group = list(&[0, 1]);
    let sizes = list(&[2, 2]);
    let (zero, tag) = (Attr::Int(0), Attr::Int(8));
    let kinds = [
        (Op::AllGather, vec![group.clone(), zero.clone(), sizes.clone(), tag.clone()]),
        (
            Op::ReduceScatter,
            vec![group.clone(), Attr::Choice(0), zero.clone(), sizes.clone(), tag.clone()],
        ),
        (Op::AllToAll, vec![group, zero.clone(), sizes.clone(), zero, sizes, tag]),
    ];
    for (kind, attrs) in kinds {
        let size = if kind == Op::ReduceScatter { 4 } else { 2 };
        // The operand is a failure, or has a shape that the other members do not expect.
        for broken in [vec![], vec![full(0, 5, 1)]] {
            if !broken.is_empty() && kind == Op::AllGather {
                continue;
            }
            let together_with = |mut program: Vec<Instruction<'static>>| {
                program.extend([op(kind, &[1], &[0], &attrs), read(1, 9, 2)]);
                program
            };
            let answers = together(&[together_with(vec![full(0, size, 1)]), together_with(broken)]);
            let [Answer::Failure(cause), _] = &answers[1][..] else { panic!("{:?}", answers[1]) };
            assert_eq!(answers[0], [Answer::FailedReply(9, cause.clone())], "{kind:?}");
        }
    }
}

#[test]
fn groups_of_any_size_and_several_at_once() {
    // Twelve workers: all together, then in rows of four and columns of three, each with a tag of
    // its own.
    let members = 12;
    let reduce = |out: u32, group: &[i64], tag: i64| {
        op(Op::AllReduce, &[out], &[0], &[list(group), Attr::Choice(1), Attr::Int(tag)])
    };
    let all: Vec<i64> = (0..members).collect();
    let row = |worker: i64| (worker / 4 * 4..worker / 4 * 4 + 4).collect::<Vec<_>>();
    let column = |worker: i64| (0..3).map(|row| row * 4 + worker % 4).collect::<Vec<_>>();
    let program = |worker: i64| {
        vec![
            full(0, 2, worker),
            reduce(1, &row(worker), 10 + worker / 4),
            reduce(2, &column(worker), 20 + worker % 4),
            reduce(3, &all, 30),
            read(1, 1, 2),
            read(2, 2, 2),
            read(3, 3, 2),
        ]
    };
    let answers = together(&(0..members).map(program).collect::<Vec<_>>());
    for (worker, answers) in (0..members).zip(answers) {
        let expected = [worker / 4 * 4 + 3, 8 + worker % 4, 11];
        let expected = (1..).zip(expected).map(|(request, number)| answer(request, &[number; 2]));
        assert_eq!(answers, expected.collect::<Vec<_>>());
    }
}

#[test]
fn groups_and_sizes_that_make_no_sense_are_refused() {
    let reduce = |group: &[i64]| {
        op(Op::AllReduce, &[1], &[0], &[list(group), Attr::Choice(0), Attr::Int(5)])
    };
    let gather = |sizes: &[i64]| {
        let attrs = [list(&[0, 1]), Attr::Int(0), list(sizes), Attr::Int(5)];
        op(Op::AllGather, &[1], &[0], &attrs)
    };
    for (instruction, text) in [
        (reduce(&[1, 2]), "worker 0 is not in the group [1, 2]"),
        (reduce(&[0, 1, 0]), "a worker is in the group [0, 1, 0] twice"),
        (reduce(&[0, -1]), "a group's member is no worker"),
        (gather(&[1]), "sizes [1] for 2 members"),
        (gather(&[1, -1]), "sizes [1, -1] for 2 members"),
        (gather(&[i64::MAX, 1]), "sizes [9223372036854775807, 1] for 2 members"),
    ] {
        let answers = run(&mut Machine::new(ToyEngine::default()), &[full(0, 3, 7), instruction]);
        let [Answer::Failure(cause)] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(&*cause.fault.text, text);
    }
}

#[test]
fn values_are_sent_and_failures_too() {
    let send = |from: u32, tag: i64| op(Op::Send, &[], &[from], &[Attr::Int(1), Attr::Int(tag)]);
    let receive = |out: u32, tag: i64, size: i64| {
        let attrs = [Attr::Int(0), Attr::Int(tag), ints(&[size]), Attr::Dtype(Dtype::I64)];
        op(Op::Receive, &[out], &[], &attrs)
    };
    let first = vec![full(0, 3, 7), send(0, 1), send(5, 2), send(0, 3)];
    let second = vec![receive(0, 1, 3), receive(1, 2, 3), receive(2, 3, 4)];
    let second = [second, vec![read(2, 3, 4), read(0, 1, 3), read(1, 2, 3)]].concat();
    let answers = together(&[first, second]);
    let [Answer::Failure(cause)] = &answers[0][..] else { panic!("{:?}", answers[0]) };
    let [Answer::Failure(short), rest @ ..] = &answers[1][..] else { panic!("{:?}", answers[1]) };
    assert_eq!(short.fault.text, "24 bytes arrived, 32 are a part of a i64[4]");
    let failed = |request, cause: &Cause| Answer::FailedReply(request, cause.clone());
    assert_eq!(rest, [failed(3, short), answer(1, &[7; 3]), failed(2, cause)]);
}

#[test]
fn a_lost_peer_is_a_failure() {
    let steps = [full(0, 3, 7), all_reduce(1, 0, &[0, 1])];
    let answers = run(&mut Machine::new(ToyEngine::default()), &steps);
    let [Answer::Failure(cause)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(
        (cause.fault.class, &*cause.fault.text),
        (FailureClass::WorkerLost, "worker 1 is gone")
    );
}
