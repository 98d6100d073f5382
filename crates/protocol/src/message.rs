//! Messages beside instructions, in the same word frames: answers, failures, counters and events.
//!
//! The first word of a frame is a code and a length, as for an instruction; message codes are
//! [`wire::MESSAGE_CODE_FIRST`] and above, so the two can share a ring. `docs/wire.md` specifies
//! every field. Each direction has an enum of what it carries: [`ToWorker`], [`FromWorker`],
//! [`ToClient`], [`FromClient`].

mod code;
mod direction;
mod failure;
mod reply;
#[cfg(test)]
pub(crate) mod tests;

#[cfg(test)]
pub(crate) use code::name_of;
pub use direction::{FromClient, FromWorker, Message, SessionAction, ToClient, ToWorker};
pub use failure::{CANCELLED, Failure, FailureClass};
pub use reply::{Reply, SpacedReply};

use crate::handshake::Secret;
use crate::wire::{
    self, EncodeError, TEXT_BYTES_MAX, WireError, WireReason, WordReader, push_bytes, push_u64,
};

/// Maximum bytes of one part of an answer: large enough that 100 MB are 1,600 parts, small enough
/// that another user's short answer waits only microseconds behind one.
pub const REPLY_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes of a `description`: enough for a layout of 4,096 workers in uneven shards, and a
/// ring has room for it.
pub const DESCRIPTION_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes of a name under which a session publishes values.
pub const PUBLISHED_NAME_BYTES_MAX: usize = 128;

/// A worker that instructions name by an index from now on, and the way to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer<'a> {
    pub index: u32,
    /// Number of workers that had the index before.
    pub incarnation: u32,
    pub reach: Reach<&'a str>,
}

/// Connection by which one worker reaches another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach<Address> {
    /// Shared memory of this host, or none: the control socket carries the descriptors.
    Memory,
    /// The other worker connects to this one, and shows the secret.
    Calls { secret: Secret },
    /// The other worker listens at an address, `host:port`; this one connects and shows the secret.
    Listens { secret: Secret, address: Address },
}

impl Reach<String> {
    pub fn as_ref(&self) -> Reach<&str> {
        match self {
            Self::Memory => Reach::Memory,
            Self::Calls { secret } => Reach::Calls { secret: *secret },
            Self::Listens { secret, address } => Reach::Listens { secret: *secret, address },
        }
    }
}

/// Alternatives to the workers' own messages for a worker's collectives. Two workers can use one
/// with each other if both name the same, non-empty domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backends<'a> {
    /// Domain of workers that can read each other's device memory.
    pub device: &'a str,
    /// Domain of workers that can form a process group.
    pub group: &'a str,
    /// True if it shares no memory with any other worker, so that a process group may be faster.
    pub is_far: bool,
}

/// Counters of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub request: u64,
    /// Number of live values.
    pub values: u64,
    pub bytes: u64,
    pub bytes_peak: u64,
    /// Number of instructions executed since the start.
    pub executed: u64,
    /// Number of engine calls that ran in C++, and in Python.
    pub aten: u64,
    pub python: u64,
    /// Bytes sent to workers of other hosts that were packed: before and after packing.
    pub plain_bytes: u64,
    pub packed_bytes: u64,
    /// Number of reductions whose operands were rounded for other hosts (`GT_COMPRESSION`).
    pub rounded: u64,
    /// Root mean square error of the rounded numbers relative to their root mean square, in parts
    /// of 10^9.
    pub error_ppb: u64,
    /// Relative error, in parts of 10^9, of the reduction that lost the most.
    pub error_ppb_max: u64,
    /// Number of calls of GT's own kernels, from C++ or from Python.
    pub own: u64,
    /// Number of instructions that ran in one pass with an earlier one.
    pub joined: u64,
}

/// Maximum slots in one `losses`.
pub const LOSSES_MAX: usize = 4096;

/// Slots of a worker that hold the loss of another worker in place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses<'a> {
    pub request: u64,
    /// False where more slots follow.
    pub is_last: bool,
    pub slots: &'a [u32],
}

