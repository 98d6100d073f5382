//! A session over TCP: numbered frames, acknowledgements that nothing waits for, and resumption of
//! a dropped link.

use super::greeting::{self, Admitted, GreetingError, Member};
use super::introductions;
use super::peer_socket::{PeerSocket, ReadHalf, WriteHalf};
use super::registry::{Identity, Takeover, WorkerSocket};
use super::ring_peer::CancelToken;
use crate::frames::{self, FrameCounts, ResumedFrames, SentFrame, TaskChannels};
use crate::link::{
    InheritedConnection, InheritedPeer, PeerLink, Resumption, WordSource, WordTarget,
};
use crate::net_event::{NetEvent, NewWorker};
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
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};

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
    /// It ended with the dispatcher before this one.
    Killed,
}

/// The session's end of the link, which outlives its connections.
struct FramedSession {
    link: RefCell<Link<SentFrame>>,
    counts: Arc<FrameCounts>,
    /// True if a frame is acknowledged only when the core's thread has taken it: a standby may go on
    /// with what that has.
    waits_for_core: bool,
}

/// The task's ends of the channels to the core's thread.
struct Channels {
    inward: mpsc::Sender<Vec<u32>>,
    outward: mpsc::Receiver<SentFrame>,
    takeovers: mpsc::Receiver<Takeover>,
    waker: Arc<Waker>,
}

/// A peer, and its link's state in this task.
struct ServedPeer {
    member: Member,
    session: FramedSession,
    channels: Channels,
    cancel: CancelToken,
    resumption: Resumption,
}

/// Serves a welcomed peer, until it is gone for good.
pub(crate) async fn serve(admitted: Admitted, stream: PeerSocket) -> Result<(), GreetingError> {
    let Admitted { member, name, user, secret, capabilities, data_port, line, .. } = admitted;
    let data =
        data_port.and_then(|port| Some(SocketAddr::new(stream.tcp().peer_addr().ok()?.ip(), port)));
    let resumption = Resumption { secret, capabilities, data };
    let (source, target, channels) = frames::channels(member.net().has_standby);
    let inherited = InheritedPeer { connection: InheritedConnection::Frames(resumption), line };
    let (cancel, held) = oneshot::channel();
    let link = PeerLink {
        source: WordSource::Socket(source),
        target: WordTarget::Socket(target),
        cancel,
        slab: None,
        slab_down: None,
        process: None,
        inherited: member.net().has_standby.then_some(inherited),
    };
    let link_state = Link::new(Keep::Unacknowledged { bytes_max: KEPT_BYTES_MAX });
    let cancel = CancelToken::new(held);
    let way = stream.transport();
    let peer = ServedPeer::new(member, link_state, channels, cancel, resumption);
    attach(&peer.member, (name, user), link, data, way);
    peer.serve(Some(stream)).await
}

/// Serves on a peer of the dispatcher before this one, once it comes back; it may from the call on.
pub(crate) fn resume(
    member: Member,
    resumption: Resumption,
    frames: ResumedFrames,
    cancel: CancelToken,
) -> impl Future<Output = Result<(), GreetingError>> {
    let ResumedFrames { channels, received, sent, kept } = frames;
    let link = Link::restored(KEPT_BYTES_MAX, sent, kept.into_iter(), received);
    ServedPeer::new(member, link, channels, cancel, resumption).serve(None)
}

impl ServedPeer {
    fn new(
        member: Member,
        link: Link<SentFrame>,
        channels: TaskChannels,
        cancel: CancelToken,
        resumption: Resumption,
    ) -> Self {
        let net = member.net();
        let mut registry = net.registry.borrow_mut();
        let takeovers = registry.add_resumable(member.identity, resumption.secret);
        drop(registry);
        let TaskChannels { inward, outward, counts } = channels;
        let session =
            FramedSession { link: RefCell::new(link), counts, waits_for_core: net.has_standby };
        let channels = Channels { inward, outward, takeovers, waker: Arc::clone(&net.waker) };
        Self { member, session, channels, cancel, resumption }
    }

    /// Serves it over a first connection, or the one with which it comes back, until it is gone for
    /// good.
    async fn serve(self, mut stream: Option<PeerSocket>) -> Result<(), GreetingError> {
        let Self { mut member, session, mut channels, mut cancel, resumption } = self;
        let net = Rc::clone(member.net());
        let identity = member.identity;
        let limits = net.links;
        // The loop ends with the session; each round is a new connection of the peer's.
        let reason = loop {
            let ended = match stream.take() {
                Some(open) => run(&session, &mut channels, &mut cancel, open, limits.probes).await,
                None => LinkEnd::Killed,
            };
            let (ended, patience) = match ended {
                LinkEnd::Finished => break "the dispatcher closed it".to_owned(),
                LinkEnd::Breach(error) => {
                    tracing::warn!("{identity} closed: {error}");
                    break error.to_string();
                }
                LinkEnd::Resumed(takeover) => (Ok(takeover), None),
                LinkEnd::Killed => (Err("its dispatcher was killed".to_owned()), limits.resume),
                LinkEnd::Dropped(error) => {
                    tracing::info!("the link of {identity} dropped: {error}");
                    // A user closes a laptop and opens it again. A worker that has ended blocks the
                    // sessions that need it.
                    let is_worker = identity.worker().is_some();
                    let patience =
                        if is_worker { limits.patience(error.kind()) } else { limits.resume };
                    (Err(format!("its connection dropped ({error})")), patience)
                }
            };
            let takeover = match ended {
                Ok(takeover) => takeover,
                Err(reason) => match come_back(&mut channels, &mut cancel, patience).await {
                    Some(takeover) => takeover,
                    None => break reason,
                },
            };
            match session.welcome_back(identity, takeover, &resumption).await {
                Ok(resumed) => stream = Some(resumed),
                Err(error) => break error.to_string(),
            }
        };
        net.registry.borrow_mut().remove_resumable(identity);
        member.set_reason(reason);
        // Dropped before the channels: else the core's thread would find them closed without a reason.
        drop(member);
        Ok(())
    }
}

