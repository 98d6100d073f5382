//! The handshake of a connection, up to the point where the peer is identified.

use super::Net;
use super::authentication::Admission;
use super::registry::Identity;
use super::secret::random_secret;
use crate::audit::Quoted;
use crate::net_event::NetEvent;
use crate::tokens::TokenLine;
use gt_protocol::handshake::{
    self, Capabilities, HANDSHAKE_BYTES_MAX, Handshake, HandshakeError, Hello, Refusal,
    RefusalCode, Role, Secret, VERSION, VERSION_OLDEST, Welcome,
};
use gt_protocol::integer::to_u64;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;

/// Time limit for a peer's hello: a silent connection is half open or a stranger's.
pub(crate) const HELLO_PATIENCE: Duration = Duration::from_secs(3);

/// Reason why a connection fails: the line in the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetingError {
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    #[error("no hello within {} s", HELLO_PATIENCE.as_secs())]
    Silent,
    #[error("closed in the middle of its hello")]
    Closed,
    #[error("closed without a word")]
    Nothing,
    #[error("refused: {0}")]
    Refused(String),
    #[error("closed without a hello: newer connections needed its place")]
    Crowded,
    #[error("its token is not in the token file any more")]
    Revoked,
    #[error("no TLS handshake: {0}")]
    Tls(io::Error),
    #[error(
        "a TLS connection, for which this dispatcher has no certificate: --tls-cert, --tls-key"
    )]
    NoCertificate,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl GreetingError {
    /// Returns true if this is a health check rather than a mistake, or counted elsewhere.
    pub fn is_harmless(&self) -> bool {
        matches!(self, Self::Nothing | Self::Crowded)
    }
}

/// A peer that was admitted.
pub(crate) struct Admitted {
    pub member: Member,
    pub name: String,
    /// User that a token belongs to; empty where the dispatcher knows no users.
    pub user: String,
    pub version: u16,
    pub capabilities: Capabilities,
    /// Secret with which a resume proves that it is the same peer.
    pub secret: Secret,
    /// Port at which a worker accepts connections of other workers.
    pub data_port: Option<u16>,
    /// Admission by the token file, if there is one.
    pub admission: Option<Admission>,
    /// Line of the token file that admits it.
    pub line: Option<TokenLine>,
}

/// Membership in core and registry; ends when this value is dropped.
pub(crate) struct Member {
    pub identity: Identity,
    /// True for a worker in whose place another one comes if it dies.
    pub is_supervised: bool,
    net: Rc<Net>,
    reason: String,
}

impl Member {
    pub fn new(identity: Identity, net: &Rc<Net>) -> Self {
        let reason = "its connection closed".into();
        Self { identity, is_supervised: false, net: Rc::clone(net), reason }
    }

    pub fn net(&self) -> &Rc<Net> {
        &self.net
    }

    /// Sets the reason of its end, for log lines and for the clients of a lost worker.
    pub fn set_reason(&mut self, reason: impl Into<String>) {
        self.reason = reason.into();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.net.registry.borrow_mut().remove_resumable(self.identity);
        let reason = self.reason.clone();
        let is_told = match self.identity {
            Identity::Session(session) => {
                self.net.registry.borrow_mut().remove_session();
                let session = gt_dispatcher::SessionId(session);
                self.net.tell(NetEvent::ClientGone { session, reason })
            }
            Identity::Worker(index) => {
                let is_told = self.net.tell(NetEvent::WorkerGone { index, reason });
                self.net.registry.borrow_mut().workers.remove(&index);
                super::introductions::tell_gone(&self.net, index);
                is_told
            }
        };
        // Else the core's thread writes it, when a standby has it.
        if !is_told {
            let (identity, reason) = (self.identity.field(), Quoted("reason", &self.reason));
            self.net.audit.write("left", format_args!(" {identity}{reason}"));
        }
    }
}

/// Reads the hello, and sends a refusal where it must be refused. A probe gets its answer here:
/// `None`.
pub(crate) async fn hello<S>(stream: &mut S) -> Result<Option<(Hello, u16)>, GreetingError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let hello = match read_hello(stream).await {
        Ok(Handshake::Hello(hello)) => hello,
        Ok(Handshake::Welcome(_) | Handshake::Refusal(_)) => {
            return Err(refuse(stream, RefusalCode::Malformed, "a hello was expected").await);
        }
        // A peer that does not speak the protocol gets no answer.
        Err(error @ GreetingError::Handshake(HandshakeError::Magic)) => return Err(error),
        Err(GreetingError::Handshake(error)) => {
            return Err(refuse(stream, RefusalCode::Malformed, &error.to_string()).await);
        }
        Err(error) => return Err(error),
    };
    match handshake::negotiate(&hello) {
        Ok(version) if hello.role == Role::Probe => {
            send_welcome(stream, probed(version)).await?;
            Ok(None)
        }
        Ok(version) => Ok(Some((hello, version))),
        Err(refusal) => Err(send_refusal(stream, refusal).await),
    }
}

/// Reads the first handshake message, within its time.
pub(crate) async fn read_hello<S>(stream: &mut S) -> Result<Handshake, GreetingError>
where
    S: AsyncRead + Unpin,
{
    let read = tokio::time::timeout(HELLO_PATIENCE, read_handshake(stream)).await;
    read.map_err(|_| GreetingError::Silent)?
}

