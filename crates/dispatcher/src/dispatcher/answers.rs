//! Answers and reports of workers, passed on to the client that asked.

use super::Dispatcher;
use super::borrowing::NO_NUMBER;
use crate::event::{SessionId, Sink, WorkerIndex, number_of};
use crate::session::Session;
use crate::session::failure::{RootCause, ValueFailure, of_users};
use crate::session::requests::{Request, RequestKind};
use gt_protocol::Op;
use gt_protocol::message::{self, FailureClass, FromWorker, Reply, Stats, ToClient};

impl Dispatcher {
    /// Asks all workers for their counters.
    pub(super) fn ask_stats(&mut self, session: SessionId, request: u64, sink: &mut dyn Sink) {
        if let Some(mut planner) = self.planner(session, sink) {
            planner.launch_all_buckets();
            let workers = planner.core.workers.alive().to_vec();
            planner.ask(request, RequestKind::Stats, &workers);
        }
    }

    pub(super) fn message_of_worker(
        &mut self,
        index: WorkerIndex,
        message: &FromWorker<'_>,
        sink: &mut dyn Sink,
    ) {
        match message {
            FromWorker::Reply(reply) => self.replied(index, *reply, sink),
            FromWorker::Done { request } => self.done(index, key_of(*request), None, sink),
            FromWorker::Stats(stats) => {
                self.done(index, key_of(stats.request), Some(*stats), sink);
            }
            // The result is made again, or its loss is told with the worker's.
            FromWorker::Failure(failure) if self.is_recovered(failure) => {}
            FromWorker::Failure(failure) => self.failed(failure, sink),
            FromWorker::FailedReply { request, failure }
                if self.is_recovered(failure) && self.withholds(index, key_of(*request)) => {}
            FromWorker::FailedReply { request, failure } => {
                self.failed_reply(*request, failure, sink);
            }
            FromWorker::Losses(losses) => self.losses(index, losses),
            FromWorker::Backends(backends) => self.core.workers.set_backends(index, *backends),
            FromWorker::Goodbye { reason } => self.worker_left(index, reason, sink),
        }
    }

    /// Returns true for the loss of a worker that is being made good.
    fn is_recovered(&self, failure: &message::Failure<'_>) -> bool {
        failure.class == FailureClass::WorkerLost && self.is_recovering()
    }

    /// Passes elements on. A worker that sends others than it was asked for is given up: its loss
    /// answers the client.
    fn replied(&mut self, index: WorkerIndex, reply: Reply<'_>, sink: &mut dyn Sink) {
        let request = key_of(reply.request);
        let Some(open) = self.core.requests.open.get_mut(&request) else { return };
        if let Err(reason) = open.check_reply(index, &reply) {
            return sink.give_up(index, &reason);
        }
        open.received = open.received.saturating_add(reply.count);
        let (session, number) = (open.session, open.number);
        if open.part.is_some() && open.received >= reply.total {
            return self.part_is_there(request, &reply, sink);
        }
        match &open.part {
            Some(part) => part.pass_on(number, &reply, &mut |whole| sink.session(session, whole)),
            None => {
                sink.session(session, &ToClient::Reply(Reply { request: number, ..reply }));
            }
        }
        if open.received >= reply.total {
            self.core.requests.open.remove(&request);
        }
    }

    /// Handles a worker's answer that has no elements.
    fn done(&mut self, index: WorkerIndex, key: i64, stats: Option<Stats>, sink: &mut dyn Sink) {
        let open = self.core.requests.open.get(&key);
        match open.map(|open| open.check_done(index, stats.is_some())) {
            Some(Err(reason)) => sink.give_up(index, &reason),
            Some(Ok(())) | None => self.answered(index, key, stats, sink),
        }
    }

    pub(super) fn answered(
        &mut self,
        index: WorkerIndex,
        key: i64,
        stats: Option<Stats>,
        sink: &mut dyn Sink,
    ) {
        let Some(open) = self.core.requests.open.get_mut(&key) else { return };
        open.waiting.retain(|worker| *worker != index);
        let (session, number, done) = (open.session, open.number, open.waiting.is_empty());
        if let Some(stats) = stats {
            let stats = Stats { request: number, ..stats };
            sink.session(session, &ToClient::WorkerStats { worker: index, stats });
        }
        if done {
            self.core.requests.open.remove(&key);
            sink.session(session, &ToClient::Done { request: number });
        }
    }

