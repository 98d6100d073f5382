//! Peers that go away: a client's values are freed, a worker's values fail unless another worker holds a copy.

use crate::Dispatcher;
use crate::event::{SessionId, Sink, WorkerIndex};
use crate::failure::{Cause, Failure};
use crate::handle::{Shards, Value};
use crate::request::RequestKind;
use crate::worker::Worker;
use crate::{planted, worker};
use gt_protocol::message::{self, FailureClass, ToClient};
use gt_protocol::placement::{Layout, Mesh};
use gt_protocol::{Id, Op};
use smallvec::SmallVec;

impl Dispatcher {
    /// A client is gone: everything it held is freed, its open requests are forgotten.
    pub(crate) fn close_session(&mut self, session: SessionId, sink: &mut dyn Sink) {
        let Some(state) = self.sessions.remove(&session) else { return };
        self.requests.retain(|_, request| request.session != session);
        for (_, value) in state.values().filter(|_| !planted::LEAK_ON_LEAVE) {
            worker::free_value(&mut self.workers, value, sink);
        }
    }

    /// A worker is gone: what only it held has failed; its open requests are answered so.
    pub(crate) fn worker_left(&mut self, index: WorkerIndex, reason: &str, sink: &mut dyn Sink) {
        let Some(worker) = self.worker_mut(index) else { return };
        if !worker.alive {
            return;
        }
        *worker = Worker::default();
        let text = format!("worker {index} is gone ({reason}) and held this value");
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for session in &sessions {
            let orphans = self.forget_worker(*session, index, &text);
            for (worker, slot) in orphans {
                self.free_slots(worker, &[slot], sink);
            }
            sink.session(*session, &ToClient::WorkerLeft { index, reason: message::clip(reason) });
        }
        let lost: Vec<i64> = self
            .requests
            .iter()
            .filter(|(_, request)| request.waiting.contains(&index) && !planted::REQUEST_LOST)
            .map(|(key, _)| *key)
            .collect();
        for key in lost {
            self.request_lost(key, index, &text, sink);
        }
    }

    fn request_lost(&mut self, key: i64, index: WorkerIndex, text: &str, sink: &mut dyn Sink) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        if let RequestKind::Read { value } = request.kind {
            let (session, number) = (request.session, request.number);
            self.requests.remove(&key);
            self.forget_parts(session, number);
            let tag = self.sessions.get(&session).map_or(0, |state| state.site_of_value(value));
            let failure = message::Failure {
                session: session.0,
                number: value,
                class: FailureClass::WorkerLost,
                op: None,
                tag,
                text: message::clip(text),
            };
            sink.session(session, &ToClient::FailedReply { request: number, failure });
        } else {
            self.answered(index, u64::try_from(key).unwrap_or(0), None, sink);
        }
    }

    /// Values of a session that lose a piece fail; replicated ones go on with the copies that are left.
    /// Returns what is left of the failed ones, to be freed.
    fn forget_worker(
        &mut self,
        session: SessionId,
        index: WorkerIndex,
        text: &str,
    ) -> Vec<(u32, u32)> {
        let mut orphans = Vec::new();
        let Some(state) = self.sessions.get_mut(&session) else { return orphans };
        let touched: Vec<u32> = state
            .values()
            .filter(|(_, value)| {
                value.held().any(|(worker, _)| worker == index) || wished_on(value, index)
            })
            .map(|(slot, _)| slot)
            .collect();
        for slot in touched {
            let Some(value) = state.value_mut(slot) else { continue };
            if wished_on(value, index) {
                // It stays where it is: a part of what was wished for is no layout.
                value.wish = None;
            }
            orphans.extend(forget_copies(value, index));
            if !value.shards.held().any(|(worker, _)| worker == index) {
                continue;
            }
            if let Some(left) = remaining(&value.shards, index) {
                value.shards = left;
                continue;
            }
            let kept: SmallVec<[(u32, u32); 2]> =
                value.shards.held().filter(|(worker, _)| *worker != index).collect();
            if let Some(copy) = value.copies.pop() {
                value.shards = copy;
                orphans.extend(kept);
                continue;
            }
            let value = value.clone();
            let cause = Cause {
                number: value.number,
                class: FailureClass::WorkerLost,
                op: Op::Receive,
                site: value.site,
                text: text.to_owned(),
            };
            state.define_failed(Id::slot(slot), Failure::new(cause));
            orphans.extend(kept);
        }
        orphans
    }
}

/// Whether the value is to lie on that worker from its first use on.
fn wished_on(value: &Value, index: WorkerIndex) -> bool {
    value.wish.as_ref().is_some_and(|layout| layout.mesh().place(index).is_some())
}

/// What is still whole without that worker.
fn remaining(shards: &Shards, index: WorkerIndex) -> Option<Shards> {
    let kept: SmallVec<[(u32, u32); 2]> =
        shards.held().filter(|(worker, _)| *worker != index).collect();
    if !shards.layout.is_whole() || kept.is_empty() {
        return None;
    }
    let members: SmallVec<[u32; 8]> = kept.iter().map(|(worker, _)| *worker).collect();
    let layout = Layout::replicated(Mesh::line(&members));
    Some(Shards { layout, slots: kept.iter().map(|(_, slot)| *slot).collect() })
}

/// Copies that lose a piece are no copies any more, but for whole ones; what is left of the others.
fn forget_copies(value: &mut Value, index: WorkerIndex) -> Vec<(u32, u32)> {
    let mut orphans = Vec::new();
    for copy in std::mem::take(&mut value.copies) {
        if copy.on(index).is_none() {
            value.copies.push(copy);
        } else if let Some(left) = remaining(&copy, index) {
            value.copies.push(left);
        } else {
            orphans.extend(copy.held().filter(|(worker, _)| *worker != index));
        }
    }
    orphans
}
