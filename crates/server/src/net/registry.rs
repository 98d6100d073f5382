//! The registry of connections: indices of workers, peers that are expected at the local socket,
//! sessions that may be resumed.

use super::peer_socket::PeerSocket;
use gt_protocol::handshake::{Resume, Secret};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

/// Limit of workers' indices.
const WORKERS_MAX: u32 = 1024;
/// Maximum number of sessions; each has two rings of 256 KiB or buffers of some MiB.
const SESSIONS_MAX: usize = 1024;
/// First key of workers in resumes and invitations; sessions have those below.
const WORKER_KEY: u32 = 1 << 31;

/// Identity of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Identity {
    Session(u32),
    Worker(u32),
}

impl Display for Identity {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(session) => write!(formatter, "session {session}"),
            Self::Worker(index) => write!(formatter, "worker {index}"),
        }
    }
}

impl Identity {
    /// The session field of the handshake.
    pub fn key(self) -> u32 {
        match self {
            Self::Session(session) => session,
            Self::Worker(index) => WORKER_KEY | index,
        }
    }

    /// Field of a line of the audit log.
    pub fn field(self) -> String {
        match self {
            Self::Session(session) => format!("session={session}"),
            Self::Worker(index) => format!("worker={index}"),
        }
    }

    pub fn worker(self) -> Option<u32> {
        match self {
            Self::Session(_) => None,
            Self::Worker(index) => Some(index),
        }
    }
}

/// Connection to a worker besides its words.
#[derive(Clone, Debug)]
pub(crate) enum WorkerSocket {
    /// Admitted; its connection is not known yet.
    Pending,
    /// Control records go to this socket.
    Ring(Rc<OwnedFd>),
    /// No other worker can map a slab with it; they connect to this address, if it has one.
    Remote(Option<SocketAddr>),
}

#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub workers: BTreeMap<u32, WorkerSocket>,
    /// Number of workers that had an index before the one that has it now, or had it last.
    incarnations: BTreeMap<u32, u32>,
    sessions: usize,
    invitations: BTreeMap<u32, (Secret, oneshot::Sender<UnixStream>)>,
    resumable: BTreeMap<u32, (Secret, mpsc::Sender<Takeover>)>,
}

/// A new connection for a session whose link dropped.
#[derive(Debug)]
pub(crate) struct Takeover {
    pub stream: PeerSocket,
    /// The last frame that the peer has received.
    pub acknowledged: u64,
    /// The version that both sides speak.
    pub version: u16,
}

impl Registry {
    /// Registers a session, or gives the reason why there is no room.
    pub fn add_session(&mut self) -> Result<(), String> {
        if self.sessions >= SESSIONS_MAX {
            return Err(format!("{SESSIONS_MAX} sessions are open, more are not taken"));
        }
        self.sessions += 1;
        Ok(())
    }

    pub fn remove_session(&mut self) {
        self.sessions = self.sessions.saturating_sub(1);
    }

    /// Registers a new worker: at the index that it asks for, else at the lowest free one.
    pub fn add_worker(&mut self, wanted: Option<u32>) -> Result<u32, String> {
        let index = match wanted {
            Some(index) if index >= WORKERS_MAX => {
                return Err(format!("worker index {index} is over the limit of {WORKERS_MAX}"));
            }
            Some(index) if self.workers.contains_key(&index) => {
                return Err(format!("worker {index} is there already"));
            }
            Some(index) => index,
            None => (0..WORKERS_MAX)
                .find(|index| !self.workers.contains_key(index))
                .ok_or_else(|| format!("{WORKERS_MAX} workers are there, more are not taken"))?,
        };
        self.workers.insert(index, WorkerSocket::Pending);
        self.incarnations.entry(index).and_modify(|before| *before += 1).or_insert(0);
        Ok(index)
    }

    /// Incarnation of the worker that has an index, or had it last.
    pub fn incarnation(&self, index: u32) -> u32 {
        self.incarnations.get(&index).copied().unwrap_or(0)
    }

    /// Opens the local socket for `identity`: a peer that knows the secret passes its socket on,
    /// once.
    pub fn invite(&mut self, identity: Identity, secret: Secret) -> oneshot::Receiver<UnixStream> {
        let (sender, receiver) = oneshot::channel();
        self.invitations.insert(identity.key(), (secret, sender));
        receiver
    }

    pub fn withdraw(&mut self, identity: Identity) {
        self.invitations.remove(&identity.key());
    }

    /// Takes the invitation of the peer that has this secret; it admits no other peer.
    pub fn take_invitation(&mut self, resume: &Resume) -> Option<oneshot::Sender<UnixStream>> {
        let (secret, _) = self.invitations.get(&resume.session)?;
        if *secret != resume.secret {
            return None;
        }
        self.invitations.remove(&resume.session).map(|(_, sender)| sender)
    }

    pub fn add_resumable(
        &mut self,
        identity: Identity,
        secret: Secret,
    ) -> mpsc::Receiver<Takeover> {
        // One takeover at a time: a second one finds the first in place and is refused.
        let (sender, receiver) = mpsc::channel(1);
        self.resumable.insert(identity.key(), (secret, sender));
        receiver
    }

    pub fn remove_resumable(&mut self, identity: Identity) {
        self.resumable.remove(&identity.key());
    }

    pub fn resumable(&self, resume: &Resume) -> Option<mpsc::Sender<Takeover>> {
        let (secret, sender) = self.resumable.get(&resume.session)?;
        (*secret == resume.secret).then(|| sender.clone())
    }
}