    /// Handles the last elements of a shard. They are passed on when all other shards have arrived:
    /// a value that failed on one worker has failed, whichever part of it is read.
    fn part_is_there(&mut self, key: i64, reply: &Reply<'_>, sink: &mut dyn Sink) {
        let Some(open) = self.core.requests.open.get_mut(&key) else { return };
        open.waiting.clear();
        let (session, number) = (open.session, open.number);
        if let Some(part) = &mut open.part {
            let Reply { request, start, count, total, dtype, dims, .. } = *reply;
            let places = Reply { request, start, count, total, dtype, dims, bytes: &[] };
            part.last = Some((places, reply.bytes.to_vec()));
        }
        let is_of_it = |request: &Request| {
            request.part.is_some() && request.session == session && request.number == number
        };
        let all = || self.core.requests.open.values().filter(|request| is_of_it(request));
        if all().any(|request| !request.waiting.is_empty()) {
            return;
        }
        for (place, part) in all().filter_map(|request| request.part.as_ref()).enumerate() {
            if part.total == 0 && place > 0 {
                break; // nothing was requested: one reply says so
            }
            if let Some((reply, bytes)) = &part.last {
                let reply = Reply { bytes, ..*reply };
                part.pass_on(number, &reply, &mut |whole| sink.session(session, whole));
            }
        }
        self.core.requests.forget_parts(session, number);
    }

    /// Handles a worker's report that an instruction failed: the client gets it with its own source
    /// position.
    fn failed(&mut self, failure: &message::Failure<'_>, sink: &mut dyn Sink) {
        // The user knows of it, and a read of a result tells the line.
        if failure.class == FailureClass::Cancelled {
            return;
        }
        let session = SessionId(failure.session);
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let number = number_of(state.next_number(), failure.number);
        if state.cause(number).is_some() {
            return;
        }
        let cause = root_cause(state, number, failure);
        sink.session(session, &ToClient::Failure(cause.message(session)));
    }

    fn failed_reply(&mut self, request: u64, failure: &message::Failure<'_>, sink: &mut dyn Sink) {
        let Some(open) = self.core.requests.open.remove(&key_of(request)) else { return };
        if open.part.is_some() {
            self.core.requests.forget_parts(open.session, open.number);
        }
        if failure.session != open.session.0 {
            return self.failed_borrowed(&open, failure, sink);
        }
        let Some(state) = self.sessions.get_mut(&open.session) else { return };
        let number = number_of(state.next_number(), failure.number);
        // A read may fail on one worker before another worker, where the instruction failed, has
        // reported that. The loss of a worker may not be the only failure.
        if failure.class != FailureClass::WorkerLost && state.cause(number).is_none() {
            root_cause(state, number, failure);
        }
        // One instruction may fail for two reasons: an index here, and the loss of a worker that
        // was to send it an operand. Readers of that operand get the loss.
        let is_it = |cause: &RootCause| cause.number == number && cause.class == failure.class;
        let known = state.causes().find(|known| is_it(known.cause()));
        let failure = match known {
            Some(cause) => cause.message(open.session),
            None => message::Failure {
                number,
                op: failure.op.and_then(of_users),
                tag: state.site_of(number),
                ..*failure
            },
        };
        sink.session(open.session, &ToClient::FailedReply { request: open.number, failure });
    }

    /// Answers a request for a value that depends on a failed one of another session: the number and
    /// the line are that session's, so the client gets neither.
    fn failed_borrowed(&self, open: &Request, failure: &message::Failure<'_>, sink: &mut dyn Sink) {
        let owner = self.named().find(|named| named.session.0 == failure.session);
        let owner =
            owner.map_or_else(|| failure.session.to_string(), |one| format!("{:?}", one.name));
        let text = format!("{} (in session {owner}, which lends it)", failure.text);
        let failure = message::Failure {
            session: open.session.0,
            number: NO_NUMBER,
            op: failure.op.and_then(of_users),
            tag: 0,
            text: message::clip(&text),
            ..*failure
        };
        sink.session(open.session, &ToClient::FailedReply { request: open.number, failure });
    }
}

/// Root cause of an instruction's failure, returned by this and every later read.
fn root_cause(state: &mut Session, number: u64, failure: &message::Failure<'_>) -> ValueFailure {
    state.remember(ValueFailure::new(RootCause {
        number,
        class: failure.class,
        op: failure.op.unwrap_or(Op::Synchronize),
        site: state.site_of(number),
        text: state.operands.in_text(number, failure),
    }))
}

/// The number of a request as workers send it back; no open request has a number below 1.
fn key_of(request: u64) -> i64 {
    i64::try_from(request).unwrap_or(0)
}
