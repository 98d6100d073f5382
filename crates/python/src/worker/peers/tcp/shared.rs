//! State of a link that the worker and the link's two threads share: its frames, its queues, and
//! the connection that carries them at present.
//!
//! Not here: sockets that are read or written, and the format of a chunk.

use super::chunk_frame::{ChunkFrame, IncomingChunk};
use gt_protocol::handshake::FrameHeader;
use gt_protocol::link::{Keep, Link, LinkError};
use gt_transport::FutexWaker;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum number of chunks in flight between the worker and a thread of the link, in each
/// direction: 2 MiB.
pub const QUEUE_CHUNKS: usize = 8;
/// Bytes of chunks that are kept until the other worker acknowledges them; at the limit nothing
/// more is sent until it does. More than a fast network holds in a round trip.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// A connection, with its number among those of the link.
#[derive(Clone, Debug)]
pub struct LinkConnection {
    pub number: u64,
    pub stream: Arc<TcpStream>,
}

#[derive(Debug)]
enum ConnectionState {
    Up(LinkConnection),
    /// Broken: the caller calls again, and the called worker waits for that.
    Down(ErrorKind),
    /// Over for good.
    Ended,
}

/// Work of the writing thread.
#[derive(Debug)]
pub enum Output {
    Chunk(ChunkFrame),
    Acknowledgement(Vec<u8>),
    /// Nothing for an interval.
    Nothing,
    /// The connection is no longer that of the link.
    Stale,
    /// The worker has dropped the link, and all chunks are written.
    Finished,
}

#[derive(Debug)]
struct LinkInside {
    link: Link<ChunkFrame>,
    /// Chunks that the writing thread has not numbered.
    outgoing: VecDeque<ChunkFrame>,
    /// Chunks for the worker.
    arrived: VecDeque<IncomingChunk>,
    /// Buffers for the reading thread.
    used: Vec<Vec<u8>>,
    state: ConnectionState,
    /// Bytes that a new connection begins with.
    first_bytes: Vec<u8>,
    connections: u64,
    /// Number of threads that wait for a change.
    waiting: usize,
    is_dropped: bool,
}

#[derive(Debug)]
pub struct SharedLink {
    inside: Mutex<LinkInside>,
    changed: Condvar,
    /// Chunks that the writing thread has not finished.
    in_flight: AtomicUsize,
    is_down: AtomicBool,
    has_ended: AtomicBool,
    waker: FutexWaker,
}

impl SharedLink {
    /// A link without a connection.
    pub fn new(waker: FutexWaker) -> Self {
        Self {
            inside: Mutex::new(LinkInside {
                link: Link::new(Keep::Unacknowledged { bytes_max: KEPT_BYTES_MAX }),
                outgoing: VecDeque::new(),
                arrived: VecDeque::new(),
                used: Vec::new(),
                state: ConnectionState::Down(ErrorKind::NotConnected),
                first_bytes: Vec::new(),
                connections: 0,
                waiting: 0,
                is_dropped: false,
            }),
            changed: Condvar::new(),
            in_flight: AtomicUsize::new(0),
            is_down: AtomicBool::new(true),
            has_ended: AtomicBool::new(false),
            waker,
        }
    }

