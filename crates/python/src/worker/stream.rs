//! The communication stream of a worker process: a thread without the interpreter advances large
//! collectives while the machine's thread computes.
//!
//! One of the two threads drives the stream at a time, under a lock: the machine's thread while it
//! waits for a collective or for words, the other one when it was handed enough work to be worth
//! waking. A field names the thread that sleeps on the other workers' slabs, so that neither takes
//! the other's wake-up for its own.

use super::borrowed::BorrowedMemory;
use super::peers::WorkerPeers;
use gt_protocol::message::Peer;
use gt_transport::{
    Consumer, FutexWaker, Parked, WAIT_MAX, drain_eventfd, eventfd, sleep_on_any, yield_now,
};
use gt_worker::{Abort, CommunicationStream, Driver, Ended, Job, PeerId, Peers};
use pyo3::Python;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time for which the machine's thread polls before it sleeps: a peer is mostly a few microseconds
/// late.
const SPIN: Duration = Duration::from_micros(200);
/// Time for which the stream's thread polls before it sleeps, shorter because its polling takes
/// time from threads that compute.
const THREAD_SPIN: Duration = Duration::from_micros(20);
/// Number of consecutive looks at a process group's work before the machine's thread sleeps between
/// them, and the duration of such a sleep: nothing wakes it.
const DOZES_AWAKE: u32 = 100;
const DOZE: Duration = Duration::from_micros(200);

/// The machine's side of the stream.
#[derive(Debug)]
pub struct WorkerStream {
    shared: Arc<SharedStream>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SharedStream {
    inside: Mutex<Inside>,
    /// Wakes the stream's thread.
    waker: FutexWaker,
    /// True while the machine's thread drives the stream: the other one sleeps.
    is_driven: AtomicBool,
    /// True while the machine's thread is about to take the lock: the other one, which takes it
    /// again and again, lets it go first.
    is_wanted: AtomicBool,
    /// True if enough is in flight to wake the stream's thread. Only the machine's thread uses it.
    is_worth_it: AtomicBool,
    /// True while the stream's thread has work that it was handed.
    is_handed: AtomicBool,
    /// True if jobs have ended that the machine has not taken back.
    has_ended: AtomicBool,
    /// True while the machine's thread waits for words where other workers do not wake it.
    is_away: AtomicBool,
    /// Wakes the machine's thread while it is away.
    eventfd: OwnedFd,
    stops: AtomicBool,
}

#[derive(Debug)]
struct Inside {
    stream: CommunicationStream<WorkerPeers, BorrowedMemory>,
    /// Thread that is woken when words of the peers change.
    sleeper: Option<Sleeper>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleeper {
    Machine,
    Thread,
}

impl Inside {
    /// First half of a sleep, as in [`WorkerPeers::park`].
    fn park(&mut self, sleeper: Sleeper, words: &mut Vec<Parked>) -> Option<Duration> {
        self.sleeper = Some(sleeper);
        let limit = self.stream.peers_mut().park(words);
        if limit.is_none() {
            self.unpark(sleeper);
        }
        limit
    }

