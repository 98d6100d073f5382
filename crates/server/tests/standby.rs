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
use common::peer::{Peer, greet, hello};
use common::standby::{both, kill_dispatcher, kill_process, nobody_left, signal, until};
use common::{Server, worker};
use gt_protocol::handshake::{Hello, Role, Token};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Kills the dispatcher while peers may come or go; returns when a standby serves, with one of its own.
fn kill_amid_changes(server: &mut Server, takeovers: usize) {
    let (dispatcher, _) = both(server);
    kill_process(server, dispatcher, takeovers);
}

/// Returns when the dispatcher has closed the connection.
fn ends(peer: &mut Peer) {
    while peer.frame().is_some() {}
}

#[test]
fn clients_go_on_when_the_dispatcher_is_killed() {
    let mut server = Server::start("standby-kills", &["--standby", "--log-level", "warn"]);
    let workers = [worker::spawn(&server), worker::spawn_remote(&server)];
    let mut peers = [
        Peer::unix(&server, hello(Role::Client)),
        Peer::moved(&server, hello(Role::Client)),
        Peer::resuming(&server, hello(Role::Client)),
        Peer::resuming(&server, hello(Role::Client)),
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
    assert_eq!(late.values_on_workers(), 9, "{}", server.log());
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

/// A hello with a token.
fn with_token(role: Role, token: &str) -> Hello {
    Hello { token: Token(token.as_bytes().to_vec()), ..hello(role) }
}

/// Numbers of sessions and workers in the lines of an event, in order.
fn fields<'t>(audit: &'t str, event: &str) -> Vec<&'t str> {
    let mark = format!(" event={event} ");
    let rest = audit.lines().filter_map(|line| line.split_once(mark.as_str()));
    let mut fields: Vec<&str> =
        rest.map(|(_, fields)| fields.split(' ').next().unwrap_or_default()).collect();
    fields.sort_unstable();
    fields
}

#[test]
fn a_connection_ends_with_its_token_after_a_takeover_too() {
    let tokens = std::env::temp_dir().join(format!("gt-standby-tokens-{}", std::process::id()));
    std::fs::write(&tokens, "anna 1\nben 2\nwork 3\n").unwrap();
    let file = tokens.to_str().unwrap();
    let options = ["--standby", "--token-file", file, "--audit-log", "audit"];
    let mut server = Server::start("standby-tokens", &options);
    let worker = Peer::unix(&server, with_token(Role::Worker, "3"));
    let worker = std::thread::spawn(move || worker::serve(worker));
    let mut anna = Peer::moved(&server, with_token(Role::Client, "1"));
    let mut ben = Peer::unix(&server, with_token(Role::Client, "2"));
    anna.upload(0, &[1.0]);
    assert_eq!((anna.values_on_workers(), ben.values_on_workers()), (1, 1));
    kill_dispatcher(&mut server, 1);
    // New ones are asked for theirs.
    let mut socket = UnixStream::connect(&server.unix).unwrap();
    assert!(greet(&mut socket, with_token(Role::Client, "4")).is_err());
    let mut late = Peer::unix(&server, with_token(Role::Client, "2"));
    assert_eq!((anna.values_on_workers(), late.values_on_workers()), (1, 1), "{}", server.log());
    assert_eq!(ben.values_on_workers(), 1);
    std::fs::write(&tokens, "anna 1\nwork 3\n").unwrap();
    for mut peer in [ben, late] {
        ends(&mut peer);
    }
    assert_eq!(anna.read(1, 0, 1), Ok(vec![1.0]));
    // The next one has the file as it is, and so has who finds it changed at its start.
    kill_amid_changes(&mut server, 2);
    assert_eq!(anna.read(2, 0, 1), Ok(vec![1.0]));
    let mut socket = UnixStream::connect(&server.unix).unwrap();
    assert!(greet(&mut socket, with_token(Role::Client, "2")).is_err());
    std::fs::write(&tokens, "anna\n").unwrap();
    kill_amid_changes(&mut server, 3);
    assert_eq!(anna.read(3, 0, 1), Ok(vec![1.0]), "a file with a mistake is not taken");
    std::fs::write(&tokens, "work 3\n").unwrap();
    ends(&mut anna);
    let (dispatcher, _) = both(&server);
    signal("-TERM", dispatcher);
    server.end_of_log();
    worker.join().unwrap();
    std::fs::remove_file(&tokens).unwrap();
    let audit = std::fs::read_to_string(server.file("audit")).unwrap();
    assert_eq!(fields(&audit, "admitted").len(), 4, "{audit}");
    assert_eq!(fields(&audit, "left"), fields(&audit, "admitted"), "{audit}");
    assert_eq!(fields(&audit, "session-ended"), fields(&audit, "session-opened"), "{audit}");
    for (event, count) in [("started", 1), ("taken-over", 3), ("stopping", 1), ("refused", 5)] {
        assert_eq!(audit.matches(&format!(" event={event}")).count(), count, "{event}\n{audit}");
    }
}

#[test]
fn the_audit_log_has_each_departure_once_whenever_the_dispatcher_is_killed() {
    let mut server = Server::start("standby-audit", &["--standby", "--audit-log", "audit"]);
    let worker = worker::spawn(&server);
    for kill in 1..=60_u64 {
        let mut peer = Peer::unix(&server, hello(Role::Client));
        // Served, so the standby has it.
        assert_eq!(peer.values_on_workers(), 0);
        let (dispatcher, _) = both(&server);
        drop(peer);
        std::thread::sleep(Duration::from_micros(kill * 7919 % 1500));
        kill_process(&mut server, dispatcher, usize::try_from(kill).unwrap());
    }
    let (dispatcher, _) = both(&server);
    signal("-TERM", dispatcher);
    server.end_of_log();
    worker.join().unwrap();
    let audit = std::fs::read_to_string(server.file("audit")).unwrap();
    assert_eq!(fields(&audit, "admitted").len(), 61, "{audit}");
    assert_eq!(fields(&audit, "left"), fields(&audit, "admitted"), "{audit}");
    assert_eq!(fields(&audit, "session-ended"), fields(&audit, "session-opened"), "{audit}");
}
