//! The reading thread of a link: frames of chunks, over one connection after the other.

use super::chunk_frame::{BODY_AT, IS_PACKED, IncomingChunk, TCP_CHUNK_BYTES_MAX};
use super::shared::{LinkConnection, NextConnection, SharedLink};
use gt_protocol::handshake::FrameHeader;
use gt_protocol::link::LinkError;
use gt_protocol::peer::ChunkHead;
use gt_transport::HEAD_WORDS;
use gt_transport::packing::unpack;
use std::io::{self, Read};
use std::sync::Arc;

/// Bytes read from the kernel ahead of the current chunk: the next chunk's head, and a small chunk
/// whole.
const READ_AHEAD_BYTES: usize = 4 * 1024;

/// Reason why no more chunks arrive over a connection.
#[derive(Debug)]
enum ChunkError {
    /// The connection has closed or broken; the link may go on over another one.
    Broken(io::Error),
    /// The link has another connection by now, or has ended.
    Stale,
    /// The other worker broke the protocol.
    Malformed(String),
}

impl From<io::Error> for ChunkError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<LinkError> for ChunkError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Gap { .. } => Self::Broken(io::Error::other(error)),
            LinkError::Header(_) | LinkError::Acknowledged { .. } => {
                Self::Malformed(error.to_string())
            }
        }
    }
}

/// Reads chunks until the link ends. It ends with a chunk that breaks the protocol, which the
/// worker's log (standard error) says.
pub fn run(shared: &Arc<SharedLink>) {
    let mut last = 0;
    while let NextConnection::Up(connection) = shared.next_connection(last, false) {
        last = connection.number;
        match read_all(shared, &connection) {
            ChunkError::Broken(error) => shared.break_off(last, &error),
            ChunkError::Stale => {}
            ChunkError::Malformed(reason) => {
                let from = connection.stream.peer_addr();
                let from = from.map_or_else(|error| error.to_string(), |from| from.to_string());
                eprintln!("gt.worker: the link to the worker at {from} ends: {reason}");
                shared.end();
            }
        }
    }
}

fn read_all(shared: &SharedLink, connection: &LinkConnection) -> ChunkError {
    let mut stream = io::BufReader::with_capacity(READ_AHEAD_BYTES, &*connection.stream);
    let mut packed = Vec::new();
    // The loop ends with the connection.
    loop {
        match read(shared, connection.number, &mut stream, &mut packed) {
            Ok(true) => {}
            Ok(false) => return ChunkError::Stale,
            Err(error) => return error,
        }
    }
}

/// Reads a frame and hands on its chunk; false if the connection is another one by now.
fn read(
    shared: &SharedLink,
    number: u64,
    stream: &mut impl Read,
    packed: &mut Vec<u8>,
) -> Result<bool, ChunkError> {
    let mut header = [0; FrameHeader::BYTES];
    stream.read_exact(&mut header)?;
    let header = shared.header(&header)?;
    let chunk = match header.length_bytes {
        0 => None,
        length => Some(next(shared, length, stream, packed)?),
    };
    Ok(shared.deliver(number, header, chunk)?)
}

fn next(
    shared: &SharedLink,
    frame_bytes: u32,
    stream: &mut impl Read,
    packed: &mut Vec<u8>,
) -> Result<IncomingChunk, ChunkError> {
    let (mut head, mut length) = ([0; HEAD_WORDS], [0]);
    let malformed = |what: &str, words: &[u32]| {
        ChunkError::Malformed(format!("it sent {what}: {frame_bytes} bytes, {words:x?}"))
    };
    let bytes = |count: u32| usize::try_from(count).expect("usize has 64 bits");
    let Some(body_bytes) = bytes(frame_bytes).checked_sub(BODY_AT * size_of::<u32>()) else {
        return Err(malformed("a frame that is too short for a chunk", &[]));
    };
    stream.read_exact(bytemuck::cast_slice_mut(&mut head))?;
    stream.read_exact(bytemuck::cast_slice_mut(&mut length))?;
    let ([length], words) = (length, head);
    let is_packed = length & IS_PACKED != 0;
    let length = bytes(length & !IS_PACKED);
    let head = ChunkHead::decode(&words).map_err(|error| malformed(&error.to_string(), &words))?;
    if length > TCP_CHUNK_BYTES_MAX {
        return Err(malformed("more bytes than a chunk has", &words));
    }
    if body_bytes != length.next_multiple_of(size_of::<u32>()) {
        return Err(malformed("a chunk of another length than its frame's", &words));
    }
    let mut buffer = shared.buffer();
    if is_packed {
        packed.resize(body_bytes, 0);
        stream.read_exact(packed)?;
        let unpacked = unpack(&packed[..length], TCP_CHUNK_BYTES_MAX, &mut buffer);
        let length = unpacked.ok_or_else(|| malformed("bytes that cannot be unpacked", &words))?;
        return Ok(IncomingChunk { head, buffer, length });
    }
    if buffer.len() < body_bytes {
        buffer.resize(body_bytes, 0);
    }
    stream.read_exact(&mut buffer[..body_bytes])?;
    Ok(IncomingChunk { head, buffer, length })
}
