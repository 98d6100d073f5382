//! A peer on the same host: rings for its words, its Unix socket for descriptors and as its life line.

use super::Net;
use super::greeting::{Admitted, GreetingError, Member, random_secret};
use super::registry::{Identity, WorkerSocket};
use crate::link::{Lent, Link, RING_WORDS, Source, Target};
use crate::pump::Tidings;
use gt_dispatcher::SessionId;
use gt_protocol::handshake::{Capabilities, Secret};
use gt_transport::{ControlKind, ControlRecord, SLABS, SlabReader, SlabWriter, send_record};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

/// Serves a peer that was welcomed on `socket`, until one side closes. `life_line` is the TCP connection by which it
/// came, if it did.
pub(crate) async fn serve(
    admitted: Admitted,
    mut socket: UnixStream,
    mut life_line: Option<TcpStream>,
) -> Result<(), GreetingError> {
    let Admitted { mut member, name, capabilities, .. } = admitted;
    let slabs = capabilities.contains(Capabilities::SLAB);
    let (link, mut leash) = set_up(&member, &socket, slabs).map_err(io::Error::other)?;
    attach(&member, name, link, Rc::new(socket.as_fd().try_clone_to_owned()?));
    let reason = tokio::select! {
        reason = end_of(&mut socket) => reason,
        reason = end_of_line(life_line.as_mut()) => reason,
        () = leash.closed() => "the dispatcher closed it",
    };
    if let Identity::Worker(index) = member.identity {
        let record = ControlRecord { kind: ControlKind::Shutdown, index, value: 0 };
        // A worker that is gone already needs no order to end.
        let _ = send_record(socket.as_fd(), &record, &[]);
    }
    member.set_reason(reason);
    Ok(())
}

/// Makes the rings, and slabs for a peer that uses them, and hands the peer its ends.
fn set_up(
    member: &Member,
    socket: &UnixStream,
    slabs: bool,
) -> Result<(Link, Leash), Box<dyn std::error::Error + Send + Sync>> {
    let down = gt_transport::create(RING_WORDS)?;
    let up = gt_transport::create(RING_WORDS)?;
    let bell = gt_transport::eventfd()?;
    let index = member.identity.worker().unwrap_or(0);
    let slab = || slabs.then(gt_transport::slab::create).transpose();
    let (slab_down, slab_up) = (slab()?, slab()?);
    let value = if slabs { SLABS } else { 0 };
    let record = ControlRecord { kind: ControlKind::Setup, index, value };
    let ends = [Some(&down), Some(&up), Some(&bell), slab_down.as_ref(), slab_up.as_ref()];
    let ends: Vec<BorrowedFd<'_>> = ends.into_iter().flatten().map(AsFd::as_fd).collect();
    send_record(socket.as_fd(), &record, &ends)?;
    let consumer = gt_transport::Consumer::new(up)?;
    let producer = gt_transport::Producer::new(down)?;
    let (leash, held) = oneshot::channel();
    let source = Source::Ring { consumer, bell };
    let target = Target::Ring(producer);
    let lent = slab_up.map(SlabReader::new).transpose()?.map(Lent::new);
    let lends = slab_down.map(SlabWriter::new).transpose()?;
    Ok((Link { source, target, leash, lent, lends }, Leash::new(held)))
}

/// The held end of a leash.
pub(crate) struct Leash {
    held: oneshot::Receiver<()>,
    is_over: bool,
}

impl Leash {
    pub fn new(held: oneshot::Receiver<()>) -> Self {
        Self { held, is_over: false }
    }

    /// Returns when the core's thread has dropped the link, and at once when asked again.
    pub async fn closed(&mut self) {
        if !self.is_over {
            // Nobody ever sends; the sender's end is the message.
            let _ = (&mut self.held).await;
            self.is_over = true;
        }
    }
}

