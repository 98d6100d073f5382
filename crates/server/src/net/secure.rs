//! First bytes of a connection of TCP: the handshake of TLS, or a refusal to a peer that does not
//! speak it where it should.

use super::Net;
use super::greeting::{self, GreetingError, HELLO_PATIENCE};
use super::peer_socket::PeerSocket;
use gt_protocol::handshake::{MAGIC, RefusalCode};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// First byte of a TLS connection: the type of a record that holds a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Encrypts a new connection if this dispatcher has a certificate. A peer that speaks the other of
/// the two is refused.
pub(crate) async fn accept(net: &Net, stream: TcpStream) -> Result<PeerSocket, GreetingError> {
    let secured = tokio::time::timeout(HELLO_PATIENCE, secure(net.tls.as_ref(), stream)).await;
    secured.map_err(|_| GreetingError::Silent)?
}

async fn secure(
    tls: Option<&TlsAcceptor>,
    mut stream: TcpStream,
) -> Result<PeerSocket, GreetingError> {
    let mut first = [0_u8; 1];
    if stream.peek(&mut first).await? == 0 {
        return Err(GreetingError::Nothing);
    }
    let is_tls = first == [TLS_HANDSHAKE];
    match tls {
        Some(tls) if is_tls => {
            let secured = tls.accept(stream).await.map_err(GreetingError::Tls)?;
            Ok(PeerSocket::Tls(Box::new(secured)))
        }
        Some(_) if MAGIC.starts_with(&first) => {
            greeting::read_hello(&mut stream).await?;
            let text = "this dispatcher takes TLS only: set GT_TLS_CA to the certificate of its authority (the ca.pem that `gt cert` wrote)";
            Err(greeting::refuse(&mut stream, RefusalCode::Other, text).await)
        }
        None if is_tls => Err(GreetingError::NoCertificate),
        Some(_) | None => Ok(PeerSocket::Clear(stream)),
    }
}
