//! The side of a link that calls: the first connection, and further ones when it broke.

use super::shared::SharedLink;
use crate::worker::greeting::tell;
use gt_transport::calls::Callee;
use gt_transport::tcp::{self, AnswerWatch, LinkLimits};
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Time between two calls of a worker that cannot be reached.
const PAUSE: Duration = Duration::from_millis(100);

/// The worker that is called, and for how long it is called again.
#[derive(Debug)]
pub struct DataCaller {
    callee: Callee,
    limits: LinkLimits,
    /// The first connection, which was not answered yet.
    first: Option<TcpStream>,
}

impl DataCaller {
    /// Calls the other worker for the first time.
    ///
    /// # Errors
    /// It cannot be reached.
    pub fn new(callee: Callee, limits: LinkLimits) -> io::Result<Self> {
        let first = Some(callee.call(0)?);
        Ok(Self { callee, limits, first })
    }

    /// The connection that was made last, or first.
    pub const fn first(&self) -> Option<&TcpStream> {
        self.first.as_ref()
    }

    /// Gives the link a connection; false if it is over.
    pub fn connect(&mut self, shared: &SharedLink) -> bool {
        let start = Instant::now();
        let is_again = shared.was_up();
        // The loop ends at the time limit, or without a limit when the other worker has ended.
        loop {
            let error = match self.attempt(shared) {
                Ok(()) => {
                    if is_again && !shared.has_ended() {
                        let address = &self.callee.address;
                        tell(&format!("the link to the worker at {address} broke and is resumed"));
                    }
                    return true;
                }
                Err(error) => error,
            };
            let is_over = self.limits.resume.is_some_and(|limit| start.elapsed() >= limit);
            let ends =
                matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::InvalidData);
            if is_over || ends || shared.pause(PAUSE) {
                return false;
            }
        }
    }

    fn attempt(&mut self, shared: &SharedLink) -> io::Result<()> {
        let stream = match self.first.take() {
            Some(stream) => stream,
            None => self.callee.call(shared.received())?,
        };
        tcp::tune(&stream, self.limits.probes)?;
        let acknowledged = self.answer(shared, &stream)?;
        shared
            .resume(stream, acknowledged)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// Number of our last frame that has arrived. The other worker answers when it looks up from
    /// its computation, so there is no limit while its host acknowledges the call.
    fn answer(&self, shared: &SharedLink, mut stream: &TcpStream) -> io::Result<u64> {
        const LOOK: Duration = Duration::from_millis(500);
        let mut watch = AnswerWatch::new(self.limits.probes);
        stream.set_read_timeout(Some(LOOK))?;
        let mut bytes = [0; size_of::<u64>()];
        let mut length = 0;
        while length < bytes.len() {
            match stream.read(&mut bytes[length..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => length += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => watch.look(stream)?,
                Err(error) => return Err(error),
            }
            if shared.has_ended() {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        stream.set_read_timeout(None)?;
        Ok(u64::from_le_bytes(bytes))
    }
}
