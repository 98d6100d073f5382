//! Scheduler settings that make a hand-off between two processes fast, and the polling with which
//! all waits in this crate begin. Every call here concerns the calling thread.

#![allow(unsafe_code, reason = "neither std nor rustix has sched_setattr")]

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint;
use std::io;
use std::mem;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Time slice of a thread. Without it a woken worker waited up to 5.6 ms (p99) for a busy client on
/// its CPU; with it 110 us.
const SLICE: Duration = Duration::from_micros(100);
/// Timer slack. The default of 50 us would be added to every short sleep.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::new(1000).unwrap();
/// Number of polls between two yields, about 0.3 us. More block the awaited peer when both share a
/// CPU (112 us for a round trip instead of 6.4), fewer only make more system calls.
const POLLS_PER_YIELD: u32 = 12;

/// Asks for a time slice of 100 us, so that this thread preempts a busy one soon after it is woken.
/// Keeps policy and nice value. Returns false where it has no effect: under a real-time policy, or
/// where the kernel (or a sandbox) refuses; kernels before 6.12 accept and ignore it.
#[must_use = "drop the answer with `let _ =` where it does not matter"]
pub fn set_short_slice() -> bool {
    let Some(mut attributes) = scheduling_attributes() else {
        return false;
    };
    let fair = [libc::SCHED_OTHER, libc::SCHED_BATCH].map(i32::cast_unsigned);
    if !fair.contains(&attributes.sched_policy) {
        return false;
    }
    attributes.sched_runtime = u64::try_from(SLICE.as_nanos()).unwrap_or(0);
    let (this_thread, no_flags) = (0, 0);
    // SAFETY: the kernel reads `size` bytes of the struct, which are initialised and outlive the call.
    let answer = unsafe {
        libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const attributes, no_flags)
    };
    answer == 0
}

/// Lets timed sleeps of this thread end within 1 us of their time instead of 50.
///
/// # Errors
/// An error of the kernel, which refuses only in sandboxes.
pub fn set_timer_slack_1us() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS))?)
}

/// Asks for SIGKILL when the thread that spawned this process ends: the *thread*, so workers must be
/// spawned from one that lives as long as the program. The parent may have died before the call, so
/// compare `getppid` afterwards, and watch a socket to it as well.
///
/// # Errors
/// An error of the kernel, which refuses only in sandboxes.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)
}

/// Number of the CPU on which the calling thread runs, plus one.
pub(crate) fn current_cpu() -> u32 {
    // libc's function reads the thread's own memory; rustix's asks the vDSO, and maps it first.
    // SAFETY: the call takes no argument and touches no memory of ours.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).unwrap_or(u32::MAX).saturating_add(1)
}

/// Moves the calling thread to one of the CPUs on which it may run; the set of these is unchanged.
/// Returns false where a sandbox refuses.
#[must_use = "drop the answer with `let _ =` where it does not matter"]
pub fn move_to_cpu(cpu: usize) -> bool {
    let Ok(allowed) = sched_getaffinity(None) else { return false };
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).is_ok() && sched_setaffinity(None, &allowed).is_ok()
}

/// Returns true if the calling thread may run on a CPU on which it does not run now.
pub(crate) fn may_move_to(cpu: usize) -> bool {
    cpu < CpuSet::MAX_CPU
        && cpu != rustix::thread::sched_getcpu()
        && sched_getaffinity(None).is_ok_and(|allowed| allowed.is_set(cpu))
}

/// Lets another thread on this CPU run.
pub fn yield_now() {
    std::thread::yield_now();
}

/// Polls and yields in turn until `ready` or until the limit; returns true if it became ready.
pub fn poll_until(limit: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        for _ in 0..POLLS_PER_YIELD {
            if ready() {
                return true;
            }
            hint::spin_loop();
        }
        yield_now();
    }
    ready()
}

fn scheduling_attributes() -> Option<libc::sched_attr> {
    // SAFETY: the struct has integers only, for which all zeros is a valid value.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    let size = u32::try_from(size_of::<libc::sched_attr>()).ok()?;
    let (this_thread, no_flags) = (0, 0);
    // SAFETY: the kernel writes at most `size` bytes, the size of the struct, which outlives the call.
    let answer = unsafe {
        libc::syscall(libc::SYS_sched_getattr, this_thread, &raw mut attributes, size, no_flags)
    };
    attributes.size = size;
    (answer == 0).then_some(attributes)
}
