//! The state of a client's connection: the connection itself, slots, requests, generator, and the
//! call sites whose names the dispatcher has.

use super::fork::forked;
use crate::client::connection::Connection;
use crate::client::connection::answers::{Answers, Failed};
use crate::client::gil_cell::GilCell;
use crate::client::session::generator::Generator;
use crate::client::session::known;
use crate::client::session::region::{HeldRegion, Treatment};
use gt_protocol::integer::{to_u64, to_usize};
use gt_protocol::wire::{HEADER_WORDS, PAYLOAD_BYTES_MAX};
use gt_protocol::{Attr, Instruction, Meta, Op};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of slots freed in one instruction.
const FREE_BATCH: usize = 512;

/// Bytes of values whose `free` may wait for the next instruction: less than one large value, or
/// many small ones.
const WAITING_BYTES_MAX: u64 = 1 << 20;

/// Slots of one instruction's results.
pub(crate) type ResultSlots = SmallVec<[u32; 2]>;

/// Origin of an instruction: the user's call site and the signal around it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub site: u32,
    pub signal: u16,
}

pub(crate) struct Runtime {
    pub connection: Option<Box<dyn Connection>>,
    pub answers: Answers,
    pub generator: Option<Generator>,
    /// True, by call site, if the dispatcher has its name; `None` where the dispatcher does not
    /// want names.
    pub(super) announced: Option<Vec<bool>>,
    /// Number of workers that the embedded dispatcher starts.
    pub workers: Option<u32>,
    /// True if the configuration has been read since the connection was opened.
    pub(super) begun: bool,
    /// Time limit for a dispatcher's first worker and the start of the wait; `None` once there was
    /// a worker, or where the workers are this program's own.
    pub hope: Option<Hope>,
    /// True once the user has been told that this program's own workers start.
    pub(super) is_start_told: bool,
    pub(super) slots: SlotPool,
    /// The region of the program that may be compiled, if the program is in one.
    pub(crate) region: Option<HeldRegion>,
    words: Vec<u32>,
}

/// A wait for a worker that is expected to join.
#[derive(Clone, Copy)]
pub(crate) struct Hope {
    pub limit: Duration,
    /// Time at which something first had to wait.
    pub since: Option<Instant>,
    /// True once the user has been told that a worker is waited for.
    pub is_announced: bool,
}

/// The session's slots, and which of them are free again.
#[derive(Default)]
pub(super) struct SlotPool {
    pub(super) free: Vec<u32>,
    next: u32,
}

pub(super) static RUNTIME: GilCell<Option<Runtime>> = GilCell::new(None);

/// Slots whose values are gone but whose `free` has not been sent yet: it goes with the next
/// instruction.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) slots: Vec<u32>,
    bytes: u64,
}

pub(super) static WAITING: GilCell<Waiting> = GilCell::new(Waiting { slots: Vec::new(), bytes: 0 });
pub(super) static EPOCH: AtomicU32 = AtomicU32::new(1);
/// Number of batches of words that threads took from inboxes (counted with the inbox locked) ...
pub(super) static TAKEN: AtomicU64 = AtomicU64::new(0);
/// ... and number of these that the core has received (counted with the GIL held). While the two
/// differ, a thread is about to deliver a batch.
pub(super) static RECEIVED: AtomicU64 = AtomicU64::new(0);

impl Runtime {
    pub(super) fn new() -> Self {
        Self {
            connection: None,
            answers: Answers::default(),
            generator: None,
            announced: None,
            workers: None,
            begun: false,
            hope: None,
            is_start_told: false,
            slots: SlotPool::default(),
            region: None,
            words: Vec::new(),
        }
    }

    pub(crate) fn generator(&mut self) -> &mut Generator {
        self.generator.get_or_insert_with(Generator::from_entropy)
    }

    /// A slot for a new value.
    pub(crate) fn take_slot(&mut self) -> u32 {
        self.slots.free.pop().unwrap_or_else(|| {
            let slot = self.slots.next;
            self.slots.next += 1;
            slot
        })
    }

    /// Returns true if the dispatcher has the name of a call site, or wants no names.
    #[inline]
    pub(super) fn knows_site(&self, site: u32) -> bool {
        let Some(announced) = &self.announced else { return true };
        let place = to_usize(site);
        site == 0 || announced.get(place).copied().unwrap_or(false)
    }

