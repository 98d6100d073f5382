//! Collectives whose members read each other's memory: the ownership of memory over time, and the
//! handling of failures.

use super::collective::{all_reduce, list};
use super::device::{Device, DeviceConduct};
use super::links::{Worker, by_device, run_until_idle, workers_with};
use super::*;

const SIZE: i64 = 40;
/// Number of elements with which a reduction takes two hops.
const LARGE: i64 = 3_001;

fn devices(count: usize) -> Vec<DeviceConduct> {
    vec![DeviceConduct { device: Some(Device::default()), ..DeviceConduct::default() }; count]
}

/// Workers on one device, each with its own news and losses.
fn apart(conducts: Vec<DeviceConduct>) -> Vec<DeviceConduct> {
    let own = |conduct| DeviceConduct { gone: Rc::default(), is_lost: Rc::default(), ..conduct };
    conducts.into_iter().map(own).collect()
}

fn is_sent(worker: &mut Worker, program: &[Instruction<'static>]) {
    worker.is_sent(&by_device(program));
}

fn same(request: u64, size: i64, number: i64) -> Answer {
    answer(request, &vec![number; usize::try_from(size).unwrap()])
}

fn add(out: u32, left: u32, right: u32) -> Instruction<'static> {
    op(Op::Add, &[out], &[left, right], &[])
}

fn synchronize(request: i64) -> Instruction<'static> {
    op(Op::Synchronize, &[], &[], &[Attr::Int(request)])
}

#[test]
fn an_operand_is_not_written_to_before_all_have_read_it() {
    for size in [SIZE, LARGE] {
        let mut all = workers_with(&devices(3));
        for (number, worker) in (1..).zip(&mut all) {
            // Without the collective the sum overwrites its operand, and the next value gets freed
            // memory.
            let program = [
                full(0, size, number),
                all_reduce(1, 0, &[0, 1, 2]),
                add(2, 0, 0),
                free(&[0]),
                full(3, size, 9),
                read(2, 1, size),
                read(1, 2, size),
            ];
            is_sent(worker, &program);
        }
        run_until_idle(&mut all);
        for (number, worker) in (1..).zip(&mut all) {
            let expected = [same(1, size, 2 * number), same(2, size, (3 + 2) * 3 + 3)];
            assert_eq!(worker.answers(), expected);
        }
    }
}

#[test]
fn a_result_that_others_read_is_not_written_to() {
    let mut all = workers_with(&devices(3));
    for (number, worker) in (1..).zip(&mut all) {
        let reduce = [full(0, LARGE, number), all_reduce(1, 0, &[0, 1, 2]), free(&[0])];
        is_sent(worker, &reduce);
        is_sent(worker, &[add(2, 1, 1), free(&[1]), read(2, 1, LARGE)]);
    }
    run_until_idle(&mut all);
    for worker in &mut all {
        assert_eq!(worker.answers(), [same(1, LARGE, 36)]);
    }
}

#[test]
fn a_result_waits_for_who_needs_it_and_nobody_else_waits() {
    let mut all = workers_with(&devices(2));
    let program = [full(0, SIZE, 7), all_reduce(1, 0, &[0, 1]), full(2, 1, 4), read(2, 1, 1)];
    is_sent(&mut all[0], &program);
    while all[0].go() {}
    assert_eq!(all[0].answers(), [answer(1, &[4])]);
    is_sent(&mut all[0], &[read(1, 2, SIZE)]);
    while all[0].go() {}
    assert!(all[0].waits());
    is_sent(&mut all[1], &[full(0, SIZE, 5), all_reduce(1, 0, &[0, 1])]);
    run_until_idle(&mut all);
    assert_eq!(all[0].answers(), [same(2, SIZE, 26)]);
}

#[test]
fn every_borrowed_buffer_is_returned() {
    for size in [SIZE, LARGE] {
        let mut all = workers_with(&devices(3));
        for worker in &mut all {
            let program = [full(0, size, 1), all_reduce(1, 0, &[0, 1, 2]), free(&[0, 1])];
            is_sent(worker, &program);
        }
        run_until_idle(&mut all);
        for worker in &mut all {
            worker.is_sent(&[synchronize(3)]);
        }
        run_until_idle(&mut all);
        for worker in &mut all {
            assert_eq!(worker.answers(), [Answer::Done(3)]);
            let stats = worker.machine.stats(0);
            assert_eq!((stats.values, stats.bytes), (0, 0));
        }
    }
}

