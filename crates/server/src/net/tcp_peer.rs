//! A peer that connected by TCP: it moves to rings through the local socket, resumes a session, or
//! stays on TCP.

use super::Net;
use super::authentication::Admission;
use super::framed;
use super::greeting::{self, Admitted, GreetingError, HELLO_PATIENCE};
use super::peer_socket::PeerSocket;
use super::registry::Takeover;
use super::ring_peer;
use super::secret::random_secret;
use super::secure;
use super::strangers::StrangerPlace;
use gt_protocol::handshake::{Capabilities, Hello, LocalSocket, RefusalCode, Resume};
use gt_transport::tcp;

use std::rc::Rc;
use std::sync::Once;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

/// Serves one TCP connection from its first byte to its end.
///
/// `place` is its place among the connections without a hello.
pub(crate) async fn serve(
    net: &Rc<Net>,
    stream: TcpStream,
    mut place: StrangerPlace,
) -> Result<(), GreetingError> {
    tcp::tune(&stream, net.links.probes)?;
    if !stream.peer_addr()?.ip().is_loopback() {
        tell_of_buffers();
    }
    let mut stream = place.during(secure::accept(net, stream)).await?;
    let greeted = place.during(greeting::hello(&mut stream)).await?;
    let Some((hello, version)) = greeted else { return Ok(()) };
    drop(place);
    if let Some(resume) = hello.resume {
        return take_over(net, stream, &resume, version).await;
    }
    let from = stream.tcp().peer_addr()?;
    let local = from.ip().is_loopback() && hello.capabilities.contains(Capabilities::RING);
    let mut admitted = greeting::admit(net, &mut stream, hello, version, Some(from)).await?;
    let admission = admitted.admission.take();
    let served = async move {
        if local {
            return offer_local(net, admitted, stream).await;
        }
        greeting::send_welcome(&mut stream, admitted.welcome()).await?;
        framed::serve(admitted, stream).await
    };
    while_admitted(admission, served).await
}

/// Serves a peer for as long as the token file admits it.
pub(super) async fn while_admitted(
    admission: Option<Admission>,
    served: impl Future<Output = Result<(), GreetingError>>,
) -> Result<(), GreetingError> {
    let Some(mut admission) = admission else { return served.await };
    tokio::select! {
        served = served => served,
        () = admission.over() => Err(GreetingError::Revoked),
    }
}

/// Serves a connection on the Unix socket: every peer there is on this host.
pub(crate) async fn serve_unix(
    net: &Rc<Net>,
    mut socket: UnixStream,
    mut place: StrangerPlace,
) -> Result<(), GreetingError> {
    let greeted = place.during(greeting::hello(&mut socket)).await?;
    let Some((hello, version)) = greeted else { return Ok(()) };
    drop(place);
    if hello.resume.is_some() {
        let text = "a session of rings cannot be resumed";
        return Err(greeting::refuse(&mut socket, RefusalCode::Session, text).await);
    }
    let mut admitted = greeting::admit(net, &mut socket, hello, version, None).await?;
    let admission = admitted.admission.take();
    greeting::send_welcome(&mut socket, admitted.welcome()).await?;
    while_admitted(admission, ring_peer::serve(admitted, socket, None)).await
}

/// Serves a connection at the local socket: the secret identifies the peer, whose task takes it
/// over.
pub(crate) async fn serve_local(
    net: &Rc<Net>,
    mut socket: UnixStream,
    mut place: StrangerPlace,
) -> Result<(), GreetingError> {
    let greeted = place.during(greeting::hello(&mut socket)).await?;
    let Some((Hello { resume, .. }, _)) = greeted else { return Ok(()) };
    drop(place);
    let taker = resume.and_then(|resume| net.registry.borrow_mut().take_invitation(&resume));
    let Some(taker) = taker else {
        let text = "nobody is expected with this secret";
        return Err(greeting::refuse(&mut socket, RefusalCode::Session, text).await);
    };
    // Refused when the TCP connection ended meanwhile; then this one ends too.
    let _ = taker.send(socket);
    Ok(())
}

async fn offer_local(
    net: &Rc<Net>,
    admitted: Admitted,
    mut stream: PeerSocket,
) -> Result<(), GreetingError> {
    let identity = admitted.member.identity;
    let secret = random_secret()?;
    let opened = net.registry.borrow_mut().invite(identity, secret);
    let mut welcome = admitted.welcome();
    welcome.local_socket = Some(LocalSocket { address: net.local_socket.clone(), secret });
    let sent = greeting::send_welcome(&mut stream, welcome).await;
    let transport = match sent {
        Ok(()) => choose_transport(stream.tcp(), opened).await,
        Err(error) => Err(error),
    };
    net.registry.borrow_mut().withdraw(identity);
    match transport? {
        PeerTransport::Ring(mut socket) => {
            greeting::send_welcome(&mut socket, admitted.welcome()).await?;
            ring_peer::serve(admitted, socket, Some(stream.into_tcp())).await
        }
        PeerTransport::Stay => framed::serve(admitted, stream).await,
    }
}

enum PeerTransport {
    Ring(UnixStream),
    Stay,
}

/// Transport that a peer on this host chooses: rings through the local socket, or TCP by a first
/// frame, or by no answer in time.
async fn choose_transport(
    stream: &TcpStream,
    opened: oneshot::Receiver<UnixStream>,
) -> Result<PeerTransport, GreetingError> {
    let mut first = [0_u8; 1];
    tokio::select! {
        biased;
        Ok(socket) = opened => Ok(PeerTransport::Ring(socket)),
        peeked = stream.peek(&mut first) => match peeked? {
            0 => Err(GreetingError::Closed),
            _ => Ok(PeerTransport::Stay),
        },
        () = tokio::time::sleep(HELLO_PATIENCE) => Ok(PeerTransport::Stay),
    }
}

/// Passes a new connection to the session that it resumes.
async fn take_over(
    net: &Rc<Net>,
    mut stream: PeerSocket,
    resume: &Resume,
    version: u16,
) -> Result<(), GreetingError> {
    let session = net.registry.borrow().resumable(resume);
    let Some(session) = session else {
        let text = "this session is unknown, or over, or its secret is another";
        return Err(greeting::refuse(&mut stream, RefusalCode::Session, text).await);
    };
    let takeover = Takeover { stream, acknowledged: resume.acknowledged, version };
    // Refused when the session has just ended, or another takeover is in progress.
    let _ = session.try_send(takeover);
    Ok(())
}

/// Logs one line about buffers, at the first connection of another host.
fn tell_of_buffers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some(line) = tcp::clipped_buffers() {
            tracing::info!("{line}");
        }
    });
}
