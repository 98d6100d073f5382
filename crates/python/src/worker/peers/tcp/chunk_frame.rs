//! A chunk as the words of a frame: its head, its length, its bytes, and what fills the last word.

use gt_protocol::peer::ChunkHead;
use gt_transport::{CHUNK_BYTES_MAX, HEAD_WORDS};
use std::sync::Arc;

/// Maximum bytes of a chunk, more than a slab's: each chunk wakes a thread on either side, which
/// takes as long as copying 64 KiB.
pub const TCP_CHUNK_BYTES_MAX: usize = 4 * CHUNK_BYTES_MAX;
/// Words before a chunk's bytes: its head and its length.
pub const BODY_AT: usize = HEAD_WORDS + 1;
/// Flag in a chunk's length: its bytes are packed.
pub const IS_PACKED: u32 = 1 << 31;

/// Words of a chunk, which the link keeps until they are acknowledged; a buffer that the worker
/// shares and uses again afterwards.
#[derive(Clone, Debug, Default)]
pub struct ChunkFrame(Arc<Vec<u32>>);

impl AsRef<[u32]> for ChunkFrame {
    fn as_ref(&self) -> &[u32] {
        &self.0
    }
}

impl ChunkFrame {
    /// Lets `fill` write the bytes of a chunk into the words, which nobody else may share.
    pub fn write(&mut self, head: &ChunkHead, length: usize, fill: impl FnOnce(&mut [u8])) {
        let words = Arc::get_mut(&mut self.0).expect("nobody shares the buffer");
        words.resize(BODY_AT + length.div_ceil(size_of::<u32>()), 0);
        let length_word = u32::try_from(length).expect("at most TCP_CHUNK_BYTES_MAX");
        words[..HEAD_WORDS].copy_from_slice(&head.encode());
        words[HEAD_WORDS] = length_word;
        // Its last bytes may be none of the chunk's.
        *words.last_mut().expect("there are words before the bytes") =
            if length == 0 { length_word } else { 0 };
        let body: &mut [u8] = bytemuck::cast_slice_mut(&mut words[BODY_AT..]);
        fill(&mut body[..length]);
    }

    /// A chunk with the same head and other bytes, which are packed.
    pub fn packed(&self, bytes: &[u8]) -> Self {
        let mut words = self.0[..HEAD_WORDS].to_vec();
        words.push(u32::try_from(bytes.len()).expect("shorter than a chunk") | IS_PACKED);
        words.resize(BODY_AT + bytes.len().div_ceil(size_of::<u32>()), 0);
        let body: &mut [u8] = bytemuck::cast_slice_mut(&mut words[BODY_AT..]);
        body[..bytes.len()].copy_from_slice(bytes);
        Self(Arc::new(words))
    }

    /// Bytes of the chunk.
    pub fn body(&self) -> &[u8] {
        let length = usize::try_from(self.0[HEAD_WORDS]).expect("usize has 64 bits");
        &bytemuck::cast_slice(&self.0[BODY_AT..])[..length]
    }

    /// Returns true if no other owner is left: neither a queue nor the kept frames.
    pub fn is_free(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// A chunk that has arrived.
#[derive(Debug)]
pub struct IncomingChunk {
    pub head: ChunkHead,
    /// Buffer with at least `length` bytes.
    pub buffer: Vec<u8>,
    pub length: usize,
}

impl IncomingChunk {
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}
