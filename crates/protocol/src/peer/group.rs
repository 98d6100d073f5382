//! The payload of a collective that a process group runs.

use super::bytes::{PayloadCursor, push_short};
use super::{GROUP_ENTRIES_MAX, PAYLOAD_BYTES_MAX, PeerError};

/// Entries that a member adds to the store through which the library connects the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPayload<'a> {
    /// Identifies the sender's rendezvous, once the sender knows all members; zeros before.
    pub digest: [u8; 16],
    /// Identifies one of the sender's rendezvous.
    pub nonce: [u8; 8],
    pub entries: Vec<(&'a str, &'a [u8])>,
}

impl<'a> GroupPayload<'a> {
    /// # Errors
    /// More entries, or longer ones, than the limits.
    pub fn encode(&self) -> Result<Vec<u8>, PeerError> {
        if self.entries.len() > GROUP_ENTRIES_MAX {
            return Err(PeerError::Limit("a group's payload", self.entries.len()));
        }
        let mut out = [&self.digest[..], &self.nonce].concat();
        for (key, value) in &self.entries {
            push_short(&mut out, "a store's key", key.as_bytes(), PAYLOAD_BYTES_MAX)?;
            push_short(&mut out, "a store's value", value, PAYLOAD_BYTES_MAX)?;
        }
        if out.len() > PAYLOAD_BYTES_MAX {
            return Err(PeerError::Limit("a group's payload", out.len()));
        }
        Ok(out)
    }

    /// # Errors
    /// Bytes that are no such payload.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, PeerError> {
        if bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(PeerError::Limit("a group's payload", bytes.len()));
        }
        let mut cursor = PayloadCursor(bytes);
        let (digest, nonce) = (cursor.array("a digest")?, cursor.array("a nonce")?);
        let mut entries = Vec::new();
        while !cursor.0.is_empty() {
            if entries.len() == GROUP_ENTRIES_MAX {
                return Err(PeerError::Limit("a group's payload", entries.len() + 1));
            }
            let key = cursor.short("a store's key", PAYLOAD_BYTES_MAX)?;
            let key = std::str::from_utf8(key).map_err(|_| PeerError::Utf8("a store's key"))?;
            entries.push((key, cursor.short("a store's value", PAYLOAD_BYTES_MAX)?));
        }
        Ok(Self { digest, nonce, entries })
    }
}
