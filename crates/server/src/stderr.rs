//! Standard error without the standard library's lock: another thread may have held that at a fork, and
//! the child would wait for ever. A line is one write.

use rustix::io::Errno;
use std::io::{self, Write};

/// The stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The loop ends: only signals interrupt it.
        loop {
            match rustix::io::write(rustix::stdio::stderr(), bytes) {
                Err(Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
