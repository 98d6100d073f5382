//! The first bytes of a connection: a TCP stream, a hello, the dispatcher's answer, and what goes wrong with them.

use gt_protocol::handshake::{
    Capabilities, Handshake, Hello, NamedSession, Resume, Role, Token, Welcome,
};
use gt_transport::tcp::{self, Probes};
use gt_transport::{Authority, AuthorityError, HostStream};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Time limit of each step of connecting: the user gets an answer or an error within three seconds,
/// whatever is at the other end.
pub(crate) const DIAL_MAX: Duration = Duration::from_millis(2500);
/// Magic and length of a handshake message.
const PREFIX_BYTES: usize = 6;

/// Reason why there is no connection, as shown to the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("{0:?} is no address; write 'host:port' or 'unix:/path/of/socket'")]
    Address(String),
    #[error("{address}: the host {host:?} is unknown ({source})")]
    UnknownHost { address: String, host: String, source: std::io::Error },
    #[error(
        "nothing answers at {address}: {source}. Is the dispatcher running (`{}`)?",
        command(address)
    )]
    Unreachable { address: String, source: std::io::Error },
    #[error("{address} does not speak GT's protocol: {reason}")]
    NotGt { address: String, reason: String },
    #[error("{address}: {source}")]
    Tls { address: String, source: AuthorityError },
    #[error("the dispatcher at {address} refuses: {reason}")]
    Refused { address: String, reason: String },
}

/// The command that starts a dispatcher at this address.
fn command(address: &str) -> String {
    match address.strip_prefix("unix:") {
        Some(path) => format!("gt-dispatcher --unix {path}"),
        None => format!("gt-dispatcher --listen {address}"),
    }
}

/// Proof of a client's identity, and the means to know the dispatcher's.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub token: Option<String>,
    /// Encrypts connections of TCP.
    pub authority: Option<Authority>,
}

/// A TCP connection, within the limit, encrypted where there is an authority.
pub(crate) fn connect_tcp(
    address: &str,
    authority: Option<&Authority>,
) -> Result<HostStream, DialError> {
    let stream = connect_in_clear(address)?;
    let Some(authority) = authority else { return Ok(stream.into()) };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let failed = |source| DialError::Tls { address: address.to_owned(), source };
    authority.secure(stream, host).map_err(failed)
}

fn connect_in_clear(address: &str) -> Result<TcpStream, DialError> {
    let addresses = address.to_socket_addrs().map_err(|source| unresolved(address, source))?;
    let mut last = std::io::Error::other("the name has no address");
    for candidate in addresses {
        match TcpStream::connect_timeout(&candidate, DIAL_MAX) {
            Ok(stream) => {
                let set = tcp::tune(&stream, Probes::default())
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

/// The error for an address that cannot be used: malformed, or of an unknown host.
fn unresolved(address: &str, source: std::io::Error) -> DialError {
    let is_written_wrong = source.kind() == std::io::ErrorKind::InvalidInput;
    match address.rsplit_once(':') {
        Some((host, _)) if !host.is_empty() && !is_written_wrong => {
            DialError::UnknownHost { address: address.to_owned(), host: host.to_owned(), source }
        }
        Some(_) | None => DialError::Address(address.to_owned()),
    }
}

pub(crate) fn hello(
    token: Option<&str>,
    capabilities: Capabilities,
    resume: Option<Resume>,
    session: Option<NamedSession>,
) -> Hello {
    let token = token.map(|token| Token(token.as_bytes().to_vec())).unwrap_or_default();
    Hello { capabilities, resume, token, session, name: client_name(), ..Hello::new(Role::Client) }
}

/// Name of this client in the dispatcher's log.
fn client_name() -> String {
    format!("pid {}", std::process::id())
}

pub(crate) fn greet(
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

pub(crate) fn unreachable_at(address: &str, source: std::io::Error) -> DialError {
    DialError::Unreachable { address: address.to_owned(), source }
}
