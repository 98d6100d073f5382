use super::*;
use crate::Stop;
use gt_protocol::message;

fn machine() -> (Machine<ToyEngine>, Rc<Cell<usize>>) {
    let allocations = Rc::new(Cell::new(0));
    let engine = ToyEngine { allocations: Rc::clone(&allocations), ..ToyEngine::default() };
    (Machine::new(engine), allocations)
}

fn add(out: u32, left: u32, right: u32) -> Instruction<'static> {
    op(Op::Add, &[out], &[left, right], &[])
}

#[test]
fn a_chain_whose_operands_die_allocates_nothing() {
    let (mut machine, allocations) = machine();
    let mut chain = vec![full(0, 4, 1), full(1, 4, 5)];
    for step in 0..10 {
        let (from, to) = (1 + step % 2, 1 + (step + 1) % 2);
        chain.extend([add(to, from, 0), free(&[from])]);
    }
    chain.push(read(1, 7, 4));
    assert_eq!(run(&mut machine, &chain), [answer(7, &[15; 4])]);
    assert_eq!(allocations.get(), 2);
    assert_eq!((machine.stats(0).values, machine.stats(0).bytes), (2, 64));
    assert_eq!(machine.stats(0).bytes_peak, 64);
}

#[test]
fn memory_that_another_slot_reads_is_not_overwritten() {
    let (mut machine, allocations) = machine();
    let view = op(Op::Reshape, &[1], &[0], &[ints(&[2, 2])]);
    let steps = [
        full(0, 4, 1),
        view,
        add(2, 0, 0),
        free(&[0]),
        read(1, 1, 4),
        read(2, 2, 4),
        free(&[1, 2]),
    ];
    assert_eq!(run(&mut machine, &steps), [answer(1, &[1; 4]), answer(2, &[2; 4])]);
    assert_eq!(allocations.get(), 2);
    assert_eq!((machine.stats(0).values, machine.stats(0).bytes), (0, 0));
}

#[test]
fn a_view_that_is_alone_is_overwritten() {
    let (mut machine, allocations) = machine();
    let view = op(Op::Reshape, &[1], &[0], &[ints(&[4])]);
    let steps = [full(0, 4, 1), view, free(&[0]), add(2, 1, 1), free(&[1]), read(2, 2, 4)];
    assert_eq!(run(&mut machine, &steps), [answer(2, &[2; 4])]);
    assert_eq!(allocations.get(), 1);
}

#[test]
fn a_reshape_that_copies_has_memory_of_its_own() {
    let (mut machine, allocations) = machine();
    let copy = op(Op::Reshape, &[1], &[0], &[ints(&[2, 2, 1])]);
    run(&mut machine, &[full(0, 4, 1), copy]);
    assert_eq!((machine.stats(0).bytes, allocations.get()), (64, 2));
    run(&mut machine, &[free(&[0])]);
    assert_eq!(machine.stats(0).bytes, 32);
}

#[test]
fn a_view_keeps_all_of_the_memory_and_counts_it_once() {
    let (mut machine, _) = machine();
    let view = op(Op::Reshape, &[1], &[0], &[ints(&[2, 2])]);
    run(&mut machine, &[full(0, 4, 1), view]);
    assert_eq!(machine.stats(0).bytes, 32);
    run(&mut machine, &[free(&[0])]);
    assert_eq!((machine.stats(0).bytes, machine.stats(0).bytes_peak), (32, 32));
}

#[test]
fn what_stands_for_an_absent_state_counts_its_one_element() {
    let (mut machine, _) = machine();
    let mut attrs = vec![Attr::Float(0.0); 4];
    attrs.extend([Attr::Bool(false), Attr::Bool(false), Attr::Bool(true)]);
    let mut step = op(Op::Sgd, &[2, 3], &[0, 1], &attrs);
    step.operands.push(Operand::Absent);
    run(&mut machine, &[full(0, 4, 9), full(1, 4, 2), step, free(&[0, 1])]);
    assert_eq!((machine.stats(0).bytes, machine.stats(0).bytes_peak), (32 + 8, 96 + 8));
}

