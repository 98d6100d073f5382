//! The header of a frame on a socket: its length, its number, and the acknowledgement of frames
//! from the other side.

use super::{HandshakeError, bytes::HandshakeCursor};

/// Maximum bytes of a frame's words, without the header: several of the largest instructions, and
/// little enough that a peer cannot make the other side reserve much memory by claiming it.
pub const FRAME_BYTES_MAX: u32 = 1024 * 1024;

/// The header before the words of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the words that follow: a multiple of four. A frame without words only acknowledges.
    pub length_bytes: u32,
    /// Number of the frame in its direction of its session, from 1; a frame without words has the last one's.
    pub sequence: u64,
    /// The last frame that arrived from the other side, 0 for none.
    pub acknowledged: u64,
}

/// Treatment of a frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The expected frame: take its words.
    Next,
    /// Received before, or without words: only its acknowledgement counts.
    Repeated,
    /// A frame before it is missing: the link is broken and the session must be resumed.
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

    /// Classifies this frame for a receiver that has all frames up to `received`.
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