fn attach(member: &Member, name: String, link: Link, socket: Rc<OwnedFd>) {
    let net = member.net();
    match member.identity {
        Identity::Session(session) => {
            tracing::info!("session {session} ({name:?}) is connected by rings");
            net.tell(Tidings::Client { session: SessionId(session), name, link });
        }
        Identity::Worker(index) => {
            // Before the core hears of the worker: no collective may come before the slabs that it needs.
            let introductions = introduce(net, index, &WorkerSocket::Ring(socket));
            tracing::info!("worker {index} ({name:?}) is connected by rings");
            net.tell(Tidings::Worker { index, link, introductions });
        }
    }
}

/// What one worker is to be told of another that it reaches by TCP.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub to: u32,
    pub peer: u32,
    pub secret: Secret,
    /// Where `to` connects; empty where it waits.
    pub address: String,
}

/// Connects a new worker with all others: slabs where both can map them, TCP where one of the two takes connections, else
/// word that there is no way.
pub(crate) fn introduce(net: &Net, index: u32, socket: &WorkerSocket) -> Vec<Introduction> {
    let others: Vec<(u32, WorkerSocket)> = {
        let mut registry = net.registry.borrow_mut();
        registry.workers.insert(index, socket.clone());
        let others = registry.workers.iter().filter(|(other, _)| **other != index);
        others.map(|(other, socket)| (*other, socket.clone())).collect()
    };
    let mut introductions = Vec::new();
    for (other, other_socket) in others {
        let outcome = match (socket, &other_socket) {
            (WorkerSocket::Ring(one), WorkerSocket::Ring(two)) => pair((index, one), (other, two)),
            // The one without rings is called: it listens where its dispatcher's network is.
            (_, WorkerSocket::Remote(Some(address))) => {
                call(index, other, *address, &mut introductions)
            }
            (WorkerSocket::Remote(Some(address)), WorkerSocket::Ring(_)) => {
                call(other, index, *address, &mut introductions)
            }
            (WorkerSocket::Ring(one), WorkerSocket::Remote(None)) => gone(one, other),
            (WorkerSocket::Remote(None), WorkerSocket::Ring(two)) => gone(two, index),
            (WorkerSocket::Remote(_), WorkerSocket::Remote(None))
            | (WorkerSocket::Pending, _)
            | (_, WorkerSocket::Pending) => Ok(()),
        };
        if let Err(error) = outcome {
            // One of the two is about to be found dead by its socket.
            tracing::warn!("workers {index} and {other} could not be connected: {error}");
        }
    }
    introductions
}

/// Has `from` connect to `to`, which listens at `address`.
fn call(from: u32, to: u32, address: SocketAddr, introductions: &mut Vec<Introduction>) -> Outcome {
    let secret = random_secret()?;
    let address = address.to_string();
    introductions.push(Introduction { to, peer: from, secret, address: String::new() });
    introductions.push(Introduction { to: from, peer: to, secret, address });
    Ok(())
}

/// Tells the other workers that one is gone.
pub(crate) fn tell_gone(net: &Net, index: u32) {
    for socket in net.registry.borrow().workers.values() {
        if let WorkerSocket::Ring(socket) = socket {
            // A worker that is gone too needs no news.
            let _ = gone(socket, index);
        }
    }
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn gone(socket: &OwnedFd, index: u32) -> Outcome {
    let record = ControlRecord { kind: ControlKind::PeerGone, index, value: 0 };
    Ok(send_record(socket.as_fd(), &record, &[])?)
}

fn pair(one: (u32, &OwnedFd), two: (u32, &OwnedFd)) -> Outcome {
    let there = gt_transport::slab::create()?;
    let back = gt_transport::slab::create()?;
    let tell = |socket: &OwnedFd, index, write: &OwnedFd, read: &OwnedFd| {
        let record = ControlRecord { kind: ControlKind::Peer, index, value: 0 };
        let descriptors: [BorrowedFd<'_>; 2] = [write.as_fd(), read.as_fd()];
        send_record(socket.as_fd(), &record, &descriptors)
    };
    tell(one.1, two.0, &there, &back)?;
    tell(two.1, one.0, &back, &there)?;
    Ok(())
}

/// Waits for the end of a life line. A peer that talks there is skipped over; it cannot make us keep anything.
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