#[test]
fn an_operand_of_another_size_is_not_overwritten() {
    let (mut machine, _) = machine();
    let steps = [full(0, 4, 1), full(1, 1, 2), add(2, 1, 0), free(&[1]), read(2, 2, 4)];
    assert_eq!(run(&mut machine, &steps), [answer(2, &[3; 4])]);
}

#[test]
fn a_consumed_operand_is_gone() {
    let (mut machine, allocations) = machine();
    let mut step = add(2, 0, 1);
    step.consumes = 0b1;
    let steps =
        [full(0, 4, 1), full(1, 4, 2), step, read(2, 2, 4), read(0, 3, 4), free(&[0, 1, 2])];
    let answers = run(&mut machine, &steps);
    assert_eq!(answers[0], answer(2, &[3; 4]));
    assert_eq!(failed_text(&answers[1]), "slot 0 was consumed");
    assert_eq!((answers.len(), allocations.get(), machine.stats(0).values), (2, 2, 0));
}

fn failed_text(answer: &Answer) -> &str {
    match answer {
        Answer::Failure(cause) | Answer::FailedReply(_, cause) => &cause.fault.text,
        Answer::Numbers { .. } | Answer::Done(_) | Answer::Losses { .. } | Answer::Other(_) => {
            "no failure"
        }
    }
}

#[test]
fn a_failure_is_told_once_and_inherited() {
    let (mut machine, _) = machine();
    let session = op(Op::Session, &[], &[], &[Attr::Int(9)]);
    let steps = [
        session,
        full(0, 4, 1),
        full(1, 3, 1),
        add(2, 0, 1),
        add(3, 2, 0),
        add(4, 3, 2),
        read(4, 5, 4),
        free(&[2, 3, 4]),
        op(Op::Synchronize, &[], &[], &[Attr::Int(6)]),
    ];
    let answers = run(&mut machine, &steps);
    let [Answer::Failure(first), Answer::FailedReply(5, inherited), Answer::Done(6)] = &answers[..]
    else {
        panic!("{answers:?}")
    };
    assert_eq!(first, inherited);
    assert_eq!((first.session, first.tag, first.op), (9, 1002, Some(Op::Add)));
    assert_eq!(first.fault.text, "sizes 4 and 3 do not match; add i64[4] i64[3]");
}

#[test]
fn bytes_come_and_go_in_chunks() {
    let (mut machine, _) = machine();
    let numbers: Vec<i64> = (0..20_000).collect();
    let bytes = bytes_of(&numbers);
    let attrs = [ints(&[20_000]), Attr::Dtype(Dtype::I64)];
    let mut steps = vec![];
    for (place, chunk) in bytes.chunks(wire::PAYLOAD_BYTES_MAX).enumerate() {
        let offset = i64::try_from(place * wire::PAYLOAD_BYTES_MAX).unwrap();
        let step = if place == 0 {
            op(Op::Upload, &[0], &[], &attrs)
        } else {
            op(Op::Chunk, &[], &[0], &[Attr::Int(offset)])
        };
        steps.push(Instruction { payload: chunk, ..step });
    }
    steps.push(read(0, 1, 20_000));
    assert_eq!(run(&mut machine, &steps), [answer(1, &numbers)]);
}

#[test]
fn payloads_may_come_beside_the_words() {
    let (mut machine, _) = machine();
    let upload = op(Op::Upload, &[0], &[], &[ints(&[4]), Attr::Dtype(Dtype::I64)]);
    let chunk = |slot, offset| op(Op::Chunk, &[], &[slot], &[Attr::Int(offset)]);
    let steps = [
        upload,
        chunk(0, 0),
        chunk(7, 0),
        chunk(0, 24),
        chunk(0, 16),
        chunk(0, 16),
        chunk(0, 0),
        read(0, 1, 4),
    ];
    let beside = [(0, vec![1, 2]), (0, vec![8]), (24, vec![3, 4]), (0, vec![9]), (16, vec![3, 4])];
    let mut answers = Answers::default();
    answers.1.extend(beside.map(|(offset, numbers)| (offset, bytes_of(&numbers))));
    let words = words(&steps);
    assert_eq!(
        machine.run(&words, &mut answers, &mut CommunicationStream::new(Nobody)),
        Ok(words.len())
    );
    let (texts, last) = answers.0.split_at(4);
    let texts: Vec<&str> = texts.iter().map(failed_text).collect();
    let expected = [
        "slot 7 holds no value",
        "16 bytes at 24 do not fit into a i64[4]",
        "a payload for 0 came with the chunk for 16",
        "a chunk without bytes",
    ];
    assert_eq!(texts, expected);
    assert_eq!(last, [answer(1, &[1, 2, 3, 4])]);
}

