//! The header of a frame on a socket: how long it is, which one it is, and what has arrived from the other side.

use super::{HandshakeError, bytes::HandshakeCursor};

/// A frame's words, header not counted: several of the largest instructions, and little enough that a peer cannot make
/// the other side reserve much by claiming it.
pub const FRAME_BYTES_MAX: u32 = 1024 * 1024;

/// Goes before the words of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the words that follow: a multiple of four. A frame without words only acknowledges.
    pub length_bytes: u32,
    /// Number of the frame in its direction of its session, from 1; a frame without words has the last one's.
    pub sequence: u64,
    /// The last frame that arrived from the other side, 0 for none.
    pub acknowledged: u64,
}

/// What to do with a frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The one that was expected: take its words.
    Next,
    /// It came before, or has no words: only its acknowledgement counts.
    Repeated,
    /// One before it is missing: the link is broken and the session must be resumed.
    Gap,
}

impl FrameHeader {
    pub const BYTES: usize = 20;

    pub fn encode(self) -> Result<[u8; Self::BYTES], HandshakeError> {
        self.check()?;
        let mut bytes = [0; Self::BYTES];
        let fields = self
            .length_bytes
            .to_le_bytes()
            .into_iter()
            .chain(self.sequence.to_le_bytes())
            .chain(self.acknowledged.to_le_bytes());
        for (place, byte) in bytes.iter_mut().zip(fields) {
            *place = byte;
        }
        Ok(bytes)
    }

    /// Refuses a length over the limit, so that the caller may reserve what the header claims.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, HandshakeError> {
        let mut cursor = HandshakeCursor::new(bytes);
        let header = Self {
            length_bytes: cursor.u32("frame header")?,
            sequence: cursor.u64("frame header")?,
            acknowledged: cursor.u64("frame header")?,
        };
        header.check()?;
        Ok(header)
    }

    const fn check(self) -> Result<(), HandshakeError> {
        if self.length_bytes > FRAME_BYTES_MAX {
            return Err(HandshakeError::FrameLength(self.length_bytes));
        }
        if !self.length_bytes.is_multiple_of(4) {
            return Err(HandshakeError::FrameWords(self.length_bytes));
        }
        Ok(())
    }

    /// What this frame is to a receiver that has had all up to `received`.
    pub const fn arrival(self, received: u64) -> Arrival {
        if self.sequence <= received {
            Arrival::Repeated
        } else if self.length_bytes > 0 && self.sequence - received == 1 {
            Arrival::Next
        } else {
            Arrival::Gap
        }
    }
}
