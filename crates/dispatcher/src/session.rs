//! One client's table of handles, its numbers, its failures, and the history of its instructions.
//! Nothing is planned here.

pub(crate) mod failure;
pub(crate) mod provenance;
pub(crate) mod published;
pub(crate) mod reason;
pub(crate) mod reductions;
pub(crate) mod requests;
pub(crate) mod scopes;
pub(crate) mod spec;
pub(crate) mod uploads;
pub(crate) mod value;

use crate::event::ClientFault;
use failure::{ClientOperand, ClientOperands, OperandHistory, RootCause, ValueFailure};
use gt_protocol::{Id, Instruction, Op, Operand};
use provenance::TrafficStats;
use published::{KEPT_FIRST, Published};
use reductions::Reductions;
use scopes::Scopes;
use spec::Specs;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use uploads::UploadHistory;
use value::{Borrowing, Handle, Value};

/// Maximum number of live values of one session; a client that exceeds it is refused before the
/// table uses up the memory.
const SLOTS_MAX: u32 = 1 << 24;
/// Maximum distance of a new slot above all others: clients reuse their slots, so a new one is the
/// next or, with several threads, close to it. Without this limit one instruction could grow the
/// table of a session to 2.6 GB.
const SLOTS_AHEAD_MAX: u32 = 1 << 16;
/// Number of call sites kept for instructions that may still fail on a worker: more than any ring
/// holds. Values keep their own.
const SITES_KEPT: u64 = 1 << 16;
/// Call site of an instruction without one.
const NO_SITE: u32 = 0;
/// Number of failures kept for later reads of dependent values.
const FAILURES_KEPT: usize = 1024;
/// Maximum number of names of signals and sites that a client may define.
const NAMES_MAX: usize = 1 << 16;

pub(crate) struct Session {
    handles: Vec<Handle>,
    next_number: u64,
    /// Call site of number n, at index n modulo [`SITES_KEPT`].
    sites: Vec<u32>,
    failures: VecDeque<ValueFailure>,
    pub operands: OperandHistory,
    pub home: Option<u32>,
    /// Epoch of the workers in which the first value got its place.
    pub first_epoch: Option<u64>,
    /// True once a layout over several workers, or over all that there were, has been decided.
    pub has_layouts: bool,
    pub signals: BTreeMap<u32, Box<str>>,
    pub site_names: BTreeMap<u32, Box<str>>,
    pub scopes: Scopes,
    pub specs: Specs,
    pub uploads: UploadHistory,
    pub reductions: Reductions,
    pub traffic: TrafficStats,
    pub published: Published,
    /// User that the session belongs to; `None` where nobody has said so.
    pub user: Option<Arc<str>>,
    /// Bytes that the session may hold during its turn; the largest number without a quota.
    pub allowance: u64,
    live_values: usize,
    live_bytes: u64,
}

impl Session {
    pub fn new() -> Self {
        Self {
            handles: Vec::new(),
            next_number: 0,
            sites: Vec::new(),
            failures: VecDeque::new(),
            operands: OperandHistory::default(),
            home: None,
            first_epoch: None,
            has_layouts: false,
            signals: BTreeMap::new(),
            site_names: BTreeMap::new(),
            scopes: Scopes::default(),
            specs: Specs::default(),
            uploads: UploadHistory::default(),
            reductions: Reductions::default(),
            traffic: TrafficStats::default(),
            published: Published::default(),
            user: None,
            allowance: u64::MAX,
            live_values: 0,
            live_bytes: 0,
        }
    }

    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Operands in the form that a failure's text shows.
    pub fn client_operands(&self, instruction: &Instruction<'_>) -> ClientOperands {
        let value = |id: Id| id.as_slot().and_then(|slot| self.value(slot));
        let operand = |operand: &Operand| match operand {
            Operand::Absent => ClientOperand::Absent,
            Operand::Scalar(scalar) => ClientOperand::Scalar(*scalar),
            Operand::Value(id) => value(*id).map_or(ClientOperand::Absent, |value| {
                ClientOperand::Value(Arc::clone(value.spec()))
            }),
        };
        instruction.operands.iter().map(operand).collect()
    }

