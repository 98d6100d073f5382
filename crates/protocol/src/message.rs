//! What flows beside instructions: answers, failures, counters and events, in the same word frames.
//!
//! The first word of a frame is a code and a length as an instruction's is; message codes are
//! [`wire::MESSAGE_CODE_FIRST`] and above, so the two can share a ring. `docs/wire.md` specifies every field.

mod reply;
#[cfg(test)]
pub(crate) mod tests;

pub use reply::{Reply, SpacedReply};

use crate::handshake::Secret;
use crate::wire::{
    self, EncodeError, Reader, TEXT_BYTES_MAX, WireError, WireReason, push_bytes, push_u64,
};
use crate::{Op, rules::ErrorClass};
use reply::{append_places, append_reply, places, reply};

/// Bytes of one piece of an answer: large enough that 100 MB are 1,600 pieces, small enough that a light user's answer
/// waits for few microseconds behind one.
pub const REPLY_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a `description`: a layout of 4,096 workers in uneven pieces has less, and a ring has room for it.
pub const DESCRIPTION_BYTES_MAX: usize = 64 * 1024;

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// Elements that a `read` asked for, or a piece of them.
    Reply(Reply<'a>),
    /// The same of elements that do not stand one after the other.
    SpacedReply(SpacedReply<'a>),
    /// The same as a reply, whose bytes are the next piece of a slab beside the words; here there are none.
    SlabReply(Reply<'a>),
    /// The answer of `synchronize`.
    Done {
        request: u64,
    },
    /// An instruction failed; nobody has asked for its result yet.
    Failure(Failure<'a>),
    /// The answer of a `read` or `synchronize` that meets a failed instruction, with the first cause.
    FailedReply {
        request: u64,
        failure: Failure<'a>,
    },
    /// The dispatcher asks a worker for its counters.
    StatsRequest {
        request: u64,
    },
    Stats(Stats),
    WorkerJoined {
        index: u32,
    },
    WorkerLeft {
        index: u32,
        reason: &'a str,
    },
    /// To a worker: another one that it reaches by TCP, from here on.
    Peer(Peer<'a>),
    /// From a worker, before anything else: how its collectives can go besides by bytes.
    Ways(Ways<'a>),
    /// The sender closes the connection on purpose.
    Goodbye {
        reason: &'a str,
    },
    /// The answer of `describe`.
    Description {
        request: u64,
        text: &'a str,
    },
}

/// A failed instruction, named by session and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    pub session: u32,
    pub number: u64,
    pub class: FailureClass,
    /// The operator that failed, where one did.
    pub op: Option<Op>,
    /// The instruction's source position, as the client numbered it.
    pub tag: u32,
    pub text: &'a str,
}

/// How a worker finds another one on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer<'a> {
    pub index: u32,
    /// Whoever connects shows it.
    pub secret: Secret,
    /// Where to connect to, as `host:port`; empty for who is to wait for the connection.
    pub address: &'a str,
}

/// How a worker's collectives can go besides by the workers' own messages. Workers that say the same, and not nothing, can
/// go that way with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways<'a> {
    /// Whose devices' memory it can read, and they its.
    pub device: &'a str,
    /// With whom it can be in a process group.
    pub group: &'a str,
    /// It shares no memory with any other worker, so that a process group has something to gain.
    pub is_far: bool,
}

/// Counters of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub request: u64,
    /// Live values.
    pub values: u64,
    pub bytes: u64,
    pub bytes_peak: u64,
    /// Instructions executed since the start.
    pub executed: u64,
}

/// Which exception the client raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    Runtime,
    Index,
    Value,
    Type,
    NotImplemented,
    /// The device's memory is used up.
    OutOfMemory,
    /// The worker that held the value is gone.
    WorkerLost,
    /// A quota or a limit of the cluster.
    Quota,
    /// The peer broke the protocol.
    Protocol,
    /// Our own mistake.
    Internal,
    /// Operands whose shapes do not fit.
    Shape,
    /// Operands whose dtypes do not fit.
    Dtype,
}

impl FailureClass {
    pub const ALL: [Self; 12] = [
        Self::Runtime,
        Self::Index,
        Self::Value,
        Self::Type,
        Self::NotImplemented,
        Self::OutOfMemory,
        Self::WorkerLost,
        Self::Quota,
        Self::Protocol,
        Self::Internal,
        Self::Shape,
        Self::Dtype,
    ];

    /// The wire's number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Runtime => 0,
            Self::Index => 1,
            Self::Value => 2,
            Self::Type => 3,
            Self::NotImplemented => 4,
            Self::OutOfMemory => 5,
            Self::WorkerLost => 6,
            Self::Quota => 7,
            Self::Protocol => 8,
            Self::Internal => 9,
            Self::Shape => 10,
            Self::Dtype => 11,
        }
    }

    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

