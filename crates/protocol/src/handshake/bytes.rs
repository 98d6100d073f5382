//! Fields of a handshake message, written and read as little-endian bytes.

use super::{HandshakeError, VERSION};

/// Appends a 16-bit length and the bytes.
pub(super) fn push_short(
    out: &mut Vec<u8>,
    field: &'static str,
    bytes: &[u8],
    bytes_max: usize,
) -> Result<(), HandshakeError> {
    let length = match u16::try_from(bytes.len()) {
        Ok(length) if bytes.len() <= bytes_max => length,
        Ok(_) | Err(_) => return Err(HandshakeError::Limit(field, bytes.len())),
    };
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

/// Reads from front to back; an error names the field that is cut off.
pub(super) struct HandshakeCursor<'a> {
    bytes: &'a [u8],
}

impl<'a> HandshakeCursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) const fn rest(&self) -> usize {
        self.bytes.len()
    }

    fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], HandshakeError> {
        let (front, back) =
            self.bytes.split_at_checked(count).ok_or(HandshakeError::Truncated(field))?;
        self.bytes = back;
        Ok(front)
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], HandshakeError> {
        let (front, back) =
            self.bytes.split_first_chunk().ok_or(HandshakeError::Truncated(field))?;
        self.bytes = back;
        Ok(*front)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, HandshakeError> {
        self.array(field).map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, HandshakeError> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, HandshakeError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, HandshakeError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// Presence bits of the optional fields among `known`. A version later than ours may have more
    /// fields, behind ours.
    pub(super) fn present(&mut self, known: u8, version: u16) -> Result<u8, HandshakeError> {
        let bits = self.u8("presence bits")?;
        if bits & !known != 0 && version <= VERSION {
            return Err(HandshakeError::Value("presence bits", bits.into()));
        }
        Ok(bits & known)
    }

    /// A 16-bit length and that many bytes.
    pub(super) fn short(
        &mut self,
        field: &'static str,
        bytes_max: usize,
    ) -> Result<&'a [u8], HandshakeError> {
        let length = usize::from(self.u16(field)?);
        if length > bytes_max {
            return Err(HandshakeError::Limit(field, length));
        }
        self.take(length, field)
    }

    pub(super) fn text(
        &mut self,
        field: &'static str,
        bytes_max: usize,
    ) -> Result<String, HandshakeError> {
        let bytes = self.short(field, bytes_max)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| HandshakeError::Utf8(field))
    }
}
