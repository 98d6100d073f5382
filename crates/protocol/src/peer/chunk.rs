//! The head words of a chunk of a message between workers.

use super::PeerError;

/// Number of words of a head.
pub const CHUNK_HEAD_WORDS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// Bytes of a value, or of a payload.
    Bytes,
    /// A failure message in place of the remaining bytes.
    Failure,
}

/// Identifies the message that a chunk belongs to, and gives that message's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    pub tag: u64,
    pub hop: u32,
    pub kind: ChunkKind,
    /// Bytes of the whole message.
    pub total: u64,
}

impl ChunkHead {
    pub fn encode(&self) -> [u32; CHUNK_HEAD_WORDS] {
        let ([tag_low, tag_high], [total_low, total_high]) = (halves(self.tag), halves(self.total));
        let kind = match self.kind {
            ChunkKind::Bytes => 0,
            ChunkKind::Failure => 1,
        };
        [tag_low, tag_high, self.hop, kind, total_low, total_high, 0, 0]
    }

    /// # Errors
    /// Words that no worker of this version writes.
    pub fn decode(words: &[u32; CHUNK_HEAD_WORDS]) -> Result<Self, PeerError> {
        let &[tag_low, tag_high, hop, kind, total_low, total_high, end_low, end_high] = words;
        let (tag, total) = (joined(tag_low, tag_high), joined(total_low, total_high));
        let end = joined(end_low, end_high);
        if end != 0 {
            return Err(PeerError::Value("the end of a chunk's head", end));
        }
        let kind = match kind {
            0 => ChunkKind::Bytes,
            1 => ChunkKind::Failure,
            other => return Err(PeerError::Value("the kind of a chunk", other.into())),
        };
        Ok(Self { tag, hop, kind, total })
    }
}

/// Low and high word.
fn halves(value: u64) -> [u32; 2] {
    let bytes = value.to_le_bytes();
    let (words, _) = bytes.as_chunks();
    let word = |place: usize| words.get(place).map_or(0, |word| u32::from_le_bytes(*word));
    [word(0), word(1)]
}

fn joined(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}
