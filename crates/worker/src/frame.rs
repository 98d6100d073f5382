//! Where one instruction or message ends in a stream of words and the next one begins.

use gt_protocol::integer::to_usize;
use gt_protocol::wire::{WireError, WireReason};

/// A frame and what follows it.
type Split<'a> = (&'a [u32], &'a [u32]);

/// The first frame of `words` and what follows, or `None` while it is not complete.
///
/// # Errors
/// A frame of no words: nobody knows where the next one begins.
pub fn split_frame(words: &[u32]) -> Result<Option<Split<'_>>, WireError> {
    let Some(&first) = words.first() else { return Ok(None) };
    let length = to_usize(first >> 16);
    if length == 0 {
        return Err(WireError { word: 0, reason: WireReason::Truncated });
    }
    Ok(words.split_at_checked(length))
}
