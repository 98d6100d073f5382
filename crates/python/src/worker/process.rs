//! The loop of a worker process: words from a ring go through the machine, answers into another
//! ring.
//!
//! A worker lives as long as its control socket: a thread without Python blocks on it and ends the
//! process at its end of file, whatever the loop is doing. So no wait in here needs a time limit of
//! its own.

use super::machine::Worker;
use super::peers::{PeerEvent, WorkerPeers};
use super::stream::WorkerStream;
use gt_protocol::message::{self, FromWorker, REPLY_BYTES_MAX, Reply};
use gt_transport::slab::PAYLOAD_BYTES_MIN;
use gt_transport::{
    CHUNK_BYTES_MAX, Consumer, ControlKind, FutexWaker, HEAD_WORDS, Producer, RingError, SharedCpu,
    SlabReader, SlabWriter, receive_record, set_short_slice, set_timer_slack_1us,
};
use gt_worker::{PeerId, Replies, Running, Stop};
use pyo3::exceptions::{PyConnectionError, PyRuntimeError};
use pyo3::prelude::*;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

/// Maximum number of words taken from the ring at a time. Words that were taken no longer count
/// against the dispatcher's limit of words in flight, so this is small; but the last instruction of
/// each batch is executed without look-ahead.
const READ_WORDS_MAX: usize = 512;
/// Minimum number of words of the ring for answers: room for two chunks of maximum length, so that
/// one is read while the other is written.
const ANSWER_WORDS_MIN: usize = REPLY_BYTES_MAX / 4 * 2;
/// Time for which an idle worker polls with the interpreter attached: longer than a client's pause
/// between two operators, short compared with the delay of waking a parked worker.
const SPIN: Duration = Duration::from_micros(50);
/// Maximum nap of an idle worker on its client's CPU before a few words wake it: each wake-up would
/// cost two thread switches, some 8 us, for an operator that takes 2 us. A client that reads wakes
/// it at once, and a nap that ends earlier costs the same two switches: on one CPU nothing is gained by beginning sooner.
const NAP: Duration = Duration::from_millis(1);
/// Maximum duration of a wait for room. The control thread watches for the dispatcher's end, so no
/// limit is needed; it bounds the cost of a lost wake-up.
const PARK: Duration = Duration::from_millis(500);

/// Runs a worker over an inherited Unix socket until its dispatcher is gone; does not return then.
///
/// Args:
///     `control_fd`: The socket's descriptor, which this function takes over.
///     backend: A `gt.worker.backend.Backend`, whose guard the calling thread has entered.
///
/// Raises:
///     `ConnectionError`: The dispatcher's first record is no setup of a worker.
#[pyfunction]
pub fn run_on_descriptors(
    py: Python<'_>,
    control_fd: i32,
    backend: &Bound<'_, PyAny>,
) -> PyResult<()> {
    if control_fd <= 2 {
        return Err(PyConnectionError::new_err(format!("{control_fd} is no control socket")));
    }
    serve_control(py, owned(control_fd), Worker::new(backend)?)
}

/// Serves the dispatcher at the other end of a control socket.
pub fn serve_control(py: Python<'_>, control: OwnedFd, mut worker: Worker) -> PyResult<()> {
    let Some(setup) = py.detach(|| set_up(&control)).map_err(connection)? else {
        return Ok(());
    };
    // A failure is ignored: both only affect speed.
    let _ = set_short_slice();
    let _ = set_timer_slack_1us();
    worker.machine.set_index(setup.index);
    // Unbounded, as the dispatcher bounds it: two events for each worker that joins and leaves. A
    // bound would stop the thread that ends this process with its dispatcher.
    let (sender, events) = mpsc::channel();
    let waker = FutexWaker::default();
    let rung = waker.clone();
    let watcher = std::thread::Builder::new().name("gt-control".to_owned());
    watcher.spawn(move || watch(&control, &sender, &rung)).map_err(connection)?;
    let (packing, limits) = (worker.packing, worker.links.peers);
    let peers = WorkerPeers::new(setup.index, events, None, waker, packing, limits);
    let mut stream = WorkerStream::new(peers).map_err(connection)?;
    serve(py, worker, setup, &mut stream)
}

