//! The link to a worker of another host: numbered frames over TCP, with a thread that writes and
//! one that reads, so that chunks flow while the worker computes. Bounded queues are between the
//! threads and the worker.
//!
//! A connection that breaks is made again by the side that called (`gt_transport::calls`), and the
//! chunks that have not arrived are sent again (`gt_protocol::link`), so none is lost or comes
//! twice. The called side waits for that as long as `LinkLimits` says.

mod calling;
mod chunk_frame;
mod inward;
mod outward;
mod shared;

pub use calling::DataCaller;
pub use outward::PackedBytes;

use super::chunk;
use chunk_frame::{ChunkFrame, IncomingChunk, TCP_CHUNK_BYTES_MAX};
use gt_protocol::peer::ChunkHead;
use gt_transport::packing::PackingPolicy;
use gt_transport::tcp::{self, LinkLimits};
use gt_transport::{FutexWaker, Parked};
use gt_worker::{Cause, CopyBytes, Front};
use outward::Outward;
use shared::{QUEUE_CHUNKS, SharedLink};
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// The side that calls, at first and when the connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallDirection {
    Outgoing,
    Incoming,
}

#[derive(Debug)]
pub struct TcpLink {
    shared: Arc<SharedLink>,
    /// Buffers of chunks, in the order in which they were sent: used again once they are
    /// acknowledged, since a new one would have to be zeroed first.
    buffers: VecDeque<ChunkFrame>,
    /// Packing of bytes that are sent.
    packing: PackingPolicy,
    limits: LinkLimits,
    direction: CallDirection,
    /// Time at which the called side has seen that the connection is broken.
    broken_since: Option<Instant>,
    first: Option<IncomingChunk>,
    read: usize,
    failure: Option<Cause>,
    closed: bool,
    /// True if there was no room for a chunk, and new room has not been reported since.
    is_full: bool,
    /// True once the end of the link has been reported to a sleeper.
    told_closed: bool,
}

/// Settings of all links of a worker.
#[derive(Clone, Debug)]
pub struct TcpSettings {
    pub packing: PackingPolicy,
    pub packed: Arc<PackedBytes>,
    pub limits: LinkLimits,
    pub waker: FutexWaker,
}

impl TcpLink {
    /// The link of a worker that has called, from its first call on.
    pub fn called(stream: TcpStream, settings: &TcpSettings) -> io::Result<Self> {
        let is_one_host = is_one_host(&stream);
        let mut link = Self::start(None, is_one_host, settings)?;
        link.call_again(stream, 0)?;
        Ok(link)
    }

    /// The link to a worker that was called.
    pub fn calling(caller: DataCaller, settings: &TcpSettings) -> io::Result<Self> {
        let is_one_host = caller.first().is_some_and(is_one_host);
        Self::start(Some(caller), is_one_host, settings)
    }

    /// Starts the threads.
    fn start(
        caller: Option<DataCaller>,
        is_one_host: bool,
        settings: &TcpSettings,
    ) -> io::Result<Self> {
        let TcpSettings { packing, packed, limits, waker } = settings.clone();
        let packing = if may_pack(packing, is_one_host) { packing } else { PackingPolicy::Never };
        let shared = Arc::new(SharedLink::new(waker));
        let direction =
            if caller.is_some() { CallDirection::Outgoing } else { CallDirection::Incoming };
        let outward = Outward::new(Arc::clone(&shared), caller, limits.probes, packing, packed);
        let inward = Arc::clone(&shared);
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        named("gt-data-out").spawn(move || outward.run())?;
        named("gt-data-in").spawn(move || inward::run(&inward))?;
        Ok(Self {
            shared,
            buffers: VecDeque::new(),
            packing,
            limits,
            direction,
            broken_since: None,
            first: None,
            read: 0,
            failure: None,
            closed: false,
            is_full: false,
            told_closed: false,
        })
    }

