//! The words before a piece of a message between workers.

use super::PeerError;

/// Words of a head.
pub const PIECE_HEAD_WORDS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// Of a value, or of a payload.
    Bytes,
    /// A failure message in the place of the rest.
    Failure,
}

/// Which message a piece is of, and how long that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceHead {
    pub tag: u64,
    pub hop: u32,
    pub kind: PieceKind,
    /// Bytes of the whole message.
    pub total: u64,
}

impl PieceHead {
    pub fn encode(&self) -> [u32; PIECE_HEAD_WORDS] {
        let ([tag_low, tag_high], [total_low, total_high]) = (halves(self.tag), halves(self.total));
        let kind = match self.kind {
            PieceKind::Bytes => 0,
            PieceKind::Failure => 1,
        };
        [tag_low, tag_high, self.hop, kind, total_low, total_high, 0, 0]
    }

    /// # Errors
    /// Words that no worker of this version writes.
    pub fn decode(words: &[u32; PIECE_HEAD_WORDS]) -> Result<Self, PeerError> {
        let &[tag_low, tag_high, hop, kind, total_low, total_high, end_low, end_high] = words;
        let (tag, total) = (joined(tag_low, tag_high), joined(total_low, total_high));
        let end = joined(end_low, end_high);
        if end != 0 {
            return Err(PeerError::Value("the end of a piece's head", end));
        }
        let kind = match kind {
            0 => PieceKind::Bytes,
            1 => PieceKind::Failure,
            other => return Err(PeerError::Value("the kind of a piece", other.into())),
        };
        Ok(Self { tag, hop, kind, total })
    }
}

/// Low word, high word.
fn halves(value: u64) -> [u32; 2] {
    let bytes = value.to_le_bytes();
    let (words, _) = bytes.as_chunks();
    let word = |place: usize| words.get(place).map_or(0, |word| u32::from_le_bytes(*word));
    [word(0), word(1)]
}

fn joined(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}
