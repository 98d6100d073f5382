//! The link to a worker of another host: one TCP connection, with a thread that writes and one
//! that reads, so that chunks flow while the worker computes. Bounded queues are between the
//! threads and the worker.
//!
//! A chunk is the words of its head, its length and its bytes, which may be packed
//! (`gt_transport::packing`). `gt_transport::calls` establishes the connection between two workers.

use super::chunk;
use gt_protocol::peer::ChunkHead;
use gt_transport::packing::{PACKED_BYTES_MIN, PackingChoice, PackingPolicy, pack, unpack};
use gt_transport::tcp::{self, AnswerWatch, Probes};
use gt_transport::{CHUNK_BYTES_MAX, FutexWaker, HEAD_WORDS, Parked};
use gt_worker::{Cause, CopyBytes, Front};
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Instant;

/// Maximum bytes of a chunk, more than a slab's: each chunk wakes a thread on either side, which
/// takes as long as copying 64 KiB.
const TCP_CHUNK_BYTES_MAX: usize = 4 * CHUNK_BYTES_MAX;
/// Maximum number of chunks in flight between the worker and a thread of the link, in each
/// direction: 2 MiB. Further ones are in the kernel's buffers.
const QUEUE_CHUNKS: usize = 8;
/// Bytes read from the kernel ahead of the current chunk: the next chunk's head, and a small chunk
/// whole.
const READ_AHEAD_BYTES: usize = 4 * 1024;
/// Offset of a chunk's bytes, behind its head and length.
const BODY_AT: usize = (HEAD_WORDS + 1) * size_of::<u32>();

/// Flag in a chunk's length: its bytes are packed.
const IS_PACKED: u32 = 1 << 31;

/// Counts of bytes that all links sent packed.
#[derive(Debug, Default)]
pub struct PackedBytes {
    plain: AtomicU64,
    packed: AtomicU64,
}

impl PackedBytes {
    fn add(&self, plain: usize, packed: usize) {
        let bytes = |count: usize| u64::try_from(count).expect("usize has 64 bits");
        self.plain.fetch_add(bytes(plain), Ordering::Relaxed);
        self.packed.fetch_add(bytes(packed), Ordering::Relaxed);
    }

    /// Bytes before and after packing.
    pub fn counts(&self) -> [u64; 2] {
        [&self.plain, &self.packed].map(|count| count.load(Ordering::Relaxed))
    }
}

/// A chunk that has arrived.
#[derive(Debug)]
struct IncomingChunk {
    head: ChunkHead,
    /// Buffer with the length of the longest chunk that was ever read into it.
    buffer: Vec<u8>,
    length: usize,
}

impl IncomingChunk {
    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

#[derive(Debug)]
pub struct TcpLink {
    to: SyncSender<Vec<u8>>,
    /// Buffers that the writing thread has finished with: a new one would have to be zeroed first.
    written: Receiver<Vec<u8>>,
    from: Receiver<IncomingChunk>,
    /// Buffers for the reading thread.
    used: SyncSender<Vec<u8>>,
    /// Chunks that the writing thread has not finished.
    in_flight: Arc<AtomicUsize>,
    /// True if the other side accepts nothing more. Chunks that it has sent may still be in flight,
    /// behind chunks that nobody takes.
    is_cut: Arc<AtomicBool>,
    /// Packing of bytes that are sent.
    packing: PackingPolicy,
    first: Option<IncomingChunk>,
    read: usize,
    failure: Option<Cause>,
    closed: bool,
    /// True if there was no room for a chunk, and new room has not been reported since.
    is_full: bool,
    /// True once the end of the connection has been reported to a sleeper.
    told_closed: bool,
}

impl TcpLink {
    /// Starts the threads of an established connection.
    pub fn new(
        stream: TcpStream,
        waker: &FutexWaker,
        packing: PackingPolicy,
        packed: Arc<PackedBytes>,
        probes: Probes,
    ) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        // A host that loses power closes nothing, so the kernel probes it.
        tcp::tune(&stream, probes)?;
        let watch = AnswerWatch::new(probes);
        stream.set_write_timeout(watch.interval())?;
        let reading = stream.try_clone()?;
        let (to, outward) = sync_channel(QUEUE_CHUNKS);
        let (done, written) = sync_channel(QUEUE_CHUNKS);
        let (inward, from) = sync_channel(QUEUE_CHUNKS);
        let (used, again) = sync_channel(QUEUE_CHUNKS);
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let is_packed = may_pack(packing, is_one_host(&stream));
        let packing = if is_packed { packing } else { PackingPolicy::Never };
        let in_flight = Arc::new(AtomicUsize::new(0));
        let is_cut = Arc::new(AtomicBool::new(false));
        let (counted, cut) = (Arc::clone(&in_flight), Arc::clone(&is_cut));
        let (out_waker, in_waker) = (waker.clone(), waker.clone());
        named("gt-data-out").spawn(move || {
            write_all(
                Outward::new(stream, watch, packing, packed),
                &outward,
                &done,
                &counted,
                &cut,
                &out_waker,
            );
        })?;
        named("gt-data-in").spawn(move || {
            read_all(reading, &inward, &again, &in_waker);
            drop(inward);
            in_waker.wake();
        })?;
        Ok(Self {
            to,
            written,
            from,
            used,
            in_flight,
            is_cut,
            packing,
            first: None,
            read: 0,
            failure: None,
            closed: false,
            is_full: false,
            told_closed: false,
        })
    }

