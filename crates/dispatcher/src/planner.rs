//! The context of a plan: one session's table, the state that all sessions share, the sink for
//! outputs, and the number of the planned instruction. Made once for each instruction; everything
//! it emits carries that number, so that a failure on a worker is reported as the user's
//! instruction.

use crate::cost::CostModel;
use crate::event::{SessionId, Sink, low_half};
use crate::session::Session;
use crate::session::failure::{RootCause, ValueFailure};
use crate::session::provenance::{LayoutCause, LayoutChange, LayoutChanges, Traffic};
use crate::session::requests::Requests;
use crate::session::value::{Handle, Shards, Value};
use crate::strategy::cache::PlanCache;
use crate::strategy::replay::Replays;
use crate::workers::Workers;
use gt_protocol::message::{FailureClass, ToClient};
use gt_protocol::placement::Layout;
use gt_protocol::rules::{ErrorClass, RuleError};
use gt_protocol::{Attr, Id, Instruction, KEPT, Op, Operand};

/// Bytes below which creations are not deferred: a megabyte more on a worker does no harm, and work
/// that starts earlier ends earlier.
const DEFER_BYTES_MIN: u64 = 1 << 20;

/// Maximum number of operands whose change of layout is kept for an explanation; a list operand may
/// have thousands.
pub(crate) const CHANGES_MAX: usize = 8;

/// Settings of a dispatcher.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes from which creations wait for their first use, which may determine their layout.
    pub defer_bytes_min: u64,
    /// True if partial values are reduced early, whether the session's history expects that or not.
    pub reduce_early: bool,
    /// True if instructions whose operands are whole on one worker are rewritten in place.
    pub fast_path: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { defer_bytes_min: DEFER_BYTES_MIN, reduce_early: false, fast_path: true }
    }
}

/// State that the sessions of one dispatcher share.
pub(crate) struct Core {
    pub config: Config,
    pub workers: Workers,
    pub requests: Requests,
    pub cost_model: CostModel,
    pub plans: PlanCache,
    pub replays: Replays,
    pub tracing: bool,
    /// True if trace lines have the reasons of layouts.
    pub reasoning: bool,
    pub moved_bytes: u64,
    /// Bytes of operands and results of the last instruction; `u64::MAX` where they were not
    /// counted.
    pub touched_bytes: u64,
    /// Next tag of a transfer between workers.
    next_tag: i64,
    /// Buffer for the words of the instruction that is sent.
    pub words: Vec<u32>,
    /// Buffer for the bytes of an upload that go to one worker.
    pub bytes: Vec<u8>,
    /// Values that were reduced together since the last line of the trace.
    pub reduced_together: Vec<Id>,
}

impl Core {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            workers: Workers::default(),
            requests: Requests::default(),
            cost_model: CostModel::default(),
            plans: PlanCache::default(),
            replays: Replays::default(),
            tracing: false,
            reasoning: false,
            moved_bytes: 0,
            touched_bytes: 0,
            next_tag: 1,
            words: Vec::new(),
            bytes: Vec::new(),
            reduced_together: Vec::new(),
        }
    }

    /// Takes a tag that no transfer has had.
    pub fn take_tag(&mut self) -> i64 {
        let tag = self.next_tag;
        self.next_tag = tag.wrapping_add(1);
        tag
    }
}

/// Plans one instruction of a session.
pub(crate) struct Planner<'p> {
    pub core: &'p mut Core,
    pub session: &'p mut Session,
    pub id: SessionId,
    pub sink: &'p mut dyn Sink,
    /// Number of the planned instruction.
    pub number: u64,
    /// Operands whose layout this plan has changed.
    pub changes: LayoutChanges,
    /// True while workers are sent what they execute even if it is cancelled, since a value from
    /// before depends on it: its creation, or its new layout.
    pub keeps: bool,
}

impl<'p> Planner<'p> {
    pub fn new(
        core: &'p mut Core,
        session: &'p mut Session,
        id: SessionId,
        sink: &'p mut dyn Sink,
    ) -> Self {
        Self { core, session, id, sink, number: 0, changes: LayoutChanges::new(), keeps: false }
    }

    /// Runs work that belongs to an earlier instruction: everything it emits carries that one's
    /// number.
    pub fn on_behalf_of<T>(&mut self, number: u64, work: impl FnOnce(&mut Self) -> T) -> T {
        let planned_for = std::mem::replace(&mut self.number, number);
        let result = work(self);
        self.number = planned_for;
        result
    }

    /// The session's value of an operand that has been checked.
    pub fn value(&self, slot: u32) -> &Value {
        let Some(value) = self.session.value(slot) else { unreachable!("slot {slot} is free") };
        value
    }

    pub fn value_mut(&mut self, slot: u32) -> &mut Value {
        let Some(value) = self.session.value_mut(slot) else { unreachable!("slot {slot} is free") };
        value
    }

    /// Replaces the value's shards.
    pub fn replace(&mut self, slot: u32, shards: Shards) {
        let cause = LayoutCause::Instruction(self.number);
        let value = self.value_mut(slot);
        value.set_cause(cause);
        if let Some(old) = value.replace(shards) {
            self.free_shards(&old);
        }
    }