#[test]
fn what_is_borrowed_and_not_asked_back_has_a_limit() {
    let (mut all, count) = (workers_with(&devices(2)), 200);
    for worker in &mut all {
        for tag in 0..count {
            let attrs = [list(&[0, 1]), Attr::Choice(1), Attr::Int(tag)];
            let reduce = op(Op::AllReduce, &[1], &[0], &attrs);
            is_sent(worker, &[full(0, SIZE, tag), reduce, free(&[0, 1])]);
        }
    }
    run_until_idle(&mut all);
    for worker in &all {
        let bytes = worker.machine.stats(0).bytes;
        assert!(!worker.waits() && bytes <= 64 * 2 * 8 * SIZE.unsigned_abs(), "{bytes}");
    }
}

#[test]
fn a_failure_after_any_round_reaches_all_and_nobody_waits() {
    for (size, rounds) in [(SIZE, 1), (LARGE, 2)] {
        for after in 1..=rounds {
            let mut conducts = devices(3);
            conducts[1].fails_after = Some(after);
            let mut all = workers_with(&conducts);
            for worker in &mut all {
                is_sent(worker, &[full(0, size, 1), all_reduce(1, 0, &[0, 1, 2])]);
                is_sent(worker, &[synchronize(3), read(1, 4, size)]);
            }
            run_until_idle(&mut all);
            let answers: Vec<_> = all.iter_mut().map(Worker::answers).collect();
            let [Answer::Failure(cause), Answer::Done(3), Answer::FailedReply(4, again)] =
                &answers[1][..]
            else {
                panic!("{:?}", answers[1])
            };
            assert_eq!((cause, &*cause.fault.text), (again, "the device is full"));
            // In the last round the others have their results already.
            let of_others = if after == rounds {
                same(4, size, (3 + 1) * 3 + 1)
            } else {
                Answer::FailedReply(4, cause.clone())
            };
            for place in [0, 2] {
                assert_eq!(answers[place], [Answer::Done(3), of_others.clone()], "{size} {after}");
            }
            assert!(all.iter().all(|worker| worker.chunks_in_flight() == 0));
        }
    }
}

#[test]
fn a_member_that_dies_leaves_nobody_waiting() {
    for size in [SIZE, LARGE] {
        // It dies after this many looks at the queues, and so with more or fewer of its words sent.
        for steps in 0..12 {
            let mut all = workers_with(&devices(3));
            for worker in &mut all {
                is_sent(worker, &[full(0, size, 1), all_reduce(1, 0, &[0, 1, 2])]);
                is_sent(worker, &[synchronize(3), read(1, 4, size)]);
            }
            for step in 0..steps {
                all[step % 3].go();
            }
            all[2].leaves();
            run_until_idle(&mut all[..2]);
            let whole = same(4, size, (3 + 1) * 3 + 1);
            for worker in &mut all[..2] {
                assert!(!worker.waits() && !worker.stream.is_busy(), "{size} {steps}");
                let last = worker.answers().pop().unwrap();
                assert!(last == whole || matches!(last, Answer::FailedReply(4, _)), "{last:?}");
            }
        }
    }
}

#[test]
fn collectives_overtake_each_other_and_lose_nothing() {
    // Worker 1 waits for the second one before the first is over anywhere.
    let mut all = workers_with(&devices(3));
    let reduce = |out: u32, tag: i64, group: &[i64]| {
        op(Op::AllReduce, &[out], &[0], &[list(group), Attr::Choice(0), Attr::Int(tag)])
    };
    for worker in &mut all {
        is_sent(worker, &[full(0, LARGE, 1)]);
    }
    is_sent(&mut all[1], &[reduce(1, 1, &[0, 1, 2]), reduce(2, 2, &[1, 2]), read(2, 1, LARGE)]);
    is_sent(&mut all[2], &[reduce(1, 1, &[0, 1, 2]), reduce(2, 2, &[1, 2]), read(1, 1, LARGE)]);
    let mut two: Vec<&mut Worker> = all.iter_mut().skip(1).collect();
    while two.iter_mut().any(|worker| worker.go()) {}
    assert_eq!(all[1].answers(), [same(1, LARGE, 4)]);
    is_sent(&mut all[0], &[reduce(1, 1, &[0, 1, 2]), read(1, 1, LARGE)]);
    run_until_idle(&mut all);
    assert_eq!(all[0].answers(), [same(1, LARGE, 13)]);
    assert_eq!(all[2].answers(), [same(1, LARGE, 13)]);
}