/// Number of `cancel` messages among whole frames. Words that are no frames count as none: their
/// reader refuses them.
pub fn count_cancels(words: &[u32]) -> u32 {
    let mut rest = words;
    let mut count = 0;
    while let Ok(Some(frame)) = wire::cut::first(rest) {
        count +=
            u32::from(frame.first().is_some_and(|&first| wire::halves(first).0 == code::CANCEL));
        rest = rest.get(frame.len()..).unwrap_or_default();
    }
    count
}

/// The beginning of a text that fits a message, for senders that pass on texts of others.
pub fn clip(text: &str) -> &str {
    text.split_at(text.floor_char_boundary(TEXT_BYTES_MAX)).0
}

/// Appends the words of a message; on an error `out` is unchanged.
pub fn encode<'a, M: Message<'a>>(message: &M, out: &mut Vec<u32>) -> Result<(), EncodeError> {
    framed(message.code(), out, |out| message.append(out))
}

/// Appends the words of a reply without its bytes, which the sender has put beside them.
pub fn encode_beside(reply: &Reply<'_>, out: &mut Vec<u32>) -> Result<(), EncodeError> {
    framed(code::SLAB_REPLY, out, |out| reply.append_beside(out))
}

fn framed(
    code: u16,
    out: &mut Vec<u32>,
    append: impl FnOnce(&mut Vec<u32>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.push(code.into());
    let name = code::own_name(code);
    let result = append(out).and_then(|()| wire::close(name, out, start));
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// The message at the front of `words`, and its length in words. Payload and texts borrow from the
/// words.
///
/// # Errors
/// Words that are no message of this direction, or a message whose bytes are beside the
/// words: see [`decode_with`].
pub fn decode<'a, M: Message<'a>>(words: &'a [u32]) -> Result<(M, usize), WireError> {
    decode_with(words, || None)
}

/// Decodes a message; `beside` gives the bytes of a reply that has none among its words. It is
/// called once where they are needed, and not otherwise.
///
/// # Errors
/// Words that are no message of this direction, or bytes beside them that are missing or
/// have another length.
pub fn decode_with<'a, M: Message<'a>>(
    words: &'a [u32],
    beside: impl FnOnce() -> Option<&'a [u8]>,
) -> Result<(M, usize), WireError> {
    let &[first, ..] = words else {
        return Err(WireError { word: 0, reason: WireReason::Truncated });
    };
    let (code, length) = wire::halves(first);
    let length = usize::from(length);
    let frame = match words.get(..length) {
        Some(frame) if length > 0 => frame,
        Some(_) | None => {
            return Err(WireError { word: words.len().min(length), reason: WireReason::Truncated });
        }
    };
    let mut reader = WordReader::new(frame, 1);
    let message = M::read(code, &mut reader, beside)?;
    reader.finish()?;
    Ok((message, length))
}

fn append_text(
    op: &'static str,
    text: &str,
    bytes_max: usize,
    out: &mut Vec<u32>,
) -> Result<(), EncodeError> {
    if text.len() > bytes_max {
        return Err(EncodeError::TextTooLong { op, bytes: text.len() });
    }
    push_bytes(out, text.as_bytes());
    Ok(())
}

/// Number of counters after each later version of the message, of which the last ones are present
/// only if one of them is not 0.
const LATER_COUNTERS: [usize; 5] = [2, 4, 7, 8, 9];
const LATER_NAMES: [&str; 5] = ["calls", "packed bytes", "rounded", "own calls", "joined"];

/// Returns true if one of the last version's counters is not 0.
fn has_later(counters: &[u64]) -> bool {
    let before = LATER_COUNTERS.into_iter().filter(|count| *count < counters.len()).max();
    counters.iter().skip(before.unwrap_or(0)).any(|&value| value != 0)
}

fn append_stats(stats: Stats, out: &mut Vec<u32>) {
    let Stats { request, values, bytes, bytes_peak, executed, .. } = stats;
    let later = [
        stats.aten,
        stats.python,
        stats.plain_bytes,
        stats.packed_bytes,
        stats.rounded,
        stats.error_ppb,
        stats.error_ppb_max,
        stats.own,
        stats.joined,
    ];
    for value in [request, values, bytes, bytes_peak, executed] {
        push_u64(out, value);
    }
    // A worker whose later counters are all 0 writes the message of version 1.
    let said = |count: &usize| later.get(..*count).is_some_and(has_later);
    let count = LATER_COUNTERS.into_iter().rev().find(said).unwrap_or(0);
    later.iter().take(count).for_each(|&value| push_u64(out, value));
}

fn stats(reader: &mut WordReader<'_>) -> Result<Stats, WireError> {
    let mut stats = Stats {
        request: reader.u64()?,
        values: reader.u64()?,
        bytes: reader.u64()?,
        bytes_peak: reader.u64()?,
        executed: reader.u64()?,
        ..Stats::default()
    };
    let mut later = [0; 9];
    let mut read = 0;
    for (count, name) in LATER_COUNTERS.into_iter().zip(LATER_NAMES) {
        if reader.is_at_end() {
            break;
        }
        for value in later.iter_mut().take(count).skip(read) {
            *value = reader.u64()?;
        }
        read = count;
        if reader.is_at_end() && !has_later(later.get(..count).unwrap_or_default()) {
            return Err(reader.error(WireReason::Value(name, 0)));
        }
    }
    let [aten, python, plain_bytes, packed_bytes, rounded, error_ppb, error_ppb_max, own, joined] =
        later;
    (stats.aten, stats.python) = (aten, python);
    (stats.plain_bytes, stats.packed_bytes) = (plain_bytes, packed_bytes);
    (stats.rounded, stats.error_ppb, stats.error_ppb_max) = (rounded, error_ppb, error_ppb_max);
    (stats.own, stats.joined) = (own, joined);
    Ok(stats)
}

fn append_peer(peer: &Peer<'_>, out: &mut Vec<u32>) -> Result<(), EncodeError> {
    out.extend([peer.index, peer.incarnation]);
    match &peer.reach {
        Reach::Memory => out.push(0),
        Reach::Calls { secret } => {
            out.push(1);
            append_secret(secret, out);
        }
        Reach::Listens { secret, address } => {
            out.push(2);
            append_secret(secret, out);
            append_text("peer", address, TEXT_BYTES_MAX, out)?;
        }
    }
    Ok(())
}

fn append_secret(secret: &Secret, out: &mut Vec<u32>) {
    let (words, _) = secret.0.as_chunks::<4>();
    out.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
}

fn secret(reader: &mut WordReader<'_>) -> Result<Secret, WireError> {
    let mut secret = Secret([0; 16]);
    for place in secret.0.as_chunks_mut::<4>().0 {
        *place = reader.word()?.to_le_bytes();
    }
    Ok(secret)
}

fn peer<'a>(reader: &mut WordReader<'a>) -> Result<Peer<'a>, WireError> {
    let (index, incarnation) = (reader.word()?, reader.word()?);
    let reach = match reader.word()? {
        0 => Reach::Memory,
        1 => Reach::Calls { secret: secret(reader)? },
        2 => Reach::Listens { secret: secret(reader)?, address: reader.text(TEXT_BYTES_MAX)? },
        other => return Err(reader.error(WireReason::Value("reach", other))),
    };
    Ok(Peer { index, incarnation, reach })
}

fn append_losses(losses: &Losses<'_>, out: &mut Vec<u32>) {
    push_u64(out, losses.request);
    out.push(u32::from(losses.is_last));
    out.extend_from_slice(losses.slots);
}

fn losses<'a>(reader: &mut WordReader<'a>) -> Result<Losses<'a>, WireError> {
    let (request, is_last) = (reader.u64()?, reader.bool()?);
    Ok(Losses { request, is_last, slots: reader.rest(LOSSES_MAX)? })
}

fn append_backends(backends: &Backends<'_>, out: &mut Vec<u32>) -> Result<(), EncodeError> {
    append_text("backends", backends.device, TEXT_BYTES_MAX, out)?;
    append_text("backends", backends.group, TEXT_BYTES_MAX, out)?;
    out.push(u32::from(backends.is_far));
    Ok(())
}

fn backends<'a>(reader: &mut WordReader<'a>) -> Result<Backends<'a>, WireError> {
    Ok(Backends {
        device: reader.text(TEXT_BYTES_MAX)?,
        group: reader.text(TEXT_BYTES_MAX)?,
        is_far: reader.bool()?,
    })
}
