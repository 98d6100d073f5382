//! What stands before the bytes of several values: which of them have failed at the sender, and why.
//!
//! Its length in bytes (a multiple of 8, 64 bits); for each failed value its index and a count of words (32 bits each),
//! then the words of a failure message; zeros to the end.

use super::exchange::Broken;
use super::group::Group;
use crate::{Cause, Fault};
use gt_protocol::message::{self, FromWorker};
use smallvec::SmallVec;

const LENGTH_BYTES: usize = 8;
const WORD_BYTES: usize = 4;

/// The others' heads, by their places in the group.
pub(super) type Heads<'h> = SmallVec<[(usize, &'h Head); 4]>;

/// A head as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Head(Vec<u8>);

impl Head {
    /// Its length, once that has come.
    pub fn length(&self) -> Option<usize> {
        let length = self.0.first_chunk::<LENGTH_BYTES>()?;
        Some(usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX))
    }

    pub fn is_whole(&self) -> bool {
        self.length().is_some_and(|length| self.0.len() >= length)
    }

    pub const fn taken(&self) -> usize {
        self.0.len()
    }

    /// Takes what belongs to it from the bytes that are next; how many.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
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
    Broken::Fault(Fault::protocol("failures of several values that cannot be read"))
}

/// The head for what has failed here.
pub(super) fn written<'c>(failures: impl Iterator<Item = Option<&'c Cause>>) -> Vec<u8> {
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

/// What has failed elsewhere: of each value the failure of the first member, in the group's order.
pub(super) fn failures(group: &Group, heads: &Heads<'_>) -> Result<Vec<(usize, Cause)>, Broken> {
    let mut all = Vec::new();
    for place in 0..group.len() {
        for (_, head) in heads.iter().filter(|(other, _)| *other == place) {
            all.extend(head.failures()?);
        }
    }
    Ok(all)
}
