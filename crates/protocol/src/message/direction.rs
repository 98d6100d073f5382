//! The messages of each of the four directions: each has only the messages that can be sent there.

use super::failure::{Failure, append_failure, failure};
use super::reply::{Reply, SpacedReply};
use super::{
    Backends, DESCRIPTION_BYTES_MAX, Losses, Peer, Stats, append_backends, append_losses,
    append_peer, append_stats, append_text, backends, code, losses, peer, stats,
};
use crate::handshake::SESSION_NAME_BYTES_MAX;
use crate::wire::{EncodeError, TEXT_BYTES_MAX, WireError, WireReason, WordReader, push_u64};

/// The messages of one direction. It is implemented here only, because `WordReader` is private.
pub trait Message<'a>: Sized {
    /// The code, the low half of the first word.
    fn code(&self) -> u16;

    /// The name in `docs/wire.md`.
    fn name(&self) -> &'static str {
        code::own_name(self.code())
    }

    /// Appends the fields, which follow the first word.
    #[doc(hidden)]
    fn append(&self, out: &mut Vec<u32>) -> Result<(), EncodeError>;

    /// Reads the fields. `beside` gives the bytes of a reply that carries none among its words.
    #[doc(hidden)]
    fn read(
        code: u16,
        reader: &mut WordReader<'a>,
        beside: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Result<Self, WireError>;
}