    /// Returns true if bytes may be sent packed.
    pub fn is_packed(&self) -> bool {
        self.packing != PackingPolicy::Never
    }

    pub fn is_broken(&self) -> bool {
        self.closed && self.first.is_none()
    }

    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Returns true once the connection has ended, too: its last bytes may be in flight when the
    /// dispatcher reports that a worker is gone.
    pub fn is_drained(&self) -> bool {
        self.is_broken()
    }

    pub fn refresh(&mut self) {
        if self.first.is_none() {
            match self.from.try_recv() {
                Ok(arrived) => self.take(arrived),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.closed = true,
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
            // A buffer more than the thread can use is dropped.
            let _ = self.used.try_send(first.buffer);
        }
        self.refresh();
    }

    pub fn push(
        &mut self,
        head: &ChunkHead,
        ready: usize,
        fill: &mut dyn FnMut(&mut [u8], CopyBytes),
    ) -> Option<usize> {
        if self.in_flight.load(Ordering::Acquire) >= QUEUE_CHUNKS {
            self.is_full = true;
            return None;
        }
        let length = ready.min(TCP_CHUNK_BYTES_MAX);
        let mut chunk = self.written.try_recv().unwrap_or_default();
        chunk.resize(BODY_AT + length, 0);
        let (words, body) = chunk.split_at_mut(BODY_AT);
        let length_word = [u32::try_from(length).expect("at most TCP_CHUNK_BYTES_MAX")];
        words.copy_from_slice(bytemuck::cast_slice(&[&head.encode()[..], &length_word].concat()));
        fill(body, <[u8]>::copy_from_slice);
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        // There is room, so this does not block; a broken connection also shows when the link is
        // read.
        self.closed |= self.to.send(chunk).is_err();
        Some(length)
    }

    pub fn has_room_again(&mut self) -> bool {
        let has_room = self.is_full && self.in_flight.load(Ordering::Acquire) < QUEUE_CHUNKS;
        self.is_full &= !has_room;
        has_room
    }

    /// The waker wakes for either event, and it is parked already.
    pub fn park(&mut self, _words: &mut Vec<Parked>) -> bool {
        let had_chunk = self.first.is_some();
        self.refresh();
        let has_news = (self.first.is_some() && !had_chunk) || (self.closed && !self.told_closed);
        self.told_closed |= self.closed;
        let has_room = self.in_flight.load(Ordering::Acquire) < QUEUE_CHUNKS;
        !(has_news || (self.is_full && has_room))
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

/// The writing thread's side of the connection.
#[derive(Debug)]
struct Outward {
    stream: TcpStream,
    watch: AnswerWatch,
    choice: PackingChoice,
    counts: Arc<PackedBytes>,
    /// The last chunk that was packed.
    packed: Vec<u8>,
}

impl Outward {
    fn new(
        stream: TcpStream,
        watch: AnswerWatch,
        packing: PackingPolicy,
        counts: Arc<PackedBytes>,
    ) -> Self {
        Self { stream, watch, choice: PackingChoice::new(packing), counts, packed: Vec::new() }
    }

    fn send(&mut self, chunk: &[u8]) -> io::Result<()> {
        let is_packed = chunk.len() >= PACKED_BYTES_MIN && self.choice.tries() && self.pack(chunk);
        let bytes = if is_packed { &self.packed } else { chunk };
        let start = Instant::now();
        let written = self.watch.write_all(&self.stream, bytes);
        self.choice.sent(bytes.len(), start.elapsed());
        written
    }

    /// The next chunk, as long as the other host acknowledges the earlier ones.
    fn next(&mut self, chunks: &Receiver<Vec<u8>>) -> Option<Vec<u8>> {
        let Some(interval) = self.watch.interval() else { return chunks.recv().ok() };
        loop {
            match chunks.recv_timeout(interval) {
                Ok(chunk) => return Some(chunk),
                Err(RecvTimeoutError::Timeout) => self.watch.look(&self.stream).ok()?,
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Packs a chunk into [`packed`](Self::packed); false if it is to be sent as it is.
    fn pack(&mut self, chunk: &[u8]) -> bool {
        let start = Instant::now();
        let (words, body) = chunk.split_at(BODY_AT);
        self.packed.clear();
        self.packed.extend_from_slice(words);
        let is_packed = pack(body, &mut self.packed);
        let length = self.packed.len() - BODY_AT;
        let saved = if is_packed { body.len() - length } else { 0 };
        self.choice.packed(body.len(), saved, start.elapsed());
        if is_packed {
            let word = u32::try_from(length).expect("shorter than a chunk") | IS_PACKED;
            self.packed[BODY_AT - size_of::<u32>()..BODY_AT].copy_from_slice(&word.to_le_bytes());
            self.counts.add(body.len(), length);
        }
        is_packed
    }
}

/// Writes chunks; ends with the link, with the connection, or when the other host is silent.
fn write_all(
    mut outward: Outward,
    chunks: &Receiver<Vec<u8>>,
    done: &SyncSender<Vec<u8>>,
    in_flight: &AtomicUsize,
    is_cut: &AtomicBool,
    waker: &FutexWaker,
) {
    while let Some(chunk) = outward.next(chunks) {
        let written = outward.send(&chunk);
        // A buffer more than the worker can use is dropped.
        let _ = done.try_send(chunk);
        is_cut.store(written.is_err(), Ordering::Release);
        in_flight.fetch_sub(1, Ordering::AcqRel);
        waker.wake();
        if written.is_err() {
            break;
        }
    }
    // A broken connection needs no shutdown.
    let _ = outward.stream.shutdown(Shutdown::Both);
}

/// Reason why no more chunks arrive.
#[derive(Debug)]
enum ChunkError {
    /// The connection has closed or broken: the dispatcher reports what became of the worker.
    Closed,
    /// The other worker broke the protocol.
    Malformed(String),
}

impl From<io::Error> for ChunkError {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

/// Reads chunks; ends with the connection, or with a chunk that breaks the protocol, which the
/// worker's log (standard error) says.
fn read_all(
    stream: TcpStream,
    chunks: &SyncSender<IncomingChunk>,
    again: &Receiver<Vec<u8>>,
    waker: &FutexWaker,
) {
    let from = stream.peer_addr().map_or_else(|error| error.to_string(), |from| from.to_string());
    let mut stream = io::BufReader::with_capacity(READ_AHEAD_BYTES, stream);
    let mut packed = Vec::new();
    loop {
        match next(&mut stream, again, &mut packed) {
            Ok(arrived) => {
                if chunks.send(arrived).is_err() {
                    return;
                }
                waker.wake();
            }
            Err(ChunkError::Closed) => return,
            Err(ChunkError::Malformed(reason)) => {
                eprintln!("gt.worker: the link to the worker at {from} ends: {reason}");
                return;
            }
        }
    }
}

fn next(
    stream: &mut impl Read,
    again: &Receiver<Vec<u8>>,
    packed: &mut Vec<u8>,
) -> Result<IncomingChunk, ChunkError> {
    let mut words = [0; HEAD_WORDS];
    let mut length = [0];
    stream.read_exact(bytemuck::cast_slice_mut(&mut words))?;
    stream.read_exact(bytemuck::cast_slice_mut(&mut length))?;
    let [length] = length;
    let is_packed = length & IS_PACKED != 0;
    let length = usize::try_from(length & !IS_PACKED).expect("usize has 64 bits");
    let malformed = |what: &str| {
        ChunkError::Malformed(format!("it sent {what}: head {words:x?}, length {length}"))
    };
    let head = ChunkHead::decode(&words).map_err(|error| malformed(&error.to_string()))?;
    if length > TCP_CHUNK_BYTES_MAX {
        return Err(malformed(&format!("more than {TCP_CHUNK_BYTES_MAX} bytes in a chunk")));
    }
    let mut buffer = again.try_recv().unwrap_or_default();
    if is_packed {
        packed.resize(length, 0);
        stream.read_exact(packed)?;
        let unpacked = unpack(packed, TCP_CHUNK_BYTES_MAX, &mut buffer);
        let length = unpacked.ok_or_else(|| malformed("bytes that cannot be unpacked"))?;
        return Ok(IncomingChunk { head, buffer, length });
    }
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    stream.read_exact(&mut buffer[..length])?;
    Ok(IncomingChunk { head, buffer, length })
}
