//! Bytes that prove a peer's identity: never printed, and compared in constant time.

use std::fmt;

/// Proves that a reconnecting peer is the one that had the session. The server draws it at random.
#[derive(Clone, Copy)]
pub struct Secret(pub [u8; 16]);

/// A user's access token.
#[derive(Clone, Default)]
pub struct Token(pub Vec<u8>);

/// Compares two byte strings; the time depends on their lengths only.
fn same(left: &[u8], right: &[u8]) -> bool {
    let difference = left.iter().zip(right).fold(0, |bits, (a, b)| bits | (a ^ b));
    left.len() == right.len() && std::hint::black_box(difference) == 0
}

impl From<[u8; 16]> for Secret {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        same(&self.0, &other.0)
    }
}

impl Eq for Secret {}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        same(&self.0, &other.0)
    }
}

impl Eq for Token {}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(..)")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Token({} bytes)", self.0.len())
    }
}
