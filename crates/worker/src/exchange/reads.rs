//! The same exchange where members read each other's memory instead of sending bytes: what each tells the others of where
//! their shards lie, and what each then reads.

use super::bucket::Source;
use super::group::Group;
use super::messages::Exchange;
use crate::backend::{DirectReads, Pull, ReadReduction};
use crate::failure::Broken;
use crate::strided_range::StridedRange;
use smallvec::SmallVec;

/// What another member may read in the first hop and in the second; of nothing there are no bytes.
type Readable = [StridedRange; 2];

const NUMBER_BYTES: usize = size_of::<u64>();
/// Bytes of [`Readable`] before the backend's payload.
const READABLE_BYTES: usize = 2 * 4 * NUMBER_BYTES;

const NOTHING: StridedRange = StridedRange { start: 0, rows: 0, run: 0, stride: 0 };

impl Exchange {
    /// The first payload for another member: what of our memory is for it, and the backend's own.
    pub fn first_payload(&self, peer: u32, of_backend: &[u8]) -> Vec<u8> {
        let mut readable: Readable = [NOTHING; 2];
        for outgoing in self.outgoing.iter().filter(|outgoing| outgoing.peer == peer) {
            readable[usize::from(outgoing.source == Source::Reduced)] = outgoing.range;
        }
        let mut bytes = Vec::with_capacity(READABLE_BYTES + of_backend.len());
        for StridedRange { start, rows, run, stride } in readable {
            for number in [start, rows, run, stride] {
                let number = u64::try_from(number).unwrap_or(u64::MAX);
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        bytes.extend_from_slice(of_backend);
        bytes
    }

    /// What we read, by the first payloads of all members at their places.
    pub fn direct_reads(&self, group: &Group, payloads: &[&[u8]]) -> Result<DirectReads, Broken> {
        let mut reduction = None;
        if let Some(ours) = self.reduction.as_ref().map(|reduction| reduction.range) {
            let mut shards: SmallVec<[StridedRange; 8]> = SmallVec::new();
            for (place, payload) in payloads.iter().enumerate() {
                shards.push(if place == group.me {
                    ours.own
                } else {
                    self.checked(readable(payload)?[0], ours.result)?
                });
            }
            reduction = Some(ReadReduction { reduce_op: ours.reduce_op, shards, to: ours.result });
        }
        let mut pulls = SmallVec::new();
        for incoming in &self.incoming {
            let place = group.place_of(incoming.peer);
            let of_result = incoming.hop > 0;
            let readable = readable(payloads[place])?[usize::from(of_result)];
            let from = self.checked(readable, incoming.range)?;
            pulls.push(Pull { place, of_result, from, to: incoming.range });
        }
        Ok(DirectReads {
            dtype: self.dtype(),
            kept: self.kept.as_ref().map(|kept| (kept.from, kept.to)),
            reduction,
            pulls,
            shares_result: self.is_two_hops(),
        })
    }

    fn checked(&self, theirs: StridedRange, ours: StridedRange) -> Result<StridedRange, Broken> {
        let (bytes, expected) = (theirs.bytes(), ours.bytes());
        if bytes == expected {
            return Ok(theirs);
        }
        Err(self.unexpected(u64::try_from(bytes).unwrap_or(u64::MAX), expected))
    }
}

/// The backend's part of a first payload.
pub fn backend_payload(payload: &[u8]) -> &[u8] {
    payload.get(READABLE_BYTES..).unwrap_or_default()
}

fn readable(payload: &[u8]) -> Result<Readable, Broken> {
    let mut numbers = payload.as_chunks::<NUMBER_BYTES>().0.iter().map(|bytes| {
        // What does not fit has more bytes than anything that is expected.
        usize::try_from(u64::from_le_bytes(*bytes)).unwrap_or(usize::MAX)
    });
    let mut range = || {
        let (start, rows) = (numbers.next()?, numbers.next()?);
        Some(StridedRange { start, rows, run: numbers.next()?, stride: numbers.next()? })
    };
    if let (Some(first), Some(second)) = (range(), range()) {
        return Ok([first, second]);
    }
    Err(Broken::protocol(format!("a first payload of {} bytes", payload.len())))
}
