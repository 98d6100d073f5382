//! Who tells workers of each other, and when one is gone: slabs between those of this host, addresses for the rest.

use super::Net;
use super::registry::WorkerSocket;
use super::secret::random_secret;
use crate::net_event::Introduction;
use gt_transport::{ControlKind, ControlRecord, send_record};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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
fn call(
    from: u32,
    to: u32,
    address: SocketAddr,
    introductions: &mut Vec<Introduction>,
) -> Introduced {
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

type Introduced = Result<(), Box<dyn std::error::Error>>;

fn gone(socket: &OwnedFd, index: u32) -> Introduced {
    let record = ControlRecord { kind: ControlKind::PeerGone, index, value: 0 };
    Ok(send_record(socket.as_fd(), &record, &[])?)
}

fn pair(one: (u32, &OwnedFd), two: (u32, &OwnedFd)) -> Introduced {
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
