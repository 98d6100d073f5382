//! The first payload of a collective that a backend runs: the part of the sender's memory that the
//! receiver may read, and the backend's own payload.

use super::bytes::PayloadCursor;
use super::{PAYLOAD_BYTES_MAX, PeerError};

/// Rows of bytes at equal distances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRows {
    pub start: u64,
    pub rows: u64,
    /// Bytes of a row, and distance in bytes between the starts of two rows.
    pub run: u64,
    pub stride: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstPayload<'a> {
    /// Rows of the operand, for the first hop; an empty operand has no rows.
    pub operand: ByteRows,
    /// Rows of the result, for the second hop.
    pub result: ByteRows,
    /// The backend's payload; empty where the sender has no such backend.
    pub of_backend: &'a [u8],
}

impl<'a> FirstPayload<'a> {
    /// # Errors
    /// A backend's payload that is too long.
    pub fn encode(&self) -> Result<Vec<u8>, PeerError> {
        let mut bytes = Vec::with_capacity(64 + self.of_backend.len());
        for ByteRows { start, rows, run, stride } in [self.operand, self.result] {
            for number in [start, rows, run, stride] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        bytes.extend_from_slice(self.of_backend);
        if bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(PeerError::Limit("a first payload", bytes.len()));
        }
        Ok(bytes)
    }

    /// # Errors
    /// Bytes that are no such payload.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, PeerError> {
        if bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(PeerError::Limit("a first payload", bytes.len()));
        }
        let mut cursor = PayloadCursor(bytes);
        let mut rows = || {
            let mut number = || cursor.u64("a first payload");
            let (start, rows) = (number()?, number()?);
            Ok(ByteRows { start, rows, run: number()?, stride: number()? })
        };
        let (operand, result) = (rows()?, rows()?);
        Ok(Self { operand, result, of_backend: cursor.0 })
    }
}
