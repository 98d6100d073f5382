//! Connections between workers of different hosts: the caller gives its index, shows a secret and
//! says how many frames it has received; the called worker admits callers that the dispatcher has
//! announced, and the same ones again when their connection broke. A call may arrive before its
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
const MAGIC: [u8; 4] = *b"GTd\x02";
/// Bytes of a call: magic, index, secret, the last frame that the caller has received.
const CALL_BYTES: usize = MAGIC.len() + size_of::<u32>() + SECRET_BYTES + size_of::<u64>();

/// A worker that can be called, and what the caller shows.
#[derive(Debug)]
pub struct Callee {
    /// Address of its data port.
    pub address: String,
    /// The caller's index.
    pub index: u32,
    /// Secret of this pair of workers.
    pub secret: [u8; SECRET_BYTES],
}

impl Callee {
    /// Connects, and says that the frames up to `received` have arrived. The called worker answers
    /// with the last frame that it has received, in eight bytes.
    pub fn call(&self, received: u64) -> io::Result<TcpStream> {
        let address: SocketAddr = self.address.parse().map_err(io::Error::other)?;
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE)?;
        let index = self.index.to_le_bytes();
        let greeting = [&MAGIC[..], &index, &self.secret, &received.to_le_bytes()].concat();
        debug_assert_eq!(greeting.len(), CALL_BYTES);
        stream.write_all(&greeting)?;
        Ok(stream)
    }
}

/// A call of an announced worker. Its stream is non-blocking.
#[derive(Debug)]
pub struct WorkerCall {
    /// The caller's index.
    pub peer: u32,
    /// The last frame that the caller has received.
    pub received: u64,
    /// The connection, over which nothing was answered yet.
    pub stream: TcpStream,
}

/// Incoming connections of workers of other hosts, until they are identified.
///
/// A `Secret` is compared in constant time.
#[derive(Debug)]
pub struct Callers<Secret> {
    listener: Option<TcpListener>,
    /// The announced workers that have not called yet, and the secret that each has to show.
    expected: BTreeMap<u32, Secret>,
    /// Those that have called, and may call again.
    admitted: BTreeMap<u32, Secret>,
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
        let (expected, admitted) = (BTreeMap::new(), BTreeMap::new());
        Self { listener, expected, admitted, strangers: Vec::new() }
    }

    /// Announces a worker: a caller with the index `peer` has to show this secret, also if it has
    /// called already.
    pub fn expect(&mut self, peer: u32, secret: Secret) {
        self.expected.insert(peer, secret);
    }

    /// Withdraws the announcement of this index.
    pub fn forget(&mut self, peer: u32) {
        self.expected.remove(&peer);
        self.admitted.remove(&peer);
    }

    /// Returns true if an announced worker has not called yet.
    pub fn is_expecting(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Returns true if a worker may call that has called before.
    pub fn has_admitted(&self) -> bool {
        !self.admitted.is_empty()
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

    /// The calls of announced workers, and those that call again.
    pub fn arrived(&mut self) -> Vec<WorkerCall> {
        if self.expected.is_empty() && self.admitted.is_empty() {
            return Vec::new();
        }
        self.accept();
        let mut arrived = Vec::new();
        for mut stranger in std::mem::take(&mut self.strangers) {
            match stranger.listen() {
                Ok(false) => self.strangers.push(stranger),
                Ok(true) => {
                    let Some(greeting) = Greeting::decode(&stranger.greeting) else { continue };
                    match self.admit(greeting.peer, &Secret::from(greeting.secret)) {
                        CallAdmission::Granted => arrived.push(WorkerCall {
                            peer: greeting.peer,
                            received: greeting.received,
                            stream: stranger.stream,
                        }),
                        CallAdmission::Refused => {}
                        CallAdmission::Later => self.strangers.push(stranger),
                    }
                }
                // Dropped: it has closed, or broke the protocol.
                Err(_) => {}
            }
        }
        arrived
    }

    fn admit(&mut self, peer: u32, secret: &Secret) -> CallAdmission {
        if let Some(expected) = self.expected.remove(&peer) {
            if expected == *secret {
                self.admitted.insert(peer, expected);
                return CallAdmission::Granted;
            }
            self.expected.insert(peer, expected);
            return CallAdmission::Refused;
        }
        match self.admitted.get(&peer) {
            Some(admitted) if admitted == secret => CallAdmission::Granted,
            // It was announced to them before it was announced here.
            _ => CallAdmission::Later,
        }
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
            if self.greeting.iter().zip(MAGIC).take(self.length).any(|(byte, magic)| *byte != magic)
            {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        Ok(true)
    }
}

/// Treatment of a caller that has said who it is.
enum CallAdmission {
    Granted,
    Refused,
    /// It has to wait for its announcement.
    Later,
}

struct Greeting {
    peer: u32,
    secret: [u8; SECRET_BYTES],
    received: u64,
}

impl Greeting {
    fn decode(bytes: &[u8; CALL_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (peer, rest) = rest.split_first_chunk::<4>()?;
        let (secret, received) = rest.split_first_chunk::<SECRET_BYTES>()?;
        let received = u64::from_le_bytes(received.try_into().ok()?);
        let peer = u32::from_le_bytes(*peer);
        (*magic == MAGIC).then_some(Self { peer, secret: *secret, received })
    }
}