struct Setup {
    index: u32,
    words: Consumer,
    answers: Producer,
    slabs: Option<WorkerSlabs>,
    /// True if the client itself writes the words, and says when it waits.
    is_embedded: bool,
}

/// Slabs for bytes that are too large for the rings.
struct WorkerSlabs {
    payloads: SlabReader,
    answers: SlabWriter,
}

/// Reads the first record; `None` if the dispatcher is gone before it arrives.
fn set_up(control: &OwnedFd) -> Result<Option<Setup>, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let Some((record, descriptors)) = receive_record(control.as_fd()).map_err(|e| text(&e))? else {
        return Ok(None);
    };
    let (descriptors, of_slabs) = record.split(descriptors);
    let mut descriptors = descriptors.into_iter();
    let (ControlKind::Setup, Some(reads), Some(writes)) =
        (record.kind, descriptors.next(), descriptors.next())
    else {
        return Err(format!("{record:?} instead of a worker's setup"));
    };
    let words = Consumer::new(reads).map_err(|e| text(&e))?;
    let mut answers = Producer::new(writes).map_err(|e| text(&e))?;
    if answers.capacity() < ANSWER_WORDS_MIN {
        return Err(format!("a ring of {} words for answers", answers.capacity()));
    }
    let waker = descriptors.next();
    let is_embedded = waker.is_none();
    if let Some(waker) = waker {
        answers.set_waker(waker);
    }
    let slabs = of_slabs.map(|[payloads, answers]| {
        Ok(WorkerSlabs { payloads: SlabReader::new(payloads)?, answers: SlabWriter::new(answers)? })
    });
    let slabs = slabs.transpose().map_err(|error: RingError| text(&error))?;
    Ok(Some(Setup { index: record.index, words, answers, slabs, is_embedded }))
}

/// Passes on the dispatcher's events about other workers, and ends the process with the dispatcher.
fn watch(control: &OwnedFd, events: &Sender<PeerEvent>, waker: &FutexWaker) {
    loop {
        let Ok(Some((record, descriptors))) = receive_record(control.as_fd()) else { exit() };
        let Ok(incarnation) = u32::try_from(record.value) else { exit() };
        let peer = PeerId { index: record.index, incarnation };
        let event = match record.kind {
            ControlKind::Peer => PeerEvent::Joined(peer, descriptors),
            ControlKind::PeerGone => PeerEvent::Gone(peer),
            ControlKind::Setup | ControlKind::Shutdown | ControlKind::Fork | ControlKind::Ended => {
                exit()
            }
        };
        if events.send(event).is_err() {
            exit();
        }
        waker.wake();
    }
}

/// Ends the process at once: its values and its interpreter are not needed any more.
#[allow(unsafe_code, reason = "std has no _exit")]
fn exit() -> ! {
    // SAFETY: `_exit` ends the process without running any code of it.
    unsafe { libc::_exit(0) }
}

#[allow(unsafe_code, reason = "the descriptor is inherited")]
pub fn owned(fd: i32) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the caller gives up the descriptor; if it is not open, every use of it fails with an
    // error and does nothing else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn serve(py: Python<'_>, worker: Worker, setup: Setup, stream: &mut WorkerStream) -> PyResult<()> {
    let Worker { mut machine, mut idle, .. } = worker;
    let Setup { words, answers, slabs, is_embedded, .. } = setup;
    let mut answers = RingReplies { words, ring: answers, slabs, frame: Vec::new() };
    let mut taken: Vec<u32> = Vec::with_capacity(2 * READ_WORDS_MAX);
    let mut shared_cpu = SharedCpu::default();
    machine.announce(false, &mut answers);
    loop {
        let wanted = words_wanted(&taken);
        if answers.words.read(&mut taken, wanted) == 0 {
            answers.rest();
            // While a collective is in flight the wait below polls too.
            let waits = machine.is_in_flight()
                || !wait_a_moment(&mut answers, &mut shared_cpu, || {
                    is_embedded && stream.is_alone()
                });
            if waits {
                if answers.words.is_corrupt() {
                    return Err(PyConnectionError::new_err("the dispatcher's ring is corrupt"));
                }
                py.check_signals()?;
                if machine.is_in_flight() {
                    idle.end();
                }
                let limit = idle.limit();
                machine.flush_record();
                py.detach(|| stream.wait_for_words(&mut answers.words, limit));
                idle.look(py)?;
                machine.catch_up(&mut answers, stream);
                continue;
            }
        }
        idle.end();
        match machine.run(&taken, &mut answers, stream) {
            Ok(done) if done == taken.len() => taken.clear(),
            Ok(done) => taken.drain(..done).for_each(drop),
            Err(Stop::Goodbye) => return Ok(()),
            Err(Stop::Broken(error)) => return Err(PyRuntimeError::new_err(error.to_string())),
        }
    }
}

