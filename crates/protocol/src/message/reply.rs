//! Elements that answer a read: in one run, in several, or beside the words.

use super::REPLY_BYTES_MAX;
use crate::wire::{EncodeError, Reader, WireError, push_bytes, push_dims, push_u64};
use crate::{Dims, Dtype};

/// Elements `start` to `start + count` (row-major) of a value of shape `dims`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reply<'a> {
    pub request: u64,
    pub start: u64,
    pub count: u64,
    /// Elements in the whole answer: when this many have come, it is complete.
    pub total: u64,
    pub dtype: Dtype,
    pub dims: Dims,
    pub bytes: &'a [u8],
}

/// Elements in runs: those of `reply`, of which `run` stand together, and the next ones `stride` after where they began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpacedReply<'a> {
    pub reply: Reply<'a>,
    pub run: u64,
    pub stride: u64,
}

pub(super) fn append_reply(reply: &Reply<'_>, out: &mut Vec<u32>) -> Result<(), EncodeError> {
    let op = "reply";
    if reply.bytes.len() > REPLY_BYTES_MAX {
        return Err(EncodeError::PayloadTooLong { op, bytes: reply.bytes.len() });
    }
    append_places(reply, out);
    push_bytes(out, reply.bytes);
    Ok(())
}

/// All of a reply but its bytes.
pub(super) fn append_places(reply: &Reply<'_>, out: &mut Vec<u32>) {
    for value in [reply.request, reply.start, reply.count, reply.total] {
        push_u64(out, value);
    }
    out.push(reply.dtype.code().into());
    push_dims(out, &reply.dims);
}

pub(super) fn reply<'a>(reader: &mut Reader<'a>) -> Result<Reply<'a>, WireError> {
    let places = places(reader)?;
    Ok(Reply { bytes: reader.bytes(REPLY_BYTES_MAX)?, ..places })
}

/// All of a reply but its bytes.
pub(super) fn places(reader: &mut Reader<'_>) -> Result<Reply<'static>, WireError> {
    Ok(Reply {
        request: reader.u64()?,
        start: reader.u64()?,
        count: reader.u64()?,
        total: reader.u64()?,
        dtype: reader.dtype()?,
        dims: reader.dims()?,
        bytes: &[],
    })
}

impl Reply<'_> {
    /// The reply with these bytes, if they are as many as it says.
    #[must_use]
    pub fn with_bytes<'b>(&self, bytes: &'b [u8]) -> Option<Reply<'b>> {
        let Self { request, start, count, total, dtype, dims, .. } = *self;
        let reply = Reply { request, start, count, total, dtype, dims, bytes };
        reply.check().is_ok().then_some(reply)
    }

    /// What contradicts itself, if anything: a receiver may then trust every size in an answer.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        self.check_until(self.start.checked_add(self.count))
    }

    /// The same where the last element stands before `end`.
    fn check_until(&self, end: Option<u64>) -> Result<(), &'static str> {
        if self.count.checked_mul(self.dtype.size()) != u64::try_from(self.bytes.len()).ok() {
            return Err("count and byte length");
        }
        self.check_places(end)
    }

    /// The same but for the bytes.
    pub(super) fn check_places(&self, end: Option<u64>) -> Result<(), &'static str> {
        let elements = self.dims.elements().and_then(|elements| u64::try_from(elements).ok());
        let Some(elements) = elements.filter(|_| self.dims.iter().all(|&size| size >= 0)) else {
            return Err("shape and element count");
        };
        if self.count > self.total || self.total > elements {
            return Err("count and total");
        }
        if end.is_none_or(|end| end > elements) {
            return Err("start and shape");
        }
        Ok(())
    }
}

impl SpacedReply<'_> {
    /// What contradicts itself, if anything.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let Self { reply, run, stride } = self;
        if reply.count == 0 || *run == 0 || !reply.count.is_multiple_of(*run) || stride < run {
            return Err("count, run and stride");
        }
        let before = (reply.count / run - 1).checked_mul(*stride);
        let last = before.and_then(|before| reply.start.checked_add(before));
        reply.check_until(last.and_then(|last| last.checked_add(*run)))
    }
}
