//! Dialling a dispatcher process: addresses, handshake, and the choice between rings and TCP.

use super::door::Door;
use super::payload::Payloads;
use super::ring_door::{RingDoor, Slabs};
use super::tcp_door::TcpDoor;
use gt_protocol::handshake::{
    Capabilities, Handshake, Hello, LocalDoor, Resume, Role, Token, Welcome,
};
use gt_transport::{ControlKind, RingError, SlabReader, SlabWriter, receive_record};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

/// A step of connecting takes no longer than this, whatever is at the other end: the user is told within three seconds.
const DIAL_MAX: Duration = Duration::from_millis(2500);
/// Magic and length of a handshake message.
const PREFIX_BYTES: usize = 6;

/// Why there is no connection, as the user reads it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("{0:?} is no address; write 'host:port' or 'unix:/path/of/socket'")]
    Address(String),
    #[error(
        "nothing answers at {address}: {source}. Is the dispatcher running (`{}`)?",
        command(address)
    )]
    Unreachable { address: String, source: std::io::Error },
    #[error("{address} does not speak GT's protocol: {reason}")]
    NotGt { address: String, reason: String },
    #[error("the dispatcher at {address} refuses: {reason}")]
    Refused { address: String, reason: String },
}

/// What starts a dispatcher there.
fn command(address: &str) -> String {
    match address.strip_prefix("unix:") {
        Some(path) => format!("gt-dispatcher --unix {path}"),
        None => format!("gt-dispatcher --listen {address}"),
    }
}

/// Opens a session at `address`, by rings where `ring` asks for them and the dispatcher is on this host.
pub(crate) fn dial(
    address: &str,
    token: Option<&str>,
    ring: bool,
) -> Result<Box<dyn Door>, DialError> {
    let capabilities = if ring { Capabilities::LOCAL } else { Capabilities::default() };
    if let Some(path) = address.strip_prefix("unix:") {
        let socket = UnixStream::connect(path).map_err(|source| unreachable_at(address, source))?;
        let mut call = Call { address, token, capabilities };
        call.greet(&mut limited(&socket, address)?, None)?;
        return Ok(Box::new(call.rings(socket, None)?));
    }
    let mut call = Call { address, token, capabilities };
    let mut stream = call.tcp()?;
    let welcome = call.greet(&mut stream, None)?;
    let Some(door) = &welcome.door else {
        return Ok(Box::new(TcpDoor::new(stream, welcome, address, token)));
    };
    if let Ok(socket) = call.open(door, &welcome) {
        return Ok(Box::new(call.rings(socket, Some(stream))?));
    }
    // Another host behind a forwarded port: the empty frame says that we stay on TCP.
    super::tcp_door::say_that_we_stay(&mut stream)
        .map_err(|source| unreachable_at(address, source))?;
    Ok(Box::new(TcpDoor::new(stream, welcome, address, token)))
}

fn unreachable_at(address: &str, source: std::io::Error) -> DialError {
    DialError::Unreachable { address: address.to_owned(), source }
}

/// A Unix socket whose reads end after the limit.
fn limited(socket: &UnixStream, address: &str) -> Result<UnixStream, DialError> {
    let twin = socket.try_clone().map_err(|source| unreachable_at(address, source))?;
    twin.set_read_timeout(Some(DIAL_MAX)).map_err(|source| unreachable_at(address, source))?;
    Ok(twin)
}

/// One attempt to connect.
struct Call<'a> {
    address: &'a str,
    token: Option<&'a str>,
    capabilities: Capabilities,
}

