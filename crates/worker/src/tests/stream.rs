//! Instructions that run beside a collective in flight.

use super::collective::{all_reduce, list};
use super::links::{Worker, run_until_idle, workers};
use super::*;

/// Number of elements that exceeds the queues between workers.
const LARGE: i64 = 500;

fn send(from: u32, peer: i64, tag: i64) -> Instruction<'static> {
    op(Op::Send, &[], &[from], &[Attr::Int(peer), Attr::Int(tag)])
}

fn receive(out: u32, peer: i64, tag: i64, size: i64) -> Instruction<'static> {
    let attrs = [Attr::Int(peer), Attr::Int(tag), ints(&[size]), Attr::Dtype(Dtype::I64)];
    op(Op::Receive, &[out], &[], &attrs)
}

fn add(out: u32, left: u32, right: u32) -> Instruction<'static> {
    op(Op::Add, &[out], &[left, right], &[])
}

fn same(request: u64, number: i64) -> Answer {
    answer(request, &vec![number; usize::try_from(LARGE).unwrap()])
}

fn bytes_held(worker: &Worker) -> u64 {
    worker.machine.stats(0).bytes
}

#[test]
fn what_does_not_need_a_collective_does_not_wait_for_it() {
    let mut all = workers(2);
    let program = [
        full(0, LARGE, 7),
        send(0, 1, 1),
        full(1, 2, 3),
        add(2, 1, 1),
        read(2, 9, 2),
        read(0, 8, LARGE),
    ];
    all[0].is_sent(&program);
    // The other worker receives nothing.
    while all[0].go() {}
    assert!(!all[0].waits());
    assert_eq!(all[0].answers(), [answer(9, &[6, 6]), same(8, 7)]);
    assert!(all[0].stream.is_busy(), "the way holds less than the value");
    all[1].is_sent(&[receive(5, 0, 1, LARGE), read(5, 4, LARGE)]);
    run_until_idle(&mut all);
    assert_eq!(all[1].answers(), [same(4, 7)]);
    assert!(!all[0].stream.is_busy());
}

#[test]
fn an_operand_lives_as_long_as_it_is_read() {
    let mut all = workers(2);
    all[0].is_sent(&[full(0, LARGE, 7), send(0, 1, 1), free(&[0]), full(0, 2, 3), read(0, 1, 2)]);
    while all[0].go() {}
    assert_eq!(all[0].answers(), [answer(1, &[3, 3])]);
    assert_eq!(bytes_held(&all[0]), 8 * (LARGE.unsigned_abs() + 2), "what is sent is still there");
    all[1].is_sent(&[receive(0, 0, 1, LARGE), read(0, 2, LARGE)]);
    run_until_idle(&mut all);
    assert_eq!(all[1].answers(), [same(2, 7)]);
    assert_eq!(bytes_held(&all[0]), 16);
}

#[test]
fn memory_that_is_sent_is_not_used_again() {
    let mut all = workers(2);
    // The sum would overwrite its operand, which is freed at once.
    let sum = [add(1, 0, 0), free(&[0]), read(1, 9, LARGE)];
    all[0].is_sent(&[full(0, LARGE, 7), send(0, 1, 1)]);
    all[0].is_sent(&sum);
    while all[0].go() {}
    assert_eq!(all[0].answers(), [same(9, 14)]);
    assert_eq!(all[0].allocations.get(), 2);
    // A reduction does not overwrite it either.
    all[0].is_sent(&[full(2, LARGE, 1), send(2, 1, 2), all_reduce(3, 2, &[0, 1]), free(&[2])]);
    while all[0].go() {}
    all[1].is_sent(&[receive(0, 0, 1, LARGE), receive(1, 0, 2, LARGE), full(2, LARGE, 1)]);
    all[1].is_sent(&[all_reduce(3, 2, &[0, 1]), read(0, 1, LARGE), read(1, 2, LARGE)]);
    run_until_idle(&mut all);
    assert_eq!(all[1].answers(), [same(1, 7), same(2, 1)]);
    all[0].is_sent(&[read(3, 5, LARGE)]);
    run_until_idle(&mut all);
    assert_eq!(all[0].answers(), [same(5, 4)]);
}

