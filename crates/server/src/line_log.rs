//! A log of lines in a file. A full disk, or another failure of the file, does not end the program:
//! the log ends at the last whole line, the lines after it are counted, and a notice reports that.

use gt_protocol::integer::to_u64;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// Bytes of text that are written at a time.
const WRITE_BYTES: usize = 8 * 1024;

/// An open log.
#[derive(Debug)]
pub struct LineLog {
    /// Kind of log, in notices.
    kind: &'static str,
    path: PathBuf,
    file: File,
    /// Whole lines that are not in the file yet, then the unfinished one.
    text: String,
    lines: u64,
    /// Bytes of whole lines in the file.
    kept_bytes: u64,
    /// Number of lines that are missing in the file, once it has failed.
    lost: Option<u64>,
    notice: Option<String>,
}

impl LineLog {
    /// A log that appends to the file.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn new(path: PathBuf, file: File) -> io::Result<Self> {
        let kept_bytes = file.metadata()?.len();
        let (text, lines, lost, notice) = (String::new(), 0, None, None);
        Ok(Self { kind: "instruction log", path, file, text, lines, kept_bytes, lost, notice })
    }

    /// Names the kind of log for notices; by default it is an instruction log.
    #[must_use]
    pub fn named(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }

    /// Buffer for the next line; [`Self::end_line`] ends it.
    pub fn line(&mut self) -> &mut String {
        &mut self.text
    }

    /// Ends the line.
    pub fn end_line(&mut self) {
        self.text.push('\n');
        self.lines += 1;
        if self.text.len() >= WRITE_BYTES || self.lost.is_some() {
            self.flush();
        }
    }

    /// Writes the waiting lines into the file.
    pub fn flush(&mut self) {
        let (bytes, lines) = (to_u64(self.text.len()), std::mem::take(&mut self.lines));
        if let Some(lost) = &mut self.lost {
            *lost += lines;
        } else if let Err(error) = self.file.write_all(self.text.as_bytes()) {
            self.fail(&error, lines);
        } else {
            self.kept_bytes += bytes;
        }
        self.text.clear();
    }

    /// Ends the log: this many lines, and all that follow, are lost.
    pub fn fail(&mut self, error: &io::Error, lines: u64) {
        self.lost = Some(lines);
        let path = self.path.display();
        self.notice = Some(format!(
            "the {} {path} ends here: {error}; the program goes on, and what it logs from now on is lost",
            self.kind
        ));
        // Half a line would be read as another one. A file that is not regular has no length, and
        // refuses.
        let _ = self.file.set_len(self.kept_bytes);
    }

    /// Writes the waiting lines; if lines were lost, the notice gives their number.
    pub fn end(&mut self) {
        self.flush();
        if let Some(lost) = self.lost.filter(|&lost| lost > 0) {
            let count =
                if lost == 1 { "1 record is".to_owned() } else { format!("{lost} records are") };
            let text =
                format!("{count} missing at the end of the {} {}", self.kind, self.path.display());
            let before = self.notice.take().map(|notice| notice + "\n").unwrap_or_default();
            self.notice = Some(before + &text);
            self.lost = Some(0);
        }
    }

    /// Notice for the user, returned once.
    pub fn take_notice(&mut self) -> Option<String> {
        self.notice.take()
    }
}

#[cfg(test)]
mod tests {
    use super::LineLog;
    use std::fs::File;
    use std::path::PathBuf;

    #[test]
    fn a_full_disk_is_told_once_and_the_lines_are_counted() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let mut log = LineLog::new(PathBuf::from("/dev/full"), file).unwrap();
        for _ in 0..1000 {
            log.line().push_str("a line that is long enough that a few of them fill the buffer");
            log.end_line();
        }
        let first = log.take_notice().unwrap();
        assert!(first.contains("log /dev/full ends here: No space left on device"), "{first}");
        log.end();
        let last = log.take_notice().unwrap();
        assert_eq!(last, "1000 records are missing at the end of the instruction log /dev/full");
        log.end();
        assert_eq!(log.take_notice(), None);
    }
}
