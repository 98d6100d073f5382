//! A session over TCP: numbered frames, acknowledgements that nothing waits for, and resumption of
//! a dropped link.

use super::greeting::{self, Admitted, GreetingError, Member};
use super::introductions;
use super::peer_socket::{PeerSocket, ReadHalf, WriteHalf};
use super::registry::{Identity, Takeover, WorkerSocket};
use super::ring_peer::CancelToken;
use crate::link::{self, CHANNEL_FRAMES, WordSource, WordTarget};
use crate::net_event::NetEvent;
use crate::waker::Waker;
use gt_dispatcher::SessionId;
use gt_protocol::handshake::{FrameHeader, RefusalCode, Welcome};
use gt_protocol::integer::to_usize;
use gt_protocol::link::{Keep, Link, LinkError};
use gt_transport::tcp::{AnswerWatch, Probes};
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc, oneshot};

/// Time limit for a peer to read the words that were sent before its session was closed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Bytes of frames that are kept until they are acknowledged; at the limit nothing more is sent.
/// More than a fast network holds in a round trip.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Small frames are joined up to this many bytes for one write.
const WRITE_BYTES: usize = 256 * 1024;
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Reason why a link is over.
enum LinkEnd {
    /// It broke or closed; the peer may come back.
    Dropped(io::Error),
    /// The core's thread has dropped it, and everything has been sent.
    Finished,
    /// The peer broke the protocol of frames.
    Breach(LinkError),
    /// The peer has connected again already.
    Resumed(Takeover),
}

/// The session's end of the link, which outlives its connections.
struct FramedSession {
    link: RefCell<Link>,
    /// Notified when there is something to acknowledge, or room to send again.
    stir: Notify,
}

/// The task's ends of the channels to the core's thread.
struct Channels {
    inward: mpsc::Sender<Vec<u32>>,
    outward: mpsc::Receiver<Vec<u32>>,
    takeovers: mpsc::Receiver<Takeover>,
    waker: Arc<Waker>,
}

/// Serves a welcomed peer, until it is gone for good.
pub(crate) async fn serve(admitted: Admitted, mut stream: PeerSocket) -> Result<(), GreetingError> {
    let Admitted { mut member, name, user, secret, capabilities, data_port, .. } = admitted;
    let data =
        data_port.and_then(|port| Some(SocketAddr::new(stream.tcp().peer_addr().ok()?.ip(), port)));
    let net = Rc::clone(member.net());
    let identity = member.identity;
    let takeovers = net.registry.borrow_mut().add_resumable(identity, secret);
    let way = stream.transport();
    let (mut channels, mut cancel) = attach(&member, (name, user), takeovers, data, way);
    let session = FramedSession::new();
    let (key, probes) = (identity.key(), net.links.probes);
    // The loop ends with the session; each round is a new connection of the peer's.
    let reason = loop {
        let takeover = match run(&session, &mut channels, &mut cancel, stream, probes).await {
            LinkEnd::Finished => break "the dispatcher closed it".to_owned(),
            LinkEnd::Breach(error) => {
                tracing::warn!("{identity} closed: {error}");
                break error.to_string();
            }
            LinkEnd::Resumed(takeover) => takeover,
            LinkEnd::Dropped(error) => {
                tracing::info!("the link of {identity} dropped: {error}");
                // A user closes a laptop and opens it again. A worker that has ended blocks the
                // sessions that need it.
                let limits = net.links;
                let is_worker = identity.worker().is_some();
                let patience =
                    if is_worker { limits.patience(error.kind()) } else { limits.resume };
                match come_back(&mut channels, &mut cancel, patience).await {
                    Some(takeover) => takeover,
                    None => break format!("its connection dropped ({error})"),
                }
            }
        };
        let welcome = Welcome {
            version: takeover.version,
            capabilities,
            session: key,
            secret,
            acknowledged: session.link.borrow().received(),
            worker: identity.worker(),
            local_socket: None,
        };
        match session.resume(takeover, welcome).await {
            Ok(resumed) => stream = resumed,
            Err(error) => break error.to_string(),
        }
        tracing::info!("{identity} is resumed");
    };
    net.registry.borrow_mut().remove_resumable(identity);
    member.set_reason(reason);
    // Dropped before the channels: else the core's thread would find them closed without a reason.
    drop(member);
    Ok(())
}

