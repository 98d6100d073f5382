//! The first bytes on a socket, and the header of every frame after them.
//!
//! Bytes in and out only: the server decides who may connect, and what a resumed session sends
//! again. The offsets of the magic, the length and the two versions never change, so that any two
//! versions can refuse each other clearly; a later version only appends fields, and a reader skips
//! fields that a version later than its own has appended.

mod bytes;
mod frame;
mod secret;
#[cfg(test)]
pub(crate) mod tests;

pub use frame::{Arrival, FRAME_BYTES_MAX, FrameHeader};
pub use secret::{Secret, Token};

use bytes::{HandshakeCursor, push_short};

/// First bytes of every handshake message; the control bytes distinguish it from text and HTTP.
pub const MAGIC: [u8; 4] = *b"GT\x01\n";
/// The version that this build speaks.
pub const VERSION: u16 = 1;
/// The oldest version that this build speaks: two back, so that a cluster can be upgraded before
/// its users.
pub const VERSION_OLDEST: u16 = if VERSION > 2 { VERSION - 2 } else { 1 };
/// Maximum bytes of a handshake message: small, because it is read before the peer is trusted.
pub const HANDSHAKE_BYTES_MAX: usize = 1024;
/// Maximum bytes of an access token; a signed one (JWT) of usual size does not fit on purpose:
/// tokens are random strings.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Maximum bytes of a name shown by `gt top`.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum bytes of a session's name.
pub const SESSION_NAME_BYTES_MAX: usize = 64;
/// Longest lease of a named session in seconds: a week.
pub const LEASE_SECONDS_MAX: u64 = 7 * 24 * 3600;
/// Lease that leaves the choice to the dispatcher.
const LEASE_OF_DISPATCHER: u32 = u32::MAX;
/// Maximum bytes of a Unix socket's address, the length of `sun_path`.
pub const ADDRESS_BYTES_MAX: usize = 108;
/// Maximum bytes of a refusal's text.
pub const REFUSAL_BYTES_MAX: usize = 512;

/// Role of the connecting side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Worker,
    /// Asks if a dispatcher is there and which version it speaks; closed after the answer.
    Probe,
}

/// Abilities; one is used only if both sides have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u32);

impl Capabilities {
    /// Can open a Unix socket of this host and map a ring.
    pub const RING: Self = Self(1);
    /// Takes payloads from a shared slab.
    pub const SLAB: Self = Self(2);
    /// Another worker takes the place of this one if it dies, with the same index and settings.
    pub const SUPERVISED: Self = Self(4);
    /// Abilities that peers on one host use.
    pub const LOCAL: Self = Self(Self::RING.0 | Self::SLAB.0);

    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Abilities that both sides have.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Identifies a session to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    pub session: u32,
    pub secret: Secret,
    /// The last frame that arrived: the peer sends again from the next one.
    pub acknowledged: u64,
}

/// A session that outlives its clients: the client opens it, or attaches to it where it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSession {
    pub name: String,
    /// Seconds for which the session waits for its next client; `None` leaves them to the
    /// dispatcher.
    pub lease_s: Option<u32>,
}

/// The connecting side's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Newest version that the sender speaks.
    pub version: u16,
    /// Oldest version that the sender speaks.
    pub version_oldest: u16,
    pub role: Role,
    pub capabilities: Capabilities,
    pub resume: Option<Resume>,
    /// The preferred index of a worker.
    pub worker: Option<u32>,
    /// Port at which a worker accepts connections of other workers, on the interface that it
    /// connected from.
    pub data_port: Option<u16>,
    pub token: Token,
    pub name: String,
    /// A client's session, if it has a name.
    pub session: Option<NamedSession>,
}

/// A Unix socket on the dispatcher's host: a client that can open it proves that it is on the same
/// host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSocket {
    /// `sun_path`; an abstract address begins with a zero byte.
    pub address: Vec<u8>,
    /// Valid once, as the secret of the `resume` in the hello on that socket.
    pub secret: Secret,
}

/// The dispatcher's answer that accepts the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that both sides speak from here on.
    pub version: u16,
    pub capabilities: Capabilities,
    pub session: u32,
    pub secret: Secret,
    /// The last frame of a resumed session that arrived, else 0.
    pub acknowledged: u64,
    /// The index that a worker is given.
    pub worker: Option<u32>,
    pub local_socket: Option<LocalSocket>,
}