    /// Sends the name of a call site to the dispatcher.
    #[cold]
    pub(super) fn announce_site(&mut self, site: u32, name: Option<String>) {
        let (Some(announced), Ok(place)) = (&mut self.announced, usize::try_from(site)) else {
            return;
        };
        if place >= announced.len() {
            announced.resize(place + 1, false);
        }
        if let Some(announced) = announced.get_mut(place) {
            *announced = true;
        }
        let Some(name) = name else { return };
        let mut word = Instruction::new(Op::Site);
        word.attrs.push(Attr::Int(i64::from(site)));
        word.attrs.push(Attr::Text(name.into()));
        // A name that does not arrive costs a line in the log, nothing else.
        drop(self.send(&word));
    }

    pub(crate) fn send(&mut self, instruction: &Instruction<'_>) -> PyResult<()> {
        let Some(connection) = self.connection.as_mut() else {
            return Err(PyRuntimeError::new_err("gt is not connected"));
        };
        self.answers.number(instruction.op);
        let sent = connection.send(instruction, &mut self.answers);
        connection.flush();
        sent.map_err(PyRuntimeError::new_err)
    }

    /// Sends an instruction given by its words, in which call site, flags and result slots are
    /// placeholders: they are filled in here, and the slots are also written to `slots`. The caller
    /// has made sure that there is room.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        py: Python<'_>,
        (op, caller): (Op, Caller),
        consumes: u16,
        words: &mut [u32],
        outputs: &[Meta],
        slots: &mut [u32],
    ) -> PyResult<()> {
        let Caller { site, signal } = caller;
        self.announce_signal(py, signal);
        let count = outputs.len();
        assert!(op.info().fits_outputs(count), "{}: {count} results", op.info().name);
        assert!(count == slots.len(), "{count} results in {} slots", slots.len());
        words[1] = site;
        words[2] = u32::from(consumes) | (u32::from(signal) << 16);
        let first = HEADER_WORDS + usize::from(op.info().output_list);
        for (word, slot) in words[first..].iter_mut().zip(&mut *slots) {
            *slot = self.take_slot();
            *word = *slot;
        }
        if self.region.is_some()
            && self.treatment(py, op, caller) == Some(Treatment::Held)
            && let Some(region) = &mut self.region
        {
            region.hold(op, words, outputs);
            return Ok(());
        }
        let Some(connection) = self.connection.as_mut() else {
            return Err(PyRuntimeError::new_err("gt is not connected"));
        };
        self.answers.number(op);
        let sent = connection.send_words(op, words, outputs, &mut self.answers);
        sent.map_err(PyRuntimeError::new_err)
    }

    /// [`Self::has_room`] for an instruction of this caller.
    #[inline]
    pub(crate) fn has_room_for(&mut self, py: Python<'_>, caller: Caller) -> bool {
        self.has_room(py) && self.knows_site(caller.site)
    }

    /// Returns true if one instruction may be sent at once. Sends the waiting frees first.
    #[inline]
    pub(crate) fn has_room(&mut self, py: Python<'_>) -> bool {
        let room = !forked()
            && self.begun
            && self.answers.closed.is_none()
            && self.connection.as_mut().is_some_and(|connection| connection.has_room());
        if room && !WAITING.get(py).slots.is_empty() {
            self.free_waiting(py);
        }
        room
    }

    /// Returns true if a client that has waited for room should go on.
    pub(super) fn has_ample_room(&mut self) -> bool {
        self.connection.as_mut().is_none_or(|connection| connection.has_ample_room())
    }

    /// Takes in the words that have arrived, without waiting.
    pub(crate) fn receive_ready(&mut self) {
        // Words that arrive are for the parent; its rings are not even mapped here.
        if forked() {
            return;
        }
        let Some(connection) = self.connection.as_mut() else { return };
        for (index, inbox) in connection.inboxes().into_iter().enumerate() {
            self.words.clear();
            // Another thread waits on this inbox and will take the words.
            let Ok(mut inbox) = inbox.try_lock() else { continue };
            if TAKEN.load(Ordering::Acquire) != RECEIVED.load(Ordering::Acquire) {
                continue; // that thread's words come first
            }
            inbox.take(&mut self.words);
            let closed = if self.words.is_empty() { inbox.closed() } else { None };
            TAKEN.fetch_add(1, Ordering::AcqRel);
            drop(inbox);
            connection.receive(index, &self.words, &mut self.answers);
            RECEIVED.fetch_add(1, Ordering::AcqRel);
            if let Some(reason) = closed {
                connection.lost(index, &reason, &mut self.answers);
            }
        }
    }

    /// Counters of this session that the client knows without asking the dispatcher.
    pub(crate) fn own_counters(&self, py: Python<'_>) -> [(&'static str, u64); 3] {
        let free = to_u64(self.slots.free.len() + WAITING.get(py).slots.len());
        [
            ("workers", to_u64(self.answers.workers.len())),
            ("values", u64::from(self.slots.next).saturating_sub(free)),
            ("instructions", self.answers.numbered()),
        ]
    }

    /// Sends all waiting frees, so that none is left for a later instruction.
    pub(crate) fn flush(&mut self, py: Python<'_>) {
        if self.has_room(py)
            && let Some(connection) = &mut self.connection
        {
            connection.flush();
        }
    }

    pub(super) fn free_waiting(&mut self, py: Python<'_>) {
        let mut waiting = WAITING.get_mut(py);
        waiting.bytes = 0;
        let slots = &mut waiting.slots;
        // The caller has found room for an instruction, and so for one batch.
        if slots.len() <= FREE_BATCH {
            self.free(slots);
            return slots.clear();
        }
        loop {
            let keep = slots.len().saturating_sub(FREE_BATCH);
            self.free(&slots[keep..]);
            slots.truncate(keep);
            let has_room = |connection: &mut Box<dyn Connection>| connection.has_room();
            if slots.is_empty() || !self.connection.as_mut().is_some_and(has_room) {
                return;
            }
        }
    }

    fn free(&mut self, slots: &[u32]) {
        if let Some(region) = self.region.as_mut().filter(|region| !region.is_empty()) {
            return region.free(slots);
        }
        let Some(connection) = self.connection.as_mut() else { return };
        match connection.release(slots, &mut self.answers) {
            Ok(()) => self.slots.free.extend_from_slice(slots),
            // A bug of ours. Which of the slots are free is unknown, and to use one again could
            // give a value to another tensor: the session ends at the next instruction or read.
            Err(fault) => {
                let reason = || format!("the dispatcher refused to free slots: {fault}");
                self.answers.closed.get_or_insert_with(reason);
            }
        }
    }
}

