//! Access control: the token file.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use gt_protocol::handshake::{TOKEN_BYTES_MAX, Token};
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// First letters of a hash in the form of the PHC.
const HASH_MARK: &str = "$argon2";
/// Maximum number of hashed lines of one user that a token is compared with: each costs tens of
/// milliseconds. An old and a new token are two.
pub(crate) const LINES_OF_USER_MAX: usize = 4;
/// Random bytes of a token, and of the salt of its hash.
const TOKEN_RANDOM_BYTES: usize = 24;
const SALT_BYTES: usize = 16;

/// The users and their tokens. A clone has the same lines.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenList(Vec<TokenLine>);

/// A line of the token file. Clones are the same line.
#[derive(Clone)]
pub(crate) struct TokenLine(Arc<LineParts>);

#[derive(PartialEq, Eq)]
struct LineParts {
    user: String,
    proof: TokenProof,
}

#[derive(PartialEq, Eq)]
enum TokenProof {
    Plain(Token),
    /// The hash of a token that begins with the user's name and a dot.
    Hashed(String),
}

/// Fault of a token file.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("cannot read the token file {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}:{line}: expected `name token`", path.display())]
    Line { path: PathBuf, line: usize },
    #[error("{}:{line}: the token is over {TOKEN_BYTES_MAX} bytes", path.display())]
    TooLong { path: PathBuf, line: usize },
    #[error("{}:{line}: this is no hash of Argon2 ({why}); `gt token NAME` makes one", path.display())]
    Hash { path: PathBuf, line: usize, why: String },
    #[error("{} names nobody", path.display())]
    Empty { path: PathBuf },
}

impl TokenList {
    /// One `name token` or `name hash` a line; empty lines and lines that begin with `#` are
    /// skipped.
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenFileError::Read { path: path.to_owned(), source })?;
        let mut lines = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let mut words = content.split_whitespace();
            let (Some(name), Some(word), None) = (words.next(), words.next(), words.next()) else {
                return Err(TokenFileError::Line { path: path.to_owned(), line });
            };
            let proof = if word.starts_with(HASH_MARK) {
                PasswordHash::new(word).map_err(|error| TokenFileError::Hash {
                    path: path.to_owned(),
                    line,
                    why: error.to_string(),
                })?;
                TokenProof::Hashed(word.to_owned())
            } else if word.len() > TOKEN_BYTES_MAX {
                return Err(TokenFileError::TooLong { path: path.to_owned(), line });
            } else {
                TokenProof::Plain(Token(word.as_bytes().to_vec()))
            };
            lines.push(TokenLine(Arc::new(LineParts { user: name.to_owned(), proof })));
        }
        if lines.is_empty() {
            return Err(TokenFileError::Empty { path: path.to_owned() });
        }
        Ok(Self(lines))
    }

    /// Names of all users.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(TokenLine::user)
    }

    /// Number of lines with a token that can be read.
    pub fn plain_count(&self) -> usize {
        self.0.iter().filter(|line| matches!(line.0.proof, TokenProof::Plain(_))).count()
    }

    /// The line that holds this token as it is. Looks at every entry, so that the time does not
    /// depend on the match.
    pub fn plain(&self, token: &Token) -> Option<&TokenLine> {
        let mut owner = None;
        for line in &self.0 {
            if matches!(&line.0.proof, TokenProof::Plain(own) if own == token) {
                owner = Some(line);
            }
        }
        owner
    }

    /// The lines with a hash that may be this token's: those of the user whom it names.
    pub fn hashed(&self, token: &Token) -> Vec<TokenLine> {
        let Some(dot) = token.0.iter().rposition(|&byte| byte == b'.') else { return Vec::new() };
        let name = token.0.get(..dot).unwrap_or_default();
        let is_hashed = |line: &&TokenLine| matches!(line.0.proof, TokenProof::Hashed(_));
        let of_user = self.0.iter().filter(|line| line.user().as_bytes() == name);
        of_user.filter(is_hashed).take(LINES_OF_USER_MAX).cloned().collect()
    }

    /// Returns true if the file has this line.
    pub fn contains(&self, line: &TokenLine) -> bool {
        self.0.contains(line)
    }
}

impl TokenLine {
    pub fn user(&self) -> &str {
        &self.0.user
    }

