//! A worker that finds itself on its client's CPU, wait after wait, goes to an idle one.
//!
//! The two of them otherwise take turns: each answer costs two switches of the thread instead of a few cache lines (8 us
//! instead of 2 for a number that is read). The kernel's balancer sees two threads that sleep half of the time and may
//! leave them where they are for as long as the program runs. Onto a busy CPU it must not go: there every answer waits
//! for a slice of another program's, 50 us and more.

use crate::scheduling;
use std::fs;
use std::time::{Duration, Instant};

/// So many waits in a row: one alone is a client that the kernel just moved, and may move again.
const WAITS: u32 = 3;
/// The span over which a CPU must have been idle, and the least time between two moves. The kernel counts idle time in
/// hundredths of a second.
const SPAN: Duration = Duration::from_millis(50);
/// Doubled up to this where no CPU was idle: a look at the counters of a large machine costs a millisecond.
const SPAN_MAX: Duration = Duration::from_secs(5);

/// What a worker remembers of its last waits.
#[derive(Debug)]
pub struct SharedCpu {
    waits: u32,
    span: Duration,
    earlier: Option<(Instant, IdleTimes)>,
}

impl Default for SharedCpu {
    fn default() -> Self {
        Self { waits: 0, span: SPAN, earlier: None }
    }
}

impl SharedCpu {
    /// Notes a wait that begins, and whether its client's CPU is ours; true where it no longer is because this thread has
    /// left it.
    pub fn leave(&mut self, shares_cpu: bool) -> bool {
        if !shares_cpu {
            self.waits = 0;
            return false;
        }
        self.waits += 1;
        if self.waits < WAITS {
            return false;
        }
        self.waits = 0;
        self.idle_cpu().is_some_and(scheduling::move_to_cpu)
    }

    /// Another CPU that has had little to do since the last look; `None` too where that was just now or long ago.
    fn idle_cpu(&mut self) -> Option<usize> {
        if let Some((at, _)) = &self.earlier
            && at.elapsed() < self.span
        {
            return None;
        }
        let now = IdleTimes::parse(&fs::read_to_string("/proc/stat").ok()?);
        let (at, earlier) = self.earlier.replace((Instant::now(), now))?;
        let (_, now) = self.earlier.as_ref()?;
        let passed = at.elapsed();
        if passed > 4 * self.span {
            return None;
        }
        let idle = now.idle_since(&earlier, passed).find(|&cpu| scheduling::may_move_to(cpu));
        self.span = if idle.is_some() { SPAN } else { SPAN_MAX.min(2 * self.span) };
        idle
    }
}

/// How long each CPU has had nothing to do, in hundredths of a second since the machine started.
#[derive(Debug, Default)]
pub struct IdleTimes(Vec<(usize, u64)>);

impl IdleTimes {
    /// Of the text of `/proc/stat`: `cpu3 user nice system idle iowait …` (proc(5)). Lines of another form are left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let idle_of = |line: &str| {
            let (cpu, times) = line.strip_prefix("cpu")?.split_once(' ')?;
            let mut times = times.split(' ').skip(3).map(str::parse);
            let (idle, waiting): (u64, u64) = (times.next()?.ok()?, times.next()?.ok()?);
            Some((cpu.parse().ok()?, idle.saturating_add(waiting)))
        };
        Self(text.lines().filter_map(idle_of).collect())
    }

    /// The CPUs that had nothing to do for three quarters of the time since then or more.
    pub fn idle_since(&self, earlier: &Self, passed: Duration) -> impl Iterator<Item = usize> {
        let least = passed.as_millis() * 3 / 4;
        let pairs = self.0.iter().zip(&earlier.0);
        let idle = move |((cpu, now), (before, then)): (&(usize, u64), &(usize, u64))| {
            let millis = u128::from(now.saturating_sub(*then)) * 10;
            (cpu == before && millis >= least).then_some(*cpu)
        };
        pairs.filter_map(idle)
    }
}