/// Reason why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCode {
    Version,
    /// Token missing or wrong.
    Token,
    /// The session to continue does not exist, or its secret is wrong.
    Session,
    /// No more sessions or workers are accepted.
    Full,
    /// The dispatcher is about to stop.
    Closing,
    /// The hello could not be read.
    Malformed,
    /// A reason that only later versions know; the text gives it.
    Other,
}

/// The dispatcher's refusal; the connection is closed after it. Its layout never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Newest version that the dispatcher speaks.
    pub version: u16,
    pub version_oldest: u16,
    pub code: RefusalCode,
    pub text: String,
}

/// A handshake message of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handshake {
    Hello(Hello),
    Welcome(Welcome),
    Refusal(Refusal),
}

/// The peer's mistake in a handshake or a frame header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    #[error("not a GT peer: the first bytes are not GT's")]
    Magic,
    #[error("a handshake of {0} bytes, the limit is {HANDSHAKE_BYTES_MAX}")]
    Length(usize),
    #[error("the message ends inside {0}")]
    Truncated(&'static str),
    #[error("{0} bytes follow the last field")]
    Trailing(usize),
    #[error("{0} holds {1}")]
    Value(&'static str, u64),
    #[error("{0} of {1} bytes is over the limit")]
    Limit(&'static str, usize),
    #[error("{0} is not UTF-8")]
    Utf8(&'static str),
    #[error("a frame of {0} bytes, the limit is {FRAME_BYTES_MAX}")]
    FrameLength(u32),
    #[error("a frame of {0} bytes is not whole words")]
    FrameWords(u32),
}

impl Hello {
    /// A hello of this build's versions without optional fields.
    pub fn new(role: Role) -> Self {
        Self {
            version: VERSION,
            version_oldest: VERSION_OLDEST,
            role,
            capabilities: Capabilities::default(),
            resume: None,
            worker: None,
            data_port: None,
            token: Token::default(),
            name: String::new(),
            session: None,
        }
    }
}

/// The newest version that both sides speak, or the refusal to send.
pub fn negotiate(hello: &Hello) -> Result<u16, Refusal> {
    negotiate_between(hello, VERSION_OLDEST, VERSION)
}

/// [`negotiate`] for a dispatcher of other versions than this build's.
pub fn negotiate_between(hello: &Hello, oldest: u16, newest: u16) -> Result<u16, Refusal> {
    let chosen = hello.version.min(newest);
    if chosen >= hello.version_oldest.max(oldest) {
        return Ok(chosen);
    }
    let upgrade = if hello.version < oldest { "client" } else { "dispatcher" };
    Err(Refusal {
        version: newest,
        version_oldest: oldest,
        code: RefusalCode::Version,
        text: format!(
            "the client speaks protocol versions {} to {}, this dispatcher {oldest} to {newest}: upgrade the {upgrade}",
            hello.version_oldest, hello.version
        ),
    })
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REFUSAL: u8 = 3;
/// Magic, length, kind, reserved byte, version, oldest version.
const PREFIX_BYTES: usize = 12;

const HAS_RESUME: u8 = 1;
const HAS_WORKER: u8 = 2;
const HAS_LOCAL_SOCKET: u8 = 4;
const HAS_DATA_PORT: u8 = 8;
const HAS_SESSION: u8 = 16;

impl Handshake {
    /// The message's bytes.
    pub fn encode(&self) -> Result<Vec<u8>, HandshakeError> {
        let mut out = Vec::with_capacity(128);
        let (kind, version, oldest) = match self {
            Self::Hello(hello) => (HELLO, hello.version, hello.version_oldest),
            Self::Welcome(welcome) => (WELCOME, welcome.version, welcome.version),
            Self::Refusal(refusal) => (REFUSAL, refusal.version, refusal.version_oldest),
        };
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0, 0, kind, 0]);
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&oldest.to_le_bytes());
        match self {
            Self::Hello(hello) => append_hello(hello, &mut out)?,
            Self::Welcome(welcome) => append_welcome(welcome, &mut out)?,
            Self::Refusal(refusal) => {
                out.push(refusal.code.code());
                push_short(&mut out, "text", refusal.text.as_bytes(), REFUSAL_BYTES_MAX)?;
            }
        }
        let length = match u16::try_from(out.len()) {
            Ok(length) if out.len() <= HANDSHAKE_BYTES_MAX => length,
            Ok(_) | Err(_) => return Err(HandshakeError::Length(out.len())),
        };
        if let Some(place) = out.get_mut(4..6) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        Ok(out)
    }

    /// The message at the front of `bytes` and its length in bytes; `None` while more must be read.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, HandshakeError> {
        if bytes.iter().zip(MAGIC).any(|(&byte, magic)| byte != magic) {
            return Err(HandshakeError::Magic);
        }
        let Some(&[low, high]) = bytes.get(4..6) else { return Ok(None) };
        let length = usize::from(u16::from_le_bytes([low, high]));
        if !(PREFIX_BYTES..=HANDSHAKE_BYTES_MAX).contains(&length) {
            return Err(HandshakeError::Length(length));
        }
        let Some(frame) = bytes.get(6..length) else { return Ok(None) };
        let mut cursor = HandshakeCursor::new(frame);
        let kind = cursor.u8("kind")?;
        // Reserved: a later version may use it.
        let _ = cursor.u8("kind")?;
        let version = cursor.u16("version")?;
        let version_oldest = cursor.u16("version")?;
        if version == 0 || version_oldest == 0 || version_oldest > version {
            return Err(HandshakeError::Value("version", version_oldest.into()));
        }
        let message = match kind {
            HELLO => Self::Hello(hello(&mut cursor, version, version_oldest)?),
            WELCOME => Self::Welcome(welcome(&mut cursor, version)?),
            REFUSAL => Self::Refusal(refusal(&mut cursor, version, version_oldest)?),
            other => return Err(HandshakeError::Value("kind", other.into())),
        };
        let rest = cursor.rest();
        if rest > 0 && version <= VERSION {
            return Err(HandshakeError::Trailing(rest));
        }
        Ok(Some((message, length)))
    }
}