    /// Computes the hash of a token and compares it: tens of milliseconds of work, and 19 MiB.
    pub fn is_of(&self, token: &Token) -> bool {
        match &self.0.proof {
            TokenProof::Plain(own) => own == token,
            TokenProof::Hashed(text) => PasswordHash::new(text)
                .is_ok_and(|hash| Argon2::default().verify_password(&token.0, &hash).is_ok()),
        }
    }
}

impl PartialEq for TokenLine {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Debug for TokenLine {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "TokenLine({:?})", self.0.user)
    }
}

/// Reason why no token is made.
#[derive(Debug, thiserror::Error)]
pub enum NewTokenError {
    #[error("{0:?} is no name of a user: letters, digits, `.`, `_`, `-` and `@`, 64 at most")]
    Name(String),
    #[error("no token could be made: {0}")]
    Failed(String),
}

/// Maximum length of a user's name in a token.
const NAME_BYTES_MAX: usize = 64;

/// A new token of a user, and its line for the token file.
///
/// # Errors
/// The name is none, or the kernel has no random bytes.
pub fn new_token(name: &str) -> Result<(String, String), NewTokenError> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_of_name) {
        return Err(NewTokenError::Name(name.to_owned()));
    }
    let failed = |why: String| NewTokenError::Failed(why);
    let random = random_bytes::<TOKEN_RANDOM_BYTES>().map_err(|error| failed(error.to_string()))?;
    let salt = random_bytes::<SALT_BYTES>().map_err(|error| failed(error.to_string()))?;
    let token = random.iter().fold(format!("{name}."), |text, byte| format!("{text}{byte:02x}"));
    let hash: PasswordHash = Argon2::default()
        .hash_password_with_salt(token.as_bytes(), &salt)
        .map_err(|error| failed(error.to_string()))?;
    Ok((token, format!("{name} {hash}")))
}

/// Random bytes from the kernel.
pub(crate) fn random_bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0_u8; COUNT];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    // The kernel never returns fewer for up to 256 bytes.
    if filled < COUNT {
        return Err(io::Error::other("the kernel gave too few random bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{TokenFileError, TokenList, new_token};
    use gt_protocol::handshake::Token;

    fn read(name: &str, text: &str) -> Result<TokenList, TokenFileError> {
        let path = std::env::temp_dir().join(format!("gt-tokens-{name}-{}", std::process::id()));
        std::fs::write(&path, text).expect("the folder can be written to");
        let list = TokenList::read(&path);
        std::fs::remove_file(&path).expect("it is there");
        list
    }

    fn token(text: &str) -> Token {
        Token(text.as_bytes().to_vec())
    }

    #[test]
    fn a_new_token_fits_its_line_and_no_other() {
        let (anna, line) = new_token("anna").expect("a name");
        let (ben, _) = new_token("ben.of.lab").expect("a name");
        assert!(!line.contains(&anna), "the file does not hold the token");
        let list = read("new", &format!("{line}\nben.of.lab 1234\n")).expect("it is right");
        assert_eq!(list.plain_count(), 1);
        let lines = list.hashed(&token(&anna));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].is_of(&token(&anna)) && !lines[0].is_of(&token(&format!("{anna}0"))));
        assert!(list.hashed(&token(&ben)).is_empty(), "ben has no hashed line");
        assert!(list.hashed(&token("1234")).is_empty() && list.plain(&token(&anna)).is_none());
        assert_eq!(list.plain(&token("1234")).expect("ben's").user(), "ben.of.lab");
        assert!(list.contains(&lines[0]));
        assert!(!read("other", "anna 1\n").expect("it is right").contains(&lines[0]));
        assert_eq!(format!("{:?}", lines[0]), "TokenLine(\"anna\")");
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, expected) in [
            ("# nobody\n\n", "names nobody"),
            ("anna 1\nben\n", ":2: expected `name token`"),
            ("anna $argon2id$v=19$rubbish\n", ":1: this is no hash of Argon2"),
            (&format!("anna {}\n", "x".repeat(300)), ":1: the token is over 256 bytes"),
        ] {
            let error = read("wrong", text).expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
        for name in ["", "a b", "ä", "a\n"] {
            assert!(new_token(name).is_err(), "{name:?}");
        }
    }
}
