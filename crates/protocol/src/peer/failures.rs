//! Header before the bytes of a bucket: the values that failed at the sender, each with its cause.
//!
//! The layout is the total length in bytes (64 bits, a multiple of 8), then for each failed value
//! its index and a word count (32 bits each) and the words of a failure message, then zeros to the
//! end.

use super::{FAILURES_BYTES_MAX, PeerError};
use crate::integer::to_u64;
use crate::message::{self, Failure, FromWorker};

/// Bytes of the field with the total length.
pub const FAILURES_LENGTH_BYTES: usize = 8;
const WORD_BYTES: usize = 4;

/// The words of a bucket's failures, read from the front.
#[derive(Debug, Default)]
pub struct Failures {
    words: Vec<u32>,
}

impl Failures {
    /// # Errors
    /// Failures that exceed the limit.
    pub fn encode<'f>(
        failures: impl Iterator<Item = (u32, Failure<'f>)>,
    ) -> Result<Vec<u8>, PeerError> {
        let mut words: Vec<u32> = vec![0; FAILURES_LENGTH_BYTES / WORD_BYTES];
        for (index, failure) in failures {
            let mut entry = Vec::new();
            message::encode(&FromWorker::Failure(failure), &mut entry)
                .map_err(|_| PeerError::Limit("a failure's text", failure.text.len()))?;
            let count = u32::try_from(entry.len())
                .map_err(|_| PeerError::Limit("a failure", entry.len()))?;
            words.extend([index, count]);
            words.append(&mut entry);
        }
        words.resize(words.len().next_multiple_of(FAILURES_LENGTH_BYTES / WORD_BYTES), 0);
        let bytes = words.len().saturating_mul(WORD_BYTES);
        let length = u32::try_from(bytes).ok().filter(|_| bytes <= FAILURES_BYTES_MAX);
        if let Some(first) = words.first_mut() {
            *first = length.ok_or(PeerError::Limit("a bucket's failures", bytes))?;
        }
        Ok(words.into_iter().flat_map(u32::to_le_bytes).collect())
    }

    /// Total length in bytes, read from the first field.
    ///
    /// # Errors
    /// A length that no sender writes.
    pub fn length(first: [u8; FAILURES_LENGTH_BYTES]) -> Result<usize, PeerError> {
        let length = u64::from_le_bytes(first);
        match usize::try_from(length) {
            Ok(bytes) if bytes > FAILURES_BYTES_MAX => {
                Err(PeerError::Limit("a bucket's failures", bytes))
            }
            Ok(bytes) if bytes >= FAILURES_LENGTH_BYTES && bytes % FAILURES_LENGTH_BYTES == 0 => {
                Ok(bytes)
            }
            Ok(_) | Err(_) => Err(PeerError::Value("the length of a bucket's failures", length)),
        }
    }

    /// Parses the bytes of the whole header.
    ///
    /// # Errors
    /// Bytes whose length is not the stated one.
    pub fn decode(bytes: &[u8]) -> Result<Self, PeerError> {
        let field = "a bucket's failures";
        let first = bytes.first_chunk().ok_or(PeerError::Truncated(field))?;
        if Self::length(*first)? != bytes.len() {
            return Err(PeerError::Truncated(field));
        }
        let (words, _) = bytes.as_chunks::<WORD_BYTES>();
        let words = words.iter().skip(FAILURES_LENGTH_BYTES / WORD_BYTES);
        Ok(Self { words: words.map(|word| u32::from_le_bytes(*word)).collect() })
    }

    /// Index and failure of each failed value.
    ///
    /// # Errors
    /// Words that are no failure's.
    pub fn read(&self) -> Result<Vec<(usize, Failure<'_>)>, PeerError> {
        let field = "a value's failure";
        let place =
            |word: u32| usize::try_from(word).map_err(|_| PeerError::Value(field, word.into()));
        let mut failures = Vec::new();
        let mut rest = self.words.as_slice();
        while let [index, count, tail @ ..] = rest
            && *count > 0
        {
            let (entry, after) =
                tail.split_at_checked(place(*count)?).ok_or(PeerError::Truncated(field))?;
            let (message, used) = message::decode(entry)
                .map_err(|error| PeerError::Value(field, to_u64(error.word)))?;
            let FromWorker::Failure(failure) = message else {
                return Err(PeerError::Value(
                    "the code of a failure",
                    entry.first().copied().unwrap_or(0).into(),
                ));
            };
            if used != entry.len() {
                return Err(PeerError::Trailing((entry.len() - used).saturating_mul(WORD_BYTES)));
            }
            failures.push((place(*index)?, failure));
            rest = after;
        }
        if rest.iter().any(|&word| word != 0) {
            return Err(PeerError::Trailing(rest.len().saturating_mul(WORD_BYTES)));
        }
        Ok(failures)
    }
}
