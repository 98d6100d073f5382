//! Fewer bytes on a slow link, without loss: of 16-bit elements the upper bytes, which sign and exponent share, have few
//! values in tensors of bfloat16. Each is sent as four bits, its place among the fifteen most frequent ones; what is not
//! among them follows as it is. The lower bytes stay as they are, so 16 bits become 12.
//!
//! What the bytes mean is not known here: a sample says whether it pays, and anything comes back as it was.
//!
//! A packed chunk: bytes before packing (4), the fifteen values and a zero, the lower bytes, the places (two a byte, the
//! earlier one in the low half), the values that have no place.

use std::time::Duration;

/// Smaller chunks are not worth a look.
pub const PACKED_BYTES_MIN: usize = 16 * 1024;

const PLACES: u8 = 15;
const HEAD_BYTES: usize = 20;
/// Upper bytes that are looked at before a chunk is packed.
const SAMPLES: usize = 2048;
/// Of them, so many may have no place: one in this.
const STRANGERS_ONE_IN: usize = 6;
/// Unsent until so much is known of a link.
const MEASURED_BYTES_MIN: u128 = 1 << 20;
/// What was measured before so many bytes counts for half.
const REMEMBERED_BYTES: u128 = 32 << 20;
/// Where packing does not pay, one chunk in so many is tried: values change, and so do links.
const TRIAL_ONE_IN: u32 = 64;

/// Appends the packed form; false, with `out` as it was, where that does not save at least an eighth.
pub fn pack(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let (elements, rest) = bytes.as_chunks::<2>();
    let Ok(length) = u32::try_from(bytes.len()) else { return false };
    if !rest.is_empty() || bytes.len() < PACKED_BYTES_MIN {
        return false;
    }
    let Some(values) = frequent_values(elements) else { return false };
    let start = out.len();
    let mut places = [PLACES; 256];
    for (place, &value) in (0..PLACES).zip(&values) {
        if let Some(slot) = places.get_mut(usize::from(value)) {
            *slot = place;
        }
    }
    let place_of = |value: u8| places.get(usize::from(value)).copied().unwrap_or(PLACES);
    out.extend_from_slice(&length.to_le_bytes());
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
    let saves = out.len() - start <= bytes.len() - bytes.len() / 8;
    if !saves {
        out.truncate(start);
    }
    saves
}

/// The most frequent upper bytes of a sample, unless too many others are among them.
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

/// Writes what [`pack`] was given over the front of `out`, which grows where it must, and says how many bytes that are; none
/// where `packed` is nothing that [`pack`] makes of at most `bytes_max`.
pub fn unpack(packed: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Option<usize> {
    let (head, rest) = packed.split_first_chunk::<HEAD_BYTES>()?;
    let (length, values) = head.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if length > bytes_max || !length.is_multiple_of(2) {
        return None;
    }
    let count = length / 2;
    let (lower, rest) = rest.split_at_checked(count)?;
    let (places, strangers) = rest.split_at_checked(count.div_ceil(2))?;
    if out.len() < length {
        out.resize(length, 0);
    }
    let mut strangers = strangers.iter().copied();
    let mut value_of = |place: u8| match values.get(usize::from(place)) {
        Some(&value) if place < PLACES => Some(value),
        Some(_) | None => strangers.next(),
    };
    let (pairs, last) = out.get_mut(..length)?.as_chunks_mut::<4>();
    let (lower_pairs, lower_last) = lower.as_chunks::<2>();
    for ((pair, &[first, second]), &both) in pairs.iter_mut().zip(lower_pairs).zip(places) {
        *pair = [first, value_of(both & 15)?, second, value_of(both >> 4)?];
    }
    if let ([lower], [to_lower, to_upper], Some(&place)) = (lower_last, last, places.last()) {
        (*to_lower, *to_upper) = (*lower, value_of(place)?);
    }
    strangers.next().is_none().then_some(length)
}

/// Whether bytes are packed that leave for another worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackingPolicy {
    /// They go as they are.
    Never,
    /// Where the link has been measured to be slower than packing.
    #[default]
    Measured,
    /// Whatever gets shorter by it.
    Always,
}

/// Bytes, and the time that they took.
#[derive(Clone, Copy, Debug, Default)]
struct Throughput {
    bytes: u128,
    nanoseconds: u128,
    saved: u128,
}

impl Throughput {
    fn add(&mut self, bytes: usize, saved: usize, time: Duration) {
        self.bytes += u128::try_from(bytes).unwrap_or(0);
        self.saved += u128::try_from(saved).unwrap_or(0);
        self.nanoseconds += time.as_nanos();
        if self.bytes > REMEMBERED_BYTES {
            self.bytes /= 2;
            self.saved /= 2;
            self.nanoseconds /= 2;
        }
    }
}

/// Decides for one link, chunk by chunk, by what the last ones have taken. It has no clock.
#[derive(Debug, Default)]
pub struct PackingChoice {
    packing: PackingPolicy,
    link: Throughput,
    packer: Throughput,
    chunks: u32,
}

impl PackingChoice {
    /// Nothing has been measured yet.
    #[must_use]
    pub fn new(packing: PackingPolicy) -> Self {
        Self { packing, ..Self::default() }
    }

    /// Whether to try to pack the next chunk: what that saves on the link takes longer than packing, as far as is known.
    pub fn tries(&mut self) -> bool {
        match self.packing {
            PackingPolicy::Never => false,
            PackingPolicy::Always => true,
            PackingPolicy::Measured if self.link.bytes < MEASURED_BYTES_MIN => false,
            PackingPolicy::Measured => {
                self.chunks = self.chunks.wrapping_add(1);
                let pays = self.packer.saved * self.link.nanoseconds
                    > self.packer.nanoseconds * self.link.bytes;
                pays || self.chunks % TRIAL_ONE_IN == 1
            }
        }
    }

    /// So many bytes went over the link.
    pub fn sent(&mut self, bytes: usize, time: Duration) {
        self.link.add(bytes, 0, time);
    }

    /// Trying to pack so many saved some, or none.
    pub fn packed(&mut self, bytes: usize, saved: usize, time: Duration) {
        self.packer.add(bytes, saved, time);
    }
}
