//! A worker's handshake with its dispatcher, and its log lines for the person who started it.

use gt_protocol::handshake::{Handshake, Hello, Welcome};
use std::io::{Read, Write};
use std::time::Duration;

/// Time limit for the dispatcher's answer to the hello.
pub const WELCOME_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a handshake message up to its length.
const LENGTH_END: usize = 6;

/// Writes a line of the worker's log.
pub fn tell(line: &str) {
    // If this fails, standard error is closed and nobody reads it.
    let _ = writeln!(std::io::stderr(), "gt.worker: {line}");
}

/// Reason why there is no welcome.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// Refused by a dispatcher, which has given this reason.
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

/// Sends the hello and reads the answer, and not one byte more: descriptors may come with the next.
pub fn greet(stream: &mut (impl Read + Write), hello: &Hello) -> Result<Welcome, GreetError> {
    let text = |error: std::io::Error| format!("no answer to the handshake: {error}");
    let bytes = Handshake::Hello(hello.clone()).encode().map_err(|error| error.to_string())?;
    stream.write_all(&bytes).map_err(text)?;
    let mut answer = vec![0; LENGTH_END];
    stream.read_exact(&mut answer).map_err(text)?;
    // This checks the magic; the length is at the same offset in every version.
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
