//! The client's one state: connection, slots, questions, generator, source positions.

mod wait;

pub(crate) use wait::wait;

use super::generator::Generator;
use super::{errors, site};
use crate::client::connection::Connection;
use crate::client::connection::answers::{Answers, Failed};
use crate::client::gil_cell::GilCell;
use gt_protocol::wire::{HEADER_WORDS, PAYLOAD_BYTES_MAX};
use gt_protocol::{Attr, Instruction, Meta, Op};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use smallvec::SmallVec;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a thread naps while a ring is full: the worker has thousands of instructions to go.
const FULL_NAP: Duration = Duration::from_micros(50);
/// How long a session waits in silence for its dispatcher's first worker.
const SILENCE: Duration = Duration::from_secs(1);
/// How long a session waits for its dispatcher's first worker, unless `gt.connect` says otherwise: a worker with torch
/// starts in 3 to 10 s, on a busy machine in 30 s.
pub(crate) const WORKER_WAIT: Duration = Duration::from_mins(1);
/// Slots freed in one instruction.
const FREE_BATCH: usize = 512;

/// Bytes of values whose `free` waits for the next instruction: no more than one that is large, or many that are not.
const WAITING_BYTES_MAX: u64 = 1 << 20;

/// Of one instruction's results.
pub(crate) type Slots = SmallVec<[u32; 2]>;

/// Who makes an instruction: the user's call site and the signal around it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub site: u32,
    pub signal: u16,
}

pub(crate) struct Runtime {
    pub connection: Option<Box<dyn Connection>>,
    pub answers: Answers,
    pub generator: Option<Generator>,
    /// By call site: whether the dispatcher has its name; `None` where it does not want them.
    announced: Option<Vec<bool>>,
    /// How many workers the embedded dispatcher starts.
    pub workers: Option<u32>,
    /// Whether the configuration has been read since the connection was opened.
    begun: bool,
    /// How long to wait for a dispatcher's first worker, and since when; `None` once there was one, or where the workers
    /// are this program's own.
    pub hope: Option<Hope>,
    slots: SlotPool,
    words: Vec<u32>,
}

/// That a worker will join.
#[derive(Clone, Copy)]
pub(crate) struct Hope {
    pub limit: Duration,
    /// The first time that something had to wait.
    pub since: Option<Instant>,
    /// Whether the user has been told what is waited for.
    pub is_announced: bool,
}

/// What a session whose dispatcher has no worker does while something waits.
enum Patience {
    Wait,
    /// Says so on standard error, once.
    Announce(String),
    Over(String),
}

/// Slots of the session: which are free again.
#[derive(Default)]
struct SlotPool {
    free: Vec<u32>,
    next: u32,
}