/// Waits briefly for words. Sleeps, at most for a nap, where the sender may need this CPU.
fn wait_a_moment(
    answers: &mut RingReplies,
    shared_cpu: &mut SharedCpu,
    may_nap: impl FnOnce() -> bool,
) -> bool {
    let shares_cpu = answers.ring.shares_cpu();
    let has_left = shared_cpu.leave(shares_cpu);
    let words = &mut answers.words;
    if has_left || !shares_cpu { words.wait(SPIN, SPIN) } else { may_nap() && words.nap(NAP) }
}

/// Number of further words to take: the rest of a long instruction, else a few instructions.
fn words_wanted(taken: &[u32]) -> usize {
    let frame: usize = taken
        .first()
        .map_or(0, |first| (first >> 16).try_into().expect("a length field has 16 bits"));
    frame.saturating_sub(taken.len()).max(READ_WORDS_MAX)
}

/// Writes answers as frames to a ring; large payloads go through the slab.
struct RingReplies {
    /// The ring with instructions, which announces cancels.
    words: Consumer,
    ring: Producer,
    slabs: Option<WorkerSlabs>,
    frame: Vec<u32>,
}

impl RingReplies {
    /// Notes that nothing runs: a worker that ends now ends for no instruction's sake.
    fn rest(&mut self) {
        self.ring.mark([0; 3]);
    }

    /// Writes a long reply's bytes to the slab; false where they go among the words.
    fn publish_beside(&mut self, reply: &Reply<'_>) -> bool {
        let Some(slabs) = &mut self.slabs else { return false };
        if !(PAYLOAD_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&reply.bytes.len()) {
            return false;
        }
        // The loop ends when a slot is free; the control thread ends the process with its
        // dispatcher.
        while !slabs.answers.wait(SPIN, PARK) {
            if slabs.answers.is_corrupt() {
                exit();
            }
        }
        let slot = slabs.answers.slot().expect("the loop above waits for a free slot");
        slot[..reply.bytes.len()].copy_from_slice(reply.bytes);
        slabs.answers.publish(&[0; HEAD_WORDS], reply.bytes.len())
    }
}

impl Replies for RingReplies {
    fn chunk_bytes_max(&self) -> usize {
        if self.slabs.is_some() { CHUNK_BYTES_MAX } else { REPLY_BYTES_MAX }
    }

    fn running(&mut self, instruction: Option<Running>) {
        match instruction {
            Some(Running { session, tag, op }) => {
                self.ring.mark([session, tag, op.info().code.into()]);
            }
            None => self.rest(),
        }
    }

    fn payload(&mut self, show: &mut dyn FnMut(u64, &[u8])) -> bool {
        let Some(WorkerSlabs { payloads, .. }) = &mut self.slabs else { return false };
        if payloads.refresh()
            && let Some(chunk) = payloads.front()
        {
            let [low, high, ..] = chunk.head;
            show(u64::from(low) | u64::from(high) << 32, chunk.bytes);
            payloads.release();
            return true;
        }
        false
    }

    fn announced(&self) -> u32 {
        self.words.announced()
    }

    fn send(&mut self, message: &FromWorker<'_>) {
        self.frame.clear();
        let encoded = if let FromWorker::Reply(reply) = message
            && self.publish_beside(reply)
        {
            message::encode_beside(reply, &mut self.frame)
        } else {
            message::encode(message, &mut self.frame)
        };
        encoded.expect("a machine's texts are clipped and its answers cut to size");
        while !self.ring.write(&[&self.frame]) {
            if self.ring.is_corrupt() {
                exit();
            }
            self.ring.wait_space(self.frame.len(), PARK);
        }
    }
}

pub fn connection(error: impl std::fmt::Display) -> PyErr {
    PyConnectionError::new_err(error.to_string())
}