impl From<ErrorClass> for FailureClass {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::Runtime => Self::Runtime,
            ErrorClass::Index => Self::Index,
            ErrorClass::Value => Self::Value,
            ErrorClass::Type => Self::Type,
            ErrorClass::Shape => Self::Shape,
            ErrorClass::Dtype => Self::Dtype,
            ErrorClass::UnsupportedDtype => Self::NotImplemented,
        }
    }
}

/// The beginning of a text that fits a message, for senders that pass on what others wrote.
pub fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default()
}

const REPLY: u16 = wire::MESSAGE_CODE_FIRST | 1;
const DONE: u16 = wire::MESSAGE_CODE_FIRST | 2;
const FAILURE: u16 = wire::MESSAGE_CODE_FIRST | 3;
const FAILED_REPLY: u16 = wire::MESSAGE_CODE_FIRST | 4;
const STATS_REQUEST: u16 = wire::MESSAGE_CODE_FIRST | 5;
const STATS: u16 = wire::MESSAGE_CODE_FIRST | 6;
const WORKER_JOINED: u16 = wire::MESSAGE_CODE_FIRST | 7;
const WORKER_LEFT: u16 = wire::MESSAGE_CODE_FIRST | 8;
const GOODBYE: u16 = wire::MESSAGE_CODE_FIRST | 9;
const PEER: u16 = wire::MESSAGE_CODE_FIRST | 0xa;
const DESCRIPTION: u16 = wire::MESSAGE_CODE_FIRST | 0xb;
const WAYS: u16 = wire::MESSAGE_CODE_FIRST | 0xc;
const SPACED_REPLY: u16 = wire::MESSAGE_CODE_FIRST | 0xd;
const SLAB_REPLY: u16 = wire::MESSAGE_CODE_FIRST | 0xe;

impl Message<'_> {
    /// The code in the low half of the first word.
    pub const fn code(&self) -> u16 {
        match self {
            Self::Reply(_) => REPLY,
            Self::SpacedReply(_) => SPACED_REPLY,
            Self::SlabReply(_) => SLAB_REPLY,
            Self::Done { .. } => DONE,
            Self::Failure(_) => FAILURE,
            Self::FailedReply { .. } => FAILED_REPLY,
            Self::StatsRequest { .. } => STATS_REQUEST,
            Self::Stats(_) => STATS,
            Self::WorkerJoined { .. } => WORKER_JOINED,
            Self::WorkerLeft { .. } => WORKER_LEFT,
            Self::Goodbye { .. } => GOODBYE,
            Self::Peer(_) => PEER,
            Self::Description { .. } => DESCRIPTION,
            Self::Ways(_) => WAYS,
        }
    }

    /// The name in `docs/wire.md`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Reply(_) => "reply",
            Self::SpacedReply(_) => "spaced_reply",
            Self::SlabReply(_) => "slab_reply",
            Self::Done { .. } => "done",
            Self::Failure(_) => "failure",
            Self::FailedReply { .. } => "failed_reply",
            Self::StatsRequest { .. } => "stats_request",
            Self::Stats(_) => "stats",
            Self::WorkerJoined { .. } => "worker_joined",
            Self::WorkerLeft { .. } => "worker_left",
            Self::Goodbye { .. } => "goodbye",
            Self::Peer(_) => "peer",
            Self::Description { .. } => "description",
            Self::Ways(_) => "ways",
        }
    }
}