    /// The worker that creates this session's new tensors: the one with the fewest sessions when it
    /// was chosen.
    pub fn home(&mut self) -> Option<u32> {
        self.note_epoch();
        let home = self.session.home;
        if home.is_none_or(|home| !self.core.workers.is_alive(home)) {
            self.session.home = self.core.workers.choose_home(home);
        }
        self.session.home
    }

    /// Notes that a value gets its place among the workers that are there now.
    pub fn note_epoch(&mut self) {
        self.session.first_epoch.get_or_insert(self.core.workers.epoch());
    }

    pub fn take_slot(&mut self, worker: u32) -> u32 {
        self.core.workers.take_slot(worker)
    }

    pub fn take_tag(&mut self) -> Attr {
        Attr::Int(self.core.take_tag())
    }

    /// An instruction of the plan's own.
    pub fn word(&self, op: Op) -> Instruction<'static> {
        let mut word = Instruction::new(op);
        word.tag = low_half(self.number);
        word.signal = self.kept_signal();
        word
    }

    /// The signal of a worker's instruction.
    pub const fn kept_signal(&self) -> u16 {
        if self.keeps { KEPT } else { 0 }
    }

    /// Runs work whose instructions are executed even if they are cancelled.
    pub fn keeping<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.keeps, true);
        let result = work(self);
        self.keeps = before;
        result
    }

    /// Sends an instruction to a worker, and before it the session if that has changed.
    pub fn send(&mut self, worker: u32, instruction: &Instruction<'_>) {
        if self.core.workers.address(self.id, worker, self.sink) {
            self.sink.worker(worker, instruction);
        }
    }

    /// Sends an instruction with one result to `worker`; returns the result's slot.
    pub fn emit(
        &mut self,
        worker: u32,
        op: Op,
        operands: &[u32],
        attrs: impl IntoIterator<Item = Attr>,
    ) -> u32 {
        let result = self.take_slot(worker);
        let mut word = self.word(op);
        word.outputs.push(Id::slot(result));
        word.operands.extend(operands.iter().map(|&slot| Operand::Value(Id::slot(slot))));
        word.attrs.extend(attrs);
        self.send(worker, &word);
        result
    }

    pub fn free(&mut self, worker: u32, slot: u32) {
        self.core.workers.free(worker, &[slot], self.sink);
    }

    pub fn free_shards(&mut self, shards: &Shards) {
        self.core.workers.free_all(shards.worker_slots(), self.sink);
    }

    /// Counts bytes that are moved between workers, by kind of traffic.
    pub fn count_moved(&mut self, traffic: Traffic, bytes: u64) {
        self.core.moved_bytes = self.core.moved_bytes.saturating_add(bytes);
        self.session.traffic.count(traffic, bytes);
    }

    /// Notes that an operand has another layout than the plan needs.
    pub fn note_change(&mut self, slot: u32, to: &Layout) {
        let value = self.value(slot);
        if value.layout() != to && self.changes.len() < CHANGES_MAX {
            let (number, from, to) = (value.number(), value.layout().clone(), to.clone());
            self.changes.push(LayoutChange { number, from, to });
        }
    }

    /// Marks an instruction's results as failed, with itself as the root cause, and tells the
    /// client.
    pub fn fail(&mut self, instruction: &Instruction<'_>, error: &RuleError) {
        self.fail_with(instruction, error.class.into(), error.text.clone());
    }

    /// [`Self::fail`] with a class that rules do not have.
    pub fn fail_with(&mut self, instruction: &Instruction<'_>, class: FailureClass, text: String) {
        let (number, op, site) = (self.number, instruction.op, instruction.tag);
        let failure = self.report(RootCause { number, class, op, site, text });
        self.inherit(instruction, &failure);
    }

    /// Marks an instruction's results as failed for the same reason as its operand.
    pub fn inherit(&mut self, instruction: &Instruction<'_>, failure: &ValueFailure) {
        for output in &instruction.outputs {
            self.session.define_failed(*output, failure.clone());
        }
    }

    /// Marks a deferred value as failed.
    pub fn fail_value(&mut self, slot: u32, op: Op, class: FailureClass, text: String) {
        let value = self.value(slot);
        let (number, site) = (value.number(), value.site);
        let failure = self.report(RootCause { number, class, op, site, text });
        self.session.define_failed(Id::slot(slot), failure);
    }

    fn report(&mut self, cause: RootCause) -> ValueFailure {
        let failure = self.session.remember(ValueFailure::new(cause));
        self.sink.session(self.id, &ToClient::Failure(failure.message(self.id)));
        failure
    }

    /// Failure of the first operand that has failed.
    pub fn failed_operand(&self, instruction: &Instruction<'_>) -> Option<ValueFailure> {
        let mut slots = instruction.values().filter_map(Id::as_slot);
        slots.find_map(|slot| match self.session.handle(slot) {
            Handle::Failed(failure) => Some(failure.clone()),
            Handle::Live(_) | Handle::Free => None,
        })
    }
}

/// The error of an instruction that no worker can run.
pub(crate) fn no_worker() -> RuleError {
    RuleError {
        class: ErrorClass::Runtime,
        text: "no worker is connected to the dispatcher".to_owned(),
    }
}
