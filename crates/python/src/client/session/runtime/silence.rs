//! Workers that do not answer: their names, the time since the last answer, and the message of a
//! long wait. A worker that computes is not reported.

use super::state::Runtime;
use crate::client::connection::answers::Answer;
use crate::client::session::describe::DescribeKind;
use gt_protocol::{Meta, Operand};
use gt_transport::process_state;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time for which a wait is silent: long reads are ordinary, and the message is for people.
const SILENCE: Duration = Duration::from_secs(5);
/// Interval between two looks at the workers' processes. The first look is before the end of the
/// silence, so that the second coincides with it.
const LOOK: Duration = Duration::from_secs(1);
/// Ticks (1/100 s) of processor time that a computing or starting worker uses at least between two
/// looks.
const BUSY_TICKS: u64 = 5;

/// Request that a program waits for.
#[derive(Clone, Copy)]
pub(crate) enum Question<'a> {
    Read(&'a Meta),
    Synchronize,
    Description,
    /// Counters, with the time limit of the wait; None: until a worker is known not to answer.
    Counters(Option<Duration>),
}

impl Question<'_> {
    /// Returns true if a partial answer is enough: each worker's counters come separately.
    pub(super) fn is_partial(&self, watch: &Watch) -> bool {
        match self {
            Self::Read(_) | Self::Synchronize | Self::Description => false,
            Self::Counters(None) => watch.named.is_some(),
            Self::Counters(Some(limit)) => watch.waited() >= *limit,
        }
    }
}

impl std::fmt::Display for Question<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(meta) => write!(f, "a read of {meta}"),
            Self::Synchronize => f.write_str("a synchronize"),
            Self::Description => f.write_str("a question to the dispatcher"),
            Self::Counters(_) => f.write_str("a question for counters"),
        }
    }
}

/// The state of one wait as it grows long.
pub(super) struct Watch {
    begun: Instant,
    looked: Instant,
    /// Number of the request to the dispatcher for the workers that have not answered.
    request: Option<u64>,
    /// Processor time of the workers' processes at the last look.
    ticks: BTreeMap<u32, u64>,
    /// Workers that have been named in the message.
    named: Option<String>,
}

/// A worker's line in the dispatcher's description.
struct WorkerLine {
    index: u32,
    process: u32,
    is_waited_for: bool,
}

impl Watch {
    pub fn new() -> Self {
        let (begun, ticks) = (Instant::now(), BTreeMap::new());
        Self { begun, looked: begun, request: None, ticks, named: None }
    }

    /// Time that the wait has lasted.
    pub fn waited(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns `worker 0 has not answered since 12:03:07 UTC` when that is due, once.
    pub fn look(&mut self, runtime: &mut Runtime) -> Option<String> {
        if self.named.is_some() || self.waited() < SILENCE.saturating_sub(LOOK) {
            return None;
        }
        if let Some(request) = self.request {
            let answer = runtime.answers.take(request)?;
            self.request = None;
            let Answer::Described(text) = answer else { return None };
            let is_here = runtime.connection.as_ref().is_some_and(|one| one.is_on_this_host());
            let (silent, advice) = self.silent(&parse(&text), is_here);
            if silent.is_empty() || self.waited() < SILENCE {
                return None;
            }
            let since = time_of_day(SystemTime::now() - self.waited());
            let has = if silent.len() == 1 { "has" } else { "have" };
            let named = silent.join(" and ");
            let text = format!("{named} {has} not answered since {since}{advice}");
            self.named = Some(named);
            return Some(text);
        }
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.request = runtime.ask_unanswered();
        }
        None
    }

    /// Drops the request for the unanswered workers.
    pub fn forget(&mut self) {
        self.named = None;
    }

    /// Returns `the answer has come after 12 s: worker 0 (process 123)` if the worker had been
    /// named and the answer has come.
    pub fn end(&mut self, runtime: &mut Runtime, is_answered: bool) -> Option<String> {
        if let Some(request) = self.request.take() {
            runtime.answers.forget(request);
        }
        let named = self.named.take().filter(|_| is_answered)?;
        Some(format!("the answer has come after {:.0} s: {named}", self.waited().as_secs_f64()))
    }

    /// Stopped workers, for which others may wait, and how to continue them; else those that have
    /// not answered and do not compute.
    fn silent(&mut self, lines: &[WorkerLine], is_here: bool) -> (Vec<String>, String) {
        let (mut stopped, mut idle, mut is_first_look) = (Vec::new(), Vec::new(), false);
        let mut advice = ", for a signal has stopped it: let it go on by `kill -CONT".to_owned();
        for line in lines {
            let state = process_state(line.process).filter(|_| is_here);
            let name = match state {
                Some(_) => format!("worker {} (process {})", line.index, line.process),
                None => format!("worker {}", line.index),
            };
            let ticks = state.map_or(0, |state| state.ticks);
            let before = self.ticks.insert(line.index, ticks);
            is_first_look |= before.is_none();
            let is_busy = ticks >= before.unwrap_or(0).saturating_add(BUSY_TICKS);
            if state.is_some_and(|state| state.is_stopped) {
                stopped.push(name);
                advice = format!("{advice} {}", line.process);
            } else if line.is_waited_for && !is_busy {
                idle.push(name);
            }
        }
        if !stopped.is_empty() {
            return (stopped, advice + "`");
        }
        (if is_first_look { Vec::new() } else { idle }, String::new())
    }
}

impl Runtime {
    /// Asks the dispatcher which workers this session waits for; it answers without any worker.
    /// Does nothing where the request has no room: the dispatcher then throttles this session, and
    /// there will be room.
    fn ask_unanswered(&mut self) -> Option<u64> {
        let connection = self.connection.as_mut()?;
        if !connection.has_dispatcher_room() {
            return None;
        }
        let request = self.answers.open();
        let word = DescribeKind::Unanswered.instruction(request, Operand::Absent);
        self.send(&word).ok().map(|()| request)
    }
}

fn parse(text: &str) -> Vec<WorkerLine> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let mut number = || words.next()?.parse::<u32>().ok();
        let (index, process, waited) = (number()?, number()?, number()?);
        Some(WorkerLine { index, process, is_waited_for: waited != 0 })
    };
    text.lines().filter_map(line).collect()
}

/// `12:03:07`, in UTC.
fn time_of_day(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
