//! Dialling a dispatcher process: addresses, handshake, and the choice between rings and TCP.

use super::Connection;
use super::greeting::{
    Credentials, DIAL_MAX, DialError, connect_tcp, greet, hello, unreachable_at,
};
use super::payload::Payloads;
use super::ring_connection::{RingConnection, Slabs};
use super::tcp_connection::{self, TcpConnection};
use gt_protocol::handshake::{Capabilities, Hello, LocalSocket, NamedSession, Resume, Welcome};
use gt_transport::{ControlKind, HostStream, RingError, SlabReader, SlabWriter, receive_record};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

/// Opens a session at `address`, or attaches to the one that `session` names, by rings where `ring` asks for them and the dispatcher is on this host.
pub(crate) fn dial(
    address: &str,
    credentials: &Credentials,
    ring: bool,
    session: Option<NamedSession>,
) -> Result<Box<dyn Connection>, DialError> {
    let capabilities = if ring { Capabilities::LOCAL } else { Capabilities::default() };
    if let Some(path) = address.strip_prefix("unix:") {
        let socket = UnixStream::connect(path).map_err(|source| unreachable_at(address, source))?;
        let mut call = ConnectionAttempt { address, credentials, capabilities, session };
        call.greet(&mut limited(&socket, address)?, None)?;
        return Ok(Box::new(call.rings(socket, None)?));
    }
    let mut call = ConnectionAttempt { address, credentials, capabilities, session };
    let mut stream = call.tcp()?;
    let welcome = call.greet(&mut stream, None)?;
    let Some(local) = &welcome.local_socket else {
        return Ok(Box::new(TcpConnection::new(stream, welcome, address, credentials)));
    };
    if let Ok(socket) = call.open(local, &welcome) {
        return Ok(Box::new(call.rings(socket, Some(stream))?));
    }
    // A dispatcher behind a forwarded port is on another host: the empty frame says that we stay on
    // TCP.
    tcp_connection::say_that_we_stay(&mut stream)
        .map_err(|source| unreachable_at(address, source))?;
    Ok(Box::new(TcpConnection::new(stream, welcome, address, credentials)))
}

/// A Unix socket whose reads end after the limit.
fn limited(socket: &UnixStream, address: &str) -> Result<UnixStream, DialError> {
    let twin = socket.try_clone().map_err(|source| unreachable_at(address, source))?;
    twin.set_read_timeout(Some(DIAL_MAX)).map_err(|source| unreachable_at(address, source))?;
    Ok(twin)
}

/// One attempt to connect.
struct ConnectionAttempt<'a> {
    address: &'a str,
    credentials: &'a Credentials,
    capabilities: Capabilities,
    session: Option<NamedSession>,
}

impl ConnectionAttempt<'_> {
    fn tcp(&self) -> Result<HostStream, DialError> {
        connect_tcp(self.address, self.credentials.authority.as_ref())
    }

    fn hello(&self, resume: Option<Resume>) -> Hello {
        let session = self.session.clone().filter(|_| resume.is_none());
        hello(self.credentials.token.as_deref(), self.capabilities, resume, session)
    }

    /// Sends the hello and returns the welcome. Reads not one byte more, because descriptors may
    /// follow.
    fn greet(
        &mut self,
        stream: &mut (impl Read + Write),
        resume: Option<Resume>,
    ) -> Result<Welcome, DialError> {
        greet(stream, &self.hello(resume), self.address)
    }

    /// Opens the dispatcher's local socket.
    fn open(&mut self, local: &LocalSocket, welcome: &Welcome) -> Result<UnixStream, DialError> {
        let failed = |source| unreachable_at(self.address, source);
        let socket = match local.address.split_first() {
            Some((0, name)) => {
                let address = SocketAddr::from_abstract_name(name).map_err(failed)?;
                UnixStream::connect_addr(&address).map_err(failed)?
            }
            _ => UnixStream::connect(String::from_utf8_lossy(&local.address).as_ref())
                .map_err(failed)?,
        };
        let resume = Resume { session: welcome.session, secret: local.secret, acknowledged: 0 };
        greet(&mut limited(&socket, self.address)?, &self.hello(Some(resume)), self.address)?;
        Ok(socket)
    }

    /// The rings whose descriptors follow a welcome on a Unix socket.
    fn rings(
        &self,
        socket: UnixStream,
        life_line: Option<HostStream>,
    ) -> Result<RingConnection, DialError> {
        let broken = |reason: String| DialError::NotGt { address: self.address.to_owned(), reason };
        socket
            .set_read_timeout(Some(DIAL_MAX))
            .map_err(|source| unreachable_at(self.address, source))?;
        let arrived = receive_record(socket.as_fd()).map_err(|error| broken(error.to_string()))?;
        let Some((record, descriptors)) = arrived else {
            return Err(broken("it closed the connection before the rings came".to_owned()));
        };
        let (descriptors, of_slabs) = record.split(descriptors);
        let slabs = of_slabs.map(|[chunks, payloads]| {
            let payloads = Payloads::new(SlabWriter::new(payloads)?);
            Ok(Slabs { payloads, chunks: SlabReader::new(chunks)? })
        });
        let slabs = slabs.transpose().map_err(|error: RingError| broken(error.to_string()))?;
        let descriptors: Result<[OwnedFd; 3], _> = descriptors.try_into();
        match (record.kind, descriptors) {
            (ControlKind::Setup, Ok([read, write, waker])) => {
                socket
                    .set_read_timeout(None)
                    .map_err(|source| unreachable_at(self.address, source))?;
                RingConnection::new((read, write, waker), socket, life_line, self.address, slabs)
                    .map_err(|error| broken(error.to_string()))
            }
            (kind, _) => Err(broken(format!("a {kind:?} record came in place of the rings"))),
        }
    }
}
