//! Supervised workers of a dispatcher die: their values are made again by their successors, and
//! their clients notice nothing but time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a failed test is a panic"
)]

mod common;

use common::peer::{Peer, hello};
use common::worker::{self, Supervised, spawn_supervised};
use common::{Server, counting};
use gt_protocol::handshake::Role;
use gt_protocol::message::FromClient;
use gt_protocol::{Attr, Id, Instruction, Op, Operand};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HANG: Duration = Duration::from_secs(20);
/// Values of an upload in some chunks: 48 KB.
const LARGE: usize = 12_000;
const COUNT: i64 = 12_000;

fn client(server: &Server) -> Peer {
    Peer::unix(server, hello(Role::Client))
}

/// Waits for a line of the dispatcher's log.
fn until_logged(server: &Server, line: &str) {
    let deadline = Instant::now() + HANG;
    while !server.log().contains(line) {
        assert!(Instant::now() < deadline, "no {line:?} in\n{}", server.log());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends a worker; returns when the dispatcher knows that.
fn kill(server: &Server, one: Supervised, index: u32) {
    let line = format!("worker {index} is gone");
    let before = server.log().matches(&line).count();
    one.kill();
    let deadline = Instant::now() + HANG;
    while server.log().matches(&line).count() == before {
        assert!(Instant::now() < deadline, "nobody noticed\n{}", server.log());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Uploads a large value in chunks.
fn upload_large(peer: &mut Peer, slot: u32, value: f32) {
    let mut upload = Instruction::new(Op::Upload);
    upload.outputs.push(Id::slot(slot));
    let dims = gt_protocol::Dims::new(&[i64::try_from(LARGE).unwrap()]).unwrap();
    upload.attrs.extend([Attr::Ints(dims), Attr::Dtype(gt_protocol::Dtype::F32)]);
    let bytes: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), LARGE).flatten().collect();
    let mut at = 0;
    let (first, rest) = bytes.split_at(bytes.len().min(16_384));
    upload.payload = first;
    peer.emit(&upload);
    for chunk in rest.chunks(16_384) {
        at += if at == 0 { first.len() } else { 16_384 };
        let mut instruction = Instruction::new(Op::Chunk);
        instruction.operands.push(Operand::Value(Id::slot(slot)));
        instruction.attrs.push(Attr::Int(i64::try_from(at).unwrap()));
        instruction.payload = chunk;
        peer.emit(&instruction);
    }
}

#[test]
fn values_are_made_again_by_the_successor() {
    let mut server = Server::start("recovery-values", &[]);
    let first = spawn_supervised(&server, 0);
    let mut peer = client(&server);
    peer.upload(0, &[1.0, 2.0]);
    peer.add(1, 0, 0);
    peer.free(0);
    assert_eq!(peer.read(1, 1, 2), Ok(vec![2.0, 4.0]));
    kill(&server, first, 0);
    // Planned while nobody is there, and asked for.
    peer.add(2, 1, 1);
    peer.ask(2, 2, 2);
    let second = spawn_supervised(&server, 0);
    assert_eq!(peer.answer(2), Ok(vec![4.0, 8.0]));
    assert_eq!(peer.read(3, 1, 2), Ok(vec![2.0, 4.0]));
    assert_eq!(peer.values_on_workers(), 2, "{}", server.log());
    // Its successor dies too, with words that were never sent to the first.
    kill(&server, second, 0);
    let third = spawn_supervised(&server, 0);
    assert_eq!(peer.read(4, 2, 2), Ok(vec![4.0, 8.0]));
    assert!(server.stop().0.success());
    third.join();
}

/// Two workers, and a client of each, with 1 and 2 in slot 0 and twice that in slot 1.
fn two_at_work(server: &Server) -> ([Supervised; 2], [Peer; 2]) {
    let workers = [spawn_supervised(server, 0), spawn_supervised(server, 1)];
    let mut peers = [client(server), client(server)];
    for (peer, value) in peers.iter_mut().zip([1.0, 2.0]) {
        peer.upload(0, &[value]);
        peer.add(1, 0, 0);
        assert_eq!(peer.read(1, 1, 1), Ok(vec![value * 2.0]));
    }
    (workers, peers)
}

#[test]
fn clients_of_other_workers_go_on_meanwhile() {
    let server = Server::start("recovery-others", &[]);
    let ([first, second], mut peers) = two_at_work(&server);
    kill(&server, second, 1);
    let [one, two] = &mut peers;
    two.ask(2, 1, 1);
    for request in 2..200_u32 {
        one.add(request, request - 1, 0);
        let expected = f32::from(u16::try_from(request + 1).unwrap());
        assert_eq!(one.read(request.into(), request, 1), Ok(vec![expected]));
    }
    // One that comes meanwhile, and leaves with what it has at the empty place.
    let mut late = client(&server);
    late.upload(0, &[7.0]);
    drop(late);
    let _second = spawn_supervised(&server, 1);
    assert_eq!(two.answer(2), Ok(vec![4.0]));
    assert_eq!(two.read(3, 0, 1), Ok(vec![2.0]));
    assert_eq!(one.read(300, 1, 1), Ok(vec![2.0]));
    assert_eq!(two.values_on_workers(), 200 + 2, "{}", server.log());
    drop(first);
}

#[test]
fn both_workers_die_and_come_back_in_turn() {
    let server = Server::start("recovery-both", &[]);
    let ([first, second], mut peers) = two_at_work(&server);
    kill(&server, first, 0);
    kill(&server, second, 1);
    for peer in &mut peers {
        peer.ask(2, 1, 1);
    }
    let second = spawn_supervised(&server, 1);
    until_logged(&server, "worker 1 takes the place");
    // The one that has joined dies before it was at work.
    kill(&server, second, 1);
    let _first = spawn_supervised(&server, 0);
    let _second = spawn_supervised(&server, 1);
    for (peer, value) in peers.iter_mut().zip([1.0, 2.0]) {
        assert_eq!(peer.answer(2), Ok(vec![value * 2.0]));
        assert_eq!(peer.read(3, 0, 1), Ok(vec![value]));
    }
}

#[test]
fn values_are_lost_when_nobody_comes_in_time() {
    let server = Server::start("recovery-nobody", &["--successor-seconds", "0.3"]);
    let first = spawn_supervised(&server, 0);
    let mut peer = client(&server);
    peer.upload(0, &[1.0]);
    assert_eq!(peer.read(1, 0, 1), Ok(vec![1.0]));
    kill(&server, first, 0);
    let answer = peer.read(2, 0, 1);
    let reason = "WorkerLost: worker 0 is gone (its connection closed) and held this value";
    assert_eq!(answer, Err(reason.to_owned()), "{}", server.log());
    // The place is an empty one.
    let _second = spawn_supervised(&server, 0);
    let mut late = client(&server);
    late.upload(1, &[2.0]);
    assert_eq!(late.read(3, 1, 1), Ok(vec![2.0]));
    assert_eq!(late.values_on_workers(), 1);
}

#[test]
fn nobody_waits_for_a_worker_without_a_supervisor_or_where_the_time_is_zero() {
    for (name, time) in [("by-hand", "10"), ("no-time", "0")] {
        let server = Server::start(&format!("recovery-{name}"), &["--successor-seconds", time]);
        let mut peer = if time == "0" {
            let first = spawn_supervised(&server, 0);
            let mut peer = client(&server);
            peer.upload(0, &[1.0]);
            assert_eq!(peer.read(1, 0, 1), Ok(vec![1.0]));
            kill(&server, first, 0);
            peer
        } else {
            let first = worker::spawn_mortal(&server, Op::Add);
            let mut peer = client(&server);
            peer.upload(0, &[1.0]);
            peer.add(1, 0, 0);
            drop(first.join().unwrap());
            peer
        };
        let answer = peer.read(2, 0, 1).unwrap_err();
        assert!(answer.starts_with("WorkerLost: worker 0 is gone"), "{answer}");
    }
}

#[test]
fn a_stranger_at_the_place_ends_the_wait() {
    let server = Server::start("recovery-stranger", &[]);
    let first = spawn_supervised(&server, 0);
    let mut peer = client(&server);
    peer.upload(0, &[1.0]);
    assert_eq!(peer.read(1, 0, 1), Ok(vec![1.0]));
    kill(&server, first, 0);
    peer.ask(2, 0, 1);
    let _stranger = worker::spawn(&server);
    assert!(peer.answer(2).unwrap_err().starts_with("WorkerLost"), "{}", server.log());
    peer.upload(1, &[2.0]);
    assert_eq!(peer.read(3, 1, 1), Ok(vec![2.0]));
}

#[test]
fn an_upload_and_a_cancel_of_a_client_that_waits() {
    let server = Server::start("recovery-upload", &[]);
    let first = spawn_supervised(&server, 0);
    let mut peer = client(&server);
    upload_large(&mut peer, 0, 3.0);
    assert_eq!(peer.read(1, 0, COUNT).unwrap(), vec![3.0; LARGE], "{}", server.log());
    kill(&server, first, 0);
    peer.add(1, 0, 0);
    peer.add(2, 1, 0);
    peer.say(&FromClient::Cancel);
    peer.add(3, 0, 0);
    let _second = spawn_supervised(&server, 0);
    // Planned before the cancel, and behind it; what was cancelled may be either.
    assert_eq!(peer.read(2, 3, COUNT).unwrap(), vec![6.0; LARGE]);
    assert_eq!(peer.read(3, 0, COUNT).unwrap(), vec![3.0; LARGE]);
    assert_eq!(peer.values_on_workers().clamp(2, 4), peer.values_on_workers());
}

/// Kills workers while two clients count, and the dispatcher too where it has a standby.
fn kill_at_random(name: &str, arguments: &[&str], mut beside: impl FnMut(&mut Server, usize)) {
    let mut server = Server::start(name, arguments);
    let mut workers = [0, 1].map(|index| Some(spawn_supervised(&server, index)));
    let mut peers = [client(&server), client(&server)];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            peers.iter_mut().map(|peer| scope.spawn(|| counting::count(peer, &stop))).collect();
        for round in 0..12_u32 {
            // Moments that have nothing to do with what the processes do.
            std::thread::sleep(Duration::from_micros(u64::from(round) * 7919 % 9000 + 500));
            let index = round % 2;
            let place = usize::try_from(index).unwrap();
            kill(&server, workers[place].take().unwrap(), index);
            beside(&mut server, usize::try_from(round).unwrap());
            workers[place] = Some(spawn_supervised(&server, index));
            assert!(clients.iter().all(|client| !client.is_finished()), "{}", server.log());
        }
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            assert!(client.join().unwrap() > 0);
        }
    });
}

#[test]
fn clients_count_on_while_workers_are_killed() {
    kill_at_random("recovery-random", &[], |_, _| {});
}

#[test]
fn clients_count_on_while_workers_and_dispatchers_are_killed() {
    let mut takeovers = 0;
    kill_at_random("recovery-standby", &["--standby"], |server, round| {
        if round % 3 == 1 {
            takeovers += 1;
            common::standby::kill_dispatcher(server, takeovers);
        }
    });
}
