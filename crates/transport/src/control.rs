//! Sixteen-byte records with descriptors attached, over the Unix socket between two processes of one host.
//!
//! The socket carries nothing else: it passes descriptors of rings, and its end of file means the
//! peer's death.

use crate::descriptors::{DescriptorError, receive_with_fds, send_with_fds};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 16;
/// Maximum number of descriptors of a record: a ring each way, an eventfd, and a slab each way.
pub const RECORD_FDS: usize = 5;

/// The `value` of a setup with slabs: their number.
pub const SLABS: u64 = 2;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// A setup. Two descriptors: the ring that the receiver reads, and the ring that it writes.
    /// `index` is its worker index. A dispatcher that serves many peers adds a third: the eventfd
    /// of the ring that the receiver writes
    /// ([`Producer::set_waker`](crate::ring::Producer::set_waker)). If `value` is [`SLABS`], two
    /// more follow at the end: the slab that the receiver reads, and the slab that it writes.
    Setup,
    /// A new worker. Two descriptors: the slab to write to worker `index`, and the slab to read
    /// from it. `value` is the number of workers that had the index before it.
    Peer,
    /// A worker is gone: the one with `index`, before which `value` workers had that index.
    PeerGone,
    /// The receiver must end.
    Shutdown,
    /// A request to fork. One descriptor: a worker's control socket. The answer has the descriptor
    /// of the new process, and its number as the `value`.
    Fork,
    /// A forked process has ended, of worker `index`. The low half of `value` is its number, the
    /// high half its exit code, as a signed number: of one that a signal ended, minus the signal.
    Ended,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlRecord {
    /// Kind of the record.
    pub kind: ControlKind,
    /// The worker that it is about.
    pub index: u32,
    /// Meaning depends on the kind.
    pub value: u64,
}

impl ControlRecord {
    /// Splits the slabs off a setup's descriptors, where they come last: the one that the receiver
    /// reads, and the one that it writes.
    #[must_use]
    pub fn split(&self, mut descriptors: Vec<OwnedFd>) -> (Vec<OwnedFd>, Option<[OwnedFd; 2]>) {
        if self.value != SLABS || descriptors.len() < 2 {
            return (descriptors, None);
        }
        let slabs = descriptors.split_off(descriptors.len() - 2);
        (descriptors, slabs.try_into().ok())
    }

    /// The record in its fixed little-endian layout: kind, index, value.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let kind: u32 = match self.kind {
            ControlKind::Setup => 1,
            ControlKind::Peer => 2,
            ControlKind::PeerGone => 3,
            ControlKind::Shutdown => 4,
            ControlKind::Fork => 5,
            ControlKind::Ended => 6,
        };
        let mut bytes = [0; RECORD_BYTES];
        let fields = kind.to_le_bytes().into_iter().chain(self.index.to_le_bytes());
        for (place, byte) in bytes.iter_mut().zip(fields.chain(self.value.to_le_bytes())) {
            *place = byte;
        }
        bytes
    }

    /// The record of these bytes; `None` for an unknown kind.
    #[must_use]
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let (kind, rest) = bytes.split_first_chunk::<4>()?;
        let (index, rest) = rest.split_first_chunk::<4>()?;
        let (value, _) = rest.split_first_chunk::<8>()?;
        let kind = match u32::from_le_bytes(*kind) {
            1 => ControlKind::Setup,
            2 => ControlKind::Peer,
            3 => ControlKind::PeerGone,
            4 => ControlKind::Shutdown,
            5 => ControlKind::Fork,
            6 => ControlKind::Ended,
            _ => return None,
        };
        Some(Self { kind, index: u32::from_le_bytes(*index), value: u64::from_le_bytes(*value) })
    }
}

/// Sends a record.
///
/// # Errors
/// The peer is gone or does not read.
pub fn send_record(
    socket: BorrowedFd<'_>,
    record: &ControlRecord,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), DescriptorError> {
    send_with_fds(socket, &record.encode(), descriptors)
}

/// The next record and its descriptors; `None` at the end of the stream or after malformed bytes.
///
/// # Errors
/// The socket failed.
pub fn receive_record(
    socket: BorrowedFd<'_>,
) -> Result<Option<(ControlRecord, Vec<OwnedFd>)>, DescriptorError> {
    let mut bytes = [0; RECORD_BYTES];
    let mut filled = 0;
    let mut descriptors = Vec::new();
    while filled < RECORD_BYTES {
        let rest = bytes.get_mut(filled..).unwrap_or_default();
        let (count, mut arrived) = receive_with_fds(socket, rest, RECORD_FDS)?;
        if count == 0 {
            return Ok(None);
        }
        filled += count;
        descriptors.append(&mut arrived);
    }
    Ok(ControlRecord::decode(&bytes).map(|record| (record, descriptors)))
}

#[cfg(test)]
mod tests {
    use super::{ControlKind, ControlRecord, receive_record, send_record};
    use crate::descriptors::socket_pair;
    use std::os::fd::AsFd;

    #[test]
    fn a_record_crosses_with_its_descriptors() {
        let (left, right) = socket_pair().unwrap();
        let record = ControlRecord { kind: ControlKind::Peer, index: 7, value: 1 << 40 };
        send_record(left.as_fd(), &record, &[right.as_fd(), left.as_fd()]).unwrap();
        let (arrived, descriptors) = receive_record(right.as_fd()).unwrap().unwrap();
        assert_eq!((arrived, descriptors.len()), (record, 2));
        drop((left, descriptors));
        assert!(receive_record(right.as_fd()).unwrap().is_none());
    }

    #[test]
    fn an_unknown_kind_is_no_record() {
        assert_eq!(ControlRecord::decode(&[9; 16]), None);
    }
}
