//! Waiting for an answer while other threads go on.

use super::cancel::{cancel, is_ctrl_c};
use super::ending::hold_other_threads;
use super::patience::Patience;
use super::silence::{Question, Watch};
use super::state::{RECEIVED, RUNTIME, Runtime, TAKEN, epoch, with};
use crate::client::connection::answers::Answer;
use crate::client::connection::{Inbox, SharedInbox};
use crate::client::session::{errors, site};
use gt_transport::{Sleeping, poll_until, sleep_on_any};
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for which a read polls before it parks: long enough for a step's worth of work (see the
/// hot-path notes).
const READ_SPIN: Duration = Duration::from_micros(150);
/// Time for which a read parks before it looks for signals and dead peers.
const READ_PARK: Duration = Duration::from_millis(100);
/// Time for which a read parks while words wait for room in a ring, which holds some milliseconds of
/// work.
const BACKLOG_PARK: Duration = Duration::from_millis(2);
/// Time that an interrupted read still gives to what it waits for before it cancels the queue: most
/// training steps end within it, and so lose nothing.
const GRACE: Duration = Duration::from_millis(500);
/// Nap of a read while another thread listens.
const LISTENER_NAP: Duration = Duration::from_micros(50);

type LockedInbox<'a> = MutexGuard<'a, dyn Inbox + 'static>;

/// The state of a wait.
enum WaitState {
    Answered(Answer),
    /// Listen at these inboxes; the count of batches that the core had received; and how long to
    /// sleep there rather than poll.
    Listen(Vec<SharedInbox>, u64, Option<Duration>),
    /// Print this text for the user, once.
    Announce(String),
    /// Print the progress of this program's own workers, once.
    Start(String),
    /// Print, once, that a worker does not answer.
    Silent(String),
}

/// Waits for the answer of `request` with the GIL released. Names a worker that neither answers nor
/// computes.
pub(crate) fn wait(py: Python<'_>, request: u64, question: Question<'_>) -> PyResult<Answer> {
    let notice = |runtime: &mut Runtime| runtime.connection.as_mut()?.take_notice();
    if let Some(text) = with(py, notice) {
        errors::announce(py, &text)?;
    }
    let mut watch = Watch::new();
    let answer = wait_watched(py, request, question, &mut watch);
    for text in with(py, |runtime| runtime.answers.take_notices()) {
        errors::announce(py, &text)?;
    }
    if let Some(text) = with(py, |runtime| watch.end(runtime, answer.is_ok())) {
        errors::announce(py, &text)?;
    }
    answer
}

fn wait_watched(
    py: Python<'_>,
    request: u64,
    question: Question<'_>,
    watch: &mut Watch,
) -> PyResult<Answer> {
    let mut words = Vec::new();
    let asked_in = epoch();
    // A read polls first; only if nothing arrives does it check whether the peer is alive, which is
    // a system call.
    let mut is_quiet = false;
    loop {
        hold_other_threads(py);
        let (inboxes, received, sleeps) = match step(py, request, (asked_in, is_quiet), watch)? {
            WaitState::Answered(answer) => return Ok(answer),
            WaitState::Listen(inboxes, received, sleeps) => (inboxes, received, sleeps),
            WaitState::Announce(text) => {
                errors::announce(py, &text)?;
                continue;
            }
            WaitState::Start(text) => {
                errors::announce_progress(py, &text)?;
                continue;
            }
            WaitState::Silent(text) => {
                let place = site::name(py, site::current(py));
                let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
                errors::announce(py, &format!("{text}; {question}{place} waits for it"))?;
                continue;
            }
        };
        if question.is_partial(watch)
            && let Some(part) = with(py, |runtime| runtime.answers.take_part(request))
        {
            watch.forget();
            return Ok(part);
        }
        if inboxes.is_empty() {
            return Err(errors::connection_lost(py, "the connection was closed"));
        }
        words.clear();
        let arrived = py.detach(|| listen(&inboxes, received, &mut words, sleeps));
        is_quiet = arrived.is_none();
        if let Some(index) = arrived {
            deliver(py, index, &words);
        } else if let Err(interrupt) = py.check_signals() {
            if is_ctrl_c(py, &interrupt) && !ends_within_grace(py, request, asked_in) {
                cancel(py);
            }
            with(py, |runtime| runtime.answers.forget(request));
            return Err(interrupt);
        }
    }
}

/// Returns true if an interrupted request is answered, or its session over, within the grace. A
/// second interrupt ends that.
fn ends_within_grace(py: Python<'_>, request: u64, asked_in: u32) -> bool {
    let begun = Instant::now();
    let mut words = Vec::new();
    while begun.elapsed() < GRACE {
        let inboxes = with(py, |runtime| {
            if let Some(connection) = runtime.connection.as_mut() {
                connection.flush();
            }
            runtime.receive_ready();
            let is_over = epoch() != asked_in
                || runtime.answers.closed.is_some()
                || runtime.answers.take(request).is_some();
            let connection = runtime.connection.as_ref().filter(|_| !is_over);
            connection.map(|connection| (connection.inboxes(), RECEIVED.load(Ordering::Acquire)))
        });
        let Some((inboxes, received)) = inboxes else { return true };
        words.clear();
        if let Some(index) = py.detach(|| listen(&inboxes, received, &mut words, Some(READ_PARK))) {
            deliver(py, index, &words);
        } else if py.check_signals().is_err() {
            return false;
        }
    }
    false
}

