//! Events from the sockets' thread to the core's thread.

use crate::link::PeerLink;
use crate::policy::ClusterPolicy;
use crate::tokens::TokenList;
use gt_dispatcher::{SessionId, WorkerIndex};
use gt_protocol::handshake::NamedSession;
use gt_protocol::message::Reach;
use tokio::sync::oneshot;

/// Each connection sends a few of these and waits for the answer of the first, so the channel needs
/// no limit of its own.
#[derive(Debug)]
pub(crate) enum NetEvent {
    /// A client was admitted; its link follows.
    OpenSession {
        /// The session that the client names, and the user that the client is: empty where the
        /// dispatcher knows no users.
        named: Option<NamedSession>,
        user: String,
        answer: oneshot::Sender<Result<SessionId, String>>,
    },
    Client {
        session: SessionId,
        name: String,
        user: String,
        link: Box<PeerLink>,
    },
    ClientGone {
        session: SessionId,
        reason: String,
    },
    Worker(Box<NewWorker>),
    WorkerGone {
        index: WorkerIndex,
        reason: String,
    },
    /// The policy file has changed.
    Policy(ClusterPolicy),
    /// The token file has changed.
    Tokens(TokenList),
    Stop,
}

/// Worker that was admitted.
#[derive(Debug)]
pub(crate) struct NewWorker {
    pub index: WorkerIndex,
    /// Number of workers that had the index before.
    pub incarnation: u32,
    /// True if another one takes its place when it dies.
    pub is_supervised: bool,
    pub link: PeerLink,
    /// Introductions of it and to it, before any work.
    pub introductions: Vec<Introduction>,
}

/// Introduction of one worker to another.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub to: u32,
    pub peer: u32,
    pub incarnation: u32,
    pub reach: Reach<String>,
}
