//! A session over TCP: frames with numbers, acknowledgements that nobody waits for, and resumption of a dropped link.

use super::greeting::{self, Admitted, GreetingError, Member};
use super::registry::{Identity, Takeover, WorkerSocket};
use super::ring_peer::{self, Leash};
use crate::bell::Bell;
use crate::link::{CHANNEL_FRAMES, Link, Source, Target};
use crate::pump::Tidings;
use gt_dispatcher::SessionId;
use gt_protocol::handshake::{Arrival, FRAME_BYTES_MAX, FrameHeader, HandshakeError, Welcome};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};

/// How long a session waits for its peer to come back (DESIGN D9).
const RESUME_PATIENCE: Duration = Duration::from_secs(10);
/// How long a peer may take to read what was sent before its session was closed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Frames kept until they are acknowledged; at this many bytes nothing more is sent. More than a fast network holds in
/// a round trip.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// An acknowledgement of its own goes out after this much has come: a quarter of what a peer must keep at most.
const UNTOLD_BYTES_MAX: usize = 256 * 1024;
const UNTOLD_FRAMES_MAX: u64 = 16;
/// Small frames are joined up to this many bytes for one write.
const WRITE_BYTES: usize = 256 * 1024;
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Why a link is over.
enum Ended {
    /// It broke or closed; the peer may come back.
    Dropped(io::Error),
    /// The core's thread wants no more of it, and everything has been sent.
    Finished,
    /// The peer broke the rules of frames.
    Breach(HandshakeError),
    /// The peer has come back already.
    Resumed(Takeover),
}

/// What outlives a link: the numbers, and what was sent but not acknowledged.
struct Numbers {
    received: Cell<u64>,
    /// Frames and bytes that came since the peer was last told of any.
    told: Cell<u64>,
    untold_bytes: Cell<usize>,
    sent: Cell<u64>,
    kept: RefCell<VecDeque<(u64, Rc<[u32]>)>>,
    kept_bytes: Cell<usize>,
    /// There is something to acknowledge, or room to send again.
    stir: Notify,
}

/// The task's ends of the channels to the core's thread.
struct Channels {
    inward: mpsc::Sender<Vec<u32>>,
    outward: mpsc::Receiver<Vec<u32>>,
    takeovers: mpsc::Receiver<Takeover>,
    bell: Arc<Bell>,
}

