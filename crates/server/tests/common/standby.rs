//! A dispatcher with a standby: its processes, and a kill that the standby survives.

use super::Server;
use std::process::Command;
use std::time::{Duration, Instant};

const HANG: Duration = Duration::from_secs(20);
const STANDBY: &str = "gt-standby";

/// Process of a dispatcher's group.
#[derive(Clone, Debug)]
pub struct Process {
    id: u32,
    name: String,
}

/// The processes of the group that are no zombies.
pub fn processes(server: &Server) -> Vec<Process> {
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

pub fn until<T>(what: &str, server: &Server, mut ready: impl FnMut() -> Option<T>) -> T {
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
pub fn both(server: &Server) -> (u32, u32) {
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

pub fn nobody_left(server: &Server) {
    until("a process is left", server, || processes(server).is_empty().then_some(()));
}

pub fn signal(name: &str, process: u32) {
    let process = process.to_string();
    assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
}

/// Kills the dispatcher; returns when its standby has one of its own.
pub fn kill_dispatcher(server: &mut Server, takeovers: usize) {
    let (dispatcher, standby) = both(server);
    signal("-KILL", dispatcher);
    if dispatcher == server.first_process() {
        server.reap();
    }
    let line = format!("its standby, process {standby}, goes on: nothing was lost");
    until("nobody takes over", server, || server.log().contains(&line).then_some(()));
    assert_eq!(server.log().matches("nothing was lost").count(), takeovers, "{}", server.log());
}

/// Kills the dispatcher at once; returns when a standby serves in its place.
pub fn kill_process(server: &mut Server, dispatcher: u32, takeovers: usize) {
    // To start a program takes longer than a takeover.
    let process = rustix::process::Pid::from_raw(dispatcher.cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    if dispatcher == server.first_process() {
        server.reap();
    }
    let have_taken_over = || server.log().matches("nothing was lost").count() == takeovers;
    until("nobody takes over", server, || have_taken_over().then_some(()));
}