fn attach(
    member: &Member,
    (name, user): (String, String),
    takeovers: mpsc::Receiver<Takeover>,
    data: Option<SocketAddr>,
    way: &str,
) -> (Channels, CancelToken) {
    let net = member.net();
    let (inward, source) = mpsc::channel(CHANNEL_FRAMES);
    let (target, outward) = mpsc::channel(CHANNEL_FRAMES);
    let (cancel, held) = oneshot::channel();
    let (source, target) = (WordSource::Socket(source), WordTarget::Socket(target));
    let link = link::PeerLink {
        source,
        target,
        cancel,
        slab: None,
        slab_down: None,
        process: None,
        inherited: None,
    };
    match member.identity {
        Identity::Session(session) => {
            tracing::info!("session {session} ({name:?}) is connected by {way}");
            net.tell(NetEvent::Client { session: SessionId(session), name, user, link });
        }
        Identity::Worker(index) => {
            let introductions = introductions::introduce(net, index, &WorkerSocket::Remote(data));
            if let Some(data) = data {
                tracing::info!("worker {index} ({name:?}) is connected by {way}, data at {data}");
            } else {
                let what = "no collectives with it but of those that it can call";
                tracing::warn!("worker {index} ({name:?}) is connected by {way}: {what}");
            }
            let incarnation = net.registry.borrow().incarnation(index);
            net.tell(NetEvent::Worker { index, incarnation, link, introductions });
        }
    }
    (Channels { inward, outward, takeovers, waker: Arc::clone(&net.waker) }, CancelToken::new(held))
}

