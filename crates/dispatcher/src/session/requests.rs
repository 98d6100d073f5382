//! Requests of clients that wait for workers.

use super::failure::ValueFailure;
use crate::event::{ClientFault, SessionId, Sink, WorkerIndex};
use gt_protocol::message::{Reply, SpacedReply, ToClient};
use gt_protocol::placement::Footprint;
use gt_protocol::{Attr, Dims, Instruction};
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
    /// A read of the value with this number.
    Read {
        value: u64,
    },
    Synchronize,
    Stats,
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
            let Some((bytes, others)) = rest.split_at_checked(length) else { return };
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
