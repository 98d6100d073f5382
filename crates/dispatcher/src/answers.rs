//! What workers answer and report, passed on to the client that asked.

use crate::Dispatcher;
use crate::event::{SessionId, Sink, WorkerIndex};
use crate::failure::{Cause, Failure, of_users};
use crate::planted;
use crate::request::RequestKind;
use gt_protocol::Op;
use gt_protocol::message::{self, FromWorker, Reply, Stats, ToClient};

impl Dispatcher {
    /// Asks all workers for their counters.
    pub(crate) fn ask_stats(&mut self, session: SessionId, request: u64, sink: &mut dyn Sink) {
        self.fold_all_awaited(session, sink);
        self.ask_all(session, request, RequestKind::Stats, sink);
    }

    pub(crate) fn worker_says(
        &mut self,
        index: WorkerIndex,
        message: &FromWorker<'_>,
        sink: &mut dyn Sink,
    ) {
        match message {
            FromWorker::Reply(reply) => self.replied(*reply, sink),
            FromWorker::Done { request } => self.answered(index, *request, None, sink),
            FromWorker::Stats(stats) => self.answered(index, stats.request, Some(*stats), sink),
            FromWorker::Failure(failure) => self.failed(failure, sink),
            FromWorker::FailedReply { request, failure } => {
                self.failed_reply(*request, failure, sink);
            }
            FromWorker::Ways(ways) => self.worker_ways(index, *ways),
            FromWorker::Goodbye { reason } => self.worker_left(index, reason, sink),
        }
    }

    fn replied(&mut self, reply: Reply<'_>, sink: &mut dyn Sink) {
        let request = i64::try_from(reply.request).unwrap_or(0);
        let Some(open) = self.requests.get_mut(&request) else { return };
        let RequestKind::Read { .. } = open.kind else { return };
        open.received = open.received.saturating_add(reply.count);
        let (session, number) = (open.session, open.number);
        let oldest = self.sessions.keys().next().copied().filter(|_| planted::ANSWER_ASTRAY);
        let asker = oldest.unwrap_or(session);
        if open.part.is_some() && open.received >= reply.total {
            return self.part_is_there(request, &reply, sink);
        }
        match &open.part {
            Some(part) => part.pass_on(number, &reply, &mut |whole| sink.session(asker, whole)),
            None => {
                sink.session(asker, &ToClient::Reply(Reply { request: number, ..reply }));
            }
        }
        if open.received >= reply.total {
            self.requests.remove(&request);
        }
    }

    pub(crate) fn answered(
        &mut self,
        index: WorkerIndex,
        request: u64,
        stats: Option<Stats>,
        sink: &mut dyn Sink,
    ) {
        let key = i64::try_from(request).unwrap_or(0);
        let Some(open) = self.requests.get_mut(&key) else { return };
        open.waiting.retain(|worker| *worker != index);
        let (session, number, done) = (open.session, open.number, open.waiting.is_empty());
        if let Some(stats) = stats {
            sink.session(session, &ToClient::Stats(Stats { request: number, ..stats }));
        }
        if done {
            self.requests.remove(&key);
            sink.session(session, &ToClient::Done { request: number });
        }
    }

    /// A worker reports that an instruction failed there: the client hears of it, with its own source position.
    fn failed(&mut self, failure: &message::Failure<'_>, sink: &mut dyn Sink) {
        let session = SessionId(failure.session);
        let low = u32::try_from(failure.number & 0xffff_ffff).unwrap_or(0);
        let number = self.session_number(session, low);
        let Some(state) = self.sessions.get_mut(&session) else { return };
        if state.cause(number).is_some() {
            return;
        }
        let op = failure.op.unwrap_or(Op::Synchronize);
        let site = state.site_of(number);
        let text = state.operands.in_text(number, failure);
        let cause =
            state.remember(Failure::new(Cause { number, class: failure.class, op, site, text }));
        sink.session(session, &ToClient::Failure(cause.message(session)));
    }

    fn failed_reply(&mut self, request: u64, failure: &message::Failure<'_>, sink: &mut dyn Sink) {
        let key = i64::try_from(request).unwrap_or(0);
        let Some(open) = self.requests.remove(&key) else { return };
        if open.part.is_some() {
            self.forget_parts(open.session, open.number);
        }
        let low = u32::try_from(failure.number & 0xffff_ffff).unwrap_or(0);
        let number = self.session_number(open.session, low);
        let Some(state) = self.sessions.get(&open.session) else { return };
        // One instruction may fail for two reasons: an index here, and a worker that was to send it an operand. Who reads that
        // operand is told of the worker.
        let is_it = |cause: &Cause| cause.number == number && cause.class == failure.class;
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
}
