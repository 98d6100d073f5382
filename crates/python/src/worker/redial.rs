//! Resuming a worker's broken link to its dispatcher.

use super::greeting::{GreetError, WELCOME_PATIENCE, greet};
use gt_protocol::handshake::{Hello, Resume, Secret, Welcome};
use gt_transport::tcp::{self, LinkLimits};
use gt_transport::{Authority, AuthorityError, HostStream};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Interval between two attempts to connect to a host that cannot be reached.
const CALL_PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);

/// Name of the dispatcher, as the worker was told it.
#[derive(Clone, Debug)]
pub struct DispatcherName {
    pub host: String,
    pub port: u16,
    /// Encrypts the connection.
    pub authority: Option<Authority>,
}

impl DispatcherName {
    /// Encrypts a new connection where there is an authority.
    pub fn secure(&self, stream: TcpStream) -> Result<HostStream, AuthorityError> {
        match &self.authority {
            Some(authority) => authority.secure(stream, &self.host),
            None => Ok(stream.into()),
        }
    }
}

/// Address of the dispatcher, and the credentials that readmit the worker.
#[derive(Debug)]
pub struct Redial {
    address: SocketAddr,
    dispatcher: DispatcherName,
    hello: Hello,
    session: u32,
    secret: [u8; 16],
    limits: LinkLimits,
}

impl Redial {
    /// The data to resume the link of a worker that was welcomed over `stream`.
    pub fn new(
        stream: &HostStream,
        dispatcher: DispatcherName,
        hello: Hello,
        welcome: &Welcome,
        limits: LinkLimits,
    ) -> io::Result<Self> {
        let (address, session) = (stream.socket().peer_addr()?, welcome.session);
        Ok(Self { address, dispatcher, hello, session, secret: welcome.secret.0, limits })
    }

    pub const fn limits(&self) -> LinkLimits {
        self.limits
    }

    /// Connects again; returns the new connection and the number of our last frame that arrived.
    /// `None` where nobody listens any more: the dispatcher has ended.
    pub fn resume(&self, received: u64) -> io::Result<Option<(HostStream, u64)>> {
        let start = Instant::now();
        // The loop ends at the time limit, or without a limit when the dispatcher has ended.
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

    fn attempt(&self, received: u64) -> io::Result<(HostStream, u64)> {
        let stream = TcpStream::connect_timeout(&self.address, CALL_PATIENCE)?;
        tcp::tune(&stream, self.limits.probes)?;
        stream.set_read_timeout(Some(WELCOME_PATIENCE))?;
        let mut stream = self.dispatcher.secure(stream).map_err(io::Error::other)?;
        let secret = Secret(self.secret);
        let resume = Some(Resume { session: self.session, secret, acknowledged: received });
        let welcome = greet(&mut stream, &Hello { resume, ..self.hello.clone() });
        let welcome = welcome.map_err(|error| match error {
            GreetError::Refused(text) => io::Error::new(ErrorKind::PermissionDenied, text),
            GreetError::Failed(text) => io::Error::other(text),
        })?;
        stream.socket().set_read_timeout(None)?;
        Ok((stream, welcome.acknowledged))
    }
}
