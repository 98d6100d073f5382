//! Peers that leave: a client's values are freed; a worker's values fail unless another worker
//! holds a copy.

use super::Dispatcher;
use crate::event::{SessionId, Sink, WorkerIndex};
use crate::session::Session;
use crate::session::failure::{RootCause, ValueFailure};
use crate::session::requests::RequestKind;
use crate::session::value::{PendingLayout, Shards, Value};
use gt_protocol::message::{self, FailureClass, ToClient};
use gt_protocol::placement::{Layout, Mesh};
use gt_protocol::{Id, Op};
use smallvec::SmallVec;

impl Dispatcher {
    /// Closes the session of a client that is gone: frees its values and drops its open requests.
    pub(super) fn close_session(&mut self, id: SessionId, sink: &mut dyn Sink) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.forget_name(id);
        self.session_quotas.remove(&id);
        self.core.requests.open.retain(|_, request| request.session != id);
        self.core.workers.leave_home(session.home);
        self.core.workers.forget_user(id);
        for (_, value) in session.values() {
            self.core.workers.free_all(value.worker_slots(), sink);
        }
    }

    /// Handles the loss of a worker: values that only it held fail, and so do its open requests.
    pub(super) fn worker_left(&mut self, index: WorkerIndex, reason: &str, sink: &mut dyn Sink) {
        if !self.core.workers.leave(index) {
            return;
        }
        let text = format!("worker {index} is gone ({reason}) and held this value");
        for (&id, session) in &mut self.sessions {
            let before = session.live_values();
            let orphans = forget_worker(session, index, &text, &|_| true);
            self.core.workers.free_all(orphans.into_iter(), sink);
            let reason = with_losses(reason, before - session.live_values());
            sink.session(id, &ToClient::WorkerLeft { index, reason: message::clip(&reason) });
        }
        let requests = self.core.requests.open.iter();
        let lost: Vec<i64> = requests
            .filter(|(_, request)| request.waiting.contains(&index))
            .map(|(key, _)| *key)
            .collect();
        for key in lost {
            self.request_lost(key, index, &text, sink);
        }
        self.left_in_recovery((index, reason), sink);
    }

    pub(super) fn request_lost(
        &mut self,
        key: i64,
        index: WorkerIndex,
        text: &str,
        sink: &mut dyn Sink,
    ) {
        // The loss of another shard of the same read may have answered it.
        let Some(request) = self.core.requests.open.get(&key) else { return };
        if let RequestKind::Read { value, .. } = request.kind {
            let (id, number) = (request.session, request.number);
            self.core.requests.open.remove(&key);
            self.core.requests.forget_parts(id, number);
            let tag = self.sessions.get(&id).map_or(0, |session| session.site_of_value(value));
            let failure = message::Failure {
                session: id.0,
                number: value,
                class: FailureClass::WorkerLost,
                op: None,
                tag,
                text: message::clip(text),
            };
            sink.session(id, &ToClient::FailedReply { request: number, failure });
        } else {
            self.answered(index, key, None, sink);
        }
    }
}

/// `its process ended; 3 values were lost`.
pub(super) fn with_losses(reason: &str, count: usize) -> String {
    match count {
        0 => format!("{reason}; no value was lost"),
        1 => format!("{reason}; 1 value was lost"),
        _ => format!("{reason}; {count} values were lost"),
    }
}

/// Fails the values of a session that lose a shard; replicated ones keep the remaining copies.
/// Returns the remaining shards of the failed ones, to be freed. Values that are not `lost` lose
/// nothing.
pub(super) fn forget_worker(
    session: &mut Session,
    index: WorkerIndex,
    text: &str,
    lost: &dyn Fn(u32) -> bool,
) -> Vec<(u32, u32)> {
    let mut orphans = Vec::new();
    let is_on = |value: &Value| value.worker_slots().any(|(worker, _)| worker == index);
    let touched: Vec<u32> = session
        .values()
        .filter(|(_, value)| is_on(value) || is_target_on(value, index))
        .map(|(slot, _)| slot)
        .filter(|&slot| lost(slot))
        .collect();
    for slot in touched {
        let Some(value) = session.value_mut(slot) else { unreachable!("slot {slot} is live") };
        if is_target_on(value, index) {
            // The value keeps its layout: a part of the requested layout is no layout.
            value.take_pending();
        }
        orphans.extend(forget_copies(value, index));
        let Some(shards) = value.ready_shards() else { continue };
        if shards.on(index).is_none() {
            continue;
        }
        if let Some(left) = remaining(&shards, index) {
            value.replace(left);
            continue;
        }
        orphans.extend(shards.worker_slots().filter(|(worker, _)| *worker != index));
        let mut copies = value.take_copies();
        if let Some(copy) = copies.pop() {
            value.replace(copy);
            for copy in copies {
                value.add_copy(copy);
            }
            continue;
        }
        let cause = RootCause {
            number: value.number(),
            class: FailureClass::WorkerLost,
            op: Op::Receive,
            site: value.site,
            text: text.to_owned(),
        };
        session.define_failed(Id::slot(slot), ValueFailure::new(cause));
    }
    orphans
}

/// Returns true if the value is to take a layout with that worker at its first use.
fn is_target_on(value: &Value, index: WorkerIndex) -> bool {
    let target = match value.pending() {
        PendingLayout::Target(target) | PendingLayout::Rebalance(target) => Some(target),
        PendingLayout::Record => Some(value.layout()),
        PendingLayout::Nothing => None,
    };
    target.is_some_and(|target| target.mesh().place(index).is_some())
}

/// Shards that are still a whole value without that worker.
fn remaining(shards: &Shards, index: WorkerIndex) -> Option<Shards> {
    let others: SmallVec<[(u32, u32); 2]> =
        shards.worker_slots().filter(|(worker, _)| *worker != index).collect();
    if !shards.layout.is_whole() || others.is_empty() {
        return None;
    }
    let members: SmallVec<[u32; 8]> = others.iter().map(|(worker, _)| *worker).collect();
    let layout = Layout::replicated(Mesh::line(&members));
    Some(Shards::new(layout, others.iter().map(|(_, slot)| *slot).collect()))
}

/// Removes copies that lose a shard, except replicated ones; returns the remaining shards of the
/// others.
fn forget_copies(value: &mut Value, index: WorkerIndex) -> Vec<(u32, u32)> {
    let mut orphans = Vec::new();
    for copy in value.take_copies() {
        if copy.on(index).is_none() {
            value.add_copy(copy);
        } else if let Some(left) = remaining(&copy, index) {
            value.add_copy(left);
        } else {
            orphans.extend(copy.worker_slots().filter(|(worker, _)| *worker != index));
        }
    }
    orphans
}
