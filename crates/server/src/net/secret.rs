//! Random secrets: of sessions, of the local socket, of pairs of workers.

use gt_protocol::handshake::Secret;
use std::io;

/// Sixteen random bytes from the kernel.
pub(crate) fn random_secret() -> io::Result<Secret> {
    let mut bytes = [0_u8; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    // The kernel never returns fewer for up to 256 bytes.
    if filled < bytes.len() {
        return Err(io::Error::other("the kernel gave too few random bytes"));
    }
    Ok(Secret(bytes))
}
