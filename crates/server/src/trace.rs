//! The instruction log: a text line for each instruction, in the form that `gt trace` reads.

use crate::line_log::LineLog;
use gt_dispatcher::{SessionId, TraceLine, TraceNotes};
use gt_protocol::Instruction;
use gt_protocol::message::Failure;
use gt_protocol::text::{self, PAYLOAD_INLINE_BYTES};
use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// An open instruction log.
#[derive(Debug)]
pub struct Trace {
    log: LineLog,
    payloads: Option<PathBuf>,
}

impl Trace {
    /// Starts a log; with `payloads`, a payload too long for a line goes into `FILE.d/`, named by
    /// its hash.
    ///
    /// # Errors
    /// The file or folder cannot be created.
    pub fn create(path: &Path, payloads: bool) -> io::Result<Self> {
        let log = LineLog::new(path.to_owned(), File::create(path)?)?;
        let mut folder = path.as_os_str().to_owned();
        folder.push(".d");
        let payloads = payloads.then(|| PathBuf::from(folder));
        if let Some(folder) = &payloads {
            fs::create_dir_all(folder)?;
        }
        Ok(Self { log, payloads })
    }

    /// Writes one line, stamped with the time (UTC).
    pub fn write(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        notes: &TraceNotes<'_>,
    ) {
        let time = clock(SystemTime::now());
        let line = TraceLine { instruction, notes, time: &time, session: Some(session) };
        // Writing to a string cannot fail.
        let _ = write!(self.log.line(), "{line}");
        self.log.end_line();
        if let Err(error) = self.keep_payload(instruction.payload) {
            self.log.fail(&error, 0);
        }
    }

    /// Writes the failure that a worker reported for an instruction.
    pub fn write_failure(&mut self, failure: &Failure<'_>) {
        self.log.line().push_str(&text::failure(failure, &clock(SystemTime::now())));
        self.log.end_line();
    }

    /// Writes the waiting lines into the file.
    pub fn flush(&mut self) {
        self.log.flush();
    }

    /// Writes the waiting lines, for the last time.
    pub fn end(&mut self) {
        self.log.end();
    }

    /// Notice for the user, returned once: the file has failed.
    pub fn take_notice(&mut self) -> Option<String> {
        self.log.take_notice()
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