fn append_hello(hello: &Hello, out: &mut Vec<u8>) -> Result<(), HandshakeError> {
    let mut present = 0;
    present |= if hello.resume.is_some() { HAS_RESUME } else { 0 };
    present |= if hello.worker.is_some() { HAS_WORKER } else { 0 };
    present |= if hello.data_port.is_some() { HAS_DATA_PORT } else { 0 };
    present |= if hello.session.is_some() { HAS_SESSION } else { 0 };
    out.extend_from_slice(&[hello.role.code(), present]);
    out.extend_from_slice(&hello.capabilities.0.to_le_bytes());
    if let Some(resume) = &hello.resume {
        out.extend_from_slice(&resume.session.to_le_bytes());
        out.extend_from_slice(&resume.secret.0);
        out.extend_from_slice(&resume.acknowledged.to_le_bytes());
    }
    if let Some(worker) = hello.worker {
        out.extend_from_slice(&worker.to_le_bytes());
    }
    if let Some(port) = hello.data_port {
        out.extend_from_slice(&port.to_le_bytes());
    }
    push_short(out, "token", &hello.token.0, TOKEN_BYTES_MAX)?;
    push_short(out, "name", hello.name.as_bytes(), NAME_BYTES_MAX)?;
    if let Some(NamedSession { name, lease_s }) = &hello.session {
        out.extend_from_slice(&lease_s.unwrap_or(LEASE_OF_DISPATCHER).to_le_bytes());
        push_short(out, "session", name.as_bytes(), SESSION_NAME_BYTES_MAX)?;
    }
    Ok(())
}

