//! The instruction log: a text line for each instruction, in the form that `gt trace` reads back.

use gt_dispatcher::TraceNotes;
use gt_protocol::Instruction;
use gt_protocol::message::Failure;
use gt_protocol::text::{self, Names, PAYLOAD_INLINE_BYTES, PayloadText, TextLine};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// An open instruction log.
#[derive(Debug)]
pub struct Trace {
    file: BufWriter<File>,
    payloads: Option<PathBuf>,
}

impl Trace {
    /// Starts a log; with `payloads`, what is longer than a line can show goes into `FILE.d/`, named by its hash.
    ///
    /// # Errors
    /// The file or folder cannot be made.
    pub fn create(path: &Path, payloads: bool) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        let mut folder = path.as_os_str().to_owned();
        folder.push(".d");
        let payloads = payloads.then(|| PathBuf::from(folder));
        if let Some(folder) = &payloads {
            fs::create_dir_all(folder)?;
        }
        Ok(Self { file, payloads })
    }

    /// Writes one line, stamped with the time (UTC).
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(
        &mut self,
        session: u32,
        instruction: &Instruction<'_>,
        notes: &TraceNotes<'_>,
    ) -> io::Result<()> {
        let names = LineSignal(notes.signal);
        let line = TextLine { instruction, names: &names, payload: PayloadText::Reference };
        write!(self.file, "{line}   # {}", notes.results)?;
        let gap = if notes.results.is_empty() { "" } else { " " };
        write!(self.file, "{gap}{} s{session}", clock(SystemTime::now()))?;
        if let Some(site) = notes.site {
            write!(self.file, " {}", one_line(site))?;
        }
        if notes.moved_bytes > 0 {
            write!(self.file, " moved={}", notes.moved_bytes)?;
        }
        write!(self.file, "{}", notes.together())?;
        if let Some(boundary) = notes.boundary {
            write!(self.file, " boundary={boundary}")?;
        }
        if let Some(error) = &notes.error {
            write!(self.file, " ERROR {}", one_line(error))?;
        }
        self.file.write_all(b"\n")?;
        self.keep_payload(instruction.payload)
    }

    /// Writes what a worker said of an instruction that it could not execute.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write_failure(&mut self, failure: &Failure<'_>) -> io::Result<()> {
        writeln!(self.file, "{}", text::failure(failure, &clock(SystemTime::now())))
    }

    /// Flushes what was written into the file.
    ///
    /// # Errors
    /// What the file system says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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

/// The name of the one signal that the line may have.
struct LineSignal<'a>(Option<&'a str>);

impl Names for LineSignal<'_> {
    fn signal_name(&self, _id: u16) -> Option<&str> {
        self.0
    }

    fn signal_id(&mut self, _name: &str) -> Option<u16> {
        None
    }
}

/// `12:03:07.123456`
fn clock(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs() % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:06}", seconds % 60, since.subsec_micros())
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
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