    /// Second half of a sleep; no effect if the other thread sleeps there by now.
    fn unpark(&mut self, sleeper: Sleeper) {
        if self.sleeper == Some(sleeper) {
            self.stream.peers_mut().unpark();
            self.sleeper = None;
        }
    }
}

impl WorkerStream {
    pub fn new(peers: WorkerPeers) -> io::Result<Self> {
        let shared = Arc::new(SharedStream {
            inside: Mutex::new(Inside { stream: CommunicationStream::new(peers), sleeper: None }),
            waker: FutexWaker::default(),
            is_driven: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            is_worth_it: AtomicBool::new(false),
            is_handed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            eventfd: eventfd().map_err(io::Error::other)?,
            stops: AtomicBool::new(false),
        });
        let threads = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("gt-stream".to_owned());
        let thread = builder.spawn(move || threads.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns true if no other worker is known, so that none waits for this one.
    pub fn is_alone(&self) -> bool {
        self.shared.inside().stream.peers_mut().is_empty()
    }

    /// Waits until the ring has words or a job has ended, at most for `longest`, and serves the
    /// other workers meanwhile. May return early.
    pub fn wait_for_words(&mut self, ring: &mut Consumer, longest: Duration) {
        let shared = &*self.shared;
        let mut inside = shared.drive();
        let mut words: Vec<Parked> = Vec::new();
        let mut since: Option<Instant> = None;
        while ring.available() == 0 && !ring.is_corrupt() && !inside.stream.has_ended() {
            if inside.stream.pass() {
                since = None;
                continue;
            }
            let start = *since.get_or_insert_with(Instant::now);
            if inside.stream.is_busy() && start.elapsed() < SPIN {
                yield_now();
                continue;
            }
            if inside.stream.pass_over_all() {
                continue;
            }
            words.clear();
            let Some(limit) = inside.park(Sleeper::Machine, &mut words) else { continue };
            let mut woken = true;
            if ring.park_on_futex() {
                let of_peers = words.iter().map(Parked::sleeping);
                let sleeping: Vec<_> = std::iter::once(ring.sleeping()).chain(of_peers).collect();
                woken = sleep_on_any(&sleeping, limit.min(longest));
                ring.park_end();
            }
            inside.unpark(Sleeper::Machine);
            if !woken {
                break; // the time is over, or a signal arrived
            }
        }
        shared.yield_the_drive(inside);
    }

    /// Waits until a descriptor is readable or a job has ended, at most for `longest`, while the
    /// stream's thread serves the other workers.
    pub fn wait_for(&mut self, descriptor: impl AsFd, longest: Duration) -> io::Result<bool> {
        let shared = &*self.shared;
        shared.is_away.store(true, Ordering::SeqCst);
        shared.is_handed.store(true, Ordering::SeqCst);
        shared.waker.wake();
        let mut words = false;
        // Either the thread sees that this one is away, or this one sees that a job has ended.
        if !shared.has_ended.load(Ordering::SeqCst) {
            let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let mut polled = [readable(descriptor.as_fd()), readable(shared.eventfd.as_fd())];
            let longest = longest.min(WAIT_MAX);
            let limit = Timespec {
                tv_sec: longest.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: longest.subsec_nanos().into(),
            };
            match poll(&mut polled, Some(&limit)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            words = polled.first().is_some_and(|polled| !polled.revents().is_empty());
        }
        shared.is_away.store(false, Ordering::SeqCst);
        drain_eventfd(shared.eventfd.as_fd()).map_err(io::Error::other)?;
        Ok(words)
    }
}

impl Drop for WorkerStream {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the message is on standard error already.
            let _ = thread.join();
        }
    }
}

impl Driver<BorrowedMemory> for WorkerStream {
    fn introduce(&mut self, peer: &Peer<'_>) {
        self.shared.inside().stream.peers_mut().introduce(peer);
    }

    fn submit(&mut self, job: Job<BorrowedMemory>) -> Option<Ended<BorrowedMemory>> {
        let mut inside = self.shared.inside();
        let ended = inside.stream.submit(job);
        // The next instruction may wait for it: the thread is woken only once it is known that it
        // does not.
        self.shared.keep(inside);
        ended
    }

    fn abort(&mut self, abort: Abort) {
        let mut inside = self.shared.inside();
        inside.stream.abort(abort);
        self.shared.keep(inside);
        self.shared.hand_over();
    }

    fn compute(&mut self) {
        self.shared.hand_over();
    }

    fn ended(&mut self) -> Option<Ended<BorrowedMemory>> {
        let shared = &*self.shared;
        let has_ended = shared.has_ended.load(Ordering::Acquire);
        if !has_ended && shared.is_handed.load(Ordering::Acquire) {
            return None;
        }
        let mut inside = shared.inside();
        if !has_ended {
            inside.stream.pass();
        }
        let ended = inside.stream.take_ended();
        shared.has_ended.store(inside.stream.has_ended(), Ordering::Release);
        ended
    }

    fn wait(&mut self, ticket: u64) -> bool {
        let shared = &*self.shared;
        // Threads that connect a process group need the interpreter, and other members wait for
        // them.
        Python::attach(|py| py.detach(|| shared.drive_until_over(ticket)));
        true
    }

    fn doze(&mut self, times: u32) {
        let shared = &*self.shared;
        Python::attach(|py| py.detach(|| shared.drive_once(times)));
    }

    fn packed_bytes(&mut self) -> [u64; 2] {
        self.shared.inside().stream.peers().packed_bytes()
    }

    fn is_gone(&mut self, peer: PeerId) -> bool {
        self.shared.inside().stream.is_gone(peer)
    }

    fn is_packed(&mut self, peer: PeerId) -> bool {
        self.shared.inside().stream.peers().is_packed(peer)
    }
}

impl SharedStream {
    /// Until a job is over, this one or another.
    fn drive_until_over(&self, ticket: u64) {
        let mut inside = self.drive();
        let mut words: Vec<Parked> = Vec::new();
        let mut since: Option<Instant> = None;
        while !inside.stream.is_over(ticket) && !inside.stream.has_ended() {
            if inside.stream.pass() {
                since = None;
                continue;
            }
            if since.get_or_insert_with(Instant::now).elapsed() < SPIN {
                yield_now();
                continue;
            }
            if inside.stream.pass_over_all() {
                continue;
            }
            words.clear();
            if let Some(limit) = inside.park(Sleeper::Machine, &mut words) {
                let sleeping: Vec<_> = words.iter().map(Parked::sleeping).collect();
                sleep_on_any(&sleeping, limit);
                inside.unpark(Sleeper::Machine);
            }
        }
        self.yield_the_drive(inside);
    }

