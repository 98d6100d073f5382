//! The dispatcher process under load: round trips of a read, instructions a second, a light user beside a flooding one.
//!
//! `cargo bench -p gt-server`, with a standby `cargo bench -p gt-server -- --standby`. The worker executes nothing, so the benchmark measures the path
//! there and back.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a program whose result is its output, and whose failure is a panic"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::peer::{Peer, add, hello};
use common::{Server, worker};
use gt_protocol::handshake::Role;
use gt_protocol::{Id, Instruction, Op, Operand, wire};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const READS: usize = 2000;
/// Number of steps; each is an add and a free of its operand.
const STEPS: u32 = 500_000;

/// Time that an addition of four elements takes on a worker with torch.
const ADD: Duration = Duration::from_nanos(550);

fn main() {
    let _ = gt_transport::set_timer_slack_1us();
    // The dispatcher and workers do the same. With the default slice, beside them on one CPU, this
    // thread's turn came 22 us after each of their yields; with it a hot read takes 4.
    let _ = gt_transport::set_short_slice();
    for (name, cost) in [("that computes nothing", Duration::ZERO), ("with 0.55 us an add", ADD)] {
        println!("--- one worker {name}");
        let mut options = vec!["--log-level", "error"];
        options.extend(std::env::args().any(|word| word == "--standby").then_some("--standby"));
        let server = Server::start("bench", &options);
        let _worker = worker::spawn_idle(&server, cost);
        if cost.is_zero() {
            round_trips(&server);
        }
        rates(&server);
    }
}

fn round_trips(server: &Server) {
    let client = || hello(Role::Client);
    println!("read, p50 / p99 us              hot       after 2 ms");
    for (name, mut peer) in [
        ("unix ring", Peer::unix(server, client())),
        ("tcp, moved to a ring", Peer::moved(server, client())),
        ("tcp", Peer::tcp(server, client())),
    ] {
        peer.upload(0, &[1.0]);
        let hot = reads(&mut peer, Duration::ZERO, READS);
        let cold = reads(&mut peer, Duration::from_millis(2), READS / 4);
        println!("{name:24} {hot:>16} {cold:>16}");
    }
}

fn rates(server: &Server) {
    let mut one = Peer::unix(server, hello(Role::Client));
    let busy = server.core_time();
    println!("one client           {:8.2} M instructions/s", flood(&mut one, STEPS));
    let busy = server.core_time().saturating_sub(busy);
    println!("  of the core's CPU  {:8.2}", millions(STEPS * 2, busy));
    let mut two = Peer::unix(server, hello(Role::Client));
    let (start, busy) = (Instant::now(), server.core_time());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| flood(&mut two, STEPS));
        let rates = [flood(&mut one, STEPS), other.join().unwrap()];
        println!("two clients, each    {:8.2} {:.2}", rates[0], rates[1]);
    });
    println!("two clients, both    {:8.2}", millions(STEPS * 4, start.elapsed()));
    let busy = server.core_time().saturating_sub(busy);
    println!("  of the core's CPU  {:8.2}", millions(STEPS * 4, busy));
    let stop = AtomicBool::new(false);
    two.upload(0, &[1.0]);
    let alone = reads(&mut two, Duration::from_micros(500), READS);
    std::thread::scope(|scope| {
        let heavy = scope.spawn(|| {
            let (start, mut steps) = (Instant::now(), 0);
            while !stop.load(Ordering::Relaxed) {
                flood(&mut one, 10_000);
                steps += 10_000;
            }
            millions(steps * 2, start.elapsed())
        });
        let light = reads(&mut two, Duration::from_micros(500), READS);
        stop.store(true, Ordering::Relaxed);
        println!("a read each 0.5 ms   {alone} us alone, {light} beside a flooding client");
        println!("the flooding one     {:8.2}", heavy.join().unwrap());
    });
}

/// Median and 99th percentile of a read's round trip in microseconds, with a pause before each.
fn reads(peer: &mut Peer, pause: Duration, count: usize) -> String {
    let mut times: Vec<f64> = (0..count)
        .map(|request| {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            let start = Instant::now();
            peer.read(i64::try_from(request).unwrap(), 0, 1).unwrap();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    format!("{:.1} / {:.1}", times[count / 2], times[count * 99 / 100])
}

/// Chained adds, each freeing its operand, and a read at the end; millions of instructions a second.
fn flood(peer: &mut Peer, steps: u32) -> f64 {
    peer.upload(10, &[1.0]);
    let groups: Vec<Vec<u32>> = [(11, 10), (10, 11)]
        .map(|(new, old)| {
            let mut free = Instruction::new(Op::Free);
            free.operands.push(Operand::Value(Id::slot(old)));
            [add(new, old, old), free].map(|instruction| {
                let mut words = Vec::new();
                wire::encode(&instruction, &mut words).unwrap();
                words
            })
        })
        .into_iter()
        .flatten()
        .collect();
    let start = Instant::now();
    for _ in 0..steps / 2 {
        for words in &groups {
            peer.send(words);
        }
    }
    peer.read(1, 10, 1).unwrap();
    let rate = millions(steps * 2, start.elapsed());
    peer.free(10);
    rate
}

fn millions(count: u32, time: Duration) -> f64 {
    f64::from(count) / time.as_secs_f64() / 1e6
}
