//! Reductions of several values at once, each in its slot.

use super::collective::{all_reduce, list};
use super::links::{run_until_idle, together, workers};
use super::*;

fn coalesced(slots: &[u32], sizes: &[i64], group: &[i64]) -> Instruction<'static> {
    let bytes: Vec<i64> = sizes.iter().map(|size| size * 8).collect();
    let attrs = [list(group), Attr::Choice(0), list(&bytes), Attr::Int(5)];
    Instruction { tag: 77, ..op(Op::AllReduceCoalesced, &[], slots, &attrs) }
}

fn group(members: i64) -> Vec<i64> {
    (0..members).collect()
}

fn sum(numbers: impl IntoIterator<Item = i64>) -> i64 {
    numbers.into_iter().reduce(|sum, number| (sum * 3 + number) % PRIME).unwrap()
}

fn many(request: u64, number: i64, size: i64) -> Answer {
    answer(request, &vec![number; usize::try_from(size).unwrap()])
}

/// Sizes for one hop and for two, in which a member's shard of the whole ends inside a value, and
/// for empty values.
const SIZES: [[i64; 4]; 3] = [[5, 1, 0, 3], [700, 1, 2_300, 41], [0, 0, 0, 0]];

#[test]
fn each_value_is_reduced_as_it_would_be_alone() {
    for members in 2..=4 {
        for sizes in SIZES {
            let program = |member: i64| {
                let mut program = Vec::new();
                for (slot, size) in (0..).zip(sizes) {
                    program.push(full(slot, size, member * 10 + i64::from(slot)));
                }
                program.push(coalesced(&[0, 1, 2, 3], &sizes, &group(members)));
                program.extend((0..4).zip(sizes).map(|(slot, size)| read(slot, 9, size)));
                program
            };
            let programs: Vec<_> = (0..members).map(program).collect();
            let reduced = |slot: i64| sum((0..members).map(|member| member * 10 + slot));
            let expected: Vec<Answer> =
                (0..).zip(sizes).map(|(slot, size)| many(9, reduced(slot), size)).collect();
            assert_eq!(together(&programs), vec![expected; programs.len()], "{sizes:?}");
        }
    }
}

#[test]
fn a_failed_value_spoils_no_other() {
    for members in 2..=4 {
        for sizes in [[5, 4, 3], [1_000, 3_000, 900]] {
            let last = members - 1;
            let program = |member: i64| {
                let mut program: Vec<_> =
                    (0..).zip(sizes).map(|(slot, size)| full(slot, size, member)).collect();
                let broken = op(Op::Add, &[1], &[0, 2], &[]);
                if member == 0 || member == last {
                    // Both values have a cause of their own; each keeps it, and the other members
                    // get the first one's.
                    *program.get_mut(1).unwrap() =
                        Instruction { tag: 500 + u32::try_from(member).unwrap(), ..broken };
                    program.swap(1, 2);
                }
                program.push(coalesced(&[0, 1, 2], &sizes, &group(members)));
                program.extend((0..3).zip(sizes).map(|(slot, size)| read(slot, 9, size)));
                program
            };
            let programs: Vec<_> = (0..members).map(program).collect();
            let reduced = sum(0..members);
            for (member, answers) in (0..).zip(together(&programs)) {
                let own = member == 0 || member == last;
                let rest = if own { &answers[1..] } else { &answers[..] };
                assert_eq!(
                    (&rest[0], &rest[2]),
                    (&many(9, reduced, sizes[0]), &many(9, reduced, sizes[2]))
                );
                let Answer::FailedReply(9, cause) = &rest[1] else { panic!("{rest:?}") };
                let first = if own { member } else { 0 };
                assert_eq!(cause.tag, 500 + u32::try_from(first).unwrap());
                assert_eq!(rest.len(), 3);
            }
        }
    }
}

#[test]
fn a_value_without_its_announced_length_has_failed() {
    let program = |size: i64| {
        vec![
            full(0, size, 1),
            full(1, 2, 1),
            coalesced(&[0, 1, 2], &[5, 2, 1], &[0, 1]),
            read(1, 1, 2),
            read(0, 2, size),
            read(2, 3, 1),
        ]
    };
    let answers = together(&[program(4), program(5)]);
    let [Answer::Failure(short), Answer::Failure(none), rest @ ..] = &answers[0][..] else {
        panic!("{answers:?}")
    };
    assert_eq!(&*short.fault.text, "40 bytes were announced of a i64[4]");
    assert_eq!(&*none.fault.text, "slot 2 holds no value");
    let failed = |request, cause: &Cause| Answer::FailedReply(request, cause.clone());
    assert_eq!(rest, [many(1, 4, 2), failed(2, short), failed(3, none)]);
    let [Answer::Failure(own), rest @ ..] = &answers[1][..] else { panic!("{answers:?}") };
    assert_eq!(rest, [many(1, 4, 2), failed(2, short), failed(3, own)]);
}

