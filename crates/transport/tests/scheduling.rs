//! The scheduler calls take effect on the calling thread, and a signal ends a wait.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a failed test is a panic"
)]
#![allow(unsafe_code, reason = "neither std nor rustix sends a signal to a thread")]

mod common;

use std::mem;
use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::thread;
use std::time::Duration;

use common::{CONSUMER_PARKED, FOREVER, NEVER_SPIN, SMALL, ring};
use gt_transport::{
    IdleTimes, SharedCpu, die_with_parent, move_to_cpu, set_short_slice, set_timer_slack_1us,
    yield_now,
};
use rustix::process::{Signal, getpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[test]
fn a_short_slice_keeps_the_nice_value() {
    let before = getpriority_process(None).unwrap();
    // A sandbox may refuse; both answers are valid, a changed priority is not.
    let _ = set_short_slice();
    assert_eq!(getpriority_process(None).unwrap(), before);
}

#[test]
fn timer_slack_is_one_microsecond() {
    set_timer_slack_1us().unwrap();
    assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1000);
}

#[test]
fn the_parents_death_kills() {
    die_with_parent().unwrap();
    assert_eq!(rustix::process::parent_process_death_signal().unwrap(), Some(Signal::KILL));
    rustix::process::set_parent_process_death_signal(None).unwrap();
}

extern "C" fn nothing(_signal: libc::c_int) {}

#[test]
fn a_signal_ends_a_wait_early() {
    let (_producer, mut consumer, memory) = ring(SMALL);
    // SAFETY: the handler does nothing, so it may run at any point; no other test uses the signal.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let handler: extern "C" fn(libc::c_int) = nothing;
        action.sa_sigaction = handler as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()), 0);
    }
    let waiter = thread::spawn(move || consumer.wait(NEVER_SPIN, FOREVER));
    memory.until_not_zero(CONSUMER_PARKED);
    // Repeated, because the first signal may come between the parked word and the sleep.
    while !waiter.is_finished() {
        // SAFETY: the thread has not been joined, so its id is valid.
        unsafe { libc::pthread_kill(waiter.as_pthread_t(), libc::SIGUSR1) };
        yield_now();
    }
    assert!(!waiter.join().unwrap());
}

#[test]
fn a_producer_knows_whether_its_consumer_runs_on_its_cpu() {
    let (producer, mut consumer, _memory) = ring(SMALL);
    assert!(!producer.shares_cpu(), "nobody has looked for words yet");
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    for &cpu in &cpus {
        run_on(cpu);
        consumer.read(&mut Vec::new(), 1);
        for &other in &cpus {
            run_on(other);
            assert_eq!(producer.shares_cpu(), other == cpu, "{other} beside {cpu}");
        }
    }
}

#[test]
fn a_thread_moves_and_keeps_its_set() {
    let allowed = sched_getaffinity(None).unwrap();
    for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)) {
        assert!(move_to_cpu(cpu));
        assert_eq!(sched_getaffinity(None).unwrap(), allowed);
    }
}

#[test]
fn idle_is_who_had_nothing_to_do_for_three_quarters() {
    let before = IdleTimes::parse(
        "cpu  9 9 9 9 9 9\ncpu0 5 0 5 100 10 0\ncpu1 5 0 5 100 10 0\ncpu3 0 0 0 7 0",
    );
    let now =
        "cpu  9 9 9 9 9 9\ncpu0 9 0 9 103 10 0\ncpu1 5 0 5 102 12 0\ncpu3 0 0 0 99 0\nintr 1 2";
    let idle = |millis| {
        let passed = Duration::from_millis(millis);
        IdleTimes::parse(now).idle_since(&before, passed).collect::<Vec<_>>()
    };
    assert_eq!(idle(50), [1, 3], "30, 40 and 920 ms of 50");
    assert_eq!(idle(40), [0, 1, 3]);
    assert_eq!(idle(60), [3]);
    for text in [
        "",
        "cpu",
        "cpu0",
        "cpu0 1 2 3",
        "cpux 1 2 3 4 5",
        "cpu0 1 2 3 -4 5",
        "cpu0 1 2 3 99999999999999999999 5",
    ] {
        assert_eq!(IdleTimes::parse(text).idle_since(&before, Duration::ZERO).count(), 0, "{text}");
    }
}

#[test]
fn nobody_leaves_before_a_span_has_passed() {
    let mut shared = SharedCpu::default();
    assert_eq!([true; 12].map(|shares| shared.leave(shares)), [false; 12]);
    thread::sleep(Duration::from_millis(60));
    assert_eq!([true, true, false, true, true].map(|shares| shared.leave(shares)), [false; 5]);
}

/// Moves the calling thread.
fn run_on(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).unwrap();
}
