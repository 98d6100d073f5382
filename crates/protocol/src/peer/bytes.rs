//! Fields of a worker's message, written and read as little-endian bytes.

use super::PeerError;

/// Appends a 16-bit length and the bytes.
pub fn push_short(
    out: &mut Vec<u8>,
    field: &'static str,
    bytes: &[u8],
    bytes_max: usize,
) -> Result<(), PeerError> {
    let length = match u16::try_from(bytes.len()) {
        Ok(length) if bytes.len() <= bytes_max => length,
        Ok(_) | Err(_) => return Err(PeerError::Limit(field, bytes.len())),
    };
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

/// Reads from front to back; an error names the field that is cut off.
pub struct PayloadCursor<'a>(pub &'a [u8]);

impl<'a> PayloadCursor<'a> {
    pub fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], PeerError> {
        let (front, back) = self.0.split_at_checked(count).ok_or(PeerError::Truncated(field))?;
        self.0 = back;
        Ok(front)
    }

    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], PeerError> {
        let (front, back) = self.0.split_first_chunk().ok_or(PeerError::Truncated(field))?;
        self.0 = back;
        Ok(*front)
    }

    pub fn u64(&mut self, field: &'static str) -> Result<u64, PeerError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// One byte, 0 or 1.
    pub fn bool(&mut self, field: &'static str) -> Result<bool, PeerError> {
        match self.array(field)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(PeerError::Value(field, other.into())),
        }
    }

    /// A 16-bit length and that many bytes.
    pub fn short(&mut self, field: &'static str, bytes_max: usize) -> Result<&'a [u8], PeerError> {
        let length = usize::from(u16::from_le_bytes(self.array(field)?));
        if length > bytes_max {
            return Err(PeerError::Limit(field, length));
        }
        self.take(length, field)
    }

    pub const fn finish(self) -> Result<(), PeerError> {
        if self.0.is_empty() { Ok(()) } else { Err(PeerError::Trailing(self.0.len())) }
    }
}
