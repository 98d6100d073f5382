//! Splitting a stream of words into instructions and messages.

use gt_protocol::integer::to_usize;
use gt_protocol::wire::{WireError, WireReason};

/// A frame and the words behind it.
type Split<'a> = (&'a [u32], &'a [u32]);

/// The first frame of `words` and the words behind it; `None` while it is incomplete.
///
/// # Errors
/// A frame of no words: the start of the next one is unknown.
pub fn split_frame(words: &[u32]) -> Result<Option<Split<'_>>, WireError> {
    let Some(&first) = words.first() else { return Ok(None) };
    let length = to_usize(first >> 16);
    if length == 0 {
        return Err(WireError { word: 0, reason: WireReason::Truncated });
    }
    Ok(words.split_at_checked(length))
}
