//! Scanner of a line's words, from left to right.

use super::{ParseError, literal::is_bare_char};

/// Reads a line; an error names the column where the word began.
pub(super) struct Scanner<'a> {
    line: &'a str,
    /// Number of bytes read.
    position: usize,
}

impl<'a> Scanner<'a> {
    pub(super) const fn new(line: &'a str) -> Self {
        Self { line, position: 0 }
    }

    pub(super) const fn position(&self) -> usize {
        self.position
    }

    pub(super) fn rest(&self) -> &'a str {
        self.line.split_at(self.position).1
    }

    pub(super) fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    /// Returns true if only a comment or nothing is left.
    pub(super) fn at_end(&self) -> bool {
        self.rest().is_empty() || self.rest().starts_with('#')
    }

    /// Takes `prefix` if it is next.
    pub(super) fn take(&mut self, prefix: &str) -> bool {
        let is_next = self.rest().starts_with(prefix);
        self.position += if is_next { prefix.len() } else { 0 };
        is_next
    }

    /// Takes the characters for which `is_part` holds, possibly none.
    pub(super) fn run(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.position += end;
        rest.split_at(end).0
    }

    /// Takes a number, name or other word.
    pub(super) fn word(&mut self) -> &'a str {
        self.run(|c| is_bare_char(c) || c == '+')
    }

    /// An error at the byte `position`, with the text there.
    pub(super) fn error(&self, position: usize, expected: impl Into<String>) -> ParseError {
        let before = self.line.get(..position).unwrap_or(self.line);
        let rest = self.line.get(position..).unwrap_or_default();
        let word = rest.split([' ', '\t', '\r', '\n']).next().unwrap_or_default();
        // 40 characters are enough to recognise the position.
        let actual = match word {
            "" => "the end of the line".to_owned(),
            word => format!("`{}`", word.chars().take(40).collect::<String>()),
        };
        ParseError { column: before.chars().count() + 1, expected: expected.into(), actual }
    }

    /// Takes a decimal number without a sign.
    pub(super) fn number<N: std::str::FromStr>(&mut self, expected: &str) -> Result<N, ParseError> {
        let start = self.position;
        let digits = self.run(|c| c.is_ascii_digit());
        digits.parse().map_err(|_| self.error(start, expected))
    }

    /// Takes a text in quotes, of at most `bytes_max` bytes.
    pub(super) fn quoted(&mut self, bytes_max: usize) -> Result<String, ParseError> {
        let start = self.position;
        if !self.take("\"") {
            return Err(self.error(start, "a text in quotes"));
        }
        let mut text = String::new();
        loop {
            text.push_str(self.run(|c| c != '"' && c != '\\'));
            if text.len() > bytes_max {
                return Err(self.error(start, format!("a text of at most {bytes_max} bytes")));
            }
            if self.take("\"") {
                return Ok(text);
            }
            text.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        let start = self.position;
        let simple = [("\\\"", '"'), ("\\\\", '\\'), ("\\n", '\n'), ("\\t", '\t')];
        for (escape, c) in simple {
            if self.take(escape) {
                return Ok(c);
            }
        }
        if self.rest().is_empty() {
            return Err(self.error(start, "a closing quote"));
        }
        let expected = "an escape: \\\" \\\\ \\n \\t or \\u{hex}";
        if !self.take("\\u{") {
            return Err(self.error(start, expected));
        }
        let code = u32::from_str_radix(self.run(|c| c.is_ascii_hexdigit()), 16);
        match code.ok().and_then(char::from_u32) {
            Some(c) if self.take("}") => Ok(c),
            Some(_) | None => Err(self.error(start, expected)),
        }
    }
}