#[test]
fn part_of_a_value_is_read() {
    let (mut machine, _) = machine();
    let part = op(Op::Read, &[], &[2], &[Attr::Int(1), Attr::Int(3), Attr::Int(1)]);
    let none = op(Op::Read, &[], &[2], &[Attr::Int(2), Attr::Int(4), Attr::Int(0)]);
    let over = op(Op::Read, &[], &[2], &[Attr::Int(3), Attr::Int(2), Attr::Int(3)]);
    let answers = run(&mut machine, &[full(2, 4, 6), part, none, over]);
    assert_eq!(answers[..2], [answer(1, &[6]), answer(2, &[])]);
    assert_eq!(failed_text(&answers[2]), "read of 3 elements from 2 on of a i64[4]");
}

#[test]
fn wrong_instructions_are_answered() {
    let far = 1 << 30;
    let rows = [
        (vec![add(1, 7, 7)], "slot 7 holds no value"),
        (vec![free(&[3])], "free of slot 3, which is empty"),
        (vec![full(0, 1, 1), full(0, 1, 1)], "slot 0 is in use"),
        (vec![full(far, 1, 1)], "slot 1073741824: 65536 is the limit"),
        (vec![full(0, 1, 1), op(Op::Chunk, &[], &[0], &[Attr::Int(-1)])], "offset is -1"),
        (
            vec![op(
                Op::Receive,
                &[0],
                &[],
                &[Attr::Int(0), Attr::Int(0), ints(&[1]), Attr::Dtype(Dtype::I64)],
            )],
            "peer 0 of worker 0",
        ),
        (
            vec![full(0, 1, 1), op(Op::Distribute, &[1], &[0], &[Attr::Absent, Attr::Absent])],
            "distribute is for dispatchers only",
        ),
        (
            vec![op(Op::Eye, &[0], &[], &[Attr::Int(1), Attr::Int(1), Attr::Dtype(Dtype::I64)])],
            "no eye; eye",
        ),
    ];
    for (steps, text) in rows {
        let answers = run(&mut machine().0, &steps);
        assert_eq!(answers.iter().map(failed_text).collect::<Vec<_>>(), [text]);
    }
}

#[test]
fn an_incomplete_instruction_waits() {
    let (mut machine, _) = machine();
    let all = words(&[full(0, 4, 1), read(0, 1, 4)]);
    let first = words(&[full(0, 4, 1)]).len();
    let mut answers = Answers::default();
    assert_eq!(
        machine.run(&all[..first + 2], &mut answers, &mut CommunicationStream::new(Nobody)),
        Ok(first)
    );
    assert_eq!(
        machine.run(&all[first..], &mut answers, &mut CommunicationStream::new(Nobody)),
        Ok(all.len() - first)
    );
    assert_eq!(answers.0, [answer(1, &[1; 4])]);
}

#[test]
fn messages_are_answered() {
    let (mut machine, _) = machine();
    let mut words = Vec::new();
    message::encode(&ToWorker::StatsRequest { request: 3 }, &mut words).unwrap();
    message::encode(&FromWorker::Done { request: 3 }, &mut words).unwrap();
    let mut answers = Answers::default();
    machine.run(&words, &mut answers, &mut CommunicationStream::new(Nobody)).unwrap();
    assert_eq!(answers.0[0], Answer::Other("stats"));
    assert_eq!(
        failed_text(&answers.0[1]),
        "a message's word 0: done is no message of this direction"
    );
    words.clear();
    message::encode(&ToWorker::Goodbye { reason: "end" }, &mut words).unwrap();
    assert_eq!(
        machine.run(&words, &mut answers, &mut CommunicationStream::new(Nobody)),
        Err(Stop::Goodbye)
    );
    assert!(matches!(
        machine.run(&[5], &mut answers, &mut CommunicationStream::new(Nobody)),
        Err(Stop::Broken(_))
    ));
}