#[test]
fn a_chunk_waits_until_nobody_reads_what_it_writes_to() {
    let mut all = workers(2);
    let payload = bytes_of(&[5]).leak();
    let chunk = Instruction { payload, ..op(Op::Chunk, &[], &[0], &[Attr::Int(8 * (LARGE - 1))]) };
    all[0].is_sent(&[full(0, LARGE, 7), send(0, 1, 1), chunk, read(0, 1, 1)]);
    while all[0].go() {}
    assert!(all[0].waits());
    all[1].is_sent(&[receive(0, 0, 1, LARGE), read(0, 2, LARGE)]);
    run_until_idle(&mut all);
    assert_eq!(all[1].answers(), [same(2, 7)]);
    assert_eq!(all[0].answers(), [answer(1, &[7])]);
}

#[test]
fn who_needs_a_result_waits_for_it_and_others_do_not() {
    let mut all = workers(2);
    let program =
        [receive(0, 0, 1, LARGE), full(1, 1, 4), read(1, 1, 1), add(2, 0, 0), read(2, 2, LARGE)];
    all[1].is_sent(&program);
    while all[1].go() {}
    assert_eq!(all[1].answers(), [answer(1, &[4])]);
    assert!(all[1].waits(), "the sum needs what comes");
    all[0].is_sent(&[full(0, LARGE, 7), send(0, 1, 1)]);
    run_until_idle(&mut all);
    assert_eq!(all[1].answers(), [same(2, 14)]);
}

#[test]
fn a_result_that_is_freed_before_it_comes_is_nobody_s() {
    let mut all = workers(2);
    let program = [receive(0, 0, 1, LARGE), free(&[0]), full(0, 1, 4), read(0, 1, 1)];
    all[1].is_sent(&program);
    while all[1].go() {}
    assert_eq!(all[1].answers(), [answer(1, &[4])]);
    all[0].is_sent(&[full(0, LARGE, 7), send(0, 1, 1)]);
    all[1].is_sent(&[read(0, 2, 1)]);
    run_until_idle(&mut all);
    assert_eq!(all[1].answers(), [answer(2, &[4])]);
    assert_eq!((all[1].machine.stats(0).values, bytes_held(&all[1])), (1, 8));
}

#[test]
fn two_may_send_each_other_much_and_receive_it_later() {
    let mut all = workers(2);
    for (worker, other) in [(0_u32, 1_i64), (1, 0)] {
        let (own, tag) = (i64::from(worker), i64::from(worker) + 1);
        let program = [
            full(0, LARGE, own + 3),
            send(0, other, tag),
            full(1, LARGE, 1),
            add(2, 0, 1),
            read(2, 1, LARGE),
            receive(3, other, other + 1, LARGE),
            read(3, 2, LARGE),
        ];
        all[usize::try_from(worker).unwrap()].is_sent(&program);
    }
    run_until_idle(&mut all);
    assert_eq!(all[0].answers(), [same(1, 4), same(2, 4)]);
    assert_eq!(all[1].answers(), [same(1, 5), same(2, 3)]);
}

#[test]
fn a_peer_that_takes_nothing_holds_up_nobody_else() {
    let mut all = workers(4);
    all[0].is_sent(&[full(0, LARGE, 7), send(0, 3, 1), send(0, 1, 2), send(0, 2, 3)]);
    for (worker, tag) in [(1, 2), (2, 3)] {
        all[worker].is_sent(&[receive(0, 0, tag, LARGE), read(0, 1, LARGE)]);
    }
    let mut three: Vec<&mut Worker> = all.iter_mut().take(3).collect();
    while three.iter_mut().any(|worker| worker.go()) {}
    for worker in [1, 2] {
        assert_eq!(all[worker].answers(), [same(1, 7)]);
    }
    assert!(all[0].stream.is_busy() && !all[0].waits());
    all[3].leaves();
    run_until_idle(&mut all[..3]);
    assert!(!all[0].stream.is_busy());
    let [Answer::Failure(cause)] = &all[0].answers()[..] else { panic!("one failure") };
    assert_eq!(
        (cause.op, cause.tag, &*cause.fault.text),
        (Some(Op::Send), 1000, "worker 3 is gone")
    );
}

