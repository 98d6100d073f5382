//! The writing thread of a link: numbers chunks, writes them, and calls the other worker again
//! where a connection broke and this side is the caller.

use super::calling::DataCaller;
use super::chunk_frame::{BODY_AT, ChunkFrame};
use super::shared::{LinkConnection, NextConnection, Output, SharedLink};
use gt_protocol::handshake::FrameHeader;
use gt_transport::packing::{PACKED_BYTES_MIN, PackingChoice, PackingPolicy, pack};
use gt_transport::tcp::{AnswerWatch, Probes};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

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

/// The writing thread's side of a link.
#[derive(Debug)]
pub struct Outward {
    shared: Arc<SharedLink>,
    /// Data to call the other worker; `None` on the side that is called.
    caller: Option<DataCaller>,
    probes: Probes,
    choice: PackingChoice,
    counts: Arc<PackedBytes>,
    /// Bytes of the last chunk that was packed.
    packed: Vec<u8>,
}

impl Outward {
    pub fn new(
        shared: Arc<SharedLink>,
        caller: Option<DataCaller>,
        probes: Probes,
        packing: PackingPolicy,
        counts: Arc<PackedBytes>,
    ) -> Self {
        let choice = PackingChoice::new(packing);
        Self { shared, caller, probes, choice, counts, packed: Vec::new() }
    }

    /// Writes until the link ends; each round is a connection.
    pub fn run(mut self) {
        let mut last = 0;
        loop {
            match self.shared.next_connection(last, self.caller.is_some()) {
                NextConnection::Up(connection) => {
                    last = connection.number;
                    if let Err(error) = self.serve(&connection) {
                        self.shared.break_off(last, &error);
                    }
                }
                NextConnection::Down => {
                    let connected = self.caller.as_mut().map(|caller| caller.connect(&self.shared));
                    if connected != Some(true) {
                        self.shared.end();
                    }
                }
                NextConnection::Ended => return,
            }
        }
    }

    /// Writes what there is to write, as long as the other host acknowledges it.
    fn serve(&mut self, connection: &LinkConnection) -> io::Result<()> {
        let stream = &*connection.stream;
        let mut watch = AnswerWatch::new(self.probes);
        stream.set_write_timeout(watch.interval())?;
        watch.write_all(stream, &self.shared.first_bytes(connection.number))?;
        // The loop ends with the connection.
        loop {
            match self.shared.next_output(connection.number, watch.interval()) {
                Output::Chunk(frame) => self.send(connection, &mut watch, &frame)?,
                Output::Acknowledgement(bytes) => watch.write_all(stream, &bytes)?,
                Output::Nothing => {}
                Output::Stale => return Ok(()),
                Output::Finished => {
                    self.shared.end();
                    return Ok(());
                }
            }
            watch.look(stream)?;
        }
    }

    fn send(
        &mut self,
        connection: &LinkConnection,
        watch: &mut AnswerWatch,
        frame: &ChunkFrame,
    ) -> io::Result<()> {
        let body = frame.body();
        let bytes = body.len() + size_of_val(&frame.as_ref()[..BODY_AT]);
        let is_packed = bytes >= PACKED_BYTES_MIN && self.choice.tries() && self.pack(body);
        let sent = if is_packed { frame.packed(&self.packed) } else { frame.clone() };
        let number = self.shared.number(connection.number, frame, sent.clone());
        let Some(header) = number else { return Ok(()) };
        let words: &[u8] = bytemuck::cast_slice(sent.as_ref());
        let start = Instant::now();
        let written = watch.write_both(&connection.stream, &header, words);
        self.choice.sent(FrameHeader::BYTES + words.len(), start.elapsed());
        drop(sent);
        self.shared.finish_chunk();
        written
    }

    /// Packs bytes into [`packed`](Self::packed); false if they are to be sent as they are.
    fn pack(&mut self, body: &[u8]) -> bool {
        let start = Instant::now();
        self.packed.clear();
        let is_packed = pack(body, &mut self.packed);
        let length = self.packed.len();
        let saved = if is_packed { body.len() - length } else { 0 };
        self.choice.packed(body.len(), saved, start.elapsed());
        if is_packed {
            self.counts.add(body.len(), length);
        }
        is_packed
    }
}
