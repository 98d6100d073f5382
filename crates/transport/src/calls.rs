//! Connections between workers of different hosts: the caller gives its index and shows a secret;
//! the called worker admits callers that the dispatcher has announced. A call may arrive before its
//! announcement.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 16;
/// Maximum number of connections that have not shown a secret yet, or not one that is announced;
/// the oldest are dropped first.
pub const STRANGERS_MAX: usize = 64;

/// Time limit of a connection attempt.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// First bytes of a connection between workers.
const MAGIC: [u8; 4] = *b"GTd\x01";
/// Bytes of a call: magic, index, secret.
const CALL_BYTES: usize = MAGIC.len() + size_of::<u32>() + SECRET_BYTES;

/// Calls the worker at an address, as the worker `index`, and shows the secret.
pub fn call(address: &str, index: u32, secret: &[u8; SECRET_BYTES]) -> io::Result<TcpStream> {
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE)?;
    let greeting = [&MAGIC[..], &index.to_le_bytes(), secret].concat();
    debug_assert_eq!(greeting.len(), CALL_BYTES);
    stream.write_all(&greeting)?;
    Ok(stream)
}

/// Incoming connections of workers of other hosts, until they are identified.
///
/// A `Secret` is compared in constant time.
#[derive(Debug)]
pub struct Callers<Secret> {
    listener: Option<TcpListener>,
    /// The announced workers, and the secret that each has to show.
    expected: BTreeMap<u32, Secret>,
    strangers: Vec<Stranger>,
}

#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    greeting: [u8; CALL_BYTES],
    length: usize,
}

impl<Secret: PartialEq + From<[u8; SECRET_BYTES]>> Callers<Secret> {
    /// Without a listener no worker can call.
    pub fn new(listener: Option<TcpListener>) -> Self {
        let listener = listener.filter(|listener| listener.set_nonblocking(true).is_ok());
        Self { listener, expected: BTreeMap::new(), strangers: Vec::new() }
    }

    /// Announces a worker: a caller with the index `peer` has to show this secret, also if it has
    /// called already.
    pub fn expect(&mut self, peer: u32, secret: Secret) {
        self.expected.insert(peer, secret);
    }

    /// Withdraws the announcement of this index.
    pub fn forget(&mut self, peer: u32) {
        self.expected.remove(&peer);
    }

    /// Returns true if an announced worker has not called yet.
    pub fn is_expecting(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Returns true if this worker is announced and has not called yet.
    pub fn expects(&self, peer: u32) -> bool {
        self.expected.contains_key(&peer)
    }

    /// Returns true if callers can only be on this host.
    pub fn is_loopback(&self) -> bool {
        let address = self.listener.as_ref().and_then(|listener| listener.local_addr().ok());
        address.is_some_and(|address| address.ip().is_loopback())
    }

    /// The identified callers. Their streams are non-blocking.
    pub fn arrived(&mut self) -> Vec<(u32, TcpStream)> {
        if self.expected.is_empty() {
            return Vec::new();
        }
        self.accept();
        let mut arrived = Vec::new();
        for mut stranger in std::mem::take(&mut self.strangers) {
            match stranger.listen() {
                Ok(false) => self.strangers.push(stranger),
                Ok(true) => {
                    let Some((peer, secret)) = caller(&stranger.greeting) else { continue };
                    let secret = Secret::from(secret);
                    match self.expected.get(&peer) {
                        Some(expected) if *expected == secret => {
                            self.expected.remove(&peer);
                            arrived.push((peer, stranger.stream));
                        }
                        Some(_) => {}
                        // It was announced to them before it was announced here.
                        None => self.strangers.push(stranger),
                    }
                }
                // Dropped: it has closed, or broke the protocol.
                Err(_) => {}
            }
        }
        arrived
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        while let Ok((stream, _)) = listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.strangers.len() == STRANGERS_MAX {
                self.strangers.remove(0);
            }
            self.strangers.push(Stranger { stream, greeting: [0; CALL_BYTES], length: 0 });
        }
    }
}

impl Stranger {
    /// Reads the available bytes; returns true once all are there.
    fn listen(&mut self) -> io::Result<bool> {
        while let Some(rest) = self.greeting.get_mut(self.length..).filter(|rest| !rest.is_empty())
        {
            match self.stream.read(rest) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.length += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Index of the caller, and the secret that it shows.
fn caller(greeting: &[u8; CALL_BYTES]) -> Option<(u32, [u8; SECRET_BYTES])> {
    let (magic, rest) = greeting.split_first_chunk::<4>()?;
    let (index, secret) = rest.split_first_chunk::<4>()?;
    let secret = secret.try_into().ok()?;
    (*magic == MAGIC).then(|| (u32::from_le_bytes(*index), secret))
}
