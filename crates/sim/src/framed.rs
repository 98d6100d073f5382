//! One end of a client's connection over TCP: a stream of bytes, split anywhere, that contains
//! frames.

use crate::exact::exact;
use gt_protocol::handshake::FrameHeader;
use gt_protocol::link::{Keep, Link, LinkError};

/// Bytes that an end keeps at most: more than the other side accepts before it acknowledges.
const KEPT_BYTES_MAX: usize = 384 * 1024;

#[derive(Debug)]
pub struct FramedEnd {
    link: Link,
    /// Bytes of an incomplete frame.
    unread: Vec<u8>,
}

impl Default for FramedEnd {
    fn default() -> Self {
        let link = Link::new(Keep::Unacknowledged { bytes_max: KEPT_BYTES_MAX });
        Self { link, unread: Vec::new() }
    }
}

impl FramedEnd {
    /// Returns true if the other side has acknowledged enough for more to be sent.
    pub fn may_send(&self) -> bool {
        self.link.may_send()
    }

    /// Encodes whole instructions and messages as bytes.
    pub fn send(&mut self, words: Vec<u32>) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.link.send(words, &mut bytes);
        bytes
    }

    /// The words of the frames that these bytes complete.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Vec<u32>, LinkError> {
        self.unread.extend_from_slice(bytes);
        let mut words = Vec::new();
        while let Some((header, rest)) = self.unread.split_first_chunk() {
            let header = self.link.header(header)?;
            let length = exact::<_, usize>(header.length_bytes);
            let Some(body) = rest.get(..length) else { break };
            if self.link.is_new(header)? {
                let body = body.as_chunks::<4>().0;
                words.extend(body.iter().map(|word| u32::from_le_bytes(*word)));
                self.link.accept(header);
            }
            self.unread.drain(..FrameHeader::BYTES + length);
        }
        Ok(words)
    }

    /// A frame that only acknowledges, if one is due.
    pub fn acknowledgement(&mut self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.link.owes_acknowledgement().then(|| self.link.acknowledge(&mut bytes))?;
        Some(bytes)
    }

    /// The last frame that has arrived, for the handshake.
    pub fn received(&self) -> u64 {
        self.link.received()
    }

    /// Continues over a new connection whose other end has received everything up to
    /// `acknowledged`: returns the bytes to be sent again.
    pub fn resume(&mut self, acknowledged: u64) -> Result<Vec<u8>, LinkError> {
        self.unread.clear();
        self.link.resume(acknowledged)?;
        let mut bytes = Vec::new();
        self.link.resend(&mut bytes);
        Ok(bytes)
    }
}
