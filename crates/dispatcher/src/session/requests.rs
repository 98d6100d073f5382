//! Requests of clients that wait for workers.

use super::failure::ValueFailure;
use crate::event::{ClientFault, SessionId, Sink, WorkerIndex};
use gt_protocol::message::{Reply, SpacedReply, ToClient};
use gt_protocol::placement::Footprint;
use gt_protocol::{Attr, Dims, Dtype, Instruction};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// All open requests, by the number that workers use.
#[derive(Debug)]
pub(crate) struct Requests {
    pub open: BTreeMap<i64, Request>,
    next: i64,
}

impl Default for Requests {
    fn default() -> Self {
        Self { open: BTreeMap::new(), next: 1 }
    }
}

impl Requests {
    /// Opens a request; returns the number that workers answer with.
    pub fn open(&mut self, request: Request) -> i64 {
        let key = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.insert(key, request);
        key
    }

    /// Drops the requests for the other shards of a read that has failed: their answers are
    /// ignored.
    pub fn forget_parts(&mut self, session: SessionId, number: u64) {
        self.open.retain(|_, request| {
            request.part.is_none() || request.session != session || request.number != number
        });
    }
}

/// A request of a client that workers have not answered yet. Each is answered exactly once or fails
/// exactly once.
#[derive(Debug)]
pub(crate) struct Request {
    pub session: SessionId,
    /// The client's own number of the request.
    pub number: u64,
    /// Workers that still have to answer.
    pub waiting: SmallVec<[WorkerIndex; 2]>,
    pub kind: RequestKind,
    /// Number of elements received so far.
    pub received: u64,
    /// The requested part, if the worker is asked for a shard of the value.
    pub part: Option<Box<ReadPart>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// A read of these elements of the value with this number.
    Read {
        value: u64,
        elements: ReadElements,
    },
    Synchronize,
    Stats,
}

/// Elements that one worker is to send, counted in its own shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadElements {
    pub start: u64,
    pub count: u64,
    pub dtype: Dtype,
}

impl Request {
    /// Returns the reason why a worker's elements are not the next ones of this read. Without this
    /// check a short answer would leave the client waiting for ever, and wrong elements would be
    /// taken for the value.
    pub(crate) fn check_reply(&self, worker: WorkerIndex, reply: &Reply<'_>) -> Result<(), String> {
        let RequestKind::Read { elements: ReadElements { start, count, dtype }, .. } = self.kind
        else {
            return Err(format!("it answered {} with elements", self.kind.name()));
        };
        if !self.waiting.contains(&worker) {
            return Err("it answered a read of another worker, or one that it has answered".into());
        }
        let next = start.saturating_add(self.received);
        let rest = count.saturating_sub(self.received);
        let bytes = reply.count.checked_mul(dtype.size());
        let is_next = reply.dtype == dtype
            && reply.total == count
            && reply.start == next
            && reply.count <= rest
            && (reply.count > 0 || count == 0)
            && bytes == u64::try_from(reply.bytes.len()).ok();
        if is_next {
            return Ok(());
        }
        let Reply { start: first, count: sent, total, dtype: sent_dtype, bytes, .. } = *reply;
        Err(format!(
            "it answered a read of {count} {} from {start} on, of which {rest} from {next} on were \
             missing, with {sent} of {total} {} from {first} on, in {} bytes",
            dtype.short(),
            sent_dtype.short(),
            bytes.len()
        ))
    }

    /// Returns the reason why a worker may not end this request without elements.
    pub(crate) fn check_done(&self, worker: WorkerIndex, has_stats: bool) -> Result<(), String> {
        let is_kind = match self.kind {
            RequestKind::Read { .. } => false,
            RequestKind::Synchronize => !has_stats,
            RequestKind::Stats => has_stats,
        };
        let answer = if has_stats { "counters" } else { "\"done\"" };
        if !is_kind {
            return Err(format!("it answered {} with {answer}", self.kind.name()));
        }
        if !self.waiting.contains(&worker) {
            return Err(format!("it sent {answer} for a request that it has answered"));
        }
        Ok(())
    }
}

impl RequestKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Read { .. } => "a read",
            Self::Synchronize => "a synchronize",
            Self::Stats => "a request for counters",
        }
    }
}

/// Whole that a worker's answer is a part of.
#[derive(Debug)]
pub(crate) struct ReadPart {
    pub footprint: Footprint,
    /// The whole value's shape, and the number of its elements that the client asked for.
    pub dims: Dims,
    pub total: u64,
    /// Its last elements, once received, until those of all other parts have arrived: one of them
    /// may have failed.
    pub last: Option<(Reply<'static>, Vec<u8>)>,
}

impl ReadPart {
    /// Passes a worker's answer on to the client, with positions in the whole value.
    pub(crate) fn pass_on(
        &self,
        number: u64,
        reply: &Reply<'_>,
        pass: &mut dyn FnMut(&ToClient<'_>),
    ) {
        let whole = Reply { request: number, dims: self.dims, total: self.total, ..*reply };
        let (mut rest, size) = (reply.bytes, reply.dtype.size());
        if rest.is_empty() && self.total == 0 {
            pass(&ToClient::Reply(Reply { start: 0, ..whole }));
        }
        let end = reply.start.saturating_add(reply.count);
        for range in self.footprint.ranges(reply.start, end) {
            let length = usize::try_from(range.len() * size).expect("an answer's byte count fits");
            let (start, count, left) = (reply.start, reply.count, rest.len());
            assert!(
                length <= left,
                "{count} from {start} on: {length} bytes of {left} that are left"
            );
            let (bytes, others) = rest.split_at(length);
            rest = others;
            let reply = Reply { start: range.start, count: range.len(), bytes, ..whole };
            pass(&if range.count == 1 {
                ToClient::Reply(reply)
            } else {
                ToClient::SpacedReply(SpacedReply { reply, run: range.run, stride: range.stride })
            });
        }
    }
}

pub(crate) fn request_number(instruction: &Instruction<'_>) -> Result<u64, ClientFault> {
    let fault = ClientFault::Attribute { op: instruction.op, name: "request" };
    let Attr::Int(request) = instruction.attr("request") else { return Err(fault) };
    u64::try_from(*request).map_err(|_| fault)
}

pub(crate) fn answer_failed(
    session: SessionId,
    request: u64,
    failure: &ValueFailure,
    sink: &mut dyn Sink,
) {
    sink.session(session, &ToClient::FailedReply { request, failure: failure.message(session) });
}