#[test]
fn work_that_is_not_over_is_asked_for_until_it_is() {
    for over_when_asked in [1, 2, 50] {
        let conduct = DeviceConduct { over_when_asked, ..devices(1).remove(0) };
        let mut all = workers_with(&vec![conduct; 3]);
        for worker in &mut all {
            let program = [full(0, LARGE, 1), all_reduce(1, 0, &[0, 1, 2]), add(2, 1, 1)];
            is_sent(worker, &program);
            is_sent(worker, &[free(&[0, 1]), read(2, 2, LARGE), synchronize(3)]);
        }
        run_until_idle(&mut all);
        for worker in &mut all {
            assert_eq!(worker.answers(), [same(2, LARGE, 26), Answer::Done(3)]);
        }
    }
}

#[test]
fn who_waits_for_work_of_a_lost_member_is_told() {
    let conduct = DeviceConduct { over_when_asked: usize::MAX, ..devices(1).remove(0) };
    let mut all = workers_with(&vec![conduct; 3]);
    for worker in &mut all {
        is_sent(worker, &[full(0, SIZE, 1), all_reduce(1, 0, &[0, 1, 2])]);
    }
    run_until_idle(&mut all);
    all[2].leaves();
    for worker in &mut all[..2] {
        is_sent(worker, &[read(1, 4, SIZE), synchronize(3)]);
    }
    run_until_idle(&mut all[..2]);
    for worker in &mut all[..2] {
        let answers = worker.answers();
        let [Answer::Failure(cause), Answer::FailedReply(4, again), Answer::Done(3)] = &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!((cause, &*cause.fault.text), (again, "worker 2 is gone"));
    }
}

#[test]
fn a_member_that_goes_in_a_round_is_named_to_the_backend() {
    let conducts = apart(devices(3));
    let mut all = workers_with(&conducts);
    for worker in &mut all[..2] {
        is_sent(worker, &[full(0, SIZE, 1), all_reduce(1, 0, &[0, 1, 2])]);
    }
    run_until_idle(&mut all);
    all[2].leaves();
    run_until_idle(&mut all[..2]);
    for conduct in &conducts[..2] {
        assert_eq!(*conduct.gone.borrow(), [2]);
    }
}

#[test]
fn a_loss_fails_all_values_and_what_is_in_flight_and_nothing_that_comes_later() {
    let conducts = apart(devices(2));
    let mut all = workers_with(&conducts);
    is_sent(&mut all[0], &[full(0, SIZE, 1), all_reduce(1, 0, &[0, 1]), full(2, SIZE, 3)]);
    while all[0].go() {}
    conducts[0].is_lost.set(true);
    is_sent(&mut all[0], &[read(2, 1, SIZE), add(3, 0, 2), full(4, SIZE, 5), read(4, 2, SIZE)]);
    while all[0].go() {}
    let answers = all[0].answers();
    let [Answer::FailedReply(1, cause), five] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(cause.fault.text, "a kernel has not ended");
    assert_eq!(*five, same(2, SIZE, 5));
    // The other one's part succeeds: nothing is lost there.
    is_sent(&mut all[1], &[full(0, SIZE, 2), all_reduce(1, 0, &[0, 1]), read(1, 3, SIZE)]);
    run_until_idle(&mut all);
    assert_eq!(all[1].answers(), [same(3, SIZE, 5)]);
    for slot in 0..4 {
        is_sent(&mut all[0], &[read(slot, 10, SIZE)]);
        run_until_idle(&mut all);
        assert_eq!(all[0].answers(), [Answer::FailedReply(10, cause.clone())], "slot {slot}");
    }
    is_sent(&mut all[0], &[free(&[0, 1, 2, 3, 4]), synchronize(20)]);
    run_until_idle(&mut all);
    assert_eq!(all[0].answers(), [Answer::Done(20)]);
}