#[test]
fn a_lost_peer_fails_what_is_in_flight_with_it_once_each() {
    let mut all = workers(3);
    let session = |id: i64| op(Op::Session, &[], &[], &[Attr::Int(id)]);
    all[0].is_sent(&[session(4), full(0, LARGE, 7), receive(1, 1, 1, LARGE), session(5)]);
    all[0].is_sent(&[all_reduce(2, 0, &[0, 1, 2]), send(0, 2, 9), session(6)]);
    all[2].is_sent(&[full(0, LARGE, 1), all_reduce(2, 0, &[0, 1, 2]), receive(1, 0, 9, LARGE)]);
    run_until_idle(&mut all);
    assert!(!all[0].waits() && all[0].answers().is_empty());
    all[1].leaves();
    let read_all = [read(1, 1, LARGE), read(2, 2, LARGE)];
    all[0].is_sent(&read_all);
    all[2].is_sent(&read_all);
    run_until_idle(&mut all);
    let answers = all[0].answers();
    let [Answer::Failure(one), Answer::Failure(two), rest @ ..] = &answers[..] else {
        panic!("{answers:?}")
    };
    let told = |cause: &Cause| (cause.session, cause.op, cause.tag);
    assert_eq!(told(one), (4, Some(Op::Receive), 1001));
    assert_eq!(told(two), (5, Some(Op::AllReduce), 1002));
    assert_eq!(rest, [Answer::FailedReply(1, one.clone()), Answer::FailedReply(2, two.clone())]);
    // Messages between the remaining workers arrive.
    assert!(all[2].answers().contains(&same(1, 7)));
    assert!(!all[0].stream.is_busy() && !all[2].stream.is_busy());
}

#[test]
fn a_member_that_has_failed_takes_in_what_the_others_send() {
    for members in [2_u32, 3] {
        let group: Vec<i64> = (0..i64::from(members)).collect();
        let mut all = workers(members);
        // Worker 0 has no operand, and gets no further instruction.
        all[0].is_sent(&[all_reduce(1, 0, &group)]);
        while all[0].go() {}
        assert!(all[0].stream.is_busy(), "the others have still to send");
        for worker in &mut all[1..] {
            worker.is_sent(&[full(0, 3_001, 1), all_reduce(1, 0, &group)]);
            worker.is_sent(&[op(Op::Synchronize, &[], &[], &[Attr::Int(3)])]);
        }
        run_until_idle(&mut all);
        let [Answer::Failure(_)] = &all[0].answers()[..] else { panic!("one failure") };
        for worker in &mut all {
            assert!(!worker.waits() && !worker.stream.is_busy());
            assert_eq!(worker.chunks_in_flight(), 0);
        }
        for worker in &mut all[1..] {
            assert_eq!(worker.answers(), [Answer::Done(3)], "the failure is reported once");
        }
    }
}