#[test]
fn the_reduction_goes_over_the_value_unless_others_read_it() {
    for size in [5, 3_001] {
        let mut all = workers(2);
        for worker in &mut all {
            let view = op(Op::Reshape, &[2], &[1], &[ints(&[size])]);
            worker.is_sent(&[full(0, size, 1), full(1, size, 2), view]);
            worker.is_sent(&[coalesced(&[0, 1], &[size, size], &[0, 1])]);
            worker.is_sent(&[read(0, 1, size), read(1, 2, size), read(2, 3, size)]);
        }
        run_until_idle(&mut all);
        for worker in &mut all {
            assert_eq!(worker.answers(), [many(1, 4, size), many(2, 8, size), many(3, 2, size)]);
            assert_eq!(worker.allocations.get(), 3, "one for what the view is of");
            worker.is_sent(&[free(&[0, 1, 2])]);
        }
        run_until_idle(&mut all);
        for worker in &all {
            let stats = worker.machine.stats(0);
            assert_eq!((stats.values, stats.bytes), (0, 0));
        }
    }
}

#[test]
fn what_is_freed_meanwhile_is_nobody_s_and_the_rest_is_there() {
    let size = 500;
    let mut all = workers(2);
    let program = [full(0, size, 1), full(1, size, 2), coalesced(&[0, 1], &[size; 2], &[0, 1])];
    all[0].is_sent(&program);
    all[0].is_sent(&[free(&[0]), full(0, 1, 9), read(0, 1, 1), add(2, 1)]);
    while all[0].go() {}
    assert!(all[0].waits(), "the sum needs what comes");
    assert_eq!(all[0].answers(), [many(1, 9, 1)]);
    all[1].is_sent(&program);
    all[0].is_sent(&[read(2, 2, size)]);
    run_until_idle(&mut all);
    assert_eq!(all[0].answers(), [many(2, 16, size)]);
    assert_eq!(all[0].machine.stats(0).bytes, 8 * (1 + 2 * size.unsigned_abs()));
}

fn add(out: u32, of: u32) -> Instruction<'static> {
    op(Op::Add, &[out], &[of, of], &[])
}

#[test]
fn a_lost_member_fails_all_and_nobody_waits() {
    for size in [5, 3_001] {
        let mut all = workers(3);
        for worker in &mut all[..2] {
            worker.is_sent(&[full(0, size, 1), full(1, size, 2)]);
            worker.is_sent(&[coalesced(&[0, 1], &[size, size], &group(3)), read(0, 1, size)]);
            worker.is_sent(&[read(1, 2, size)]);
        }
        run_until_idle(&mut all);
        all[2].leaves();
        run_until_idle(&mut all[..2]);
        for worker in &mut all[..2] {
            assert!(!worker.waits() && !worker.stream.is_busy());
            let answers = worker.answers();
            // One of the two may learn of it from the other.
            let failed: Vec<_> = answers
                .iter()
                .filter_map(|answer| match answer {
                    Answer::FailedReply(_, cause) => Some(cause),
                    _ => None,
                })
                .collect();
            assert_eq!(failed.len(), 2, "{answers:?}");
            for cause in failed {
                assert_eq!((cause.fault.class, cause.tag), (FailureClass::WorkerLost, 77));
            }
            assert!(answers.len() <= 3, "reported once: {answers:?}");
            assert_eq!(worker.machine.stats(0).bytes, 0);
        }
    }
}

#[test]
fn what_makes_no_sense_fails_everywhere() {
    let wrong = |slots: &[u32], bytes: &[i64]| {
        let attrs = [list(&[0, 1]), Attr::Choice(0), list(bytes), Attr::Int(5)];
        op(Op::AllReduceCoalesced, &[], slots, &attrs)
    };
    for bytes in [&[40][..], &[40, -8], &[40, 40, 40]] {
        let both = [full(0, 5, 1), full(1, 5, 1)];
        let first = [&both[..], &[wrong(&[0, 1], bytes), read(0, 1, 5)]].concat();
        let second = [&both[..], &[coalesced(&[0, 1], &[5, 5], &[0, 1]), read(0, 1, 5)]].concat();
        let answers = together(&[first, second]);
        let [Answer::Failure(cause), Answer::FailedReply(1, _)] = &answers[0][..] else {
            panic!("{answers:?}")
        };
        assert!(cause.fault.text.ends_with("lengths for 2 values"), "{}", cause.fault.text);
        assert_eq!(answers[1], [Answer::FailedReply(1, cause.clone())]);
    }
}

#[test]
fn it_goes_beside_reductions_of_one_value() {
    let programs: Vec<_> = (0..3)
        .map(|member| {
            vec![
                full(0, 3_000, member),
                full(1, 3_000, member + 1),
                full(2, 40, member + 2),
                Instruction {
                    attrs: [list(&[0, 1, 2]), Attr::Choice(0), Attr::Int(6)].into_iter().collect(),
                    ..all_reduce(3, 0, &[0, 1, 2])
                },
                coalesced(&[1, 2], &[3_000, 40], &[0, 1, 2]),
                read(2, 1, 40),
                read(3, 2, 3_000),
                read(1, 3, 3_000),
            ]
        })
        .collect();
    let expected = [many(1, sum(2..5), 40), many(2, sum(0..3), 3_000), many(3, sum(1..4), 3_000)];
    assert_eq!(together(&programs), vec![expected.to_vec(); 3]);
}