    /// Keeps the operands of the last numbered instruction, unless one worker holds them all whole.
    pub fn note_operands(&mut self, op: Op, operands: ClientOperands) {
        let holder = |operand: &ClientOperand| match operand {
            ClientOperand::Absent | ClientOperand::Scalar(_) => None,
            ClientOperand::Value(spec) => Some(spec.single),
        };
        let mut holders = operands.iter().filter_map(holder);
        let Some(first) = holders.next() else { return };
        if first.is_none() || holders.any(|holder| holder != first) {
            self.operands.keep(self.next_number - 1, op, operands);
        }
    }

    pub fn live_values(&self) -> usize {
        self.live_values
    }

    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Returns true if the session may not hold so many bytes more.
    #[inline]
    pub fn exceeds(&self, bytes: u64) -> bool {
        self.live_bytes.saturating_add(bytes) > self.allowance
    }

    /// The next number of the stream, for an instruction from call site `site`.
    pub fn number(&mut self, site: u32) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let place = site_place(number);
        match self.sites.get_mut(place) {
            Some(kept) => *kept = site,
            // Numbers are consecutive, so this is the next index.
            None => self.sites.push(site),
        }
        number
    }

    /// The call site of an instruction; 0, which means none, for one too old to be in flight.
    pub fn site_of(&self, number: u64) -> u32 {
        let is_kept = self.next_number.saturating_sub(number) <= SITES_KEPT;
        self.sites.get(site_place(number)).copied().filter(|_| is_kept).unwrap_or(NO_SITE)
    }

    /// The call site of the instruction that defined a value, however old; 0 for none.
    pub fn site_of_value(&self, number: u64) -> u32 {
        let kept = self.handles.iter().find_map(|handle| match handle {
            Handle::Live(value) => (value.number() == number).then_some(value.site),
            Handle::Failed(failure) => {
                (failure.cause().number == number).then_some(failure.cause().site)
            }
            Handle::Free => None,
        });
        kept.unwrap_or_else(|| self.site_of(number))
    }

    pub fn handle(&self, slot: u32) -> &Handle {
        const FREE: &Handle = &Handle::Free;
        let own = usize::try_from(slot).ok().and_then(|place| self.handles.get(place));
        own.or_else(|| self.published.handle(slot)).unwrap_or(FREE)
    }

    pub fn value(&self, slot: u32) -> Option<&Value> {
        match self.handle(slot) {
            Handle::Live(value) => Some(value),
            Handle::Free | Handle::Failed(_) => None,
        }
    }

    pub fn value_mut(&mut self, slot: u32) -> Option<&mut Value> {
        let handle = match self.handles.get_mut(usize::try_from(slot).ok()?) {
            Some(own) => own,
            None => self.published.handle_mut(slot)?,
        };
        match handle {
            Handle::Live(value) => Some(value),
            Handle::Free | Handle::Failed(_) => None,
        }
    }

    /// All live values with their slots, those that it keeps under names among them.
    pub fn values(&self) -> impl Iterator<Item = (u32, &Value)> {
        let own = (0..).zip(&self.handles).filter_map(|(slot, handle)| match handle {
            Handle::Live(value) => Some((slot, value)),
            Handle::Free | Handle::Failed(_) => None,
        });
        own.chain(self.published.live())
    }

    /// Checks that `id` may be defined: it is within the limit and free.
    pub fn check_definable(&self, op: Op, id: Id) -> Result<u32, ClientFault> {
        let slot = id.as_slot().ok_or(ClientFault::UnknownSlot { op, slot: u64::MAX })?;
        let count =
            u32::try_from(self.handles.len()).expect("no more values than the limit of a session");
        let limit = count.saturating_add(SLOTS_AHEAD_MAX).min(SLOTS_MAX);
        if slot >= limit {
            return Err(ClientFault::TooManyValues { slot: u64::from(slot), limit });
        }
        match self.handle(slot) {
            Handle::Free => Ok(slot),
            Handle::Live(_) | Handle::Failed(_) => {
                Err(ClientFault::SlotInUse { op, slot: u64::from(slot) })
            }
        }
    }

    fn place(&mut self, slot: u32) -> Option<&mut Handle> {
        let place = usize::try_from(slot).ok()?;
        if place >= self.handles.len() {
            if slot >= KEPT_FIRST {
                return self.published.handle_mut(slot);
            }
            self.handles.resize_with(place + 1, Handle::default);
        }
        self.handles.get_mut(place)
    }

    pub fn define(&mut self, slot: u32, mut value: Value) {
        value.site = self.site_of(value.number());
        self.enter(slot, value);
    }

    /// Enters a value that has its call site.
    #[inline]
    pub fn enter(&mut self, slot: u32, value: Value) {
        let bytes = value.counted_bytes();
        if let Some(handle) = self.place(slot) {
            *handle = Handle::Live(value);
            self.live_values += 1;
            self.live_bytes = self.live_bytes.saturating_add(bytes);
        }
    }

    pub fn define_failed(&mut self, id: Id, failure: ValueFailure) {
        let Some(slot) = id.as_slot() else { return };
        self.clear(slot);
        if let Some(handle) = self.place(slot) {
            *handle = Handle::Failed(failure);
        }
    }

    /// Clears a slot, in place because a value is large and every one ends here.
    pub fn clear(&mut self, slot: u32) {
        let place = usize::try_from(slot).ok().and_then(|place| self.handles.get_mut(place));
        let Some(handle) = place.or_else(|| self.published.handle_mut(slot)) else { return };
        if let Handle::Live(value) = handle {
            self.live_values -= 1;
            self.live_bytes = self.live_bytes.saturating_sub(value.counted_bytes());
        }
        *handle = Handle::Free;
    }

    /// Takes what a client's slot refers to, which becomes free.
    #[inline]
    pub fn take(&mut self, slot: u32) -> Result<Handle, ClientFault> {
        // Behind the client's slots are those that a name keeps; no client has these.
        let own = usize::try_from(slot).ok().and_then(|place| self.handles.get_mut(place));
        match own.map(std::mem::take) {
            Some(Handle::Free) | None => {
                Err(ClientFault::UnknownSlot { op: Op::Free, slot: u64::from(slot) })
            }
            Some(handle) => {
                if let Handle::Live(value) = &handle {
                    self.live_values -= 1;
                    self.live_bytes = self.live_bytes.saturating_sub(value.counted_bytes());
                }
                Ok(handle)
            }
        }
    }

    /// Notes that a live value is borrowed: its bytes count for its owner.
    pub fn note_borrowed(&mut self, slot: u32, token: Arc<()>) {
        let Some(value) = self.value_mut(slot) else { return };
        let counted = value.counted_bytes();
        value.set_borrowing(Borrowing::Borrower(token));
        self.live_bytes = self.live_bytes.saturating_sub(counted);
    }

    /// Keeps a root cause for later reads.
    pub fn remember(&mut self, failure: ValueFailure) -> ValueFailure {
        if self.failures.len() == FAILURES_KEPT {
            self.failures.pop_front();
        }
        self.failures.push_back(failure.clone());
        failure
    }

    /// The root cause with this number, if it is still kept.
    pub fn cause(&self, number: u64) -> Option<&RootCause> {
        self.causes().map(ValueFailure::cause).find(|cause| cause.number == number)
    }

    /// Root causes that are still kept, the latest first.
    pub fn causes(&self) -> impl Iterator<Item = &ValueFailure> {
        self.failures.iter().rev()
    }

    /// Sets the name of a signal or site.
    pub fn name(&mut self, op: Op, id: u32, name: &str) {
        let names = if op == Op::Signal { &mut self.signals } else { &mut self.site_names };
        if names.len() < NAMES_MAX {
            names.insert(id, name.into());
        }
    }
}

/// Index of an instruction's call site.
fn site_place(number: u64) -> usize {
    // The remainder is below the limit, which fits.
    usize::try_from(number % SITES_KEPT).expect("a remainder of SITES_KEPT fits usize")
}
