//! How a worker takes a broken link to its dispatcher up again.

use super::greeting::{GreetError, WELCOME_PATIENCE, greet};
use gt_protocol::handshake::{Hello, Resume, Secret, Welcome};
use gt_transport::tcp::{self, LinkLimits};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A host that cannot be reached is called again so often.
const CALL_PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);

/// Where the dispatcher is, and what lets the worker in again.
#[derive(Debug)]
pub struct Redial {
    address: SocketAddr,
    hello: Hello,
    session: u32,
    secret: [u8; 16],
    limits: LinkLimits,
}

impl Redial {
    /// Of a worker that was welcomed over `stream`.
    pub fn new(
        stream: &TcpStream,
        hello: Hello,
        welcome: &Welcome,
        limits: LinkLimits,
    ) -> io::Result<Self> {
        let (address, session) = (stream.peer_addr()?, welcome.session);
        Ok(Self { address, hello, session, secret: welcome.secret.0, limits })
    }

    pub const fn limits(&self) -> LinkLimits {
        self.limits
    }

    /// A new connection, and the last of our frames that arrived; `None` where nobody listens any more: the dispatcher has ended.
    pub fn resume(&self, received: u64) -> io::Result<Option<(TcpStream, u64)>> {
        let start = Instant::now();
        // Ends after the limit; without one with the dispatcher.
        loop {
            let error = match self.attempt(received) {
                Ok(resumed) => return Ok(Some(resumed)),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
                Err(error) => error,
            };
            let is_over = self.limits.resume.is_some_and(|limit| start.elapsed() >= limit);
            if is_over || error.kind() == ErrorKind::PermissionDenied {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn attempt(&self, received: u64) -> io::Result<(TcpStream, u64)> {
        let mut stream = TcpStream::connect_timeout(&self.address, CALL_PATIENCE)?;
        tcp::tune(&stream, self.limits.probes)?;
        stream.set_read_timeout(Some(WELCOME_PATIENCE))?;
        let secret = Secret(self.secret);
        let resume = Some(Resume { session: self.session, secret, acknowledged: received });
        let welcome = greet(&mut stream, &Hello { resume, ..self.hello.clone() });
        let welcome = welcome.map_err(|error| match error {
            GreetError::Refused(text) => io::Error::new(ErrorKind::PermissionDenied, text),
            GreetError::Failed(text) => io::Error::other(text),
        })?;
        stream.set_read_timeout(None)?;
        Ok((stream, welcome.acknowledged))
    }
}