/// Serves a peer that was welcomed, until it is gone for good.
pub(crate) async fn serve(admitted: Admitted, mut stream: TcpStream) -> Result<(), GreetingError> {
    let Admitted { mut member, name, secret, capabilities, data_port, .. } = admitted;
    let data =
        data_port.and_then(|port| Some(SocketAddr::new(stream.peer_addr().ok()?.ip(), port)));
    let net = Rc::clone(member.net());
    let identity = member.identity;
    let takeovers = net.registry.borrow_mut().add_resumable(identity, secret);
    let (mut channels, mut leash) = attach(&member, name, takeovers, data);
    let numbers = Numbers::new();
    let key = identity.key();
    // Ends with the session; each round is a new connection of the peer's.
    let reason = loop {
        let takeover = match run(&numbers, &mut channels, &mut leash, stream).await {
            Ended::Finished => break "the dispatcher closed it".to_owned(),
            Ended::Breach(error) => {
                tracing::warn!("session {key} closed: {error}");
                break error.to_string();
            }
            Ended::Resumed(takeover) => takeover,
            Ended::Dropped(error) => {
                if identity.worker().is_some() {
                    // A worker ends with its link: to wait for it would only keep those waiting who need it.
                    break format!("its connection dropped ({error})");
                }
                tracing::info!("the link of session {key} dropped: {error}");
                match come_back(&mut channels, &mut leash).await {
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
            acknowledged: numbers.received.get(),
            worker: identity.worker(),
            door: None,
        };
        match numbers.resume(takeover, welcome).await {
            Ok(resumed) => stream = resumed,
            Err(error) => break error.to_string(),
        }
        tracing::info!("session {key} is resumed");
    };
    net.registry.borrow_mut().remove_resumable(identity);
    member.set_reason(reason);
    // Before the channels: or the core's thread finds them closed and wonders why.
    drop(member);
    Ok(())
}

fn attach(
    member: &Member,
    name: String,
    takeovers: mpsc::Receiver<Takeover>,
    data: Option<SocketAddr>,
) -> (Channels, Leash) {
    let net = member.net();
    let (inward, source) = mpsc::channel(CHANNEL_FRAMES);
    let (target, outward) = mpsc::channel(CHANNEL_FRAMES);
    let (leash, held) = oneshot::channel();
    let (source, target) = (Source::Socket(source), Target::Socket(target));
    let link = Link { source, target, leash, lent: None, lends: None };
    match member.identity {
        Identity::Session(session) => {
            tracing::info!("session {session} ({name:?}) is connected by TCP");
            net.tell(Tidings::Client { session: SessionId(session), name, link });
        }
        Identity::Worker(index) => {
            let introductions = ring_peer::introduce(net, index, &WorkerSocket::Remote(data));
            if let Some(data) = data {
                tracing::info!("worker {index} ({name:?}) is connected by TCP, data at {data}");
            } else {
                let what = "no collectives with it but of those that it can call";
                tracing::warn!("worker {index} ({name:?}) is connected by TCP: {what}");
            }
            net.tell(Tidings::Worker { index, link, introductions });
        }
    }
    (Channels { inward, outward, takeovers, bell: Arc::clone(&net.bell) }, Leash::new(held))
}

async fn come_back(channels: &mut Channels, leash: &mut Leash) -> Option<Takeover> {
    tokio::select! {
        takeover = channels.takeovers.recv() => takeover,
        () = leash.closed() => None,
        () = tokio::time::sleep(RESUME_PATIENCE) => None,
    }
}

async fn run(
    numbers: &Numbers,
    channels: &mut Channels,
    leash: &mut Leash,
    stream: TcpStream,
) -> Ended {
    let let_go = async {
        leash.closed().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    let (reader, writer) = stream.into_split();
    let reader = BufReader::with_capacity(READ_BUFFER_BYTES, reader);
    let Channels { inward, outward, takeovers, bell } = channels;
    tokio::select! {
        ended = numbers.write(writer, outward, bell) => ended,
        ended = numbers.read(reader, inward, bell) => ended,
        Some(takeover) = takeovers.recv() => Ended::Resumed(takeover),
        () = let_go => Ended::Finished,
    }
}

impl Numbers {
    fn new() -> Self {
        Self {
            received: Cell::new(0),
            told: Cell::new(0),
            untold_bytes: Cell::new(0),
            sent: Cell::new(0),
            kept: RefCell::new(VecDeque::new()),
            kept_bytes: Cell::new(0),
            stir: Notify::new(),
        }
    }

    async fn read(
        &self,
        mut reader: BufReader<OwnedReadHalf>,
        inward: &mpsc::Sender<Vec<u32>>,
        bell: &Bell,
    ) -> Ended {
        // Ends with the link.
        loop {
            let mut bytes = [0; FrameHeader::BYTES];
            if let Err(error) = reader.read_exact(&mut bytes).await {
                return Ended::Dropped(error);
            }
            let header = match FrameHeader::decode(&bytes) {
                Ok(header) => header,
                Err(error) => return Ended::Breach(error),
            };
            if header.acknowledged > self.sent.get() {
                return Ended::Breach(HandshakeError::Value("acknowledged", header.acknowledged));
            }
            self.forget_until(header.acknowledged);
            // At most FRAME_BYTES_MAX: checked by `decode`.
            let count = usize::try_from(header.length_bytes / 4).unwrap_or(0);
            let mut words = vec![0_u32; count];
            if let Err(error) = reader.read_exact(bytemuck::cast_slice_mut(&mut words)).await {
                return Ended::Dropped(error);
            }
            match header.arrival(self.received.get()) {
                Arrival::Repeated => {}
                Arrival::Gap => {
                    return Ended::Dropped(io::Error::other("a frame is missing"));
                }
                Arrival::Next => {
                    if inward.send(words).await.is_err() {
                        // The writer ends the link when it has sent what is left.
                        return std::future::pending().await;
                    }
                    bell.ring();
                    self.count(count * 4);
                }
            }
        }
    }

    fn count(&self, bytes: usize) {
        let received = self.received.get() + 1;
        self.received.set(received);
        self.untold_bytes.set(self.untold_bytes.get() + bytes);
        let frames = received - self.told.get();
        if frames >= UNTOLD_FRAMES_MAX || self.untold_bytes.get() >= UNTOLD_BYTES_MAX {
            self.stir.notify_one();
        }
    }

    fn forget_until(&self, acknowledged: u64) {
        let mut kept = self.kept.borrow_mut();
        let was_full = self.kept_bytes.get() >= KEPT_BYTES_MAX;
        while let Some((sequence, words)) = kept.front() {
            if *sequence > acknowledged {
                break;
            }
            self.kept_bytes.set(self.kept_bytes.get().saturating_sub(words.len() * 4));
            kept.pop_front();
        }
        if was_full && self.kept_bytes.get() < KEPT_BYTES_MAX {
            self.stir.notify_one();
        }
    }

    async fn write(
        &self,
        mut writer: OwnedWriteHalf,
        outward: &mut mpsc::Receiver<Vec<u32>>,
        bell: &Bell,
    ) -> Ended {
        let mut buffer = Vec::new();
        // Ends with the link.
        loop {
            let may_send = self.kept_bytes.get() < KEPT_BYTES_MAX;
            tokio::select! {
                biased;
                frame = outward.recv(), if may_send => match frame {
                    Some(words) => self.keep(words, &mut buffer),
                    None => return self.finish(writer).await,
                },
                () = self.stir.notified() => {}
            }
            while buffer.len() < WRITE_BYTES
                && self.kept_bytes.get() < KEPT_BYTES_MAX
                && let Ok(words) = outward.try_recv()
            {
                self.keep(words, &mut buffer);
            }
            if buffer.is_empty() && self.received.get() > self.told.get() {
                self.append(self.sent.get(), &[], &mut buffer);
            }
            if let Err(error) = writer.write_all(&buffer).await {
                return Ended::Dropped(error);
            }
            buffer.clear();
            buffer.shrink_to(WRITE_BYTES);
            // The core's thread may wait for room in the channel.
            bell.ring();
        }
    }

    async fn finish(&self, mut writer: OwnedWriteHalf) -> Ended {
        // A peer that is gone needs no end of stream.
        let _ = writer.shutdown().await;
        Ended::Finished
    }

    /// Numbers a frame, keeps it until it is acknowledged, and appends its bytes.
    fn keep(&self, words: Vec<u32>, buffer: &mut Vec<u8>) {
        let sequence = self.sent.get() + 1;
        self.sent.set(sequence);
        self.append(sequence, &words, buffer);
        self.kept_bytes.set(self.kept_bytes.get() + words.len() * 4);
        self.kept.borrow_mut().push_back((sequence, words.into()));
    }

    fn append(&self, sequence: u64, words: &[u32], buffer: &mut Vec<u8>) {
        let acknowledged = self.received.get();
        self.told.set(acknowledged);
        self.untold_bytes.set(0);
        let length_bytes = u32::try_from(words.len() * 4).unwrap_or(FRAME_BYTES_MAX + 1);
        let header = FrameHeader { length_bytes, sequence, acknowledged };
        match header.encode() {
            Ok(bytes) => {
                buffer.extend_from_slice(&bytes);
                buffer.extend_from_slice(bytemuck::cast_slice(words));
            }
            // `Outbound` cuts frames below the limit; without this one the peer sees a gap.
            Err(error) => tracing::error!("a frame cannot be sent: {error}"),
        }
    }

    /// Welcomes a peer that came back, and sends again what it has not had.
    async fn resume(
        &self,
        takeover: Takeover,
        welcome: Welcome,
    ) -> Result<TcpStream, GreetingError> {
        let Takeover { mut stream, acknowledged, .. } = takeover;
        let first_kept = self.kept.borrow().front().map_or(self.sent.get() + 1, |kept| kept.0);
        if acknowledged > self.sent.get() || acknowledged + 1 < first_kept {
            let error = HandshakeError::Value("acknowledged", acknowledged);
            let code = gt_protocol::handshake::RefusalCode::Session;
            return Err(greeting::refuse(&mut stream, code, &error.to_string()).await);
        }
        self.forget_until(acknowledged);
        greeting::send_welcome(&mut stream, welcome).await?;
        let again: Vec<_> = self.kept.borrow().iter().cloned().collect();
        let mut buffer = Vec::new();
        for (sequence, words) in again {
            self.append(sequence, &words, &mut buffer);
            // A link that drops again here is seen by the next read.
            if stream.write_all(&buffer).await.is_err() {
                break;
            }
            buffer.clear();
        }
        Ok(stream)
    }
}