/// Passes the words of an inbox to the connection.
fn deliver(py: Python<'_>, index: usize, words: &[u32]) {
    with(py, |runtime| {
        if let Some(connection) = runtime.connection.as_mut() {
            connection.receive(index, words, &mut runtime.answers);
        }
        RECEIVED.fetch_add(1, Ordering::AcqRel);
    });
}

/// Looks for the answer of a request that was sent in the connection `asked_in`. If nothing has
/// arrived (`is_quiet`), also looks for failures and dead peers, and for silent workers.
fn step(
    py: Python<'_>,
    request: u64,
    (asked_in, is_quiet): (u32, bool),
    watch: &mut Watch,
) -> PyResult<WaitState> {
    let mut state = RUNTIME.get_mut(py);
    let Some(runtime) = state.as_mut() else { return Err(errors::after_fork()) };
    if is_quiet {
        // Words that found no room may be what the answer depends on.
        if let Some(connection) = runtime.connection.as_mut() {
            connection.flush();
        }
        runtime.receive_ready();
    }
    if let Some(answer) = runtime.answers.take(request) {
        return Ok(WaitState::Answered(answer));
    }
    if epoch() != asked_in {
        return Err(errors::connection_lost(py, "the session was ended"));
    }
    if let Some(reason) = runtime.answers.closed.clone() {
        return Err(errors::connection_lost(py, &reason));
    }
    if is_quiet {
        match runtime.patience() {
            Patience::Wait => {}
            Patience::Announce(text) => return Ok(WaitState::Announce(text)),
            Patience::Over(reason) => {
                runtime.answers.forget(request);
                return Err(errors::no_worker(py, reason));
            }
        }
        if let Some(text) = runtime.start_notice(watch.waited()) {
            return Ok(WaitState::Start(text));
        }
        if let Some(text) = watch.look(runtime) {
            return Ok(WaitState::Silent(text));
        }
    }
    let Some(connection) = runtime.connection.as_mut() else {
        return Ok(WaitState::Listen(Vec::new(), RECEIVED.load(Ordering::Acquire), None));
    };
    let park = if connection.has_backlog() { BACKLOG_PARK } else { READ_PARK };
    let sleeps = (connection.begin_wait() || is_quiet).then_some(park);
    Ok(WaitState::Listen(connection.inboxes(), RECEIVED.load(Ordering::Acquire), sleeps))
}

/// Takes the words that arrive at one of the inboxes and returns its index, unless another thread
/// does: of several threads that read, one listens. Words that arrived after the core had
/// `received` batches may hold the caller's answer, so the caller looks again before it listens.
/// Polls first; sleeps where polling received nothing, or where it would keep a worker from its CPU
/// (`sleeps`).
fn listen(
    inboxes: &[SharedInbox],
    received: u64,
    words: &mut Vec<u32>,
    sleeps: Option<Duration>,
) -> Option<usize> {
    let begun = Instant::now();
    while begun.elapsed() < READ_PARK {
        if let Some(mut locked) = lock_all(inboxes)
            && TAKEN.load(Ordering::Acquire) == received
        {
            let arrived = match sleeps {
                Some(park) => sleep(&mut locked, words, park),
                None => poll(&mut locked, words),
            };
            if arrived.is_some() {
                TAKEN.fetch_add(1, Ordering::AcqRel);
            }
            return arrived;
        }
        if RECEIVED.load(Ordering::Acquire) != received {
            return None;
        }
        std::thread::sleep(LISTENER_NAP);
    }
    None
}

/// Locks all inboxes; `None` while another thread has one of them.
fn lock_all(inboxes: &[SharedInbox]) -> Option<SmallVec<[LockedInbox<'_>; 2]>> {
    inboxes.iter().map(|inbox| inbox.try_lock().ok()).collect()
}

fn take(inboxes: &mut [LockedInbox<'_>], words: &mut Vec<u32>) -> Option<usize> {
    inboxes.iter_mut().position(|inbox| {
        inbox.take(words);
        !words.is_empty()
    })
}

fn poll(inboxes: &mut [LockedInbox<'_>], words: &mut Vec<u32>) -> Option<usize> {
    let mut arrived = None;
    poll_until(READ_SPIN, || {
        arrived = take(inboxes, words);
        arrived.is_some()
    });
    arrived
}

/// Sleeps on all inboxes together: for a sharded value all holders answer at once.
fn sleep(inboxes: &mut [LockedInbox<'_>], words: &mut Vec<u32>, park: Duration) -> Option<usize> {
    let awake = inboxes.iter_mut().position(|inbox| !inbox.park());
    if awake.is_none() {
        let sleeping: SmallVec<[Sleeping<'_>; 2]> =
            inboxes.iter().map(|inbox| inbox.sleeping()).collect();
        sleep_on_any(&sleeping, park);
    }
    let parked = awake.unwrap_or(inboxes.len());
    inboxes.iter_mut().take(parked).for_each(|inbox| inbox.unpark());
    take(inboxes, words)
}