fn hello(
    cursor: &mut HandshakeCursor<'_>,
    version: u16,
    version_oldest: u16,
) -> Result<Hello, HandshakeError> {
    let role = cursor.u8("role")?;
    let role = Role::from_code(role).ok_or(HandshakeError::Value("role", role.into()))?;
    let present = cursor.present(HAS_RESUME | HAS_WORKER | HAS_DATA_PORT | HAS_SESSION, version)?;
    let capabilities = Capabilities(cursor.u32("capabilities")?);
    let resume = if present & HAS_RESUME == 0 {
        None
    } else {
        Some(Resume {
            session: cursor.u32("session")?,
            secret: Secret(cursor.array("secret")?),
            acknowledged: cursor.u64("acknowledged")?,
        })
    };
    let worker = if present & HAS_WORKER == 0 { None } else { Some(cursor.u32("worker")?) };
    let data_port =
        if present & HAS_DATA_PORT == 0 { None } else { Some(cursor.u16("data port")?) };
    let token = Token(cursor.short("token", TOKEN_BYTES_MAX)?.to_vec());
    let name = cursor.text("name", NAME_BYTES_MAX)?;
    let session = if present & HAS_SESSION == 0 {
        None
    } else {
        let lease = cursor.u32("lease")?;
        let name = cursor.text("session", SESSION_NAME_BYTES_MAX)?;
        Some(NamedSession {
            name,
            lease_s: Some(lease).filter(|&lease| lease != LEASE_OF_DISPATCHER),
        })
    };
    Ok(Hello {
        version,
        version_oldest,
        role,
        capabilities,
        resume,
        worker,
        data_port,
        token,
        name,
        session,
    })
}

fn append_welcome(welcome: &Welcome, out: &mut Vec<u8>) -> Result<(), HandshakeError> {
    let mut present = 0;
    present |= if welcome.worker.is_some() { HAS_WORKER } else { 0 };
    present |= if welcome.local_socket.is_some() { HAS_LOCAL_SOCKET } else { 0 };
    out.extend_from_slice(&[present, 0]);
    out.extend_from_slice(&welcome.capabilities.0.to_le_bytes());
    out.extend_from_slice(&welcome.session.to_le_bytes());
    out.extend_from_slice(&welcome.secret.0);
    out.extend_from_slice(&welcome.acknowledged.to_le_bytes());
    if let Some(worker) = welcome.worker {
        out.extend_from_slice(&worker.to_le_bytes());
    }
    if let Some(local_socket) = &welcome.local_socket {
        out.extend_from_slice(&local_socket.secret.0);
        push_short(out, "address", &local_socket.address, ADDRESS_BYTES_MAX)?;
    }
    Ok(())
}

fn welcome(cursor: &mut HandshakeCursor<'_>, version: u16) -> Result<Welcome, HandshakeError> {
    let present = cursor.present(HAS_WORKER | HAS_LOCAL_SOCKET, version)?;
    let _ = cursor.u8("reserved byte")?;
    let capabilities = Capabilities(cursor.u32("capabilities")?);
    let session = cursor.u32("session")?;
    let secret = Secret(cursor.array("secret")?);
    let acknowledged = cursor.u64("acknowledged")?;
    let worker = if present & HAS_WORKER == 0 { None } else { Some(cursor.u32("worker")?) };
    let local_socket = if present & HAS_LOCAL_SOCKET == 0 {
        None
    } else {
        let secret = Secret(cursor.array("secret")?);
        let address = cursor.short("address", ADDRESS_BYTES_MAX)?.to_vec();
        Some(LocalSocket { address, secret })
    };
    Ok(Welcome { version, capabilities, session, secret, acknowledged, worker, local_socket })
}

fn refusal(
    cursor: &mut HandshakeCursor<'_>,
    version: u16,
    version_oldest: u16,
) -> Result<Refusal, HandshakeError> {
    let code = RefusalCode::from_code(cursor.u8("code")?);
    let text = cursor.text("text", REFUSAL_BYTES_MAX)?;
    Ok(Refusal { version, version_oldest, code, text })
}

impl Role {
    const fn code(self) -> u8 {
        match self {
            Self::Client => 0,
            Self::Worker => 1,
            Self::Probe => 2,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Client, Self::Worker, Self::Probe].into_iter().find(|role| role.code() == code)
    }
}

impl RefusalCode {
    const KNOWN: [Self; 6] =
        [Self::Version, Self::Token, Self::Session, Self::Full, Self::Closing, Self::Malformed];

    const fn code(self) -> u8 {
        match self {
            Self::Version => 0,
            Self::Token => 1,
            Self::Session => 2,
            Self::Full => 3,
            Self::Closing => 4,
            Self::Malformed => 5,
            Self::Other => u8::MAX,
        }
    }

    fn from_code(code: u8) -> Self {
        Self::KNOWN.into_iter().find(|reason| reason.code() == code).unwrap_or(Self::Other)
    }
}
