//! One end of a framed connection: it numbers the frames of a session, keeps frames until the other
//! side acknowledges them, sends those again over a new connection, and drops duplicates. A state
//! machine without I/O: the owner of the socket passes it the bytes that arrived and writes its
//! output.
//!
//! Not here: sockets, clocks, the permission to resume a session, and the meaning of the words.

#[cfg(test)]
mod tests;

use crate::handshake::{Arrival, FRAME_BYTES_MAX, FrameHeader, HandshakeError};
use crate::integer::{to_u64, to_usize};
use crate::wire::{count_word, cut};
use std::collections::VecDeque;

/// Bytes received after which a separate acknowledgement is due: far fewer than any sender keeps.
pub const UNACKNOWLEDGED_BYTES_MAX: usize = 256 * 1024;
/// Frames received after which a separate acknowledgement is due, for a peer whose frames are
/// small.
pub const UNACKNOWLEDGED_FRAMES_MAX: u64 = 16;
#[allow(clippy::as_conversions, reason = "a constant that fits; TryFrom is not const")]
const FRAME_WORDS_MAX: usize = FRAME_BYTES_MAX as usize / 4;

/// Sent frames that an end keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All frames until they are acknowledged; at this many bytes nothing more is sent.
    Unacknowledged { bytes_max: usize },
    /// None: the session ends with its connection.
    Nothing,
}

/// Reason why the connection, or the session, cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer broke the protocol: the session ends.
    #[error(transparent)]
    Header(#[from] HandshakeError),
    /// The peer acknowledges a frame that was never sent, or asks again for one that is no longer
    /// kept: the session ends.
    #[error("frame {acknowledged} is acknowledged, of {first_kept} to {sent}")]
    Acknowledged { acknowledged: u64, first_kept: u64, sent: u64 },
    /// A frame before this one is missing: the connection is broken, and the session may be resumed.
    #[error("frame {sequence} came after frame {received}")]
    Gap { sequence: u64, received: u64 },
}

/// One end's numbers of a session, which outlive its connections. Kept frames are `Words`: memory
/// of the link's own, or memory that the owner shares with it.
#[derive(Debug)]
pub struct Link<Words = Vec<u32>> {
    keep: Keep,
    sent: u64,
    kept: VecDeque<(u64, Words)>,
    kept_bytes: usize,
    received: u64,
    /// Bytes of the frames that have arrived after that, and do not count as received yet.
    arrived_bytes: VecDeque<usize>,
    /// The last frame whose arrival the peer knows of, and the bytes received since.
    acknowledged: u64,
    unacknowledged_bytes: usize,
}

impl Link {
    /// Appends the frames of whole instructions and messages to `out`, and keeps their words.
    pub fn send(&mut self, mut words: Vec<u32>, out: &mut Vec<u8>) {
        while words.len() > FRAME_WORDS_MAX {
            let rest = words.split_off(cut::whole(&words, FRAME_WORDS_MAX));
            self.send_frame(words, out);
            words = rest;
        }
        if !words.is_empty() {
            self.send_frame(words, out);
        }
    }

    fn send_frame(&mut self, words: Vec<u32>, out: &mut Vec<u8>) {
        let header = self.next_header(&words);
        out.extend_from_slice(&header);
        out.extend_from_slice(bytemuck::cast_slice(&words));
        self.keep(words);
    }
}

impl<Words: AsRef<[u32]>> Link<Words> {
    pub const fn new(keep: Keep) -> Self {
        Self {
            keep,
            sent: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            received: 0,
            arrived_bytes: VecDeque::new(),
            acknowledged: 0,
            unacknowledged_bytes: 0,
        }
    }

    /// An end that goes on in the place of another one, which is gone: that had sent `sent` frames, of
    /// which these are the last and may not have arrived, and had received as many as `received`.
    pub fn restored(
        bytes_max: usize,
        sent: u64,
        kept: impl ExactSizeIterator<Item = Words>,
        received: u64,
    ) -> Self {
        let mut link = Self::new(Keep::Unacknowledged { bytes_max });
        link.sent = sent.saturating_sub(to_u64(kept.len()));
        for words in kept {
            link.sent += 1;
            link.keep(words);
        }
        (link.received, link.acknowledged) = (received, received);
        link
    }

    /// Returns true if another frame may be sent; else the peer has to acknowledge first.
    pub const fn may_send(&self) -> bool {
        match self.keep {
            Keep::Unacknowledged { bytes_max } => self.kept_bytes < bytes_max,
            Keep::Nothing => true,
        }
    }

    /// Numbers and keeps a frame that the caller writes: the returned header, then the words.
    ///
    /// # Panics
    /// The words are none, or more than a frame has.
    pub fn frame(&mut self, words: Words) -> [u8; FrameHeader::BYTES] {
        assert!(!words.as_ref().is_empty(), "a frame without words only acknowledges");
        let header = self.next_header(words.as_ref());
        self.keep(words);
        header
    }

    fn next_header(&mut self, words: &[u32]) -> [u8; FrameHeader::BYTES] {
        self.sent += 1;
        self.header_of(self.sent, words)
    }

    fn keep(&mut self, words: Words) {
        if matches!(self.keep, Keep::Unacknowledged { .. }) {
            self.kept_bytes += words.as_ref().len() * 4;
            self.kept.push_back((self.sent, words));
        }
    }

