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

use common::peer::{Peer, add, greet, hello};
use common::{Server, worker};
use gt_protocol::handshake::{Hello, Role, Token};
use gt_protocol::{Id, Instruction, Op, Operand, wire};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HANG: Duration = Duration::from_secs(20);
const STANDBY: &str = "gt-standby";

/// Process of a dispatcher's group.
#[derive(Clone, Debug)]
struct Process {
    id: u32,
    name: String,
}

/// The processes of the group that are no zombies.
fn processes(server: &Server) -> Vec<Process> {
    let group = server.first_process().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let (head, rest) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        if fields[2] == group && fields[0] != "Z" && fields[0] != "X" {
            let name = head.split_once('(').unwrap().1.to_owned();
            found.push(Process { id, name });
        }
    }
    found
}

fn until<T>(what: &str, server: &Server, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + HANG;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}; {:?}\n{}", processes(server), server.log());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The dispatcher and its standby, when there is one of each.
fn both(server: &Server) -> (u32, u32) {
    until("there is no dispatcher with a standby", server, || {
        let all = processes(server);
        let (waiting, serving): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|process| process.name == STANDBY);
        match (&serving[..], &waiting[..]) {
            ([dispatcher], [standby]) => Some((dispatcher.id, standby.id)),
            _ => None,
        }
    })
}

fn nobody_left(server: &Server) {
    until("a process is left", server, || processes(server).is_empty().then_some(()));
}

fn signal(name: &str, process: u32) {
    let process = process.to_string();
    assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
}

/// Kills the dispatcher; returns when its standby has one of its own.
fn kill_dispatcher(server: &mut Server, takeovers: usize) {
    let (dispatcher, standby) = both(server);
    signal("-KILL", dispatcher);
    if dispatcher == server.first_process() {
        server.reap();
    }
    let line = format!("its standby, process {standby}, goes on: nothing was lost");
    until("nobody takes over", server, || server.log().contains(&line).then_some(()));
    assert_eq!(server.log().matches("nothing was lost").count(), takeovers, "{}", server.log());
}

/// Kills the dispatcher while peers may come or go; returns when a standby serves, with one of its own.
fn kill_amid_changes(server: &mut Server, takeovers: usize) {
    let (dispatcher, _) = both(server);
    kill_process(server, dispatcher, takeovers);
}

fn kill_process(server: &mut Server, dispatcher: u32, takeovers: usize) {
    // At once: to start a program takes longer than a takeover.
    let process = rustix::process::Pid::from_raw(dispatcher.cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    if dispatcher == server.first_process() {
        server.reap();
    }
    let have_taken_over = || server.log().matches("nothing was lost").count() == takeovers;
    until("nobody takes over", server, || have_taken_over().then_some(()));
}

/// Returns when the dispatcher has closed the connection.
fn ends(peer: &mut Peer) {
    while peer.frame().is_some() {}
}

/// A client that adds one to a number again and again, with many additions on their way, and
/// compares each number that it reads.
fn count(peer: &mut Peer, stop: &AtomicBool) -> u32 {
    const STEPS: u32 = 40;
    peer.upload(0, &[1.0]);
    peer.upload(10, &[0.0]);
    let mut words = Vec::new();
    for step in 0..STEPS {
        let (old, new) = if step % 2 == 0 { (10, 11) } else { (11, 10) };
        wire::encode(&add(new, old, 0), &mut words).unwrap();
        let mut free = Instruction::new(Op::Free);
        free.operands.push(Operand::Value(Id::slot(old)));
        wire::encode(&free, &mut words).unwrap();
    }
    let mut rounds = 0_u16;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..5 {
            peer.send(&words);
            rounds += 1;
            peer.ask(i64::from(rounds), 10, 1);
        }
        for round in rounds - 4..=rounds {
            let expected = f32::from(round) * 40.0;
            assert_eq!(peer.answer(i64::from(round)), Ok(vec![expected]), "after {round} rounds");
        }
        if rounds > 60_000 {
            break;
        }
    }
    u32::from(rounds)
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
