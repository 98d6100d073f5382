//! Connections between workers of different hosts: who calls says who it is and shows a secret, who is called lets those in
//! of whom it has been told. A call may come before the word about it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 16;
/// Connections that have not shown a secret yet, or one of whom nobody has told us; a stranger's are the oldest and go
/// first.
pub const STRANGERS_MAX: usize = 64;

/// A host that does not answer is not there.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// First bytes of a connection between workers.
const MAGIC: [u8; 4] = *b"GTd\x01";
/// Magic, index, secret.
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

/// Connections that workers of other hosts open to us, until they have shown whose they are.
///
/// A `Secret` is compared in a time that does not depend on where two of them differ.
#[derive(Debug)]
pub struct Callers<Secret> {
    listener: Option<TcpListener>,
    /// Whom the dispatcher has announced, and the secret that each has to show.
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
    /// Without a listener nobody comes.
    pub fn new(listener: Option<TcpListener>) -> Self {
        let listener = listener.filter(|listener| listener.set_nonblocking(true).is_ok());
        Self { listener, expected: BTreeMap::new(), strangers: Vec::new() }
    }

    /// Announces a worker: whoever calls as `peer` has to show this secret, whether it has called already or not.
    pub fn expect(&mut self, peer: u32, secret: Secret) {
        self.expected.insert(peer, secret);
    }

    /// Whoever was announced by this index is not expected any more.
    pub fn forget(&mut self, peer: u32) {
        self.expected.remove(&peer);
    }

    /// Whether anybody announced has not come.
    pub fn is_expecting(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Whether this one is announced and has not come.
    pub fn expects(&self, peer: u32) -> bool {
        self.expected.contains_key(&peer)
    }

    /// Whether callers can only be on this host.
    pub fn is_loopback(&self) -> bool {
        let address = self.listener.as_ref().and_then(|listener| listener.local_addr().ok());
        address.is_some_and(|address| address.ip().is_loopback())
    }

    /// Those who have come and are who they should be. Their streams do not block.
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
                        // The dispatcher has told it of us, and us not yet of it.
                        None => self.strangers.push(stranger),
                    }
                }
                // Dropped: it has gone, or broke the rules.
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
    /// Reads what is here; true once all of it is here.
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

/// Who calls, and the secret that it shows.
fn caller(greeting: &[u8; CALL_BYTES]) -> Option<(u32, [u8; SECRET_BYTES])> {
    let (magic, rest) = greeting.split_first_chunk::<4>()?;
    let (index, secret) = rest.split_first_chunk::<4>()?;
    let secret = secret.try_into().ok()?;
    (*magic == MAGIC).then(|| (u32::from_le_bytes(*index), secret))
}