    /// Returns true if an acknowledgement is due although there is nothing to send.
    pub const fn owes_acknowledgement(&self) -> bool {
        self.received - self.acknowledged >= UNACKNOWLEDGED_FRAMES_MAX
            || self.unacknowledged_bytes >= UNACKNOWLEDGED_BYTES_MAX
    }

    /// Appends a frame without words, which only acknowledges.
    pub fn acknowledge(&mut self, out: &mut Vec<u8>) {
        self.append(self.sent, &[], out);
    }

    fn append(&mut self, sequence: u64, words: &[u32], out: &mut Vec<u8>) {
        let header = self.header_of(sequence, words);
        out.extend_from_slice(&header);
        out.extend_from_slice(bytemuck::cast_slice(words));
    }

    /// The header of a frame, which acknowledges all that has arrived.
    fn header_of(&mut self, sequence: u64, words: &[u32]) -> [u8; FrameHeader::BYTES] {
        self.acknowledged = self.received;
        self.unacknowledged_bytes = 0;
        let length_bytes = count_word(words.len() * 4);
        let header = FrameHeader { length_bytes, sequence, acknowledged: self.received };
        let encoded = header.encode();
        assert!(encoded.is_ok(), "a frame of {} words is sent", words.len());
        encoded.unwrap_or([0; FrameHeader::BYTES])
    }

    /// Reads the header of a frame and checks its length, so that its words may be read. Frames
    /// that it acknowledges are dropped.
    ///
    /// # Errors
    /// The peer broke the protocol.
    pub fn header(&mut self, bytes: &[u8; FrameHeader::BYTES]) -> Result<FrameHeader, LinkError> {
        let header = FrameHeader::decode(bytes)?;
        if header.acknowledged > self.sent {
            return Err(self.unknown(header.acknowledged));
        }
        self.forget_until(header.acknowledged);
        Ok(header)
    }

    /// Returns true if the words of this frame are new. A frame counts as arrived only once it is
    /// [`Self::accept`]ed.
    ///
    /// # Errors
    /// [`LinkError::Gap`]: a frame before it is missing.
    pub fn is_new(&self, header: FrameHeader) -> Result<bool, LinkError> {
        let received = self.arrived();
        match header.arrival(received) {
            Arrival::Next => Ok(true),
            Arrival::Repeated => Ok(false),
            Arrival::Gap => Err(LinkError::Gap { sequence: header.sequence, received }),
        }
    }

    /// The last frame that has arrived, whether it counts as received or not.
    fn arrived(&self) -> u64 {
        self.received + to_u64(self.arrived_bytes.len())
    }

    /// Counts a new frame as arrived; all of its words must have been taken over.
    ///
    /// # Panics
    /// The frame is not new: see [`Self::is_new`].
    pub fn accept(&mut self, header: FrameHeader) {
        self.arrive(header);
        self.receive_until(header.sequence);
    }

    /// Notes that a new frame has arrived, which is not acknowledged before [`Self::receive_until`]:
    /// whoever takes it in may be gone first.
    ///
    /// # Panics
    /// The frame is not new: see [`Self::is_new`].
    pub fn arrive(&mut self, header: FrameHeader) {
        assert!(self.is_new(header) == Ok(true), "{header:?} after {}", self.arrived());
        self.arrived_bytes.push_back(to_usize(header.length_bytes));
    }

    /// Counts the frames up to this one as received, as far as they have arrived.
    pub fn receive_until(&mut self, sequence: u64) {
        // The loop ends: each round takes a frame that has arrived.
        while self.received < sequence
            && let Some(bytes) = self.arrived_bytes.pop_front()
        {
            self.received += 1;
            self.unacknowledged_bytes += bytes;
        }
    }

    /// The last frame that was received, for the handshake of a resumption.
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Continues over a new connection, whose peer has all frames up to `acknowledged`.
    ///
    /// # Errors
    /// The peer claims frames that were never sent, or lacks frames that are no longer
    /// kept.
    pub fn resume(&mut self, acknowledged: u64) -> Result<(), LinkError> {
        if acknowledged > self.sent || acknowledged + 1 < self.first_kept() {
            return Err(self.unknown(acknowledged));
        }
        self.forget_until(acknowledged);
        Ok(())
    }

    /// Appends the frames that the peer does not have; no more than are kept.
    pub fn resend(&mut self, out: &mut Vec<u8>) {
        let kept = std::mem::take(&mut self.kept);
        for (sequence, words) in &kept {
            self.append(*sequence, words.as_ref(), out);
        }
        self.kept = kept;
    }

    /// The last frame to the peer that it has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.first_kept() - 1
    }

    fn first_kept(&self) -> u64 {
        self.kept.front().map_or(self.sent + 1, |kept| kept.0)
    }

    fn unknown(&self, acknowledged: u64) -> LinkError {
        LinkError::Acknowledged { acknowledged, first_kept: self.first_kept(), sent: self.sent }
    }

    fn forget_until(&mut self, acknowledged: u64) {
        while let Some((_, words)) = self.kept.pop_front_if(|kept| kept.0 <= acknowledged) {
            self.kept_bytes -= words.as_ref().len() * 4;
        }
    }
}
