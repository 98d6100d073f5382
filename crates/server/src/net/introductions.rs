//! Introductions of workers to each other, and news of their end: slabs between those of this host,
//! addresses for the others.

use super::Net;
use super::registry::WorkerSocket;
use super::secret::random_secret;
use crate::net_event::Introduction;
use gt_protocol::message::Reach;
use gt_transport::{ControlKind, ControlRecord, send_record};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Connects a new worker with all others: by slabs if both can map them, by TCP if one of the two
/// accepts connections, else with the news that there is no connection. The returned introductions
/// go among the instructions, so that later ones mean the new worker and earlier ones the previous
/// worker of that index.
pub(crate) fn introduce(net: &Net, index: u32, socket: &WorkerSocket) -> Vec<Introduction> {
    let mut registry = net.registry.borrow_mut();
    registry.workers.insert(index, socket.clone());
    let new = PeerName { index, incarnation: registry.incarnation(index) };
    let mut introductions = Vec::new();
    for (&other, other_socket) in registry.workers.iter().filter(|(other, _)| **other != index) {
        let old = PeerName { index: other, incarnation: registry.incarnation(other) };
        let outcome = match (socket, other_socket) {
            (WorkerSocket::Ring(one), WorkerSocket::Ring(two)) => {
                introductions.extend([met(old, new), met(new, old)]);
                pair((new, one), (old, two))
            }
            // The worker without rings is called: it listens on its dispatcher's network.
            (_, WorkerSocket::Remote(Some(address))) => {
                call(new, old, *address, &mut introductions)
            }
            (WorkerSocket::Remote(Some(address)), WorkerSocket::Ring(_)) => {
                call(old, new, *address, &mut introductions)
            }
            (WorkerSocket::Ring(one), WorkerSocket::Remote(None)) => {
                introductions.push(met(new, old));
                gone(one, old)
            }
            (WorkerSocket::Remote(None), WorkerSocket::Ring(two)) => {
                introductions.push(met(old, new));
                gone(two, new)
            }
            (WorkerSocket::Remote(_), WorkerSocket::Remote(None))
            | (WorkerSocket::Pending, _)
            | (_, WorkerSocket::Pending) => Ok(()),
        };
        if let Err(error) = outcome {
            // One of the two will soon be found dead by its socket.
            tracing::warn!("workers {index} and {other} could not be connected: {error}");
        }
    }
    introductions
}

/// A worker, identified among all that have had its index.
#[derive(Clone, Copy)]
struct PeerName {
    index: u32,
    incarnation: u32,
}

/// Introduction of another worker to `to`.
fn introduction(to: PeerName, peer: PeerName, reach: Reach<String>) -> Introduction {
    Introduction { to: to.index, peer: peer.index, incarnation: peer.incarnation, reach }
}

fn met(to: PeerName, peer: PeerName) -> Introduction {
    introduction(to, peer, Reach::Memory)
}

/// Makes `from` connect to `to`, which listens at `address`.
fn call(
    from: PeerName,
    to: PeerName,
    address: SocketAddr,
    introductions: &mut Vec<Introduction>,
) -> Introduced {
    let secret = random_secret()?;
    let address = address.to_string();
    introductions.push(introduction(to, from, Reach::Calls { secret }));
    introductions.push(introduction(from, to, Reach::Listens { secret, address }));
    Ok(())
}

/// Tells the other workers that one is gone.
pub(crate) fn tell_gone(net: &Net, index: u32) {
    let registry = net.registry.borrow();
    let lost = PeerName { index, incarnation: registry.incarnation(index) };
    for socket in registry.workers.values() {
        if let WorkerSocket::Ring(socket) = socket {
            // A worker that is gone too needs no news.
            let _ = gone(socket, lost);
        }
    }
}

type Introduced = Result<(), Box<dyn std::error::Error>>;

fn record(kind: ControlKind, peer: PeerName) -> ControlRecord {
    ControlRecord { kind, index: peer.index, value: peer.incarnation.into() }
}

fn gone(socket: &OwnedFd, lost: PeerName) -> Introduced {
    Ok(send_record(socket.as_fd(), &record(ControlKind::PeerGone, lost), &[])?)
}

fn pair(one: (PeerName, &OwnedFd), two: (PeerName, &OwnedFd)) -> Introduced {
    let there = gt_transport::slab::create()?;
    let back = gt_transport::slab::create()?;
    let tell = |socket: &OwnedFd, peer, write: &OwnedFd, read: &OwnedFd| {
        let descriptors: [BorrowedFd<'_>; 2] = [write.as_fd(), read.as_fd()];
        send_record(socket.as_fd(), &record(ControlKind::Peer, peer), &descriptors)
    };
    tell(one.1, two.0, &there, &back)?;
    tell(two.1, one.0, &back, &there)?;
    Ok(())
}
