//! Access control: the token file.

use gt_protocol::handshake::{TOKEN_BYTES_MAX, Token};
use std::io;
use std::path::{Path, PathBuf};

/// The users and their tokens.
#[derive(Clone, Debug)]
pub(crate) struct TokenList(Vec<(String, Token)>);

/// Fault of a token file.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("cannot read the token file {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}:{line}: expected `name token`", path.display())]
    Line { path: PathBuf, line: usize },
    #[error("{}:{line}: the token is over {TOKEN_BYTES_MAX} bytes", path.display())]
    TooLong { path: PathBuf, line: usize },
    #[error("{} names nobody", path.display())]
    Empty { path: PathBuf },
}

impl TokenList {
    /// One `name token` a line; empty lines and lines that begin with `#` are skipped.
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenFileError::Read { path: path.to_owned(), source })?;
        let mut tokens = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let mut words = content.split_whitespace();
            let (Some(name), Some(token), None) = (words.next(), words.next(), words.next()) else {
                return Err(TokenFileError::Line { path: path.to_owned(), line });
            };
            if token.len() > TOKEN_BYTES_MAX {
                return Err(TokenFileError::TooLong { path: path.to_owned(), line });
            }
            tokens.push((name.to_owned(), Token(token.as_bytes().to_vec())));
        }
        if tokens.is_empty() {
            return Err(TokenFileError::Empty { path: path.to_owned() });
        }
        Ok(Self(tokens))
    }

    /// Names of all users.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The user of a token. Looks at every entry, so that the time does not depend on the match.
    pub fn user(&self, token: &Token) -> Option<&str> {
        let mut owner = None;
        for (name, own) in &self.0 {
            if own == token {
                owner = Some(name.as_str());
            }
        }
        owner
    }
}
