//! The instruction log: a text line for each instruction, in the form that `gt trace` reads; and lines
//! about decisions, for people, in the dispatcher's log.

use crate::line_log::LineLog;
use gt_dispatcher::{SessionId, TraceLine, TraceNotes, decision_line};
use gt_protocol::Instruction;
use gt_protocol::message::Failure;
use gt_protocol::text::{self, PAYLOAD_INLINE_BYTES};
use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Traces that are written.
#[derive(Debug)]
pub struct Trace {
    log: Option<InstructionLog>,
    /// True if each placement and its reason has a line in the dispatcher's log.
    shows_decisions: bool,
}

/// An open instruction log.
#[derive(Debug)]
struct InstructionLog {
    lines: LineLog,
    payloads: Option<PathBuf>,
}

impl Trace {
    /// Opens the log at `path`, if there is one; `None` where nothing is to be written.
    ///
    /// # Errors
    /// The file or folder cannot be created.
    pub fn open(
        path: Option<&Path>,
        payloads: bool,
        shows_decisions: bool,
    ) -> io::Result<Option<Self>> {
        let log = path.map(|path| InstructionLog::create(path, payloads)).transpose()?;
        let is_wanted = log.is_some() || shows_decisions;
        Ok(is_wanted.then_some(Self { log, shows_decisions }))
    }

    /// True if decisions have lines.
    pub fn shows_decisions(&self) -> bool {
        self.shows_decisions
    }

    /// Writes what there is to say about an instruction.
    pub fn write(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        notes: &TraceNotes<'_>,
    ) {
        if let Some(log) = &mut self.log {
            log.write(session, instruction, notes);
        }
        if self.shows_decisions
            && let Some(line) = decision_line(instruction, notes)
        {
            tracing::info!("s{} {line}", session.0);
        }
    }

    /// Writes the failure that a worker reported for an instruction.
    pub fn write_failure(&mut self, failure: &Failure<'_>) {
        if let Some(InstructionLog { lines, .. }) = &mut self.log {
            lines.line().push_str(&text::failure(failure, &clock(SystemTime::now())));
            lines.end_line();
        }
    }

    /// Writes the waiting lines into the file.
    pub fn flush(&mut self) {
        if let Some(log) = &mut self.log {
            log.lines.flush();
        }
    }

    /// Writes the waiting lines, for the last time.
    pub fn end(&mut self) {
        if let Some(log) = &mut self.log {
            log.lines.end();
        }
    }

    /// Notice for the user, returned once: the file has failed.
    pub fn take_notice(&mut self) -> Option<String> {
        self.log.as_mut()?.lines.take_notice()
    }
}

impl InstructionLog {
    /// Starts a log; with `payloads`, a payload too long for a line goes into `FILE.d/`, named by
    /// its hash.
    fn create(path: &Path, payloads: bool) -> io::Result<Self> {
        let lines = LineLog::new(path.to_owned(), File::create(path)?)?;
        let mut folder = path.as_os_str().to_owned();
        folder.push(".d");
        let payloads = payloads.then(|| PathBuf::from(folder));
        if let Some(folder) = &payloads {
            fs::create_dir_all(folder)?;
        }
        Ok(Self { lines, payloads })
    }

    /// Writes one line, stamped with the time (UTC).
    fn write(&mut self, session: SessionId, instruction: &Instruction<'_>, notes: &TraceNotes<'_>) {
        let time = clock(SystemTime::now());
        let line = TraceLine { instruction, notes, time: &time, session: Some(session) };
        // Writing to a string cannot fail.
        let _ = write!(self.lines.line(), "{line}");
        self.lines.end_line();
        if let Err(error) = self.keep_payload(instruction.payload) {
            self.lines.fail(&error, 0);
        }
    }

    fn keep_payload(&self, payload: &[u8]) -> io::Result<()> {
        let Some(folder) = &self.payloads else { return Ok(()) };
        if payload.len() <= PAYLOAD_INLINE_BYTES {
            return Ok(());
        }
        let path = folder.join(format!("{:032x}", text::fnv128(payload)));
        if path.exists() { Ok(()) } else { fs::write(path, payload) }
    }
}

/// `12:03:07.123456`
fn clock(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs() % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:06}", seconds % 60, since.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::clock;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn the_time_of_day() {
        let at = UNIX_EPOCH + Duration::from_secs(86_400 + 12 * 3600 + 3 * 60 + 7);
        assert_eq!(clock(at + Duration::from_micros(123_456)), "12:03:07.123456");
    }
}
