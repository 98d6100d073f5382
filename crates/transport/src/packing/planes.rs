//! 16-bit elements whose upper bytes, with sign and exponent, have few different values, as in
//! tensors of bfloat16. Each upper byte is sent as four bits, its index among the fifteen most
//! frequent ones; others follow unpacked. The lower bytes are unchanged, so 16 bits become 12.
//!
//! Behind the head: the fifteen values and a zero, the lower bytes, the indices (two a byte, the
//! earlier one in the low half), the values without an index.

const PLACES: u8 = 15;
const VALUES_BYTES: usize = 16;
/// Number of upper bytes that are sampled before a chunk is packed.
const SAMPLES: usize = 2048;
/// Fraction (one in this many) of them that may have no index.
const STRANGERS_ONE_IN: usize = 6;

/// Appends the packed form; returns false, possibly with a part of it appended, where it would save
/// nothing.
pub fn pack(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let (elements, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return false;
    }
    let Some(values) = frequent_values(elements) else { return false };
    let mut places = [PLACES; 256];
    for (place, &value) in (0..PLACES).zip(&values) {
        if let Some(slot) = places.get_mut(usize::from(value)) {
            *slot = place;
        }
    }
    let place_of = |value: u8| places.get(usize::from(value)).copied().unwrap_or(PLACES);
    out.extend_from_slice(&values);
    out.push(0);
    out.extend(elements.iter().map(|&[lower, _]| lower));
    let mut strangers = Vec::new();
    let (pairs, last) = elements.as_chunks::<2>();
    out.extend(pairs.iter().map(|&[[_, first], [_, second]]| {
        let (low, high) = (place_of(first), place_of(second));
        if low == PLACES {
            strangers.push(first);
        }
        if high == PLACES {
            strangers.push(second);
        }
        low | high << 4
    }));
    if let [[_, value]] = last {
        let place = place_of(*value);
        out.push(place);
        if place == PLACES {
            strangers.push(*value);
        }
    }
    out.extend_from_slice(&strangers);
    true
}

/// The most frequent upper bytes of a sample, unless too many others are in it.
fn frequent_values(elements: &[[u8; 2]]) -> Option<[u8; 15]> {
    let mut counts: Vec<(usize, u8)> = (0..=u8::MAX).map(|value| (0, value)).collect();
    let mut sampled = 0;
    for &[_, value] in elements.iter().step_by(elements.len().div_ceil(SAMPLES).max(1)) {
        counts.get_mut(usize::from(value))?.0 += 1;
        sampled += 1;
    }
    counts.sort_unstable_by(|one, other| other.cmp(one));
    let (frequent, others) = counts.split_first_chunk::<15>()?;
    let strangers: usize = others.iter().map(|(count, _)| count).sum();
    (strangers * STRANGERS_ONE_IN <= sampled).then(|| frequent.map(|(_, value)| value))
}

/// Unpacks the output of [`pack`] to all of `out`; `None` where `packed` is no output of it for
/// this many bytes.
pub fn unpack(packed: &[u8], out: &mut [u8]) -> Option<()> {
    let (values, rest) = packed.split_first_chunk::<VALUES_BYTES>()?;
    let count = out.len() / 2;
    let (lower, rest) = rest.split_at_checked(count)?;
    let (places, strangers) = rest.split_at_checked(count.div_ceil(2))?;
    let mut strangers = strangers.iter().copied();
    let mut value_of = |place: u8| match values.get(usize::from(place)) {
        Some(&value) if place < PLACES => Some(value),
        Some(_) | None => strangers.next(),
    };
    let (pairs, last) = out.as_chunks_mut::<4>();
    let (lower_pairs, lower_last) = lower.as_chunks::<2>();
    for ((pair, &[first, second]), &both) in pairs.iter_mut().zip(lower_pairs).zip(places) {
        *pair = [first, value_of(both & 15)?, second, value_of(both >> 4)?];
    }
    if let ([lower], [to_lower, to_upper], Some(&place)) = (lower_last, last, places.last()) {
        (*to_lower, *to_upper) = (*lower, value_of(place)?);
    }
    strangers.next().is_none().then_some(())
}
