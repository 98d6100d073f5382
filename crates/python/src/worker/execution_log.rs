//! Record of the times at which a worker executed each instruction: lines of a file beside the
//! instruction log, `FILE.worker3` for worker 3, or on standard error, for `GT_DEBUG_WORKER`.
//!
//! A line is `s1 %37 matmul 43387123456.7 812.3`: session, number, operator, start in microseconds
//! of the day (UTC), and duration in microseconds. A collective, whose bytes move while other
//! instructions compute, lasts until all have arrived.

use gt_protocol::{Instruction, Kind, Op};
use gt_worker::FailedInstruction;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Number of bytes of lines that gather before they are written; they are also written when the
/// worker waits or is asked.
const BUFFER_BYTES: usize = 64 * 1024;
const DAY_SECONDS: u64 = 86_400;

/// A worker's record of execution times.
#[derive(Debug)]
pub struct ExecutionLog {
    /// Path of the instruction log, if there is one.
    path: Option<PathBuf>,
    file: Option<File>,
    /// True if each line also goes to standard error, for people.
    is_shown: bool,
    index: u32,
    lines: String,
    /// One moment by both clocks: the monotonic one, and the time of day.
    start: (Instant, Duration),
    began: Option<Instant>,
    /// Collectives in flight, by the machine's tickets.
    transfers: BTreeMap<u64, Instant>,
}

impl ExecutionLog {
    /// A record beside the instruction log at `path`, opened once the worker's index is known.
    pub fn new(path: Option<PathBuf>, is_shown: bool) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let of_day = Duration::new(now.as_secs() % DAY_SECONDS, now.subsec_nanos());
        let start = (Instant::now(), of_day);
        Self {
            path,
            file: None,
            is_shown,
            index: 0,
            lines: String::new(),
            start,
            began: None,
            transfers: BTreeMap::new(),
        }
    }

    /// Opens the file; a worker that cannot open it goes on without one, and says so. There is none
    /// beside a terminal, a pipe or `/dev/null`.
    pub fn open(&mut self, index: u32) {
        self.index = index;
        let Some(path) = &self.path else { return };
        if path.metadata().is_ok_and(|log| !log.is_file()) {
            return;
        }
        let mut path = path.clone().into_os_string();
        path.push(format!(".worker{index}"));
        match File::create(&path) {
            Ok(file) => self.file = Some(file),
            Err(error) => warn(&format!("{}: {error}", PathBuf::from(path).display())),
        }
    }

    /// Notes the start of an instruction.
    pub fn begin(&mut self) {
        self.began = Some(Instant::now());
    }

    /// Adds the line of the instruction that has started.
    pub fn end(&mut self, session: u32, instruction: &Instruction<'_>) {
        if let Some(began) = self.began.take()
            && instruction.op.info().kind() == Kind::Compute
        {
            self.line(session, instruction.tag, instruction.op, began);
        }
    }

    /// Notes the start of a collective.
    pub fn begin_transfer(&mut self, ticket: u64) {
        self.transfers.insert(ticket, Instant::now());
    }

    /// Adds the line of a collective that is over.
    pub fn end_transfer(&mut self, ticket: u64, origin: &FailedInstruction) {
        if let Some(began) = self.transfers.remove(&ticket) {
            self.line(origin.session, origin.tag, origin.op, began);
        }
    }

    fn line(&mut self, session: u32, tag: u32, op: Op, began: Instant) {
        let took = microseconds(began.elapsed());
        if self.is_shown {
            let (index, name) = (self.index, op.info().name);
            let line = format!("gt: worker {index}: s{session} %{tag} {name} took {took:.1} us");
            // If standard error is closed, there is nowhere to report it.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        if self.file.is_none() {
            return;
        }
        let at = microseconds(self.start.1 + began.duration_since(self.start.0));
        // Writing to a string cannot fail.
        let _ = writeln!(self.lines, "s{session} %{tag} {} {at:.1} {took:.1}", op.info().name);
        if self.lines.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Writes the lines that have gathered.
    pub fn flush(&mut self) {
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(self.lines.as_bytes())
        {
            warn(&format!("the record of what this worker executed ends: {error}"));
            self.file = None;
        }
        self.lines.clear();
    }
}

fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn warn(text: &str) {
    // If standard error is closed, there is nowhere to report it.
    let _ = writeln!(std::io::stderr(), "gt.worker: {text}");
}
