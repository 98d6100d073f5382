//! What stands before the bytes of several values: which of them have failed at the sender, and why.
//!
//! Its length in bytes (a multiple of 8, 64 bits); for each failed value its index and a count of words (32 bits each),
//! then the words of a failure message; zeros to the end.

use super::bucket::Bucket;
use super::group::Group;
use crate::failure::{Broken, Cause};
use crate::peers::{Front, MessageId, Peers};
use gt_protocol::message::{self, FromWorker};
use smallvec::SmallVec;

const LENGTH_BYTES: usize = 8;
const WORD_BYTES: usize = 4;

/// Ours, and those of the other members as far as they have come.
#[derive(Debug)]
pub struct Headers {
    ours: Vec<u8>,
    /// In the group's order.
    of_others: SmallVec<[(u32, Header); 4]>,
    /// What has failed elsewhere is entered.
    are_entered: bool,
}

impl Headers {
    pub fn new<'c>(failures: impl Iterator<Item = Option<&'c Cause>>, group: &Group) -> Self {
        let of_others = group.others().map(|(_, peer)| (peer, Header::default())).collect();
        Self { ours: written(failures), of_others, are_entered: false }
    }

    pub fn ours(&self) -> &[u8] {
        &self.ours
    }

    pub const fn are_entered(&self) -> bool {
        self.are_entered
    }

    /// Bytes that we have had of another member's.
    pub fn taken_bytes(&self, peer: u32) -> usize {
        let header = self.of_others.iter().find(|(other, _)| *other == peer);
        header.map_or(0, |(_, header)| header.0.len())
    }

    /// Takes in what has come of each message before its `body_bytes`, and enters what has failed once all have said it;
    /// true if anything came.
    pub fn take<M>(
        &mut self,
        message: MessageId,
        body_bytes: usize,
        bucket: &mut Bucket<M>,
        peers: &mut impl Peers,
    ) -> Result<bool, Broken> {
        if self.are_entered {
            return Ok(false);
        }
        let mut has_moved = false;
        for (peer, header) in &mut self.of_others {
            while !header.is_whole() {
                let (total, taken) = match peers.front(*peer, message)? {
                    Front::Nothing => break,
                    Front::Failure(cause) => return Err(Broken::Failed(cause.clone())),
                    Front::Bytes { total, bytes } => (total, header.take(bytes)),
                };
                let expected = header.length().map(|length| length.saturating_add(body_bytes));
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
        if self.of_others.iter().all(|(_, header)| header.is_whole()) {
            // What failed at several members failed at the first of them, in the group's order.
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

/// A header as far as it has come.
#[derive(Debug, Default)]
struct Header(Vec<u8>);

impl Header {
    /// Its length, once that has come.
    fn length(&self) -> Option<usize> {
        let length = self.0.first_chunk::<LENGTH_BYTES>()?;
        Some(usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX))
    }

    fn is_whole(&self) -> bool {
        self.length().is_some_and(|length| self.0.len() >= length)
    }

    /// Takes what belongs to it from the bytes that are next; how many.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while !self.is_whole() {
            let wanted = self.length().unwrap_or(LENGTH_BYTES) - self.0.len();
            let rest = bytes.get(taken..).unwrap_or_default();
            let part = rest.get(..wanted.min(rest.len())).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            self.0.extend_from_slice(part);
            taken += part.len();
        }
        taken
    }

    fn failures(&self) -> Result<Vec<(usize, Cause)>, Broken> {
        let body = self.0.get(LENGTH_BYTES..).unwrap_or_default();
        let words: Vec<u32> =
            body.as_chunks::<WORD_BYTES>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let mut failures = Vec::new();
        let mut rest = words.as_slice();
        while let [index, count, tail @ ..] = rest
            && *count > 0
        {
            let place = |word: u32| usize::try_from(word).unwrap_or(usize::MAX);
            let (entry, after) = tail.split_at_checked(place(*count)).ok_or_else(wrong)?;
            let Ok((FromWorker::Failure(failure), _)) = message::decode(entry) else {
                return Err(wrong());
            };
            failures.push((place(*index), Cause::from(&failure)));
            rest = after;
        }
        Ok(failures)
    }
}

fn wrong() -> Broken {
    Broken::protocol("failures of several values that cannot be read")
}

/// The header for what has failed here.
fn written<'c>(failures: impl Iterator<Item = Option<&'c Cause>>) -> Vec<u8> {
    let mut words: Vec<u32> = vec![0; LENGTH_BYTES / WORD_BYTES];
    for (index, cause) in (0_u32..).zip(failures) {
        let Some(cause) = cause else { continue };
        let start = words.len();
        words.extend([index, 0]);
        // A cause's text is clipped, so it has a binary form.
        if message::encode(&FromWorker::Failure(cause.message()), &mut words).is_err() {
            debug_assert!(false, "{cause:?} has no binary form");
        }
        let count = u32::try_from(words.len() - start - 2).unwrap_or(0);
        if let Some(word) = words.get_mut(start + 1) {
            *word = count;
        }
    }
    words.resize(words.len().next_multiple_of(LENGTH_BYTES / WORD_BYTES), 0);
    let length = u32::try_from(words.len().saturating_mul(WORD_BYTES)).unwrap_or(u32::MAX);
    if let Some(word) = words.first_mut() {
        *word = length;
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}
