//! Peers of the dispatcher before this one, whose standby this process was: the core's thread has
//! them, and they are served on.

use super::Net;
use super::framed;
use super::greeting::Member;
use super::listeners;
use super::registry::{Identity, WorkerSocket};
use super::ring_peer::{self, CancelToken};
use super::tcp_peer::while_admitted;
use crate::frames::ResumedFrames;
use crate::journal::Party;
use crate::link::{InheritedConnection, InheritedPeer};
use std::io;
use std::rc::Rc;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

/// Peer of the dispatcher before this one.
pub(crate) struct ResumedPeer {
    pub party: Party,
    pub inherited: InheritedPeer,
    /// State of its link, if it is connected by TCP.
    pub frames: Option<ResumedFrames>,
    /// Resolves when the core's thread has dropped its link.
    pub held: oneshot::Receiver<()>,
}

/// Serves a peer on, as long as the token file has its line.
pub(crate) fn resume(net: &Rc<Net>, peer: ResumedPeer) -> io::Result<()> {
    let ResumedPeer { party, inherited: InheritedPeer { connection, line }, frames, held } = peer;
    let identity = match party {
        Party::Session(session) => {
            // There was room for it before.
            let _ = net.registry.borrow_mut().add_session();
            Identity::Session(session.0)
        }
        Party::Worker(index) => Identity::Worker(index),
    };
    let admission = net.authentication.as_ref().zip(line);
    let admission = admission.map(|(authentication, line)| authentication.readmit(line));
    let member = Member::new(identity, net);
    let cancel = CancelToken::new(held);
    let place = |socket| {
        if let Party::Worker(index) = party {
            net.registry.borrow_mut().workers.insert(index, socket);
        }
    };
    match (connection, frames) {
        (InheritedConnection::Rings { socket, life_line }, _) => {
            place(WorkerSocket::Ring(Rc::new(socket.try_clone()?)));
            let socket = UnixStream::from_std(socket.into())?;
            let life_line = life_line.map(|line| TcpStream::from_std(line.into())).transpose()?;
            let served = async move {
                ring_peer::watch(member, socket, life_line, cancel).await;
                Ok(())
            };
            listeners::spawn(net, identity.to_string(), while_admitted(admission, served));
        }
        (InheritedConnection::Frames(resumption), Some(frames)) => {
            place(WorkerSocket::Remote(resumption.data));
            let served = framed::resume(member, resumption, frames, cancel);
            listeners::spawn(net, identity.to_string(), while_admitted(admission, served));
        }
        // A peer by TCP has frames; without them it is gone.
        (InheritedConnection::Frames(_), None) => {}
    }
    Ok(())
}