    fn inside(&self) -> MutexGuard<'_, LinkInside> {
        self.inside.lock().expect("no thread panics while it holds the link")
    }

    /// Waits for a change, at most so long.
    fn wait<'a>(
        &'a self,
        mut inside: MutexGuard<'a, LinkInside>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, LinkInside> {
        inside.waiting += 1;
        let text = "no thread panics while it holds the link";
        let mut inside = match limit {
            Some(limit) => self.changed.wait_timeout(inside, limit).expect(text).0,
            None => self.changed.wait(inside).expect(text),
        };
        inside.waiting -= 1;
        inside
    }

    /// Wakes the threads that wait: a call of the kernel, so only where there are any.
    fn stir(&self, inside: &LinkInside) {
        if inside.waiting > 0 {
            self.changed.notify_all();
        }
    }

    // The worker's side.

    /// Returns true if there is room for a chunk.
    pub fn has_room(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) < QUEUE_CHUNKS
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Hands a chunk to the writing thread, for which there must be room.
    pub fn push(&self, frame: ChunkFrame) {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        let mut inside = self.inside();
        inside.outgoing.push_back(frame);
        self.stir(&inside);
    }

    /// The next chunk that has arrived.
    pub fn take(&self) -> Option<IncomingChunk> {
        let mut inside = self.inside();
        let chunk = inside.arrived.pop_front();
        if inside.arrived.len() + 1 == QUEUE_CHUNKS {
            self.stir(&inside);
        }
        chunk
    }

    /// Takes a buffer back; one more than the reading thread can use is dropped.
    pub fn give_back(&self, buffer: Vec<u8>) {
        let mut inside = self.inside();
        if inside.used.len() < QUEUE_CHUNKS {
            inside.used.push(buffer);
        }
    }

    /// The kind of error that broke the connection; `None` where there is one.
    pub fn broken(&self) -> Option<ErrorKind> {
        if !self.is_down.load(Ordering::Acquire) {
            return None;
        }
        match self.inside().state {
            ConnectionState::Down(kind) => Some(kind),
            ConnectionState::Up(_) | ConnectionState::Ended => None,
        }
    }

    /// Lets the threads end once all chunks are written.
    pub fn drop_link(&self) {
        let mut inside = self.inside();
        inside.is_dropped = true;
        if matches!(inside.state, ConnectionState::Down(_)) {
            self.end_inside(&mut inside);
        }
        self.changed.notify_all();
    }

    // Connections.

    /// Continues over a new connection of the called worker, after whose answer the missing frames
    /// are sent.
    ///
    /// # Errors
    /// The caller has received what was never sent, or lacks what is no longer kept.
    pub fn answer(&self, stream: TcpStream, received: u64) -> Result<(), LinkError> {
        let inside = self.inside();
        if let ConnectionState::Up(connection) = &inside.state {
            // Its reading thread accepts nothing more: the number is another one.
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
        let answer = inside.link.received().to_le_bytes().to_vec();
        self.go_on(inside, stream, received, answer)
    }

    /// Continues over a new connection of the caller, whose call was answered.
    ///
    /// # Errors
    /// The other worker has received what was never sent, or lacks what is no longer kept.
    pub fn resume(&self, stream: TcpStream, acknowledged: u64) -> Result<(), LinkError> {
        self.go_on(self.inside(), stream, acknowledged, Vec::new())
    }

    fn go_on(
        &self,
        mut inside: MutexGuard<'_, LinkInside>,
        stream: TcpStream,
        acknowledged: u64,
        mut first_bytes: Vec<u8>,
    ) -> Result<(), LinkError> {
        if inside.is_dropped || self.has_ended() {
            return Ok(());
        }
        if let Err(error) = inside.link.resume(acknowledged) {
            self.end_inside(&mut inside);
            return Err(error);
        }
        inside.link.resend(&mut first_bytes);
        inside.first_bytes = first_bytes;
        inside.connections += 1;
        let number = inside.connections;
        inside.state = ConnectionState::Up(LinkConnection { number, stream: Arc::new(stream) });
        self.is_down.store(false, Ordering::Release);
        self.changed.notify_all();
        Ok(())
    }

    /// The number of the last frame that has arrived, which a caller names.
    pub fn received(&self) -> u64 {
        self.inside().link.received()
    }

    /// Returns true if the link has had a connection.
    pub fn was_up(&self) -> bool {
        self.inside().connections > 0
    }

    /// Reports that a connection is broken; no effect if there is another one already.
    pub fn break_off(&self, number: u64, error: &io::Error) {
        let mut inside = self.inside();
        let ConnectionState::Up(connection) = &inside.state else { return };
        if connection.number != number {
            return;
        }
        let _ = connection.stream.shutdown(Shutdown::Both);
        if inside.is_dropped {
            self.end_inside(&mut inside);
            return;
        }
        inside.state = ConnectionState::Down(error.kind());
        self.is_down.store(true, Ordering::Release);
        self.changed.notify_all();
        self.waker.wake();
    }

    /// Ends the link for good.
    pub fn end(&self) {
        self.end_inside(&mut self.inside());
    }

    fn end_inside(&self, inside: &mut LinkInside) {
        if let ConnectionState::Up(connection) = &inside.state {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
        inside.state = ConnectionState::Ended;
        self.has_ended.store(true, Ordering::Release);
        self.changed.notify_all();
        self.waker.wake();
    }

    /// The next connection after that of this number; `None` at the end of the link, or where the
    /// calling thread has to make it (`dials`).
    pub fn next_connection(&self, after: u64, dials: bool) -> NextConnection {
        let mut inside = self.inside();
        // The loop ends with the link.
        loop {
            match &inside.state {
                ConnectionState::Up(connection) if connection.number > after => {
                    return NextConnection::Up(connection.clone());
                }
                ConnectionState::Ended => return NextConnection::Ended,
                ConnectionState::Down(_) if dials => return NextConnection::Down,
                ConnectionState::Up(_) | ConnectionState::Down(_) => {
                    inside = self.wait(inside, None);
                }
            }
        }
    }

    /// Waits, unless the link ends meanwhile; returns true if it has.
    pub fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut inside = self.inside();
        while !inside.is_dropped && !matches!(inside.state, ConnectionState::Ended) {
            let Some(rest) = end.checked_duration_since(Instant::now()) else { return false };
            inside = self.wait(inside, Some(rest));
        }
        true
    }

    // The writing thread.

    /// Bytes that a new connection begins with, once.
    pub fn first_bytes(&self, number: u64) -> Vec<u8> {
        let mut inside = self.inside();
        if inside.is_current(number) { std::mem::take(&mut inside.first_bytes) } else { Vec::new() }
    }

    /// The next thing to write over a connection; waits for it, at most for an interval.
    pub fn next_output(&self, number: u64, interval: Option<Duration>) -> Output {
        let mut inside = self.inside();
        // The loop ends with the connection, or after an interval.
        let mut has_waited = false;
        loop {
            if !inside.is_current(number) {
                return Output::Stale;
            }
            if inside.link.may_send()
                && let Some(frame) = inside.outgoing.pop_front()
            {
                return Output::Chunk(frame);
            }
            if inside.link.owes_acknowledgement() {
                let mut bytes = Vec::new();
                inside.link.acknowledge(&mut bytes);
                return Output::Acknowledgement(bytes);
            }
            if inside.is_dropped && inside.outgoing.is_empty() {
                return Output::Finished;
            }
            if has_waited {
                return Output::Nothing;
            }
            inside = self.wait(inside, interval);
            has_waited = interval.is_some();
        }
    }

    /// Numbers a chunk that is written next; `None` where the connection is another one by now,
    /// which takes the chunk instead.
    pub fn number(
        &self,
        number: u64,
        frame: &ChunkFrame,
        sent: ChunkFrame,
    ) -> Option<[u8; FrameHeader::BYTES]> {
        let mut inside = self.inside();
        if !inside.is_current(number) {
            inside.outgoing.push_front(frame.clone());
            return None;
        }
        Some(inside.link.frame(sent))
    }

    /// Counts a numbered chunk as finished: it is kept, whether or not it was written.
    pub fn finish_chunk(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.waker.wake();
    }

    // The reading thread.

    /// Reads a frame's header, and drops the chunks that it acknowledges.
    pub fn header(&self, bytes: &[u8; FrameHeader::BYTES]) -> Result<FrameHeader, LinkError> {
        let mut inside = self.inside();
        let was_full = !inside.link.may_send();
        let header = inside.link.header(bytes)?;
        if was_full && inside.link.may_send() {
            self.stir(&inside);
        }
        Ok(header)
    }

    /// A buffer for a chunk, with the length of the longest chunk that was ever read into it.
    pub fn buffer(&self) -> Vec<u8> {
        self.inside().used.pop().unwrap_or_default()
    }

    /// Hands a chunk to the worker, when there is room for it; drops one that it has already.
    /// Returns false where the connection is another one by now, over which the chunk comes again.
    ///
    /// # Errors
    /// A frame before it is missing.
    pub fn deliver(
        &self,
        number: u64,
        header: FrameHeader,
        chunk: Option<IncomingChunk>,
    ) -> Result<bool, LinkError> {
        let mut inside = self.inside();
        while inside.is_current(number) && inside.arrived.len() >= QUEUE_CHUNKS {
            inside = self.wait(inside, None);
        }
        if !inside.is_current(number) {
            return Ok(false);
        }
        let is_new = inside.link.is_new(header)?;
        if let Some(chunk) = chunk.filter(|_| is_new) {
            inside.link.accept(header);
            inside.arrived.push_back(chunk);
            if inside.link.owes_acknowledgement() {
                self.stir(&inside);
            }
            drop(inside);
            self.waker.wake();
        }
        Ok(true)
    }
}

impl LinkInside {
    fn is_current(&self, number: u64) -> bool {
        matches!(&self.state, ConnectionState::Up(connection) if connection.number == number)
    }
}

/// Answer to a thread that asks for a connection.
#[derive(Debug)]
pub enum NextConnection {
    Up(LinkConnection),
    Down,
    Ended,
}