impl Call<'_> {
    fn tcp(&self) -> Result<TcpStream, DialError> {
        connect_tcp(self.address)
    }

    fn hello(&self, resume: Option<Resume>) -> Hello {
        hello(self.token, self.capabilities, resume)
    }

    /// Says hello and returns the welcome. Reads not a byte further: descriptors may follow.
    fn greet(
        &mut self,
        stream: &mut (impl Read + Write),
        resume: Option<Resume>,
    ) -> Result<Welcome, DialError> {
        greet(stream, &self.hello(resume), self.address)
    }

    /// Opens the dispatcher's local door.
    fn open(&mut self, door: &LocalDoor, welcome: &Welcome) -> Result<UnixStream, DialError> {
        let failed = |source| unreachable_at(self.address, source);
        let socket = match door.address.split_first() {
            Some((0, name)) => {
                let address = SocketAddr::from_abstract_name(name).map_err(failed)?;
                UnixStream::connect_addr(&address).map_err(failed)?
            }
            _ => UnixStream::connect(String::from_utf8_lossy(&door.address).as_ref())
                .map_err(failed)?,
        };
        let resume = Resume { session: welcome.session, secret: door.secret, acknowledged: 0 };
        greet(&mut limited(&socket, self.address)?, &self.hello(Some(resume)), self.address)?;
        Ok(socket)
    }

    /// The rings that follow a welcome on a Unix socket.
    fn rings(
        &self,
        socket: UnixStream,
        life_line: Option<TcpStream>,
    ) -> Result<RingDoor, DialError> {
        let broken = |reason: String| DialError::NotGt { address: self.address.to_owned(), reason };
        socket
            .set_read_timeout(Some(DIAL_MAX))
            .map_err(|source| unreachable_at(self.address, source))?;
        let arrived = receive_record(socket.as_fd()).map_err(|error| broken(error.to_string()))?;
        let Some((record, descriptors)) = arrived else {
            return Err(broken("it closed the connection before the rings came".to_owned()));
        };
        let (descriptors, of_slabs) = record.split(descriptors);
        let slabs = of_slabs.map(|[pieces, payloads]| {
            let payloads = Payloads::new(SlabWriter::new(payloads)?);
            Ok(Slabs { payloads, pieces: SlabReader::new(pieces)? })
        });
        let slabs = slabs.transpose().map_err(|error: RingError| broken(error.to_string()))?;
        let descriptors: Result<[OwnedFd; 3], _> = descriptors.try_into();
        match (record.kind, descriptors) {
            (ControlKind::Setup, Ok([read, write, bell])) => {
                socket
                    .set_read_timeout(None)
                    .map_err(|source| unreachable_at(self.address, source))?;
                RingDoor::new((read, write, bell), socket, life_line, self.address, slabs)
                    .map_err(|error| broken(error.to_string()))
            }
            (kind, _) => Err(broken(format!("a {kind:?} record came in place of the rings"))),
        }
    }
}

/// A TCP connection, within the limit.
pub(super) fn connect_tcp(address: &str) -> Result<TcpStream, DialError> {
    let addresses =
        address.to_socket_addrs().map_err(|_| DialError::Address(address.to_owned()))?;
    let mut last = std::io::Error::other("the name has no address");
    for candidate in addresses {
        match TcpStream::connect_timeout(&candidate, DIAL_MAX) {
            Ok(stream) => {
                let set = stream
                    .set_nodelay(true)
                    .and_then(|()| stream.set_read_timeout(Some(DIAL_MAX)))
                    .and_then(|()| stream.set_write_timeout(Some(DIAL_MAX)));
                set.map_err(|source| unreachable_at(address, source))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(unreachable_at(address, last))
}

pub(super) fn hello(
    token: Option<&str>,
    capabilities: Capabilities,
    resume: Option<Resume>,
) -> Hello {
    let token = token.map(|token| Token(token.as_bytes().to_vec())).unwrap_or_default();
    Hello { capabilities, resume, token, name: client_name(), ..Hello::new(Role::Client) }
}

/// What the dispatcher's log calls this client.
fn client_name() -> String {
    format!("pid {}", std::process::id())
}

pub(super) fn greet(
    stream: &mut (impl Read + Write),
    hello: &Hello,
    address: &str,
) -> Result<Welcome, DialError> {
    let not_gt = |reason: String| DialError::NotGt { address: address.to_owned(), reason };
    let bytes =
        Handshake::Hello(hello.clone()).encode().map_err(|error| not_gt(error.to_string()))?;
    stream.write_all(&bytes).map_err(|source| unreachable_at(address, source))?;
    let mut answer = vec![0; PREFIX_BYTES];
    let silent = |error: std::io::Error| not_gt(format!("no welcome came ({error})"));
    stream.read_exact(&mut answer).map_err(silent)?;
    if let Err(error) = Handshake::decode(&answer) {
        return Err(not_gt(error.to_string()));
    }
    let length = match answer.get(4..PREFIX_BYTES) {
        Some(&[low, high]) => usize::from(u16::from_le_bytes([low, high])),
        _ => 0,
    };
    answer.resize(length.max(PREFIX_BYTES), 0);
    stream.read_exact(answer.get_mut(PREFIX_BYTES..).unwrap_or_default()).map_err(silent)?;
    match Handshake::decode(&answer) {
        Ok(Some((Handshake::Welcome(welcome), _))) => Ok(welcome),
        Ok(Some((Handshake::Refusal(refusal), _))) => {
            Err(DialError::Refused { address: address.to_owned(), reason: refusal.text })
        }
        Ok(Some((Handshake::Hello(_), _)) | None) => {
            Err(not_gt("a hello for an answer".to_owned()))
        }
        Err(error) => Err(not_gt(error.to_string())),
    }
}