/// Appends the words of a message; on an error `out` is as it was.
pub fn encode(message: &Message<'_>, out: &mut Vec<u32>) -> Result<(), EncodeError> {
    let start = out.len();
    out.push(message.code().into());
    let result = append(message, out).and_then(|()| wire::close(message.name(), out, start));
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn append(message: &Message<'_>, out: &mut Vec<u32>) -> Result<(), EncodeError> {
    let name = message.name();
    match message {
        Message::Reply(reply) => {
            reply.check().map_err(|what| EncodeError::Disagreement { op: name, what })?;
            append_reply(reply, out)
        }
        Message::SpacedReply(spaced) => {
            spaced.check().map_err(|what| EncodeError::Disagreement { op: name, what })?;
            push_u64(out, spaced.run);
            push_u64(out, spaced.stride);
            append_reply(&spaced.reply, out)
        }
        Message::SlabReply(reply) => {
            let end = reply.start.checked_add(reply.count);
            let checked = reply.check_places(end);
            checked.map_err(|what| EncodeError::Disagreement { op: name, what })?;
            append_places(reply, out);
            Ok(())
        }
        Message::Done { request } | Message::StatsRequest { request } => {
            push_u64(out, *request);
            Ok(())
        }
        Message::Failure(failure) => append_failure(name, failure, out),
        Message::FailedReply { request, failure } => {
            push_u64(out, *request);
            append_failure(name, failure, out)
        }
        Message::Stats(stats) => {
            let Stats { request, values, bytes, bytes_peak, executed } = *stats;
            for value in [request, values, bytes, bytes_peak, executed] {
                push_u64(out, value);
            }
            Ok(())
        }
        Message::WorkerJoined { index } => {
            out.push(*index);
            Ok(())
        }
        Message::WorkerLeft { index, reason } => {
            out.push(*index);
            append_text(name, reason, TEXT_BYTES_MAX, out)
        }
        Message::Goodbye { reason } => append_text(name, reason, TEXT_BYTES_MAX, out),
        Message::Description { request, text } => {
            push_u64(out, *request);
            append_text(name, text, DESCRIPTION_BYTES_MAX, out)
        }
        Message::Peer(peer) => {
            out.push(peer.index);
            let (words, _) = peer.secret.0.as_chunks::<4>();
            out.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
            append_text(name, peer.address, TEXT_BYTES_MAX, out)
        }
        Message::Ways(ways) => {
            append_text(name, ways.device, TEXT_BYTES_MAX, out)?;
            append_text(name, ways.group, TEXT_BYTES_MAX, out)?;
            out.push(u32::from(ways.is_far));
            Ok(())
        }
    }
}

fn append_failure(
    op: &'static str,
    failure: &Failure<'_>,
    out: &mut Vec<u32>,
) -> Result<(), EncodeError> {
    out.push(failure.session);
    push_u64(out, failure.number);
    out.push(failure.class.code().into());
    out.push(failure.op.map_or(0, |op| op.info().code.into()));
    out.push(failure.tag);
    append_text(op, failure.text, TEXT_BYTES_MAX, out)
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

/// The message at the front of `words`, and how many words it has. Payload and texts are views of the words.
pub fn decode(words: &[u32]) -> Result<(Message<'_>, usize), WireError> {
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
    let mut reader = Reader::new(frame, 1);
    let message = body(code, &mut reader)?;
    reader.finish()?;
    Ok((message, length))
}

fn body<'a>(code: u16, reader: &mut Reader<'a>) -> Result<Message<'a>, WireError> {
    Ok(match code {
        SLAB_REPLY => {
            let reply = places(reader)?;
            let checked = reply.check_places(reply.start.checked_add(reply.count));
            checked.map_err(|what| reader.error(WireReason::Disagreement(what)))?;
            Message::SlabReply(reply)
        }
        REPLY => {
            let reply = reply(reader)?;
            reply.check().map_err(|what| reader.error(WireReason::Disagreement(what)))?;
            Message::Reply(reply)
        }
        SPACED_REPLY => {
            let (run, stride) = (reader.u64()?, reader.u64()?);
            let spaced = SpacedReply { reply: reply(reader)?, run, stride };
            spaced.check().map_err(|what| reader.error(WireReason::Disagreement(what)))?;
            Message::SpacedReply(spaced)
        }
        DONE => Message::Done { request: reader.u64()? },
        FAILURE => Message::Failure(failure(reader)?),
        FAILED_REPLY => Message::FailedReply { request: reader.u64()?, failure: failure(reader)? },
        STATS_REQUEST => Message::StatsRequest { request: reader.u64()? },
        STATS => Message::Stats(Stats {
            request: reader.u64()?,
            values: reader.u64()?,
            bytes: reader.u64()?,
            bytes_peak: reader.u64()?,
            executed: reader.u64()?,
        }),
        WORKER_JOINED => Message::WorkerJoined { index: reader.word()? },
        WORKER_LEFT => {
            Message::WorkerLeft { index: reader.word()?, reason: reader.text(TEXT_BYTES_MAX)? }
        }
        GOODBYE => Message::Goodbye { reason: reader.text(TEXT_BYTES_MAX)? },
        PEER => Message::Peer(peer(reader)?),
        WAYS => Message::Ways(Ways {
            device: reader.text(TEXT_BYTES_MAX)?,
            group: reader.text(TEXT_BYTES_MAX)?,
            is_far: reader.bool()?,
        }),
        DESCRIPTION => Message::Description {
            request: reader.u64()?,
            text: reader.text(DESCRIPTION_BYTES_MAX)?,
        },
        _ => return Err(WireError { word: 0, reason: WireReason::UnknownCode(code) }),
    })
}

fn peer<'a>(reader: &mut Reader<'a>) -> Result<Peer<'a>, WireError> {
    let index = reader.word()?;
    let mut secret = Secret([0; 16]);
    for place in secret.0.as_chunks_mut::<4>().0 {
        *place = reader.word()?.to_le_bytes();
    }
    Ok(Peer { index, secret, address: reader.text(TEXT_BYTES_MAX)? })
}

fn failure<'a>(reader: &mut Reader<'a>) -> Result<Failure<'a>, WireError> {
    let session = reader.word()?;
    let number = reader.u64()?;
    let class = reader.word()?;
    let Some(class) = FailureClass::from_code(class) else {
        return Err(reader.error(WireReason::Value("failure class", class)));
    };
    let code = reader.u16("op code")?;
    let op = Op::from_code(code);
    if op.is_none() && code != 0 {
        return Err(reader.error(WireReason::UnknownCode(code)));
    }
    let tag = reader.word()?;
    Ok(Failure { session, number, class, op, tag, text: reader.text(TEXT_BYTES_MAX)? })
}
