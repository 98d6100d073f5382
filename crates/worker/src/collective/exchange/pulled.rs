//! The same exchange where members read each other's memory instead of sending bytes: what each tells the others of where
//! their parts lie, and what each then reads.

use super::{Exchange, Source};
use crate::collective::group::Group;
use crate::collective::region::Region;
use crate::ways::{Pull, Reducing, StridedRange, Work};
use crate::{Broken, Fault};
use smallvec::SmallVec;

/// What another member may read in the first hop and in the second; of nothing there are no bytes.
type Parts = [StridedRange; 2];

const NUMBER_BYTES: usize = size_of::<u64>();
/// Bytes of [`Parts`] before the engine's word.
const PARTS_BYTES: usize = 2 * 4 * NUMBER_BYTES;

const NOTHING: StridedRange = StridedRange { start: 0, rows: 0, run: 0, stride: 0 };

impl Exchange {
    /// The first word to another member: what of our memory is for it, and `word`, the engine's.
    pub fn first_word(&self, peer: u32, word: &[u8]) -> Vec<u8> {
        let mut parts: Parts = [NOTHING; 2];
        for outgoing in self.outgoing.iter().filter(|outgoing| outgoing.peer == peer) {
            if let Some(part) = parts.get_mut(usize::from(outgoing.source == Source::Folded)) {
                *part = outgoing.region.stretch();
            }
        }
        let mut bytes = Vec::with_capacity(PARTS_BYTES + word.len());
        for StridedRange { start, rows, run, stride } in parts {
            for number in [start, rows, run, stride] {
                let number = u64::try_from(number).unwrap_or(u64::MAX);
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        bytes.extend_from_slice(word);
        bytes
    }

    /// What we read, by the first words of the others at their places.
    pub fn work(&self, group: &Group, words: &[&[u8]]) -> Result<Work, Broken> {
        let mut folding = None;
        if let Some(ours) = &self.folding {
            let mut shards: SmallVec<[StridedRange; 8]> = SmallVec::new();
            for (place, word) in words.iter().enumerate() {
                shards.push(if place == group.me {
                    ours.own.stretch()
                } else {
                    self.checked(parts_of(word)?[0], ours.result)?
                });
            }
            folding =
                Some(Reducing { reduce_op: ours.reduce_op, shards, to: ours.result.stretch() });
        }
        let mut pulls = SmallVec::new();
        for incoming in &self.incoming {
            let place = group.members.iter().position(|&member| member == incoming.peer);
            let Some((place, word)) = place.and_then(|place| Some((place, words.get(place)?)))
            else {
                continue;
            };
            let of_result = incoming.hop > 0;
            let [of_operand, folded] = parts_of(word)?;
            let from = if of_result { folded } else { of_operand };
            let from = self.checked(from, incoming.region)?;
            pulls.push(Pull { place, of_result, from, to: incoming.region.stretch() });
        }
        Ok(Work {
            dtype: self.result.dtype,
            kept: self.kept.as_ref().map(|kept| (kept.from.stretch(), kept.to.stretch())),
            folding,
            pulls,
            shares_result: self.is_two_hops(),
        })
    }

    fn checked(&self, part: StridedRange, ours: Region) -> Result<StridedRange, Broken> {
        if part.bytes() == ours.len() {
            return Ok(part);
        }
        let (bytes, expected) = (part.bytes(), ours.len());
        let text = format!("{bytes} bytes arrived, {expected} are a part of a {}", self.result);
        Err(Broken::Fault(Fault::protocol(text)))
    }
}

/// The engine's part of a first word.
pub(crate) fn engines_word(word: &[u8]) -> &[u8] {
    word.get(PARTS_BYTES..).unwrap_or_default()
}

fn parts_of(word: &[u8]) -> Result<Parts, Broken> {
    let mut numbers = word.as_chunks::<NUMBER_BYTES>().0.iter().map(|bytes| {
        // What does not fit has more bytes than anything that is expected.
        usize::try_from(u64::from_le_bytes(*bytes)).unwrap_or(usize::MAX)
    });
    let mut part = || {
        let (start, rows) = (numbers.next()?, numbers.next()?);
        Some(StridedRange { start, rows, run: numbers.next()?, stride: numbers.next()? })
    };
    if let (Some(first), Some(second)) = (part(), part()) {
        return Ok([first, second]);
    }
    let text = format!("a first word of {} bytes", word.len());
    Err(Broken::Fault(Fault::protocol(text)))
}