/// How the first operation comes by a connection where nobody has connected.
static OPEN: PyOnceLock<fn(Python<'_>) -> PyResult<()>> = PyOnceLock::new();
static RUNTIME: GilCell<Option<Runtime>> = GilCell::new(None);

/// Slots whose values are gone but whose `free` has not been sent: it goes with the next instruction.
#[derive(Default)]
struct Waiting {
    slots: Vec<u32>,
    bytes: u64,
}

static WAITING: GilCell<Waiting> = GilCell::new(Waiting { slots: Vec::new(), bytes: 0 });
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// Set while a thread opens the connection that the first operation needs; the others wait for it.
static OPENING: AtomicBool = AtomicBool::new(false);
/// Batches of words that threads took from inboxes (counted with the inbox locked) ...
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// ... and how many of them the core has (counted with the GIL held). Where the two differ a thread is on its way.
static RECEIVED: AtomicU64 = AtomicU64::new(0);

impl Runtime {
    fn new() -> Self {
        Self {
            connection: None,
            answers: Answers::default(),
            generator: None,
            announced: None,
            workers: None,
            begun: false,
            hope: None,
            slots: SlotPool::default(),
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

    /// Whether the dispatcher has the name of a call site, or wants none.
    #[inline]
    fn knows_site(&self, site: u32) -> bool {
        let Some(announced) = &self.announced else { return true };
        let place = usize::try_from(site).unwrap_or(0);
        site == 0 || announced.get(place).copied().unwrap_or(false)
    }

    /// Gives the dispatcher the name of a call site.
    #[cold]
    fn announce_site(&mut self, site: u32, name: Option<String>) {
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

    /// Sends an instruction by its words, of which site, flags and slots of results are still open: those are written
    /// into it, the slots into `slots` too. There is room.
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

    /// Whether one instruction may be sent at once. Sends what is to be freed before it.
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

    /// Takes in what has come, without waiting.
    pub(crate) fn pump(&mut self) {
        // What comes is for the parent; its rings are not even mapped here.
        if forked() {
            return;
        }
        let Some(connection) = self.connection.as_mut() else { return };
        for (index, inbox) in connection.inboxes().into_iter().enumerate() {
            self.words.clear();
            // Another thread waits on it: that one will take the words.
            let Ok(mut inbox) = inbox.try_lock() else { continue };
            if TAKEN.load(Ordering::Acquire) != RECEIVED.load(Ordering::Acquire) {
                continue; // what that thread took comes first
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

    /// How much longer something waits that needs a worker.
    fn patience(&mut self) -> Patience {
        let Some(hope) = self.hope.as_mut() else { return Patience::Wait };
        if !self.answers.workers.is_empty() {
            self.hope = None;
            return Patience::Wait;
        }
        let waited = hope.since.get_or_insert_with(Instant::now).elapsed();
        let (limit, is_announced) = (hope.limit, hope.is_announced);
        if waited < limit && (is_announced || waited < SILENCE) {
            return Patience::Wait;
        }
        hope.is_announced = true;
        let connection = self.connection.as_ref();
        let place = connection.map(|connection| connection.describe()).unwrap_or_default();
        let advice = self.worker_advice();
        if waited < limit {
            return Patience::Announce(format!("{place}: waiting for a worker. {advice}"));
        }
        let seconds = limit.as_secs_f64();
        Patience::Over(format!("{place}: no worker has joined it within {seconds} s. {advice}"))
    }

    /// How a session without workers comes by one.
    fn worker_advice(&self) -> String {
        let connection = self.connection.as_ref();
        let Some(address) = connection.and_then(|connection| connection.address()) else {
            return "gt.disconnect() ends the session; the next operation starts a worker"
                .to_owned();
        };
        let place = match (address.strip_prefix("unix:"), address.rsplit_once(':')) {
            (Some(path), _) => format!("--unix {path}"),
            (None, Some((host, port))) => format!("--host {host} -p {port}"),
            (None, None) => format!("--host {address}"),
        };
        format!("Start one: `python -m gt.worker {place}`")
    }

    /// What a failure adds where there is no worker any more.
    pub(crate) fn advice(&self) -> Option<String> {
        self.answers.workers.is_empty().then(|| self.worker_advice())
    }

    /// What a session holds and has sent, as far as its client knows without asking.
    pub(crate) fn own_counters(&self, py: Python<'_>) -> [(&'static str, u64); 3] {
        let count = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
        let free = count(self.slots.free.len() + WAITING.get(py).slots.len());
        [
            ("workers", count(self.answers.workers.len())),
            ("values", u64::from(self.slots.next).saturating_sub(free)),
            ("instructions", self.answers.numbered()),
        ]
    }

    /// Sends what is to be freed, and leaves nothing of it to go with a later instruction.
    pub(crate) fn flush(&mut self, py: Python<'_>) {
        if self.has_room(py)
            && let Some(connection) = &mut self.connection
        {
            connection.flush();
        }
    }

    fn free_waiting(&mut self, py: Python<'_>) {
        let mut waiting = WAITING.get_mut(py);
        waiting.bytes = 0;
        let slots = &mut waiting.slots;
        // Whoever asks has found room for an instruction, and so for one batch.
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
        let Some(connection) = self.connection.as_mut() else { return };
        // A slot that the dispatcher does not know is a bug of ours; the stream says so at the next instruction.
        if connection.release(slots, &mut self.answers).is_err() {
            debug_assert!(false, "freed a slot twice");
        }
        self.slots.free.extend_from_slice(slots);
    }
}

/// Set in a child that was forked while a connection was open: that one belongs to the parent.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Learns of forks from here on.
fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Runs `body` on the state, without connecting.
pub(crate) fn with<R>(py: Python<'_>, body: impl FnOnce(&mut Runtime) -> R) -> R {
    body(RUNTIME.get_mut(py).get_or_insert_with(Runtime::new))
}

/// The number of the current connection; values of earlier ones are void.
pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Frees the slot of a value of so many bytes, with the next instruction. Called by destructors, possibly from the
/// middle of anything.
#[inline]
pub(crate) fn release(py: Python<'_>, slot: u32, epoch_of_value: u32, bytes: u64) {
    if epoch_of_value != epoch() {
        return;
    }
    {
        // Nobody drops a value while it is borrowed.
        let mut waiting = WAITING.get_mut(py);
        waiting.slots.push(slot);
        waiting.bytes = waiting.bytes.saturating_add(bytes);
        if waiting.bytes < WAITING_BYTES_MAX && waiting.slots.len() < FREE_BATCH {
            return;
        }
    }
    // SAFETY: `py`. Where the state is in use further up the stack, the next instruction sends the free.
    let mut state = unsafe { RUNTIME.try_get_mut() };
    if let Some(runtime) = state.as_deref_mut().and_then(Option::as_mut) {
        runtime.flush(py);
    }
}

/// Says how the first operation comes by a connection; what is said first holds.
pub(crate) fn set_opener(py: Python<'_>, open: fn(Python<'_>) -> PyResult<()>) {
    OPEN.get_or_init(py, || open);
}

/// Connects if that has not been done, and waits until an instruction fits and every free before it has been sent. After
/// it, one instruction may be sent without waiting.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    loop {
        let missing = {
            let mut state = RUNTIME.get_mut(py);
            let runtime = state.get_or_insert_with(Runtime::new);
            if forked() {
                return Err(errors::after_fork());
            }
            if runtime.has_room(py) && WAITING.get(py).slots.is_empty() {
                return Ok(());
            }
            let room = runtime.connection.as_mut().map(|connection| connection.has_room());
            match room {
                None => Missing::Connection,
                Some(true) if runtime.answers.closed.is_none() && runtime.begun => Missing::Room,
                Some(true) if runtime.answers.closed.is_none() => {
                    runtime.begun = true;
                    Missing::Configuration
                }
                Some(_) => {
                    runtime.pump();
                    if let Some(reason) = runtime.answers.closed.clone() {
                        return Err(errors::connection_lost(py, &reason));
                    }
                    match runtime.patience() {
                        Patience::Wait => Missing::Room,
                        Patience::Announce(text) => Missing::Worker(text),
                        Patience::Over(reason) => return Err(errors::no_worker(py, reason)),
                    }
                }
            }
        };
        match missing {
            Missing::Connection if !OPENING.swap(true, Ordering::AcqRel) => {
                let open = OPEN.get(py).expect("set when gt is imported");
                let opened = open(py);
                OPENING.store(false, Ordering::Release);
                opened?;
            }
            Missing::Configuration => {
                let begun = py
                    .import("gt.config.scopes")
                    .and_then(|scopes| scopes.call_method0("session_begins"));
                if let Err(error) = begun {
                    with(py, |runtime| runtime.begun = false);
                    return Err(error);
                }
            }
            Missing::Worker(text) => errors::announce(py, &text)?,
            // The ring is full, or another thread opens the connection.
            Missing::Connection | Missing::Room => {
                py.detach(|| std::thread::sleep(FULL_NAP));
                py.check_signals()?;
            }
        }
    }
}

/// [`prepare`] for an instruction of this caller.
pub(crate) fn prepare_for(py: Python<'_>, caller: Caller) -> PyResult<()> {
    loop {
        prepare(py)?;
        if with(py, |runtime| runtime.knows_site(caller.site)) {
            return Ok(());
        }
        let name = site::name(py, caller.site);
        with(py, |runtime| runtime.announce_site(caller.site, name));
    }
}

/// Bytes of a payload that one instruction may have.
pub(crate) fn piece_bytes_max(py: Python<'_>) -> usize {
    let connection = |runtime: &mut Runtime| {
        runtime.connection.as_ref().map(|connection| connection.piece_bytes_max())
    };
    with(py, connection).unwrap_or(PAYLOAD_BYTES_MAX)
}

/// [`prepare`] for an instruction with a large payload: there is a place for that too.
pub(crate) fn prepare_payload(py: Python<'_>) -> PyResult<()> {
    loop {
        prepare(py)?;
        let full = with(py, |runtime| {
            runtime.connection.as_mut().and_then(|connection| connection.full_payloads())
        });
        let Some(payloads) = full else { return Ok(()) };
        py.detach(|| payloads.wait());
        // A worker that waits for its answers to be taken takes no payloads, and nor does one that is gone.
        with(py, Runtime::pump);
        py.check_signals()?;
    }
}

/// What an instruction still waits for.
enum Missing {
    Connection,
    /// It is read once a session, at the first operation, which may ask workers itself.
    Configuration,
    Room,
    /// There is none, which the user is to be told.
    Worker(String),
}

/// Whether the session's first operation has been made, and the configuration read for it.
pub(crate) fn has_begun(py: Python<'_>) -> bool {
    with(py, |runtime| runtime.connection.is_some() && runtime.begun)
}

/// Puts a new connection in place of the current one.
///
/// `hope` where the workers are not this program's own: how long to wait for the first.
pub(crate) fn install(
    py: Python<'_>,
    connection: Box<dyn Connection>,
    announce_sites: bool,
    hope: Option<Duration>,
) {
    watch_forks();
    let old = with(py, |runtime| {
        if FORKED.swap(false, Ordering::Relaxed) {
            // The parent's connection is not ours to end; the new one is.
            std::mem::forget(runtime.connection.take());
            // What the parent's other threads had taken is theirs.
            RECEIVED.store(TAKEN.load(Ordering::Acquire), Ordering::Release);
        }
        EPOCH.fetch_add(1, Ordering::Relaxed);
        *WAITING.get_mut(py) = Waiting::default();
        runtime.slots = SlotPool::default();
        runtime.answers = Answers::default();
        runtime.begun = false;
        runtime.announced = announce_sites.then(Vec::new);
        runtime.hope = hope.map(|limit| Hope { limit, since: None, is_announced: false });
        runtime.connection.replace(connection)
    });
    close(old);
}

/// Ends the connection, if there is one.
pub(crate) fn disconnect(py: Python<'_>) {
    let old = with(py, |runtime| {
        if forked() {
            // The parent's connection is not ours to end.
            std::mem::forget(runtime.connection.take());
            return None;
        }
        EPOCH.fetch_add(1, Ordering::Relaxed);
        *WAITING.get_mut(py) = Waiting::default();
        runtime.connection.take()
    });
    close(old);
}

fn close(connection: Option<Box<dyn Connection>>) {
    if let Some(mut connection) = connection {
        connection.close();
    }
}

/// Failures that nobody has read, and how many more there were than are kept. They count as told from here on.
pub(crate) fn unread(py: Python<'_>) -> (Vec<Failed>, u64) {
    with(py, |runtime| {
        runtime.pump();
        runtime.answers.take_unread()
    })
}
