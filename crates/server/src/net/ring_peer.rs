//! A peer on the same host: rings for its words, its Unix socket for descriptors and as its
//! lifeline.

use super::greeting::{Admitted, GreetingError, Member};
use super::introductions::introduce;
use super::registry::{Identity, WorkerSocket};
use crate::link::{
    InheritedConnection, InheritedPeer, PeerLink, RING_WORDS, SlabPayloads, WordSource, WordTarget,
};
use crate::net_event::{NetEvent, NewWorker};
use gt_dispatcher::SessionId;
use gt_protocol::handshake::Capabilities;
use gt_transport::{ControlKind, ControlRecord, SLABS, SlabReader, SlabWriter, send_record};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

/// Serves a welcomed peer on `socket`, until one side closes. `life_line` is the TCP connection on
/// which it arrived, if it did.
pub(crate) async fn serve(
    admitted: Admitted,
    socket: UnixStream,
    life_line: Option<TcpStream>,
) -> Result<(), GreetingError> {
    let Admitted { member, name, user, capabilities, line, .. } = admitted;
    let slabs = capabilities.contains(Capabilities::SLAB);
    let (mut link, cancel) = set_up(&member, &socket, slabs).map_err(io::Error::other)?;
    if member.net().has_standby {
        let life_line = life_line.as_ref().map(|line| line.as_fd().try_clone_to_owned());
        let socket = socket.as_fd().try_clone_to_owned()?;
        let connection = InheritedConnection::Rings { socket, life_line: life_line.transpose()? };
        link.inherited = Some(InheritedPeer { connection, line });
    }
    attach(&member, (name, user), link, Rc::new(socket.as_fd().try_clone_to_owned()?));
    watch(member, socket, life_line, cancel).await;
    Ok(())
}

/// Watches a peer's sockets until one side closes.
pub(super) async fn watch(
    mut member: Member,
    mut socket: UnixStream,
    mut life_line: Option<TcpStream>,
    mut cancel: CancelToken,
) {
    let reason = tokio::select! {
        reason = end_of(&mut socket) => reason,
        reason = end_of_line(life_line.as_mut()) => reason,
        () = cancel.closed() => "the dispatcher closed it",
    };
    if let Identity::Worker(index) = member.identity {
        let record = ControlRecord { kind: ControlKind::Shutdown, index, value: 0 };
        // A worker that is gone already needs no order to end.
        let _ = send_record(socket.as_fd(), &record, &[]);
    }
    member.set_reason(reason);
}

/// Makes the rings, and slabs for a peer that uses them, and sends the peer its ends.
fn set_up(
    member: &Member,
    socket: &UnixStream,
    slabs: bool,
) -> Result<(PeerLink, CancelToken), Box<dyn std::error::Error + Send + Sync>> {
    let down = gt_transport::create(RING_WORDS)?;
    let up = gt_transport::create(RING_WORDS)?;
    let waker = gt_transport::eventfd()?;
    let index = member.identity.worker().unwrap_or(0);
    let slab = || slabs.then(gt_transport::slab::create).transpose();
    let (slab_down, slab_up) = (slab()?, slab()?);
    let value = if slabs { SLABS } else { 0 };
    let record = ControlRecord { kind: ControlKind::Setup, index, value };
    let ends = [Some(&down), Some(&up), Some(&waker), slab_down.as_ref(), slab_up.as_ref()];
    let ends: Vec<BorrowedFd<'_>> = ends.into_iter().flatten().map(AsFd::as_fd).collect();
    send_record(socket.as_fd(), &record, &ends)?;
    let consumer = gt_transport::Consumer::new(up)?;
    let producer = gt_transport::Producer::new(down)?;
    let (cancel, held) = oneshot::channel();
    let slab = slab_up.map(SlabReader::new).transpose()?;
    let slab_down = slab_down.map(SlabWriter::new).transpose()?;
    if member.net().has_standby {
        consumer.keep_in_fork()?;
        producer.keep_in_fork()?;
        slab.as_ref().map(SlabReader::keep_in_fork).transpose()?;
        slab_down.as_ref().map(SlabWriter::keep_in_fork).transpose()?;
    }
    let source = WordSource::Ring { consumer, waker };
    let target = WordTarget::Ring(producer);
    let slab = slab.map(SlabPayloads::new);
    let process = socket.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
    let link = PeerLink { source, target, cancel, slab, slab_down, process, inherited: None };
    Ok((link, CancelToken::new(held)))
}

/// Resolves when the core's thread has dropped a link.
pub(crate) struct CancelToken {
    held: oneshot::Receiver<()>,
    is_over: bool,
}

impl CancelToken {
    pub fn new(held: oneshot::Receiver<()>) -> Self {
        Self { held, is_over: false }
    }

    /// Returns when the core's thread has dropped the link, and at once when called again.
    pub async fn closed(&mut self) {
        if !self.is_over {
            // Nothing is ever sent; the sender's drop is the message.
            let _ = (&mut self.held).await;
            self.is_over = true;
        }
    }
}

fn attach(member: &Member, (name, user): (String, String), link: PeerLink, socket: Rc<OwnedFd>) {
    let net = member.net();
    match member.identity {
        Identity::Session(session) => {
            tracing::info!("session {session} ({name:?}) is connected by rings");
            net.tell(NetEvent::Client {
                session: SessionId(session),
                name,
                user,
                link: Box::new(link),
            });
        }
        Identity::Worker(index) => {
            // Before the core learns of the worker: no collective may come before the slabs that it
            // needs.
            let introductions = introduce(net, index, &WorkerSocket::Ring(socket));
            tracing::info!("worker {index} ({name:?}) is connected by rings");
            let incarnation = net.registry.borrow().incarnation(index);
            let is_supervised = member.is_supervised;
            let joined = NewWorker { index, incarnation, is_supervised, link, introductions };
            net.tell(NetEvent::Worker(Box::new(joined)));
        }
    }
}

/// Waits for the end of a lifeline. Bytes from the peer are skipped; it cannot make us store
/// anything.
async fn end_of<S: AsyncRead + Unpin>(stream: &mut S) -> &'static str {
    let mut bytes = [0_u8; 64];
    loop {
        match stream.read(&mut bytes).await {
            Ok(0) => return "its connection closed",
            Ok(_) => {}
            Err(_) => return "its connection broke",
        }
    }
}

async fn end_of_line(life_line: Option<&mut TcpStream>) -> &'static str {
    match life_line {
        Some(stream) => end_of(stream).await,
        None => std::future::pending().await,
    }
}