async fn come_back(
    channels: &mut Channels,
    cancel: &mut CancelToken,
    patience: Option<Duration>,
) -> Option<Takeover> {
    let over = async {
        match patience {
            Some(patience) => tokio::time::sleep(patience).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        takeover = channels.takeovers.recv() => takeover,
        () = cancel.closed() => None,
        () = over => None,
    }
}

async fn run(
    session: &FramedSession,
    channels: &mut Channels,
    cancel: &mut CancelToken,
    stream: PeerSocket,
    probes: Probes,
) -> LinkEnd {
    let let_go = async {
        cancel.closed().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    let watched = stream.tcp().as_fd().try_clone_to_owned();
    let (reader, writer) = stream.split();
    let reader = BufReader::with_capacity(READ_BUFFER_BYTES, reader);
    let Channels { inward, outward, takeovers, waker } = channels;
    tokio::select! {
        ended = session.write(writer, outward, waker) => ended,
        ended = session.read(reader, inward, waker) => ended,
        Some(takeover) = takeovers.recv() => LinkEnd::Resumed(takeover),
        error = silence(watched, probes) => LinkEnd::Dropped(error),
        () = let_go => LinkEnd::Finished,
    }
}

/// Resolves when the other host has not acknowledged for too long. The kernel would go on for a
/// quarter of an hour.
async fn silence(stream: io::Result<OwnedFd>, probes: Probes) -> io::Error {
    let mut watch = AnswerWatch::new(probes);
    let (Ok(stream), Some(interval)) = (stream, watch.interval()) else {
        return std::future::pending().await;
    };
    // The loop ends with the connection.
    loop {
        tokio::time::sleep(interval).await;
        if let Err(error) = watch.look(&stream) {
            return error;
        }
    }
}

impl FramedSession {
    fn new() -> Self {
        let link = Link::new(Keep::Unacknowledged { bytes_max: KEPT_BYTES_MAX });
        Self { link: RefCell::new(link), stir: Notify::new() }
    }

    async fn read(
        &self,
        mut reader: BufReader<ReadHalf>,
        inward: &mpsc::Sender<Vec<u32>>,
        waker: &Waker,
    ) -> LinkEnd {
        // The loop ends with the connection.
        loop {
            match self.read_frame(&mut reader, inward).await {
                Ok(true) => waker.wake(),
                Ok(false) => {}
                Err(ended) => return ended,
            }
        }
    }

    /// Reads one frame; passes its words on and returns true if they are new.
    async fn read_frame(
        &self,
        reader: &mut BufReader<ReadHalf>,
        inward: &mpsc::Sender<Vec<u32>>,
    ) -> Result<bool, LinkEnd> {
        let mut bytes = [0; FrameHeader::BYTES];
        reader.read_exact(&mut bytes).await.map_err(LinkEnd::dropped)?;
        let header = self.header(&bytes)?;
        // At most FRAME_BYTES_MAX: the header has been checked.
        let mut words = vec![0_u32; to_usize(header.length_bytes / 4)];
        let read = reader.read_exact(bytemuck::cast_slice_mut(&mut words)).await;
        read.map_err(LinkEnd::dropped)?;
        if !self.link.borrow().is_new(header)? {
            return Ok(false);
        }
        if inward.send(words).await.is_err() {
            // The writer ends the connection when it has sent the remaining frames.
            return std::future::pending().await;
        }
        let mut link = self.link.borrow_mut();
        link.accept(header);
        if link.owes_acknowledgement() {
            self.stir.notify_one();
        }
        Ok(true)
    }

    fn header(&self, bytes: &[u8; FrameHeader::BYTES]) -> Result<FrameHeader, LinkError> {
        let mut link = self.link.borrow_mut();
        let was_full = !link.may_send();
        let header = link.header(bytes)?;
        if was_full && link.may_send() {
            self.stir.notify_one();
        }
        Ok(header)
    }

    async fn write(
        &self,
        mut writer: WriteHalf,
        outward: &mut mpsc::Receiver<Vec<u32>>,
        waker: &Waker,
    ) -> LinkEnd {
        let mut buffer = Vec::new();
        // The loop ends with the connection.
        loop {
            let may_send = self.link.borrow().may_send();
            tokio::select! {
                biased;
                frame = outward.recv(), if may_send => match frame {
                    Some(words) => self.link.borrow_mut().send(words, &mut buffer),
                    None => return finish(writer).await,
                },
                () = self.stir.notified() => {}
            }
            self.gather(outward, &mut buffer);
            if let Err(error) = write_through(&mut writer, &buffer).await {
                return LinkEnd::Dropped(error);
            }
            buffer.clear();
            buffer.shrink_to(WRITE_BYTES);
            // The core's thread may be waiting for room in the channel.
            waker.wake();
        }
    }

    /// Joins the waiting frames for one write, or else acknowledges.
    fn gather(&self, outward: &mut mpsc::Receiver<Vec<u32>>, buffer: &mut Vec<u8>) {
        let mut link = self.link.borrow_mut();
        while buffer.len() < WRITE_BYTES
            && link.may_send()
            && let Ok(words) = outward.try_recv()
        {
            link.send(words, buffer);
        }
        if buffer.is_empty() && link.owes_acknowledgement() {
            link.acknowledge(buffer);
        }
    }

    /// Welcomes a peer that came back, and sends the frames again that it does not have.
    async fn resume(
        &self,
        takeover: Takeover,
        welcome: Welcome,
    ) -> Result<PeerSocket, GreetingError> {
        let Takeover { mut stream, acknowledged, .. } = takeover;
        let resumed = self.link.borrow_mut().resume(acknowledged);
        if let Err(error) = resumed {
            let code = RefusalCode::Session;
            return Err(greeting::refuse(&mut stream, code, &error.to_string()).await);
        }
        greeting::send_welcome(&mut stream, welcome).await?;
        let mut again = Vec::new();
        self.link.borrow_mut().resend(&mut again);
        // If the connection drops again here, the next read shows it.
        let _ = write_through(&mut stream, &again).await;
        Ok(stream)
    }
}

/// Writes all bytes, and what TLS keeps of them too.
async fn write_through<W: AsyncWrite + Unpin>(writer: &mut W, bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

async fn finish(mut writer: WriteHalf) -> LinkEnd {
    // A peer that is gone needs no end of stream.
    let _ = writer.shutdown().await;
    LinkEnd::Finished
}

impl LinkEnd {
    /// End of a connection that could not be read; a peer that is gone without TLS's farewell is gone
    /// as one in clear is.
    fn dropped(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Dropped(io::Error::new(error.kind(), "it was closed"));
        }
        Self::Dropped(error)
    }
}

impl From<LinkError> for LinkEnd {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Gap { .. } => Self::Dropped(io::Error::other(error)),
            LinkError::Header(_) | LinkError::Acknowledged { .. } => Self::Breach(error),
        }
    }
}
