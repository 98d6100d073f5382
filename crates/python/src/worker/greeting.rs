//! A worker's first words with its dispatcher, and its words for the person who has started it.

use gt_protocol::handshake::{Handshake, Hello, Welcome};
use std::io::{Read, Write};
use std::time::Duration;

/// A dispatcher that has not answered by then is none.
pub const WELCOME_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a handshake message up to its length.
const LENGTH_END: usize = 6;

/// A line of the worker's log.
pub fn tell(line: &str) {
    // Nobody reads standard error if this fails.
    let _ = writeln!(std::io::stderr(), "gt.worker: {line}");
}

/// Why there is no welcome.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// By a dispatcher, which has said why.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
}

impl From<String> for GreetError {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

/// Says hello and reads the answer, and not one byte more: descriptors may come with the next.
pub fn greet(stream: &mut (impl Read + Write), hello: &Hello) -> Result<Welcome, GreetError> {
    let text = |error: std::io::Error| format!("no answer to the handshake: {error}");
    let bytes = Handshake::Hello(hello.clone()).encode().map_err(|error| error.to_string())?;
    stream.write_all(&bytes).map_err(text)?;
    let mut answer = vec![0; LENGTH_END];
    stream.read_exact(&mut answer).map_err(text)?;
    // Checks the magic; the length is then where every version has it.
    Handshake::decode(&answer).map_err(|error| error.to_string())?;
    let length = match answer.get(4..LENGTH_END) {
        Some(&[low, high]) => usize::from(u16::from_le_bytes([low, high])),
        Some(_) | None => 0,
    };
    answer.resize(length.max(LENGTH_END), 0);
    stream.read_exact(&mut answer[LENGTH_END..]).map_err(text)?;
    match Handshake::decode(&answer).map_err(|error| error.to_string())? {
        Some((Handshake::Welcome(welcome), _)) => Ok(welcome),
        Some((Handshake::Refusal(refusal), _)) => Err(GreetError::Refused(refusal.text)),
        Some((Handshake::Hello(_), _)) | None => Err("the answer is no welcome".to_owned().into()),
    }
}
