//! Splitting a stream of words into instructions and messages by their first words, without
//! decoding them.

use super::{MESSAGE_CODE_FIRST, WireError, WireReason, halves};

/// The instruction or message at the front; `None` while it is incomplete.
///
/// # Errors
/// A length of zero: the start of the next one is unknown.
#[inline]
pub fn first(words: &[u32]) -> Result<Option<&[u32]>, WireError> {
    let Some(length) = words.first().map(|&word| length_of(word)) else { return Ok(None) };
    if length == 0 {
        return Err(WireError { word: 0, reason: WireReason::Truncated });
    }
    Ok(words.get(..length))
}

/// Whole instructions and messages, one after the other.
pub fn frames(words: &[u32]) -> impl Iterator<Item = &[u32]> {
    let mut rest = words;
    std::iter::from_fn(move || {
        let frame = first(rest).ok().flatten()?;
        rest = rest.get(frame.len()..).unwrap_or_default();
        Some(frame)
    })
}

/// Number of words of the longest prefix of whole instructions and messages within `words_max`.
pub fn whole(words: &[u32], words_max: usize) -> usize {
    if words.len() <= words_max {
        return words.len();
    }
    let mut end = 0;
    while let Some(&word) = words.get(end) {
        let next = end + length_of(word).max(1);
        if next > words_max {
            break;
        }
        end = next;
    }
    end
}

/// Returns true if a first word begins a message, not an instruction.
#[inline]
pub const fn is_message(first: u32) -> bool {
    halves(first).0 >= MESSAGE_CODE_FIRST
}

#[inline]
fn length_of(first: u32) -> usize {
    usize::from(halves(first).1)
}

#[cfg(test)]
mod tests {
    use super::{first, whole};

    #[test]
    fn words_are_cut_at_their_declared_length() {
        let words = [0x0003_0001, 1, 2, 0x0002_0001, 1];
        assert_eq!(first(&words).unwrap(), Some(&words[..3]));
        assert_eq!(first(&words[..2]).unwrap(), None);
        assert_eq!(first(&[]).unwrap(), None);
        assert!(first(&[0x0000_0001]).is_err());
        for (words_max, expected) in [(0, 0), (2, 0), (3, 3), (4, 3), (5, 5), (9, 5)] {
            assert_eq!(whole(&words, words_max), expected, "of at most {words_max}");
        }
    }
}