    /// Makes one step; sleeps for a moment if there was none and has been none for a while.
    fn drive_once(&self, times: u32) {
        let mut inside = self.drive();
        if !inside.stream.pass() && !inside.stream.has_ended() {
            let mut words: Vec<Parked> = Vec::new();
            if times < DOZES_AWAKE {
                yield_now();
            } else if !inside.stream.pass_over_all()
                && let Some(limit) = inside.park(Sleeper::Machine, &mut words)
            {
                let sleeping: Vec<_> = words.iter().map(Parked::sleeping).collect();
                sleep_on_any(&sleeping, limit.min(DOZE));
                inside.unpark(Sleeper::Machine);
            }
        }
        self.yield_the_drive(inside);
    }

    /// Takes the lock, on the machine's thread.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.is_wanted.store(true, Ordering::SeqCst);
        let inside = self.locked();
        self.is_wanted.store(false, Ordering::SeqCst);
        inside
    }

    fn locked(&self) -> MutexGuard<'_, Inside> {
        // A thread that panicked leaves the stream in an unknown state while other workers wait for
        // this one.
        self.inside.lock().unwrap_or_else(|_| std::process::abort())
    }

    /// Takes the lock and makes the machine's thread the driver.
    fn drive(&self) -> MutexGuard<'_, Inside> {
        self.is_driven.store(true, Ordering::SeqCst);
        let mut inside = self.inside();
        // Words that change from now on need not wake the stream's thread.
        inside.unpark(Sleeper::Thread);
        inside
    }

    fn yield_the_drive(&self, inside: MutexGuard<'_, Inside>) {
        self.has_ended.store(inside.stream.has_ended(), Ordering::Release);
        self.is_driven.store(false, Ordering::SeqCst);
        self.keep(inside);
    }

    /// Releases the lock; the machine's thread goes on serving the jobs itself.
    fn keep(&self, inside: MutexGuard<'_, Inside>) {
        self.is_worth_it.store(inside.stream.is_worth_waking_for(), Ordering::Relaxed);
        self.is_handed.store(false, Ordering::SeqCst);
    }

    /// Wakes the stream's thread if there is enough work for it.
    fn hand_over(&self) {
        if self.is_worth_it.load(Ordering::Relaxed) && !self.is_handed.load(Ordering::Relaxed) {
            self.is_handed.store(true, Ordering::SeqCst);
            self.waker.wake();
        }
    }

    /// The loop of the stream's thread.
    fn run(&self) {
        let mut words: Vec<Parked> = Vec::new();
        let mut since: Option<Instant> = None;
        while !self.stops.load(Ordering::SeqCst) {
            if self.is_driven.load(Ordering::SeqCst) {
                self.waker.park();
                self.sleep(&[], WAIT_MAX, || self.is_driven.load(Ordering::SeqCst));
                continue;
            }
            if self.is_wanted.load(Ordering::SeqCst) {
                yield_now();
                continue;
            }
            let mut inside = self.locked();
            let moved = inside.stream.pass();
            self.tell(&inside);
            if moved {
                since = None;
                continue;
            }
            if !inside.stream.is_busy() && !self.is_away.load(Ordering::SeqCst) {
                self.is_handed.store(false, Ordering::SeqCst);
                // Parked before work can be handed over: a wake-up before this would be lost.
                self.waker.park();
                drop(inside);
                self.sleep(&[], WAIT_MAX, || !self.is_away.load(Ordering::SeqCst));
                continue;
            }
            if since.get_or_insert_with(Instant::now).elapsed() < THREAD_SPIN {
                drop(inside);
                yield_now();
                continue;
            }
            if inside.stream.pass_over_all() {
                continue;
            }
            if let Some(limit) = inside.park(Sleeper::Thread, &mut words) {
                self.waker.park();
                drop(inside);
                self.sleep(&words, limit, || true);
                self.locked().unpark(Sleeper::Thread);
            }
            // The words keep their memory mapped, even of a worker that is gone by now.
            if !words.is_empty() {
                words.clear();
                since = None;
            }
        }
    }

    /// Tells the machine's thread of jobs that have ended.
    fn tell(&self, inside: &Inside) {
        let is_new = inside.stream.has_ended() && !self.has_ended.swap(true, Ordering::SeqCst);
        if is_new && self.is_away.load(Ordering::SeqCst) {
            // An eventfd that cannot count further is readable already.
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Sleeps until the waker is used, or one of the words changes, if `still` holds. The waker is
    /// parked: a wake-up since then ends the sleep at once.
    fn sleep(&self, words: &[Parked], limit: Duration, still: impl Fn() -> bool) {
        let waker = self.waker.parked();
        let sleeping: Vec<_> = std::iter::once(&waker).chain(words).map(Parked::sleeping).collect();
        if still() && !self.stops.load(Ordering::SeqCst) {
            sleep_on_any(&sleeping, limit);
        }
        self.waker.unpark();
    }
}
