//! Moving a worker that finds itself on its client's CPU, wait after wait, to an idle one.
//!
//! On one CPU the two take turns: each answer costs two thread switches instead of a few cache
//! lines (8 us instead of 2 for reading a number). The kernel's balancer sees two threads that
//! sleep half of the time and may leave them there for as long as the program runs. The worker must
//! not move to a busy CPU: there every answer waits for a time slice of another program, 50 us and
//! more.

use crate::scheduling;
use std::fs;
use std::time::{Duration, Instant};

/// Number of such waits in a row before a move: a single one may be a client that the kernel just
/// moved, and may move again.
const WAITS: u32 = 3;
/// Time for which a CPU must have been idle, and minimum time between two moves. The kernel counts
/// idle time in 1/100 s.
const SPAN: Duration = Duration::from_millis(50);
/// Limit to which the span is doubled while no CPU is idle: reading the counters of a large machine
/// takes a millisecond.
const SPAN_MAX: Duration = Duration::from_secs(5);

/// State of a worker's last waits.
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
    /// Notes the start of a wait, and whether the client is on this CPU; returns true if this
    /// thread has moved to another one.
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

    /// Another CPU that was mostly idle since the last look; `None` too if that look was too recent
    /// or too long ago.
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

/// Idle time of each CPU, in 1/100 s since the machine started.
#[derive(Debug, Default)]
pub struct IdleTimes(Vec<(usize, u64)>);

impl IdleTimes {
    /// Parses the text of `/proc/stat`: `cpu3 user nice system idle iowait …` (proc(5)). Lines of
    /// another form are skipped.
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

    /// The CPUs that were idle for at least three quarters of the time since then.
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
