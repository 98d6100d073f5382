//! A dispatcher with a standby is killed at random moments; clients and workers notice nothing but
//! time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a failed test is a panic"
)]

mod common;

use common::counting::count;
use common::peer::{Peer, hello};
use common::standby::{both, kill_dispatcher, nobody_left, signal, until};
use common::{Server, worker};
use gt_protocol::handshake::Role;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn clients_go_on_when_the_dispatcher_is_killed() {
    let mut server = Server::start("standby-kills", &["--standby", "--log-level", "warn"]);
    let workers = [worker::spawn(&server), worker::spawn(&server)];
    let mut peers = [
        Peer::unix(&server, hello(Role::Client)),
        Peer::moved(&server, hello(Role::Client)),
        Peer::unix(&server, hello(Role::Client)),
    ];
    for peer in &mut peers {
        // All are served, so the standby has them.
        assert_eq!(peer.values_on_workers(), 0);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counting: Vec<_> =
            peers.iter_mut().map(|peer| scope.spawn(|| count(peer, &stop))).collect();
        for kill in 1..=20_u64 {
            // Moments that have nothing to do with what the processes do.
            std::thread::sleep(Duration::from_micros(kill * 7919 % 9000));
            kill_dispatcher(&mut server, usize::try_from(kill).unwrap());
            assert!(counting.iter().all(|client| !client.is_finished()), "{}", server.log());
        }
        stop.store(true, Ordering::Relaxed);
        for client in counting {
            assert!(client.join().unwrap() > 0);
        }
    });
    // New clients find it at the same addresses, and it ends as any dispatcher.
    let mut late = Peer::moved(&server, hello(Role::Client));
    late.upload(0, &[2.0]);
    assert_eq!(late.read(1, 0, 1), Ok(vec![2.0]));
    assert_eq!(late.values_on_workers(), 7, "{}", server.log());
    let (dispatcher, _) = both(&server);
    signal("-TERM", dispatcher);
    server.end_of_log();
    nobody_left(&server);
    for peer in peers.iter_mut().chain([&mut late]) {
        assert_eq!(peer.read(70_000, 0, 1), Err("goodbye: the dispatcher stops".to_owned()));
    }
    for worker in workers {
        worker.join().unwrap();
    }
}

#[test]
fn a_killed_standby_is_replaced_and_a_regular_end_leaves_nothing() {
    let mut server = Server::start("standby-replaced", &["--standby"]);
    let _worker = worker::spawn(&server);
    let mut peer = Peer::unix(&server, hello(Role::Client));
    peer.upload(0, &[1.0]);
    // Served, so the standby has both peers, and no other one is forked for them.
    assert_eq!(peer.read(0, 0, 1), Ok(vec![1.0]));
    let (dispatcher, standby) = both(&server);
    signal("-KILL", standby);
    let (same, other) = until("it is not replaced", &server, || {
        let found = both(&server);
        (found.1 != standby).then_some(found)
    });
    assert_eq!(same, dispatcher);
    assert_ne!(other, dispatcher);
    assert_eq!(peer.read(1, 0, 1), Ok(vec![1.0]));
    kill_dispatcher(&mut server, 1);
    assert_eq!(peer.read(2, 0, 1), Ok(vec![1.0]), "{}", server.log());
    let (dispatcher, _) = both(&server);
    signal("-INT", dispatcher);
    server.end_of_log();
    nobody_left(&server);
    assert!(!server.unix.exists(), "its path is removed");
}

#[test]
fn a_standby_that_was_asked_to_end_ends_all_when_its_turn_comes() {
    let mut server = Server::start("standby-asked", &["--standby"]);
    let _worker = worker::spawn(&server);
    let mut peer = Peer::unix(&server, hello(Role::Client));
    peer.upload(0, &[1.0]);
    // Served, so the standby has both peers, and no other one is forked for them.
    assert_eq!(peer.read(0, 0, 1), Ok(vec![1.0]));
    let (dispatcher, standby) = both(&server);
    // A supervisor ends a whole group of processes so, and kills those that stay.
    signal("-TERM", standby);
    assert_eq!(peer.read(1, 0, 1), Ok(vec![1.0]));
    signal("-KILL", dispatcher);
    server.reap();
    let log = server.end_of_log();
    nobody_left(&server);
    assert_eq!(peer.read(2, 0, 1), Err("goodbye: the dispatcher stops".to_owned()), "{log}");
}
