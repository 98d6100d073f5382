#![allow(clippy::disallowed_methods, reason = "a collective needs its members side by side")]

use super::*;
use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};

type Post = (u32, u64, Received);

/// Workers in threads, joined by channels.
struct Channels {
    index: u32,
    to: Vec<Sender<Post>>,
    from: Receiver<Post>,
    waiting: BTreeMap<(u32, u64), Vec<Received>>,
}

impl Peers for Channels {
    fn exchange(
        &mut self,
        tag: u64,
        parcels: &[(u32, Parcel<'_>)],
        from: &[u32],
    ) -> Result<Vec<Received>, PeerLost> {
        for (peer, parcel) in parcels {
            let received = match parcel {
                Parcel::Bytes(bytes) => Ok(bytes.to_vec()),
                Parcel::Failure(cause) => Err((*cause).clone()),
            };
            self.to[*peer as usize]
                .send((self.index, tag, received))
                .map_err(|_| PeerLost(*peer))?;
        }
        let mut all = Vec::new();
        for &peer in from {
            while self.waiting.get(&(peer, tag)).is_none_or(Vec::is_empty) {
                let (sender, tag, received) = self.from.recv().map_err(|_| PeerLost(peer))?;
                self.waiting.entry((sender, tag)).or_default().push(received);
            }
            all.push(self.waiting.get_mut(&(peer, tag)).unwrap().remove(0));
        }
        Ok(all)
    }
}

/// Runs one program a worker and returns their answers.
fn together(programs: &[Vec<Instruction<'static>>]) -> Vec<Vec<Answer>> {
    let (to, from): (Vec<_>, Vec<_>) = programs.iter().map(|_| mpsc::channel()).unzip();
    let workers: Vec<_> = (0..)
        .zip(from)
        .zip(programs)
        .map(|((index, from), program)| {
            let (to, words) = (to.clone(), words(program));
            std::thread::spawn(move || {
                let mut peers = Channels { index, to, from, waiting: BTreeMap::new() };
                let mut machine = Machine::new(ToyEngine::default());
                machine.set_index(index);
                let mut answers = Answers::default();
                machine.run(&words, &mut answers, &mut peers).unwrap();
                answers.0
            })
        })
        .collect();
    drop(to);
    workers.into_iter().map(|worker| worker.join().unwrap()).collect()
}

fn all_reduce(out: u32, from: u32, group: &[i64]) -> Instruction<'static> {
    op(Op::AllReduce, &[out], &[from], &[ints(group), Attr::Choice(0), Attr::Int(5)])
}

#[test]
fn every_member_folds_in_the_same_order_in_one_hop_and_in_two() {
    // 40 bytes, and 24 kB of which no piece is even.
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
            &[ints(&[0, 1, 2]), Attr::Int(dim), ints(&sizes), Attr::Int(4)],
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

#[test]
fn values_are_sent_and_failures_too() {
    let send = |from: u32, tag: i64| op(Op::Send, &[], &[from], &[Attr::Int(1), Attr::Int(tag)]);
    let receive = |out: u32, tag: i64, size: i64| {
        let attrs = [Attr::Int(0), Attr::Int(tag), ints(&[size]), Attr::Dtype(Dtype::I64)];
        op(Op::Receive, &[out], &[], &attrs)
    };
    let first = vec![full(0, 3, 7), send(0, 1), send(5, 2), send(0, 3)];
    let second =
        vec![receive(0, 1, 3), receive(1, 2, 3), receive(2, 3, 4), read(0, 1, 3), read(1, 2, 3)];
    let answers = together(&[first, second]);
    let [Answer::Failure(cause)] = &answers[0][..] else { panic!("{:?}", answers[0]) };
    let [Answer::Failure(short), rest @ ..] = &answers[1][..] else { panic!("{:?}", answers[1]) };
    assert_eq!(short.fault.text, "24 bytes arrived for a i64[4]");
    assert_eq!(rest, [answer(1, &[7; 3]), Answer::FailedReply(2, cause.clone())]);
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
