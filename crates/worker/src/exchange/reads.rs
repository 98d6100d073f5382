//! Exchange by reading other members' memory instead of sending bytes: the first payload
//! that describes a member's shards, and the reads that follow from all of them.

use super::bucket::MessageBytes;
use super::group::Group;
use super::messages::Exchange;
use crate::backend::{DirectReads, Pull, ReadReduction};
use crate::failure::Broken;
use crate::peers::PeerId;
use crate::strided_range::StridedRange;
use gt_protocol::integer::to_u64;
use gt_protocol::peer::{ByteRows, FirstPayload};
use smallvec::SmallVec;

impl Exchange {
    /// The first payload for another member: the parts of our memory for it, and the backend's own
    /// payload. A payload that is too long to be sent is left out, and all members use messages.
    pub fn first_payload(&self, peer: PeerId, of_backend: &[u8]) -> Vec<u8> {
        let [mut operand, mut result] = [ByteRows::default(); 2];
        for outgoing in self.outgoing.iter().filter(|outgoing| outgoing.peer == peer) {
            match outgoing.source {
                MessageBytes::Operand => operand = outgoing.range.into(),
                MessageBytes::Reduced => result = outgoing.range.into(),
            }
        }
        let payload = FirstPayload { operand, result, of_backend };
        let without = || FirstPayload { of_backend: &[], ..payload }.encode();
        payload.encode().or_else(|_| without()).expect("two ranges without a payload fit the limit")
    }

    /// Reads of this member, derived from the first payloads of all members, in the group's order.
    pub fn direct_reads(
        &self,
        group: &Group,
        payloads: &[FirstPayload<'_>],
    ) -> Result<DirectReads, Broken> {
        let mut reduction = None;
        if let Some(ours) = self.reduction.as_ref().map(|reduction| reduction.range) {
            let mut shards: SmallVec<[StridedRange; 8]> = SmallVec::new();
            for (place, payload) in payloads.iter().enumerate() {
                shards.push(if place == group.me {
                    ours.own
                } else {
                    self.checked(payload.operand, ours.result)?
                });
            }
            reduction = Some(ReadReduction { reduce_op: ours.reduce_op, shards, to: ours.result });
        }
        let mut pulls = SmallVec::new();
        for incoming in &self.incoming {
            let place = group.place_of(incoming.peer);
            let of_result = incoming.hop > 0;
            let payload = &payloads[place];
            let readable = if of_result { payload.result } else { payload.operand };
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

    fn checked(&self, theirs: ByteRows, ours: StridedRange) -> Result<StridedRange, Broken> {
        let theirs = StridedRange::from(theirs);
        let (bytes, expected) = (theirs.bytes(), ours.bytes());
        if bytes == expected {
            return Ok(theirs);
        }
        Err(self.unexpected(to_u64(bytes), expected))
    }
}

/// Decodes the first payloads of all members, in the group's order.
pub fn first_payloads<'p>(payloads: &[&'p [u8]]) -> Result<Vec<FirstPayload<'p>>, Broken> {
    let decoded = payloads.iter().map(|payload| FirstPayload::decode(payload));
    decoded.collect::<Result<_, _>>().map_err(|error| Broken::protocol(error.to_string()))
}