fn attach(
    member: &Member,
    (name, user): (String, String),
    link: PeerLink,
    data: Option<SocketAddr>,
    way: &str,
) {
    let net = member.net();
    match member.identity {
        Identity::Session(session) => {
            tracing::info!("session {session} ({name:?}) is connected by {way}");
            net.tell(NetEvent::Client {
                session: SessionId(session),
                name,
                user,
                link: Box::new(link),
            });
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
            let is_supervised = member.is_supervised;
            let joined = NewWorker { index, incarnation, is_supervised, link, introductions };
            net.tell(NetEvent::Worker(Box::new(joined)));
        }
    }
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
        if self.waits_for_core {
            link.arrive(header);
            self.receive(&mut link);
        } else {
            link.accept(header);
        }
        if link.owes_acknowledgement() {
            self.counts.stir.notify_one();
        }
        Ok(true)
    }

    /// Counts as received what the core's thread has taken.
    fn receive(&self, link: &mut Link<SentFrame>) {
        link.receive_until(self.counts.taken.load(Ordering::Acquire));
    }

    /// Tells the core's thread what the peer has.
    fn note_acknowledged(&self, link: &Link<SentFrame>) {
        self.counts.acknowledged.store(link.acknowledged(), Ordering::Release);
    }

    fn header(&self, bytes: &[u8; FrameHeader::BYTES]) -> Result<FrameHeader, LinkError> {
        let mut link = self.link.borrow_mut();
        let was_full = !link.may_send();
        let header = link.header(bytes)?;
        self.note_acknowledged(&link);
        if was_full && link.may_send() {
            self.counts.stir.notify_one();
        }
        Ok(header)
    }

    async fn write(
        &self,
        mut writer: WriteHalf,
        outward: &mut mpsc::Receiver<SentFrame>,
        waker: &Waker,
    ) -> LinkEnd {
        let mut buffer = Vec::new();
        // The loop ends with the connection.
        loop {
            let may_send = self.link.borrow().may_send();
            tokio::select! {
                biased;
                frame = outward.recv(), if may_send => match frame {
                    Some(words) => self.append(&mut self.link.borrow_mut(), &words, &mut buffer),
                    None => return finish(writer).await,
                },
                () = self.counts.stir.notified() => {}
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
    fn gather(&self, outward: &mut mpsc::Receiver<SentFrame>, buffer: &mut Vec<u8>) {
        let mut link = self.link.borrow_mut();
        while buffer.len() < WRITE_BYTES
            && link.may_send()
            && let Ok(words) = outward.try_recv()
        {
            self.append(&mut link, &words, buffer);
        }
        if self.waits_for_core {
            self.receive(&mut link);
        }
        if buffer.is_empty() && link.owes_acknowledgement() {
            link.acknowledge(buffer);
        }
    }

    /// Appends a frame, and keeps its words.
    fn append(&self, link: &mut Link<SentFrame>, words: &SentFrame, buffer: &mut Vec<u8>) {
        if self.waits_for_core {
            self.receive(link);
        }
        let header = link.frame(SentFrame::clone(words));
        buffer.extend_from_slice(&header);
        buffer.extend_from_slice(bytemuck::cast_slice(words));
    }

    /// Welcomes a peer that came back, and sends the frames again that it does not have.
    async fn welcome_back(
        &self,
        identity: Identity,
        takeover: Takeover,
        resumption: &Resumption,
    ) -> Result<PeerSocket, GreetingError> {
        let Takeover { mut stream, acknowledged, version } = takeover;
        let resumed = self.link.borrow_mut().resume(acknowledged);
        if let Err(error) = resumed {
            let code = RefusalCode::Session;
            return Err(greeting::refuse(&mut stream, code, &error.to_string()).await);
        }
        let received = {
            let mut link = self.link.borrow_mut();
            self.note_acknowledged(&link);
            if self.waits_for_core {
                self.receive(&mut link);
            }
            link.received()
        };
        let welcome = Welcome {
            version,
            capabilities: resumption.capabilities,
            session: identity.key(),
            secret: resumption.secret,
            acknowledged: received,
            worker: identity.worker(),
            local_socket: None,
        };
        greeting::send_welcome(&mut stream, welcome).await?;
        let mut again = Vec::new();
        self.link.borrow_mut().resend(&mut again);
        // If the connection drops again here, the next read shows it.
        let _ = write_through(&mut stream, &again).await;
        tracing::info!("{identity} is resumed");
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
