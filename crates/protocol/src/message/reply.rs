//! Elements that answer a read: in one run, in several, or beside the words.

use super::REPLY_BYTES_MAX;
use crate::value::{Dims, Dtype};
use crate::wire::{
    EncodeError, WireError, WireReason, WordReader, push_bytes, push_dims, push_u64,
};

/// Elements `start` to `start + count` (row-major) of a value of shape `dims`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reply<'a> {
    pub request: u64,
    pub start: u64,
    pub count: u64,
    /// Elements in the whole answer: it is complete when this many have arrived.
    pub total: u64,
    pub dtype: Dtype,
    pub dims: Dims,
    pub bytes: &'a [u8],
}

/// Evenly spaced elements: those of `reply` are in runs of `run` adjacent elements; each run begins
/// `stride` after the start of the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpacedReply<'a> {
    pub reply: Reply<'a>,
    pub run: u64,
    pub stride: u64,
}

fn append_elements(reply: &Reply<'_>, out: &mut Vec<u32>) -> Result<(), EncodeError> {
    let op = "reply";
    if reply.bytes.len() > REPLY_BYTES_MAX {
        return Err(EncodeError::PayloadTooLong { op, bytes: reply.bytes.len() });
    }
    append_places(reply, out);
    push_bytes(out, reply.bytes);
    Ok(())
}

/// Appends all fields of a reply except its bytes.
fn append_places(reply: &Reply<'_>, out: &mut Vec<u32>) {
    for value in [reply.request, reply.start, reply.count, reply.total] {
        push_u64(out, value);
    }
    out.push(reply.dtype.code().into());
    push_dims(out, &reply.dims);
}

fn elements<'a>(reader: &mut WordReader<'a>) -> Result<Reply<'a>, WireError> {
    let places = places(reader)?;
    Ok(Reply { bytes: reader.bytes(REPLY_BYTES_MAX)?, ..places })
}

/// Reads all fields of a reply except its bytes.
fn places(reader: &mut WordReader<'_>) -> Result<Reply<'static>, WireError> {
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

impl<'a> Reply<'a> {
    pub(super) fn append(&self, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        self.check().map_err(|what| EncodeError::Disagreement { op: "reply", what })?;
        append_elements(self, out)
    }

    /// Appends the fields of a `slab_reply`, whose bytes are the next chunk of a slab beside the
    /// words.
    pub(super) fn append_beside(&self, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        self.check().map_err(|what| EncodeError::Disagreement { op: "slab_reply", what })?;
        append_places(self, out);
        Ok(())
    }

    pub(super) fn read(reader: &mut WordReader<'a>) -> Result<Self, WireError> {
        let reply = elements(reader)?;
        reply.check().map_err(|what| reader.error(WireReason::Disagreement(what)))?;
        Ok(reply)
    }

    /// Reads a reply whose bytes `beside` gives. They are taken only if all other fields are valid.
    pub(super) fn read_beside(
        reader: &mut WordReader<'a>,
        beside: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Result<Self, WireError> {
        let places = places(reader)?;
        places
            .check_places(places.end())
            .map_err(|what| reader.error(WireReason::Disagreement(what)))?;
        reader.finish()?;
        let bytes = beside().ok_or_else(|| reader.error(WireReason::Beside))?;
        let reply = Reply { bytes, ..places };
        reply.check().map_err(|what| reader.error(WireReason::Disagreement(what)))?;
        Ok(reply)
    }

    fn end(&self) -> Option<u64> {
        self.start.checked_add(self.count)
    }

    /// Returns the first contradiction: after the check a receiver may trust every size in an
    /// answer.
    fn check(&self) -> Result<(), &'static str> {
        self.check_until(self.end())
    }

    /// Returns the first contradiction in a reply whose last element is before `end`.
    fn check_until(&self, end: Option<u64>) -> Result<(), &'static str> {
        if self.count.checked_mul(self.dtype.size()) != u64::try_from(self.bytes.len()).ok() {
            return Err("count and byte length");
        }
        self.check_places(end)
    }

    /// Returns the first contradiction, without looking at the bytes.
    fn check_places(&self, end: Option<u64>) -> Result<(), &'static str> {
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

impl<'a> SpacedReply<'a> {
    pub(super) fn append(&self, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        self.check().map_err(|what| EncodeError::Disagreement { op: "spaced_reply", what })?;
        push_u64(out, self.run);
        push_u64(out, self.stride);
        append_elements(&self.reply, out)
    }

    pub(super) fn read(reader: &mut WordReader<'a>) -> Result<Self, WireError> {
        let (run, stride) = (reader.u64()?, reader.u64()?);
        let spaced = Self { reply: elements(reader)?, run, stride };
        spaced.check().map_err(|what| reader.error(WireReason::Disagreement(what)))?;
        Ok(spaced)
    }

    /// Returns the first contradiction.
    fn check(&self) -> Result<(), &'static str> {
        let Self { reply, run, stride } = self;
        if reply.count == 0 || *run == 0 || !reply.count.is_multiple_of(*run) || stride < run {
            return Err("count, run and stride");
        }
        let before = (reply.count / run - 1).checked_mul(*stride);
        let last = before.and_then(|before| reply.start.checked_add(before));
        reply.check_until(last.and_then(|last| last.checked_add(*run)))
    }
}