/// The answer to a probe: only the version.
fn probed(version: u16) -> Welcome {
    Welcome {
        version,
        capabilities: Capabilities::default(),
        session: 0,
        secret: Secret([0; 16]),
        acknowledged: 0,
        worker: None,
        local_socket: None,
    }
}

/// Checks the token and registers the peer, which is at an address or on a Unix socket.
pub(crate) async fn admit<S>(
    net: &Rc<Net>,
    stream: &mut S,
    hello: Hello,
    version: u16,
    from: Option<SocketAddr>,
) -> Result<Admitted, GreetingError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut name, mut of, mut admission) = (hello.name.clone(), String::new(), None);
    if let Some(authentication) = &net.authentication {
        let admitted = match authentication.admit(&hello.token, from.map(|from| from.ip())).await {
            Ok(admitted) => admitted,
            Err(refusal) => {
                return Err(refuse(stream, RefusalCode::Token, refusal.text()).await);
            }
        };
        admitted.user().clone_into(&mut name);
        admitted.user().clone_into(&mut of);
        admission = Some(admitted);
    }
    let capabilities = hello.capabilities.common(Capabilities::LOCAL);
    let data_port = hello.data_port;
    let secret = random_secret()?;
    let identity = match place(net, &hello, &of).await {
        Ok(identity) => identity,
        Err((code, text)) => return Err(refuse(stream, code, &text).await),
    };
    let shown = from.map_or_else(|| "unix".to_owned(), |from| from.to_string());
    let (user, called) = (Quoted("user", &of), Quoted("name", &hello.name));
    net.audit.write("admitted", format_args!(" {} from={shown}{user}{called}", identity.field()));
    let is_supervised = hello.capabilities.contains(Capabilities::SUPERVISED);
    let mut member = Member::new(identity, net);
    member.is_supervised = is_supervised;
    let line = admission.as_ref().map(|admission| admission.line().clone());
    let user = of;
    Ok(Admitted { member, name, user, version, capabilities, secret, data_port, admission, line })
}

async fn place(net: &Net, hello: &Hello, user: &str) -> Result<Identity, (RefusalCode, String)> {
    let full = |text| (RefusalCode::Full, text);
    match hello.role {
        Role::Client | Role::Probe => {
            net.registry.borrow_mut().add_session().map_err(full)?;
            let (answer, session) = oneshot::channel();
            let (named, user) = (hello.session.clone(), user.to_owned());
            net.tell(NetEvent::OpenSession { named, user, answer });
            let opened = match session.await {
                Ok(Ok(session)) => return Ok(Identity::Session(session.0)),
                Ok(Err(text)) => (RefusalCode::Session, text),
                Err(_) => (RefusalCode::Closing, "the dispatcher stops".to_owned()),
            };
            net.registry.borrow_mut().remove_session();
            Err(opened)
        }
        Role::Worker => {
            let added = net.registry.borrow_mut().add_worker(hello.worker);
            added.map(Identity::Worker).map_err(full)
        }
    }
}

impl Admitted {
    /// The answer to the hello, without a local socket.
    pub fn welcome(&self) -> Welcome {
        Welcome {
            version: self.version,
            capabilities: self.capabilities,
            session: self.member.identity.key(),
            secret: self.secret,
            acknowledged: 0,
            worker: self.member.identity.worker(),
            local_socket: None,
        }
    }
}

pub(crate) async fn send_welcome<S>(stream: &mut S, welcome: Welcome) -> Result<(), GreetingError>
where
    S: AsyncWrite + Unpin,
{
    stream.write_all(&Handshake::Welcome(welcome).encode()?).await?;
    Ok(stream.flush().await?)
}

/// Sends a refusal; the error gives the same reason in the log.
pub(crate) async fn refuse<S>(stream: &mut S, code: RefusalCode, text: &str) -> GreetingError
where
    S: AsyncWrite + Unpin,
{
    let text = text.to_owned();
    let refusal = Refusal { version: VERSION, version_oldest: VERSION_OLDEST, code, text };
    send_refusal(stream, refusal).await
}

async fn send_refusal<S>(stream: &mut S, refusal: Refusal) -> GreetingError
where
    S: AsyncWrite + Unpin,
{
    let text = refusal.text.clone();
    if let Ok(bytes) = Handshake::Refusal(refusal).encode() {
        // A few hundred bytes into an empty socket buffer: this never waits. A peer that is gone
        // needs no refusal.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
    }
    GreetingError::Refused(text)
}

/// Reads exactly one handshake message: the following bytes may carry descriptors, or belong to
/// another reader.
async fn read_handshake<S>(stream: &mut S) -> Result<Handshake, GreetingError>
where
    S: AsyncRead + Unpin,
{
    const PREFIX_BYTES: usize = 6;
    let mut bytes = Vec::with_capacity(128);
    // The loop ends: each round reads at least one of at most HANDSHAKE_BYTES_MAX bytes.
    loop {
        let wanted = match bytes.get(4..PREFIX_BYTES) {
            Some(&[low, high]) => usize::from(u16::from_le_bytes([low, high])),
            Some(_) | None => PREFIX_BYTES,
        };
        let missing = wanted.min(HANDSHAKE_BYTES_MAX).saturating_sub(bytes.len()).max(1);
        if (&mut *stream).take(to_u64(missing)).read_buf(&mut bytes).await? == 0 {
            let nothing = bytes.is_empty();
            return Err(if nothing { GreetingError::Nothing } else { GreetingError::Closed });
        }
        if let Some((message, _)) = Handshake::decode(&bytes)? {
            return Ok(message);
        }
    }
}