#[test]
fn members_may_meet_two_collectives_in_different_paces() {
    // The chunks of worker 1 and of worker 2 go to worker 0 on one queue each; the reduction of
    // either collective needs both workers, and their chunks come in different orders.
    let reduce = |out: u32, from: u32, tag: i64| {
        op(Op::AllReduce, &[out], &[from], &[list(&[0, 1, 2]), Attr::Choice(0), Attr::Int(tag)])
    };
    let mut all = workers(3);
    let values = [full(0, LARGE, 1), full(1, LARGE, 2)];
    for worker in &mut all {
        worker.is_sent(&values);
    }
    all[1].is_sent(&[reduce(2, 0, 1)]);
    all[2].is_sent(&[reduce(3, 1, 2)]);
    while all[1].go() {}
    while all[2].go() {}
    all[1].is_sent(&[reduce(3, 1, 2)]);
    all[2].is_sent(&[reduce(2, 0, 1)]);
    all[0].is_sent(&[reduce(2, 0, 1), reduce(3, 1, 2), read(2, 1, LARGE), read(3, 2, LARGE)]);
    run_until_idle(&mut all);
    assert_eq!(all[0].answers(), [same(1, 13), same(2, 26)]);
}

#[test]
fn there_is_a_limit_to_what_is_in_flight() {
    let (mut all, size, count) = (workers(2), 20, 80);
    all[0].is_sent(&[full(0, size, 7)]);
    all[0].is_sent(&(1..=count).map(|tag| send(0, 1, tag)).collect::<Vec<_>>());
    while all[0].go() {}
    assert!(all[0].waits());
    for tag in 1..=count {
        all[1].is_sent(&[receive(0, 0, tag, size), read(0, 1, size), free(&[0])]);
    }
    run_until_idle(&mut all);
    assert!(!all[0].waits() && !all[0].stream.is_busy());
    assert_eq!(all[1].answers(), vec![answer(1, &[7; 20]); 80]);
}

#[test]
fn synchronize_and_counters_wait_for_what_is_before_them() {
    let mut all = workers(2);
    all[0].is_sent(&[full(0, LARGE, 7), send(0, 1, 1), free(&[0])]);
    let mut asked = Vec::new();
    gt_protocol::message::encode(
        &gt_protocol::message::ToWorker::StatsRequest { request: 2 },
        &mut asked,
    )
    .unwrap();
    all[0].are_sent_words(&asked);
    all[0].is_sent(&[op(Op::Synchronize, &[], &[], &[Attr::Int(3)])]);
    while all[0].go() {}
    assert!(all[0].waits() && all[0].answers().is_empty());
    all[1].is_sent(&[receive(0, 0, 1, LARGE)]);
    run_until_idle(&mut all);
    assert_eq!(all[0].answers(), [Answer::Other("stats"), Answer::Done(3)]);
    assert_eq!(bytes_held(&all[0]), 0);
}

#[test]
fn a_mark_waits_for_no_collective() {
    let mut all = workers(2);
    all[0].is_sent(&[full(0, LARGE, 7), send(0, 1, 1)]);
    let mut mark = Vec::new();
    let request = 1 << 63 | 5;
    gt_protocol::message::encode(&gt_protocol::message::ToWorker::Mark { request }, &mut mark)
        .unwrap();
    all[0].are_sent_words(&mark);
    while all[0].go() {}
    assert_eq!(all[0].answers(), [Answer::Done(request)]);
    assert!(all[0].stream.is_busy());
    all[1].is_sent(&[receive(0, 0, 1, LARGE)]);
    run_until_idle(&mut all);
}

#[test]
fn a_worker_tells_what_it_has_lost_once_all_before_is_over() {
    let mut all = workers(3);
    all[0].is_sent(&[
        full(0, 3, 7),
        all_reduce(1, 0, &[0, 1]),
        op(Op::Add, &[2], &[1, 0], &[]),
        full(3, 3, 7),
    ]);
    let mut asked = Vec::new();
    gt_protocol::message::encode(
        &gt_protocol::message::ToWorker::LossesRequest { request: 9 },
        &mut asked,
    )
    .unwrap();
    all[0].are_sent_words(&asked);
    while all[0].go() {}
    assert!(all[0].waits() && all[0].answers().is_empty());
    all[1].leaves();
    run_until_idle(&mut all);
    let answers = all[0].answers();
    let losses = Answer::Losses { request: 9, is_last: true, slots: vec![1, 2] };
    assert_eq!(answers.last(), Some(&losses), "{answers:?}");
}
