//! Headers before the bytes of several values: the values that failed at the sender, each with its
//! cause.

use super::bucket::BucketMemory;
use super::group::Group;
use crate::failure::{Broken, Cause};
use crate::peers::{Front, MessageId, PeerId, Peers};
use gt_protocol::peer::{FAILURES_LENGTH_BYTES, Failures, PeerError};
use smallvec::SmallVec;

/// Our header, and those of the other members as far as they have arrived.
#[derive(Debug)]
pub struct Headers {
    ours: Vec<u8>,
    /// Headers of the others, in the group's order.
    of_others: SmallVec<[(PeerId, FailuresHeader); 4]>,
    /// True once the failures of the others are entered.
    are_entered: bool,
}

impl Headers {
    pub fn new<'c>(failures: impl Iterator<Item = Option<&'c Cause>>, group: &Group) -> Self {
        let of_others = group.others().map(|(_, peer)| (peer, FailuresHeader::default())).collect();
        let failures = (0_u32..).zip(failures);
        let failures = failures.filter_map(|(index, cause)| Some((index, cause?.message())));
        let ours = Failures::encode(failures);
        let ours = ours.unwrap_or_else(|error| {
            panic!("failures with clipped texts exceed the limit: {error}")
        });
        Self { ours, of_others, are_entered: false }
    }

    pub fn ours(&self) -> &[u8] {
        &self.ours
    }

    pub const fn are_entered(&self) -> bool {
        self.are_entered
    }

    /// Number of bytes received of another member's header.
    pub fn taken_bytes(&self, peer: PeerId) -> usize {
        let header = self.of_others.iter().find(|(other, _)| *other == peer);
        header.map_or(0, |(_, header)| header.0.len())
    }

    /// Takes the headers that have arrived, which precede the `body_bytes` of each message, and
    /// enters the failures once all headers are complete; returns true if anything arrived.
    pub fn take<M>(
        &mut self,
        message: MessageId,
        body_bytes: usize,
        bucket: &mut BucketMemory<M>,
        peers: &mut impl Peers,
    ) -> Result<bool, Broken> {
        if self.are_entered {
            return Ok(false);
        }
        let mut has_moved = false;
        for (peer, header) in &mut self.of_others {
            while !header.is_whole()? {
                let (total, taken) = match peers.front(*peer, message)? {
                    Front::Nothing => break,
                    Front::Failure(cause) => return Err(Broken::Failed(cause.clone())),
                    Front::Bytes { total, bytes } => (total, header.take(bytes)?),
                };
                let expected = header.length()?.map(|length| length.saturating_add(body_bytes));
                let fits = |expected| u64::try_from(expected) == Ok(total);
                if taken == 0 || !expected.is_none_or(fits) {
                    let text = format!(
                        "{total} bytes arrived, {body_bytes} and a header are a part of several values"
                    );
                    return Err(Broken::protocol(text));
                }
                peers.release(*peer, message, taken);
                has_moved = true;
            }
        }
        let mut are_whole = true;
        for (_, header) in &self.of_others {
            are_whole &= header.is_whole()?;
        }
        if are_whole {
            // A value that failed at several members gets the failure of the first of them, in the
            // group's order.
            for (_, header) in &self.of_others {
                for (index, cause) in header.failures()? {
                    bucket.fail(index, cause)?;
                }
            }
            self.are_entered = true;
        }
        Ok(has_moved)
    }
}

/// A header as far as it has arrived.
#[derive(Debug, Default)]
struct FailuresHeader(Vec<u8>);

impl FailuresHeader {
    /// Its length, once that has arrived.
    fn length(&self) -> Result<Option<usize>, Broken> {
        let Some(first) = self.0.first_chunk::<FAILURES_LENGTH_BYTES>() else { return Ok(None) };
        Failures::length(*first).map(Some).map_err(wrong)
    }

    fn is_whole(&self) -> Result<bool, Broken> {
        Ok(self.length()?.is_some_and(|length| self.0.len() >= length))
    }

    /// Takes the header's part of the next bytes; returns its length.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut taken = 0;
        while taken < bytes.len() && !self.is_whole()? {
            let wanted = self.length()?.unwrap_or(FAILURES_LENGTH_BYTES) - self.0.len();
            let end = bytes.len().min(taken + wanted);
            self.0.extend_from_slice(&bytes[taken..end]);
            taken = end;
        }
        Ok(taken)
    }

    fn failures(&self) -> Result<Vec<(usize, Cause)>, Broken> {
        let failures = Failures::decode(&self.0).map_err(wrong)?;
        let failures = failures.read().map_err(wrong)?;
        Ok(failures.iter().map(|(index, failure)| (*index, Cause::from(failure))).collect())
    }
}

fn wrong(error: PeerError) -> Broken {
    Broken::protocol(format!("failures of several values: {error}"))
}
