//! Clients and workers of one dispatcher process, over every transport.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a failed test is a panic"
)]

mod common;

use common::peer::{Peer, Way, hello};
use common::{Server, worker};
use gt_protocol::handshake::Role;
use gt_protocol::message::{self, Reach, ToClient, ToWorker};
use gt_protocol::{Attr, Op, wire};
use gt_transport::ControlKind;

fn client() -> gt_protocol::handshake::Hello {
    hello(Role::Client)
}

#[test]
fn three_ways_to_the_same_numbers() {
    let mut server = Server::start("ways", &["--instruction-log", "log"]);
    let toy = worker::spawn(&server);
    let mut peers = [
        Peer::unix(&server, client()),
        Peer::moved(&server, client()),
        Peer::tcp(&server, client()),
    ];
    for peer in &mut peers {
        peer.upload(0, &[1.0, 2.0, 3.0]);
        peer.add(1, 0, 0);
        assert_eq!(peer.read(1, 1, 3).unwrap(), [2.0, 4.0, 6.0]);
        peer.free(0);
    }
    // Each holds one value; the last one's free may still be in flight.
    while peers[0].values_on_workers() > 3 {
        std::thread::yield_now();
    }
    let (status, log) = server.stop();
    assert!(status.success(), "{status}: {log}");
    for peer in &mut peers {
        let frame = peer.frame().unwrap();
        let stops = ToClient::Goodbye { reason: "the dispatcher stops" };
        assert_eq!(message::decode::<ToClient<'_>>(&frame).unwrap().0, stops);
    }
    let toy = toy.join().unwrap();
    assert_eq!(toy.record().unwrap().0.kind, ControlKind::Shutdown);
    assert!(toy.record().is_none());
    assert!(!server.unix.exists(), "the socket's path is left");
    let trace = std::fs::read_to_string(server.file("log")).unwrap();
    let adds: Vec<&str> = trace.lines().filter(|line| line.contains("= add")).collect();
    assert_eq!(adds.len(), 3, "{trace}");
    assert!(adds[0].starts_with("%1 = add %0 %0  # f32[3] "), "{trace}");
}

#[test]
fn mistakes_are_answered_and_breaches_end_one_session() {
    let mut server = Server::start("mistakes", &[]);
    let _toy = worker::spawn(&server);
    let (mut good, mut bad) = (Peer::unix(&server, client()), Peer::moved(&server, client()));
    good.upload(0, &[1.0, 2.0, 3.0]);
    good.upload(1, &[1.0, 2.0]);
    good.add(2, 0, 1);
    let error = good.read(1, 2, 3).unwrap_err();
    assert!(error.starts_with("Shape: The size of tensor a (3)"), "{error}");
    bad.upload(0, &[1.0]);
    assert_eq!(bad.read(1, 0, 1).unwrap(), [1.0]);
    bad.free(5);
    let error = bad.read(2, 0, 1).unwrap_err();
    assert_eq!(error, "goodbye: Free names slot 5, which holds no value");
    assert_eq!(bad.frame(), None);
    assert_eq!(good.values_on_workers(), 2);
    let mut garbage = Peer::unix(&server, client());
    garbage.send(&vec![0xffff_ffff; 40_000]);
    garbage.send(&vec![0xffff_ffff; 40_000]);
    let error = garbage.answer(0).unwrap_err();
    assert!(error.starts_with("goodbye: broken stream: word 0: unknown code 0xffff"), "{error}");
    assert_eq!(good.read(3, 0, 3).unwrap(), [1.0, 2.0, 3.0]);
    let (_, log) = server.stop();
    assert_eq!(log.matches(" WARN ").count(), 2, "{log}");
}

#[test]
fn what_a_dead_client_held_is_freed() {
    let server = Server::start("dead-client", &[]);
    let _toy = worker::spawn(&server);
    let mut stays = Peer::unix(&server, client());
    for mut dies in [Peer::unix(&server, client()), Peer::moved(&server, client())] {
        for slot in 0..10 {
            dies.upload(slot, &[1.0]);
        }
        assert_eq!(dies.read(1, 9, 1).unwrap(), [1.0]);
        drop(dies);
        while stays.values_on_workers() > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_client_may_come_before_the_workers() {
    let server = Server::start("early", &[]);
    let mut early = Peer::unix(&server, client());
    early.upload(0, &[4.0]);
    early.ask(1, 0, 1);
    // Another session's round trip through the dispatcher: the early one's words have arrived by
    // then.
    drop(Peer::moved(&server, client()));
    let _toy = worker::spawn(&server);
    let frame = early.frame().unwrap();
    assert_eq!(
        message::decode::<ToClient<'_>>(&frame).unwrap().0,
        ToClient::WorkerJoined { index: 0, is_late: false }
    );
    assert_eq!(early.answer(1).unwrap(), [4.0]);
}

#[test]
fn a_dead_worker_fails_its_values_and_leaves_its_place() {
    let server = Server::start("dead-worker", &[]);
    let mut one = worker::spawn_mortal(&server, Op::Read);
    let mut peer = Peer::unix(&server, client());
    peer.upload(0, &[1.0]);
    let error = peer.read(1, 0, 1).unwrap_err();
    assert_eq!(error, "WorkerLost: worker 0 is gone (its connection closed) and held this value");
    assert_eq!(one.join().unwrap().welcome.worker, Some(0));
    one = worker::spawn(&server);
    let frame = peer.frame().unwrap();
    assert_eq!(
        message::decode::<ToClient<'_>>(&frame).unwrap().0,
        ToClient::WorkerJoined { index: 0, is_late: false }
    );
    peer.upload(1, &[2.0]);
    assert_eq!(peer.read(2, 1, 1).unwrap(), [2.0]);
    drop(server);
    assert_eq!(one.join().unwrap().welcome.worker, Some(0));
}

#[test]
fn workers_are_introduced_to_each_other() {
    let server = Server::start("introduced", &[]);
    let ask_for =
        |index| gt_protocol::handshake::Hello { worker: Some(index), ..hello(Role::Worker) };
    let first = Peer::unix(&server, hello(Role::Worker));
    let second = Peer::moved(&server, ask_for(5));
    let check = |peer: &Peer, kind, index, descriptors| {
        let (record, count) = peer.record().unwrap();
        assert_eq!((record.kind, record.index, count), (kind, index, descriptors));
    };
    check(&first, ControlKind::Peer, 5, 2);
    check(&second, ControlKind::Peer, 0, 2);
    let third = Peer::tcp(&server, hello(Role::Worker));
    assert_eq!(third.welcome.worker, Some(1));
    check(&first, ControlKind::PeerGone, 1, 0);
    check(&second, ControlKind::PeerGone, 1, 0);
    drop(second);
    check(&first, ControlKind::PeerGone, 5, 0);
    let mut socket = std::os::unix::net::UnixStream::connect(&server.unix).unwrap();
    let refusal = common::peer::greet(&mut socket, ask_for(0)).unwrap_err();
    assert_eq!(refusal.text, "worker 0 is there already");
}

#[test]
fn who_takes_an_index_is_another_incarnation_by_both_ways() {
    let server = Server::start("incarnations", &[]);
    let ask_for =
        |index| gt_protocol::handshake::Hello { worker: Some(index), ..hello(Role::Worker) };
    let mut first = Peer::unix(&server, ask_for(0));
    for incarnation in 0..3 {
        let mut second = Peer::unix(&server, ask_for(1));
        for (peer, index, expected) in [(&mut first, 1, incarnation), (&mut second, 0, 0)] {
            let frame = peer.frame().unwrap();
            let introduction = message::Peer { index, incarnation: expected, reach: Reach::Memory };
            let (message, _) = message::decode::<ToWorker<'_>>(&frame).unwrap();
            assert_eq!(message, ToWorker::Peer(introduction));
            let (record, _) = peer.record().unwrap();
            let told = (record.kind, record.index, record.value);
            assert_eq!(told, (ControlKind::Peer, index, expected.into()));
        }
        drop(second);
        let (record, _) = first.record().unwrap();
        let told = (record.kind, record.index, record.value);
        assert_eq!(told, (ControlKind::PeerGone, 1, incarnation.into()));
    }
}

#[test]
fn a_dropped_link_is_resumed() {
    let server = Server::start("resume", &[]);
    let _toy = worker::spawn(&server);
    let mut peer = Peer::tcp(&server, client());
    peer.upload(0, &[1.0]);
    assert_eq!(peer.read(1, 0, 1).unwrap(), [1.0]);
    peer.upload(1, &[5.0]);
    // Their frame numbers are sent again, but count once: a second upload into the slot would be a
    // fault.
    peer.ask(2, 1, 1);
    assert_eq!(peer.answer(2).unwrap(), [5.0]);
    peer.forget_last_frames();
    let welcome = peer.reconnect(&server);
    assert_eq!(welcome.acknowledged, 4);
    assert_eq!(peer.answer(2).unwrap(), [5.0]);
    peer.ask(2, 1, 1);
    peer.ask(3, 0, 1);
    assert_eq!(peer.answer(3).unwrap(), [1.0]);
    let stranger = gt_protocol::handshake::Resume {
        session: peer.welcome.session,
        secret: gt_protocol::handshake::Secret([7; 16]),
        acknowledged: 0,
    };
    let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
    let stolen = gt_protocol::handshake::Hello { resume: Some(stranger), ..client() };
    let refusal = common::peer::greet(&mut stream, stolen).unwrap_err();
    assert_eq!(refusal.text, "this session is unknown, or over, or its secret is another");
}

#[test]
fn a_long_upload_and_answer_pass_every_way() {
    let server = Server::start("long", &[]);
    let _toy = worker::spawn(&server);
    let values: Vec<f32> = (0..8192_u16).map(f32::from).collect();
    for mut peer in [
        Peer::unix(&server, client()),
        Peer::moved(&server, client()),
        Peer::tcp(&server, client()),
    ] {
        for slot in 0..40 {
            peer.upload(slot, &values);
        }
        for slot in 0..40 {
            peer.ask(i64::from(slot), slot, 8192);
        }
        for slot in 0..40 {
            assert_eq!(peer.answer(slot).unwrap(), values);
        }
    }
}

/// A client that emits adds, each freeing its operand, up to about `words` words, and asks for some
/// of the sums.
fn flooding(server: &Server, words: usize) -> Peer {
    let mut peer = Peer::unix(server, client());
    peer.upload(0, &[1.0]);
    for step in 0..u32::try_from(words / 12).unwrap() {
        peer.add(1 + step % 2, if step == 0 { 0 } else { 1 + (step + 1) % 2 }, 0);
        if step > 0 {
            peer.free(1 + (step + 1) % 2);
        }
        if step % 16 == 0 {
            peer.ask(step.into(), 1 + step % 2, 1);
        }
    }
    peer
}

#[test]
fn one_client_has_the_whole_ring_and_two_that_read_share_a_short_queue() {
    const WORDS: usize = 40_000;
    for clients in [1, 2] {
        let server = Server::start(&format!("share-{clients}"), &[]);
        // Started before there is a worker, so that both have the same number of words waiting when
        // it joins.
        let flooding: Vec<Peer> = (0..clients).map(|_| flooding(&server, WORDS)).collect();
        let mut worker = Peer::unix(&server, hello(Role::Worker));
        let (mut shares, mut current) = (std::collections::BTreeMap::new(), 0);
        let mut longest = 0;
        if clients == 1 {
            let Way::Ring { consumer, .. } = &mut worker.way else { panic!("no ring") };
            while consumer.available() < WORDS / 2 {
                std::thread::yield_now();
            }
        }
        for _ in 0..4000 {
            let frame = worker.frame().unwrap();
            longest = longest.max(worker.unread());
            let (instruction, _) = wire::decode(&frame).unwrap();
            match (instruction.op, instruction.attrs.first()) {
                (Op::Session, Some(Attr::Int(session))) => current = *session,
                _ => *shares.entry(current).or_insert(0) += 1,
            }
        }
        drop(flooding);
        let fair = 4000 / clients;
        assert!(
            shares.values().all(|share| (fair * 8 / 10..=fair * 12 / 10).contains(share)),
            "{shares:?}"
        );
        // Two quanta may pass before both are known to be active.
        assert!(clients == 1 || longest < 1500, "{longest} words in a ring of two clients");
    }
}
