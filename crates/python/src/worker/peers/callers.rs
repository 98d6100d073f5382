//! Connections that workers of other hosts open to us, until they have shown whose they are.

use super::tcp::{self, CALL_BYTES};
use gt_protocol::handshake::Secret;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};

/// Connections that have not shown a secret yet, or one of whom nobody has told us; a stranger's are the oldest and go
/// first.
const STRANGERS_MAX: usize = 64;

#[derive(Debug, Default)]
pub struct Callers {
    listener: Option<TcpListener>,
    /// Whom the dispatcher has announced, and the secret that each has to show.
    expected: BTreeMap<u32, Secret>,
    strangers: Vec<Stranger>,
}

#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    said: [u8; CALL_BYTES],
    length: usize,
}

impl Callers {
    /// Without a listener nobody comes.
    pub fn new(listener: Option<TcpListener>) -> Self {
        let listener = listener.filter(|listener| listener.set_nonblocking(true).is_ok());
        Self { listener, ..Self::default() }
    }

    pub fn expect(&mut self, peer: u32, secret: Secret) {
        self.expected.insert(peer, secret);
    }

    /// Whether anybody announced has not come.
    pub fn is_expecting(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Those who have come and are who they should be.
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
                    let Some((peer, secret)) = tcp::caller(&stranger.said) else { continue };
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
            self.strangers.push(Stranger { stream, said: [0; CALL_BYTES], length: 0 });
        }
    }
}

impl Stranger {
    /// Reads what is here; true once it has said all.
    fn listen(&mut self) -> std::io::Result<bool> {
        while let Some(rest) = self.said.get_mut(self.length..).filter(|rest| !rest.is_empty()) {
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
