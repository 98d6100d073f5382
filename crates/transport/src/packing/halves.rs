//! float32 whose lower halves are zero, as after a cast to bfloat16: only the upper halves are
//! sent.
//!
//! Behind the head: the number of leading elements that are sent whole (2 bytes), because a
//! message's head may be there; these elements; the upper halves of the others.

/// Maximum number of leading elements that are sent whole.
const WHOLE_MAX: usize = 1024;

/// Appends the packed form; returns false where the bytes do not have it.
pub fn pack(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let (elements, rest) = bytes.as_chunks::<4>();
    let (front, others) = elements.split_at(elements.len().min(WHOLE_MAX));
    let is_whole = |element: &[u8; 4]| !matches!(element, [0, 0, _, _]);
    if !rest.is_empty() || others.iter().any(is_whole) {
        return false;
    }
    let count = front.iter().rposition(is_whole).map_or(0, |last| last + 1);
    let (Ok(number), Some((whole, halves))) = (u16::try_from(count), front.split_at_checked(count))
    else {
        return false;
    };
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(whole.as_flattened());
    out.extend(halves.iter().chain(others).flat_map(|&[_, _, third, fourth]| [third, fourth]));
    true
}

/// Unpacks the output of [`pack`] to all of `out`; `None` where `packed` is no output of it for
/// this many bytes.
pub fn unpack(packed: &[u8], out: &mut [u8]) -> Option<()> {
    let (count, rest) = packed.split_first_chunk::<2>()?;
    let whole_bytes = usize::from(u16::from_le_bytes(*count)) * size_of::<u32>();
    let (whole, rest) = rest.split_at_checked(whole_bytes)?;
    let (to_whole, to) = out.split_at_mut_checked(whole_bytes)?;
    let ((halves, odd), (to, left)) = (rest.as_chunks::<2>(), to.as_chunks_mut::<4>());
    if halves.len() != to.len() || !odd.is_empty() || !left.is_empty() {
        return None;
    }
    to_whole.copy_from_slice(whole);
    for (to, &[third, fourth]) in to.iter_mut().zip(halves) {
        *to = [0, 0, third, fourth];
    }
    Some(())
}
