//! The audit log: a line for each connection, refusal and session, and for each change of the files
//! that say who may do what. Tokens and secrets never stand in it.

use crate::line_log::LineLog;
use std::fmt::{self, Write};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// A handle of the log, which both threads hold; it writes nothing if there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditLog(Option<Arc<Mutex<LineLog>>>);

impl AuditLog {
    /// Opens a file, which is created if need be and appended to.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let log = LineLog::new(path.to_owned(), file)?.named("audit log");
        Ok(Self(Some(Arc::new(Mutex::new(log)))))
    }

    /// Writes a line: the time (UTC), the event, and its fields.
    pub fn write(&self, event: &str, fields: fmt::Arguments<'_>) {
        let Some(log) = &self.0 else { return };
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        let line = log.line();
        // Writing to a string cannot fail.
        let _ = SystemTime.format_time(&mut Writer::new(line));
        let _ = write!(line, " event={event}{fields}");
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
    use super::{AuditLog, Quoted};

    #[test]
    fn a_line_is_one_line_whatever_a_peer_is_called() {
        let path = std::env::temp_dir().join(format!("gt-audit-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        for round in 0..2 {
            let log = AuditLog::open(&path).expect("the folder can be written to");
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
}