/// Runs `body` on the state; does not connect.
pub(crate) fn with<R>(py: Python<'_>, body: impl FnOnce(&mut Runtime) -> R) -> R {
    body(RUNTIME.get_mut(py).get_or_insert_with(Runtime::new))
}

/// The number of the current connection; values of earlier ones are void.
pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Frees the slot of a value of so many bytes, with the next instruction. Destructors call this,
/// possibly while the state is borrowed.
#[inline]
pub(crate) fn release(py: Python<'_>, slot: u32, epoch_of_value: u32, bytes: u64) {
    if epoch_of_value != epoch() {
        return;
    }
    known::forget(py, slot, epoch_of_value);
    {
        // No value is dropped while this is borrowed.
        let mut waiting = WAITING.get_mut(py);
        waiting.slots.push(slot);
        waiting.bytes = waiting.bytes.saturating_add(bytes);
        if waiting.bytes < WAITING_BYTES_MAX && waiting.slots.len() < FREE_BATCH {
            return;
        }
    }
    // SAFETY: `py` proves that the GIL is held. Where the state is borrowed further up the stack,
    // the next instruction sends the free.
    let mut state = unsafe { RUNTIME.try_get_mut() };
    if let Some(runtime) = state.as_deref_mut().and_then(Option::as_mut) {
        runtime.flush(py);
    }
}

/// Unread failures, and the number of those that were dropped. All of them count as reported from
/// here on.
pub(crate) fn unread(py: Python<'_>) -> (Vec<Failed>, u64) {
    with(py, |runtime| {
        runtime.receive_ready();
        runtime.answers.take_unread()
    })
}

/// Maximum number of payload bytes of one instruction.
pub(crate) fn chunk_bytes_max(py: Python<'_>) -> usize {
    let connection = |runtime: &mut Runtime| {
        runtime.connection.as_ref().map(|connection| connection.chunk_bytes_max())
    };
    with(py, connection).unwrap_or(PAYLOAD_BYTES_MAX)
}

/// Returns true if the session's first operation has been made, and the configuration read for it.
pub(crate) fn has_begun(py: Python<'_>) -> bool {
    with(py, |runtime| runtime.connection.is_some() && runtime.begun)
}