    /// Continues over a new connection of the caller, which has received the frames up to
    /// `received`.
    pub fn call_again(&mut self, stream: TcpStream, received: u64) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        // A host that loses power closes nothing, so the kernel probes it.
        tcp::tune(&stream, self.limits.probes)?;
        self.broken_since = None;
        self.shared.answer(stream, received).map_err(io::Error::other)
    }

    /// Returns true if the other worker is expected to call again; ends the link where it has not
    /// done so in time.
    pub fn awaits_call(&mut self) -> bool {
        if self.direction == CallDirection::Outgoing || self.closed {
            return false;
        }
        let Some(kind) = self.shared.broken() else {
            self.broken_since = None;
            return false;
        };
        let since = *self.broken_since.get_or_insert_with(Instant::now);
        if self.limits.patience(kind).is_some_and(|limit| since.elapsed() >= limit) {
            self.shared.end();
            return false;
        }
        true
    }

    /// Returns true if bytes may be sent packed.
    pub fn is_packed(&self) -> bool {
        self.packing != PackingPolicy::Never
    }

    pub fn is_broken(&self) -> bool {
        self.closed && self.first.is_none()
    }

    pub fn is_cut(&self) -> bool {
        self.shared.has_ended()
    }

    /// Returns true once the link has ended, too: its last bytes may be in flight when the
    /// dispatcher reports that a worker is gone.
    pub fn is_drained(&self) -> bool {
        self.is_broken()
    }

    pub fn refresh(&mut self) {
        if self.first.is_none() {
            // Looked at before the queue, to which nothing is added after the end.
            let has_ended = self.shared.has_ended();
            match self.shared.take() {
                Some(arrived) => self.take(arrived),
                None => self.closed |= has_ended,
            }
        }
    }

    fn take(&mut self, arrived: IncomingChunk) {
        self.failure = chunk::is_failure(&arrived.head).then(|| chunk::cause(arrived.bytes()));
        self.first = Some(arrived);
    }

    pub fn front(&self) -> Option<(ChunkHead, &[u8])> {
        let first = self.first.as_ref()?;
        Some((first.head, first.bytes().get(self.read..)?))
    }

    pub fn current(&self) -> Option<(ChunkHead, Front<'_>)> {
        let (head, bytes) = self.front()?;
        if chunk::is_failure(&head) {
            return Some((head, Front::Failure(self.failure.as_ref()?)));
        }
        Some((head, Front::Bytes { total: head.total, bytes }))
    }

    pub fn release(&mut self, bytes: usize) {
        self.read += bytes;
        let is_read =
            |first: &IncomingChunk| chunk::is_failure(&first.head) || first.length <= self.read;
        if self.first.as_ref().is_some_and(is_read) {
            self.release_all();
        }
    }

    pub fn release_all(&mut self) {
        self.read = 0;
        self.failure = None;
        if let Some(first) = self.first.take() {
            self.shared.give_back(first.buffer);
        }
        self.refresh();
    }

    pub fn push(
        &mut self,
        head: &ChunkHead,
        ready: usize,
        fill: &mut dyn FnMut(&mut [u8], CopyBytes),
    ) -> Option<usize> {
        if !self.shared.has_room() {
            self.is_full = true;
            return None;
        }
        let length = ready.min(TCP_CHUNK_BYTES_MAX);
        let mut frame = self.buffer();
        frame.write(head, length, |body| fill(body, <[u8]>::copy_from_slice));
        self.buffers.push_back(frame.clone());
        // There is room, so this does not block; the end of the link also shows when it is read.
        self.shared.push(frame);
        Some(length)
    }

    /// A buffer that nobody shares. Of those that are free, as many are kept as are in flight to the
    /// writing thread.
    fn buffer(&mut self) -> ChunkFrame {
        let mut free = None;
        while let Some(first) = self.buffers.pop_front_if(|first| first.is_free()) {
            free = Some(first);
            if self.buffers.len() <= QUEUE_CHUNKS {
                break;
            }
        }
        free.unwrap_or_default()
    }

    pub fn has_room_again(&mut self) -> bool {
        let has_room = self.is_full && self.shared.has_room();
        self.is_full &= !has_room;
        has_room
    }

    /// The waker wakes for either event, and it is parked already.
    pub fn park(&mut self, _words: &mut Vec<Parked>) -> bool {
        let had_chunk = self.first.is_some();
        self.refresh();
        let has_news = (self.first.is_some() && !had_chunk) || (self.closed && !self.told_closed);
        self.told_closed |= self.closed;
        !(has_news || (self.is_full && self.shared.has_room()))
    }
}

impl Drop for TcpLink {
    fn drop(&mut self) {
        self.shared.drop_link();
    }
}

/// Returns true if bytes for a worker may be packed: within one host only on request.
pub const fn may_pack(packing: PackingPolicy, is_one_host: bool) -> bool {
    match packing {
        PackingPolicy::Measured => !is_one_host,
        PackingPolicy::Never => false,
        PackingPolicy::Always => true,
    }
}

fn is_one_host(stream: &TcpStream) -> bool {
    let ends = [stream.local_addr(), stream.peer_addr()].map(|end| end.ok().map(|end| end.ip()));
    ends[0] == ends[1] || ends.iter().flatten().any(std::net::IpAddr::is_loopback)
}
