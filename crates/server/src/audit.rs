//! The audit log: a line for each connection, refusal and session, and for each change of the files
//! that say who may do what. Tokens and secrets never stand in it.

use crate::line_log::LineLog;
use gt_protocol::integer::to_u64;
use std::fmt::{self, Write};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Bytes at the end of the file in which a standby looks for lines that it holds: far more than one
/// round of the core's thread writes.
const TAIL_BYTES: usize = 1 << 20;

/// A handle of the log, which both threads hold; it writes nothing if there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditLog(Option<Arc<Mutex<LineLog>>>);

/// The file of the log, as the core's thread keeps it for a standby.
#[derive(Debug)]
pub(crate) struct AuditFile {
    path: PathBuf,
    file: File,
}

/// The core's thread's handle of the log. Beside a standby its lines wait until the standby has what
/// they tell of: else a takeover would write them again, or nobody would.
#[derive(Debug, Default)]
pub(crate) struct CoreAudit {
    log: AuditLog,
    /// The file, if there may be a standby.
    file: Option<AuditFile>,
    /// Lines that wait.
    held: Vec<String>,
    /// True if the process before this one may have written them.
    are_doubtful: bool,
}

impl AuditFile {
    /// Opens a file, which is created if need be and appended to.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// A log that appends to the file.
    pub fn log(&self) -> io::Result<AuditLog> {
        let log = LineLog::new(self.path.clone(), self.file.try_clone()?)?.named("audit log");
        Ok(AuditLog(Some(Arc::new(Mutex::new(log)))))
    }

    /// End of the file, by its descriptor: the path may be another file's by now. Empty where it
    /// cannot be read, as a pipe.
    fn tail(&self) -> Vec<u8> {
        let read = || -> io::Result<Vec<u8>> {
            let file = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
            let length = file.metadata()?.len();
            let start = length.saturating_sub(to_u64(TAIL_BYTES));
            let mut bytes = vec![0; usize::try_from(length - start).unwrap_or(0)];
            file.read_exact_at(&mut bytes, start)?;
            Ok(bytes)
        };
        if self.file.metadata().is_ok_and(|file| file.is_file()) {
            read().unwrap_or_default()
        } else {
            Vec::new()
        }
    }

    /// Cuts off half a line, which the process before this one was writing when it was killed.
    fn end_at_a_line(&self) {
        let tail = self.tail();
        let kept = tail.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let excess = to_u64(tail.len() - kept);
        if excess > 0
            && let Ok(file) = self.file.metadata()
        {
            // If it fails, half a line stands in front of the next one.
            let _ = self.file.set_len(file.len() - excess);
        }
    }
}

impl CoreAudit {
    /// A handle of a dispatcher that may have a standby if the file is given.
    pub fn new(log: AuditLog, file: Option<AuditFile>) -> Self {
        Self { log, file, ..Self::default() }
    }

    /// Descriptor that a standby keeps.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.file.as_ref().map(|audit| audit.file.as_raw_fd())
    }

    /// Writes a line as [`AuditLog::write`] does, at once or with [`Self::release`].
    pub fn write(&mut self, event: &str, fields: fmt::Arguments<'_>) {
        if self.file.is_none() {
            return self.log.write(event, fields);
        }
        self.held.push(line(event, fields));
    }

    /// Writes the lines that wait: a standby has what they tell of, or there is none.
    pub fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let written = if std::mem::take(&mut self.are_doubtful) {
            self.file.as_ref().map(AuditFile::tail).unwrap_or_default()
        } else {
            Vec::new()
        };
        for line in self.held.drain(..) {
            // Its time has microseconds: no other line is the same.
            if !written.windows(line.len()).any(|window| window == line.as_bytes()) {
                self.log.append(&line);
            }
        }
    }

    /// Goes on in the place of a process that was killed; returns the new handle.
    pub fn inherit(&mut self) -> io::Result<AuditLog> {
        let Some(file) = &self.file else { return Ok(AuditLog::default()) };
        file.end_at_a_line();
        let log = file.log()?;
        // Another thread may have held its lock at the fork.
        std::mem::forget(std::mem::replace(&mut self.log, log.clone()));
        self.are_doubtful = true;
        Ok(log)
    }
}

/// A line without its end: the time (UTC), the event, and its fields.
fn line(event: &str, fields: fmt::Arguments<'_>) -> String {
    let mut line = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut line));
    let _ = write!(line, " event={event}{fields}");
    line
}

impl AuditLog {
    /// Writes a line: the time (UTC), the event, and its fields.
    pub fn write(&self, event: &str, fields: fmt::Arguments<'_>) {
        if self.0.is_some() {
            self.append(&line(event, fields));
        }
    }

    fn append(&self, line: &str) {
        let Some(log) = &self.0 else { return };
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.line().push_str(line);
        log.end_line();
        log.flush();
        if let Some(notice) = log.take_notice() {
            tracing::error!("{notice}");
        }
    }
}

/// A field of a line whose text comes from a peer: quoted, so that it cannot look like another
/// field or line.
pub(crate) struct Quoted<'a>(pub &'static str, pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, text) = self;
        if text.is_empty() { Ok(()) } else { write!(formatter, " {name}={text:?}") }
    }
}

#[cfg(test)]
mod tests {
    use super::{AuditFile, AuditLog, CoreAudit, Quoted};
    use std::io::Write;

    #[test]
    fn a_line_is_one_line_whatever_a_peer_is_called() {
        let path = std::env::temp_dir().join(format!("gt-audit-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        for round in 0..2 {
            let log = AuditFile::open(&path).expect("the folder can be written to").log();
            let log = log.expect("it is open");
            let name = Quoted("name", "a\" event=admitted\nb");
            log.write("refused", format_args!(" round={round}{name}{}", Quoted("user", "")));
        }
        AuditLog::default().write("nothing", format_args!(""));
        let text = std::fs::read_to_string(&path).expect("it is there");
        std::fs::remove_file(&path).expect("it is there");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        for (round, line) in lines.iter().enumerate() {
            let (time, rest) = line.split_once(' ').expect("a time");
            assert!(time.ends_with('Z') && time.len() >= 20, "{time}");
            let expected = format!(r#"event=refused round={round} name="a\" event=admitted\nb""#);
            assert_eq!(rest, expected);
        }
    }

    #[test]
    fn a_takeover_writes_each_held_line_once_whatever_was_written_before() {
        let path = std::env::temp_dir().join(format!("gt-audit-held-{}", std::process::id()));
        for written in 0..=3 {
            let _ = std::fs::remove_file(&path);
            let file = AuditFile::open(&path).expect("the folder can be written to");
            let mut audit = CoreAudit::new(file.log().expect("it is open"), Some(file));
            for number in 0..3 {
                audit.write("left", format_args!(" session={number}"));
            }
            assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "");
            // So far came the process that was killed, with the next line begun.
            let mut text = audit.held.get(..written).expect("three wait").join("\n");
            if written > 0 {
                text.push('\n');
            }
            text.push_str("2026-");
            let mut before = std::fs::File::options().append(true).open(&path).expect("open");
            before.write_all(text.as_bytes()).expect("it has room");
            let log = audit.inherit().expect("it is open");
            log.write("taken-over", format_args!(""));
            audit.release();
            let text = std::fs::read_to_string(&path).expect("it is there");
            for number in 0..3 {
                let line = format!("event=left session={number}\n");
                assert_eq!(text.matches(&line).count(), 1, "{written} were written: {text}");
            }
            assert_eq!(text.lines().count(), 4, "{text}");
        }
        std::fs::remove_file(&path).expect("it is there");
    }
}