/// From the dispatcher to a worker, beside instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ToWorker<'a> {
    /// Asks the worker for its counters.
    StatsRequest { request: u64 },
    /// Answered by `done` once all computation before it is over; collectives may still be in flight.
    Mark { request: u64 },
    /// Introduces another worker that it reaches by TCP from here on.
    Peer(Peer<'a>),
    /// Ends the words whose computing instructions are cancelled: it was announced in front of
    /// them. Only a dispatcher with one session sends it.
    Cancel,
    /// Asks for the slots that hold the loss of another worker in place of a value, once everything
    /// before it is over.
    LossesRequest { request: u64 },
    /// The dispatcher closes the connection on purpose.
    Goodbye { reason: &'a str },
}

/// From a worker to the dispatcher. Workers use the same words to tell each other of a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FromWorker<'a> {
    /// Elements that a `read` asked for, or a part of them.
    Reply(Reply<'a>),
    /// The answer of `synchronize`.
    Done {
        request: u64,
    },
    /// An instruction failed; its result has not been asked for yet.
    Failure(Failure<'a>),
    /// The answer of a `read` or `synchronize` that depends on a failed instruction, with the first
    /// cause.
    FailedReply {
        request: u64,
        failure: Failure<'a>,
    },
    Stats(Stats),
    /// The worker's first message: the alternatives to byte messages for its collectives.
    Backends(Backends<'a>),
    /// The answer of `losses_request`.
    Losses(Losses<'a>),
    /// The worker closes the connection on purpose.
    Goodbye {
        reason: &'a str,
    },
}

/// From the dispatcher to a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ToClient<'a> {
    /// Elements that a `read` asked for, or a part of them.
    Reply(Reply<'a>),
    /// Elements that a `read` asked for, in evenly spaced runs.
    SpacedReply(SpacedReply<'a>),
    /// The answer of `synchronize`, and the end of the answers of a `stats_request`.
    Done {
        request: u64,
    },
    /// An instruction failed; its result has not been asked for yet.
    Failure(Failure<'a>),
    /// The answer of a `read` or `synchronize` that depends on a failed instruction, with the first
    /// cause.
    FailedReply {
        request: u64,
        failure: Failure<'a>,
    },
    /// Counters of one worker, for the client that asked.
    WorkerStats {
        worker: u32,
        stats: Stats,
    },
    WorkerJoined {
        index: u32,
        /// True if the session has layouts over workers, which were decided without this one.
        is_late: bool,
    },
    WorkerLeft {
        index: u32,
        reason: &'a str,
    },
    /// The dispatcher closes the connection on purpose.
    Goodbye {
        reason: &'a str,
    },
    /// The answer of `describe`.
    Description {
        request: u64,
        text: &'a str,
    },
}

/// From a client to the dispatcher, beside instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FromClient<'a> {
    /// Asks for the counters of all workers.
    StatsRequest { request: u64 },
    /// Asks for the named sessions, or has one of them end or lose its client; answered by a
    /// `description`.
    Sessions { request: u64, action: SessionAction, name: &'a str },
    /// Cancels the computing instructions before it that have not begun.
    Cancel,
    /// The client closes the connection on purpose.
    Goodbye { reason: &'a str },
}

/// Request that concerns sessions other than the client's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionAction {
    /// Lists all named sessions.
    List,
    /// Takes a session from its client.
    Detach,
    /// Ends a session.
    End,
    /// Lists what each user has, holds and has used.
    Usage,
}

impl SessionAction {
    const ALL: [Self; 4] = [Self::List, Self::Detach, Self::End, Self::Usage];

    const fn code(self) -> u32 {
        match self {
            Self::List => 0,
            Self::Detach => 1,
            Self::End => 2,
            Self::Usage => 3,
        }
    }
}

fn action(reader: &mut WordReader<'_>) -> Result<SessionAction, WireError> {
    let code = reader.word()?;
    let action = SessionAction::ALL.into_iter().find(|action| action.code() == code);
    action.ok_or_else(|| reader.error(WireReason::Value("action", code)))
}

/// A code that this direction does not have.
fn unexpected(code: u16) -> WireError {
    let reason = match code::name_of(code) {
        Some(name) => WireReason::Direction(name),
        None => WireReason::UnknownCode(code),
    };
    WireError { word: 0, reason }
}

/// Appends the fields of a message that has a request and a failure.
fn append_failed(
    request: u64,
    failure: &Failure<'_>,
    out: &mut Vec<u32>,
) -> Result<(), EncodeError> {
    push_u64(out, request);
    append_failure("failed_reply", failure, out)
}

fn append_reason(reason: &str, out: &mut Vec<u32>) -> Result<(), EncodeError> {
    append_text("goodbye", reason, TEXT_BYTES_MAX, out)
}

impl<'a> Message<'a> for ToWorker<'a> {
    fn code(&self) -> u16 {
        match self {
            Self::StatsRequest { .. } => code::STATS_REQUEST,
            Self::Mark { .. } => code::MARK,
            Self::Peer(_) => code::PEER,
            Self::Cancel => code::CANCEL,
            Self::LossesRequest { .. } => code::LOSSES_REQUEST,
            Self::Goodbye { .. } => code::GOODBYE,
        }
    }

    fn append(&self, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        match self {
            Self::StatsRequest { request }
            | Self::Mark { request }
            | Self::LossesRequest { request } => push_u64(out, *request),
            Self::Peer(peer) => append_peer(peer, out)?,
            Self::Cancel => {}
            Self::Goodbye { reason } => append_reason(reason, out)?,
        }
        Ok(())
    }

    fn read(
        code: u16,
        reader: &mut WordReader<'a>,
        _beside: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Result<Self, WireError> {
        Ok(match code {
            code::STATS_REQUEST => Self::StatsRequest { request: reader.u64()? },
            code::MARK => Self::Mark { request: reader.u64()? },
            code::PEER => Self::Peer(peer(reader)?),
            code::CANCEL => Self::Cancel,
            code::LOSSES_REQUEST => Self::LossesRequest { request: reader.u64()? },
            code::GOODBYE => Self::Goodbye { reason: reader.text(TEXT_BYTES_MAX)? },
            _ => return Err(unexpected(code)),
        })
    }
}

impl<'a> Message<'a> for FromWorker<'a> {
    fn code(&self) -> u16 {
        match self {
            Self::Reply(_) => code::REPLY,
            Self::Done { .. } => code::DONE,
            Self::Failure(_) => code::FAILURE,
            Self::FailedReply { .. } => code::FAILED_REPLY,
            Self::Stats(_) => code::STATS,
            Self::Backends(_) => code::BACKENDS,
            Self::Losses(_) => code::LOSSES,
            Self::Goodbye { .. } => code::GOODBYE,
        }
    }

    fn append(&self, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        match self {
            Self::Reply(reply) => reply.append(out)?,
            Self::Done { request } => push_u64(out, *request),
            Self::Failure(failure) => append_failure("failure", failure, out)?,
            Self::FailedReply { request, failure } => append_failed(*request, failure, out)?,
            Self::Stats(stats) => append_stats(*stats, out),
            Self::Backends(backends) => append_backends(backends, out)?,
            Self::Losses(losses) => append_losses(losses, out),
            Self::Goodbye { reason } => append_reason(reason, out)?,
        }
        Ok(())
    }

    fn read(
        code: u16,
        reader: &mut WordReader<'a>,
        beside: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Result<Self, WireError> {
        Ok(match code {
            code::REPLY => Self::Reply(Reply::read(reader)?),
            code::SLAB_REPLY => Self::Reply(Reply::read_beside(reader, beside)?),
            code::DONE => Self::Done { request: reader.u64()? },
            code::FAILURE => Self::Failure(failure(reader)?),
            code::FAILED_REPLY => {
                Self::FailedReply { request: reader.u64()?, failure: failure(reader)? }
            }
            code::STATS => Self::Stats(stats(reader)?),
            code::BACKENDS => Self::Backends(backends(reader)?),
            code::LOSSES => Self::Losses(losses(reader)?),
            code::GOODBYE => Self::Goodbye { reason: reader.text(TEXT_BYTES_MAX)? },
            _ => return Err(unexpected(code)),
        })
    }
}

impl<'a> Message<'a> for ToClient<'a> {
    fn code(&self) -> u16 {
        match self {
            Self::Reply(_) => code::REPLY,
            Self::SpacedReply(_) => code::SPACED_REPLY,
            Self::Done { .. } => code::DONE,
            Self::Failure(_) => code::FAILURE,
            Self::FailedReply { .. } => code::FAILED_REPLY,
            Self::WorkerStats { .. } => code::WORKER_STATS,
            Self::WorkerJoined { .. } => code::WORKER_JOINED,
            Self::WorkerLeft { .. } => code::WORKER_LEFT,
            Self::Goodbye { .. } => code::GOODBYE,
            Self::Description { .. } => code::DESCRIPTION,
        }
    }

    fn append(&self, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        match self {
            Self::Reply(reply) => reply.append(out)?,
            Self::SpacedReply(spaced) => spaced.append(out)?,
            Self::Done { request } => push_u64(out, *request),
            Self::Failure(failure) => append_failure("failure", failure, out)?,
            Self::FailedReply { request, failure } => append_failed(*request, failure, out)?,
            Self::WorkerStats { worker, stats } => {
                out.push(*worker);
                append_stats(*stats, out);
            }
            Self::WorkerJoined { index, is_late } => {
                out.push(*index);
                // One that is not late is the message of version 1.
                if *is_late {
                    out.push(1);
                }
            }
            Self::WorkerLeft { index, reason } => {
                out.push(*index);
                append_text("worker_left", reason, TEXT_BYTES_MAX, out)?;
            }
            Self::Goodbye { reason } => append_reason(reason, out)?,
            Self::Description { request, text } => {
                push_u64(out, *request);
                append_text("description", text, DESCRIPTION_BYTES_MAX, out)?;
            }
        }
        Ok(())
    }

    fn read(
        code: u16,
        reader: &mut WordReader<'a>,
        beside: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Result<Self, WireError> {
        Ok(match code {
            code::REPLY => Self::Reply(Reply::read(reader)?),
            code::SLAB_REPLY => Self::Reply(Reply::read_beside(reader, beside)?),
            code::SPACED_REPLY => Self::SpacedReply(SpacedReply::read(reader)?),
            code::DONE => Self::Done { request: reader.u64()? },
            code::FAILURE => Self::Failure(failure(reader)?),
            code::FAILED_REPLY => {
                Self::FailedReply { request: reader.u64()?, failure: failure(reader)? }
            }
            code::WORKER_STATS => {
                Self::WorkerStats { worker: reader.word()?, stats: stats(reader)? }
            }
            code::WORKER_JOINED => {
                let index = reader.word()?;
                let is_late = !reader.is_at_end();
                if is_late && !reader.bool()? {
                    return Err(reader.error(WireReason::Value("is_late", 0)));
                }
                Self::WorkerJoined { index, is_late }
            }
            code::WORKER_LEFT => {
                Self::WorkerLeft { index: reader.word()?, reason: reader.text(TEXT_BYTES_MAX)? }
            }
            code::GOODBYE => Self::Goodbye { reason: reader.text(TEXT_BYTES_MAX)? },
            code::DESCRIPTION => Self::Description {
                request: reader.u64()?,
                text: reader.text(DESCRIPTION_BYTES_MAX)?,
            },
            _ => return Err(unexpected(code)),
        })
    }
}

impl<'a> Message<'a> for FromClient<'a> {
    fn code(&self) -> u16 {
        match self {
            Self::StatsRequest { .. } => code::STATS_REQUEST,
            Self::Sessions { .. } => code::SESSIONS,
            Self::Cancel => code::CANCEL,
            Self::Goodbye { .. } => code::GOODBYE,
        }
    }

    fn append(&self, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        match self {
            Self::StatsRequest { request } => push_u64(out, *request),
            Self::Sessions { request, action, name } => {
                push_u64(out, *request);
                out.push(action.code());
                append_text("sessions", name, SESSION_NAME_BYTES_MAX, out)?;
            }
            Self::Cancel => {}
            Self::Goodbye { reason } => append_reason(reason, out)?,
        }
        Ok(())
    }

    fn read(
        code: u16,
        reader: &mut WordReader<'a>,
        _beside: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Result<Self, WireError> {
        Ok(match code {
            code::STATS_REQUEST => Self::StatsRequest { request: reader.u64()? },
            code::SESSIONS => Self::Sessions {
                request: reader.u64()?,
                action: action(reader)?,
                name: reader.text(SESSION_NAME_BYTES_MAX)?,
            },
            code::CANCEL => Self::Cancel,
            code::GOODBYE => Self::Goodbye { reason: reader.text(TEXT_BYTES_MAX)? },
            _ => return Err(unexpected(code)),
        })
    }
}
