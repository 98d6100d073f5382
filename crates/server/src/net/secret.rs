//! Random secrets: of sessions, of the local socket, of pairs of workers.

use crate::tokens::random_bytes;
use gt_protocol::handshake::Secret;
use std::io;

/// Sixteen random bytes from the kernel.
pub(crate) fn random_secret() -> io::Result<Secret> {
    Ok(Secret(random_bytes()?))
}
