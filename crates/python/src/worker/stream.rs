//! The stream of a worker process: a thread without the interpreter moves large collectives on while the machine's thread
//! computes.
//!
//! One of the two drives at a time, behind a lock: the machine's thread where it waits for a collective or for words, the
//! other one where it was handed enough to be worth its waking. What both could sleep on (the other workers' slabs) says
//! who sleeps there last, so that neither takes the other's wake-up for its own.

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

/// Polled for so long before the machine's thread sleeps: a peer is mostly a few microseconds late.
const SPIN: Duration = Duration::from_micros(200);
/// The same for the other thread, whose polling takes time from those that compute.
const THREAD_SPIN: Duration = Duration::from_micros(20);
/// Looks at a process group's work in a row before the machine's thread sleeps between them, and how long it sleeps then:
/// nobody wakes it.
const DOZES_AWAKE: u32 = 100;
const DOZE: Duration = Duration::from_micros(200);

/// The machine's side.
#[derive(Debug)]
pub struct WorkerStream {
    shared: Arc<SharedStream>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SharedStream {
    inside: Mutex<Inside>,
    /// Wakes the thread.
    waker: FutexWaker,
    /// The machine's thread drives: the other one sleeps.
    is_driven: AtomicBool,
    /// The machine's thread is about to take the lock: the other one, which takes it again and again, lets it.
    is_wanted: AtomicBool,
    /// There is enough in flight to wake the thread for. Only the machine's thread uses it.
    is_worth_it: AtomicBool,
    /// The thread has been handed work, and has not come to its end.
    is_handed: AtomicBool,
    /// Jobs have ended that the machine has not taken back.
    has_ended: AtomicBool,
    /// The machine's thread waits for words where it is not woken by other workers.
    is_away: AtomicBool,
    /// Wakes it there.
    eventfd: OwnedFd,
    stops: AtomicBool,
}

#[derive(Debug)]
struct Inside {
    stream: CommunicationStream<WorkerPeers, BorrowedMemory>,
    /// Who is to be woken at the peers' words.
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

    /// Second half; without effect if the other one sleeps there by now.
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

    /// Whether no other worker is known, so that none waits for this one.
    pub fn is_alone(&self) -> bool {
        self.shared.inside().stream.peers_mut().is_empty()
    }

    /// Waits until the ring has words or a job has ended, or as long as `longest`, and keeps up with the other workers
    /// meanwhile. May return early.
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
                break; // The time is over, or there is a signal.
            }
        }
        shared.yield_the_drive(inside);
    }

    /// Waits until a descriptor can be read or a job has ended, or as long as `longest`, while the thread keeps up with the
    /// other workers.
    pub fn wait_for(&mut self, descriptor: impl AsFd, longest: Duration) -> io::Result<bool> {
        let shared = &*self.shared;
        shared.is_away.store(true, Ordering::SeqCst);
        shared.is_handed.store(true, Ordering::SeqCst);
        shared.waker.wake();
        let mut words = false;
        // Either the thread sees that we are away, or we that there is something.
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
            // What it may have said is on standard error already.
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
        // What comes next may wait for it: nobody is woken before it is known that it does not.
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
        // Threads that connect a process group need the interpreter, and other members wait for them.
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

    /// One step, and a moment's sleep if there was none and has been none for a while.
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

    /// For the machine's thread.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.is_wanted.store(true, Ordering::SeqCst);
        let inside = self.locked();
        self.is_wanted.store(false, Ordering::SeqCst);
        inside
    }

    fn locked(&self) -> MutexGuard<'_, Inside> {
        // A thread that has panicked leaves a stream that nobody understands, and other workers that wait for us.
        self.inside.lock().unwrap_or_else(|_| std::process::abort())
    }

    /// The machine's thread drives from here on.
    fn drive(&self) -> MutexGuard<'_, Inside> {
        self.is_driven.store(true, Ordering::SeqCst);
        let mut inside = self.inside();
        // What comes from now on need not wake the thread.
        inside.unpark(Sleeper::Thread);
        inside
    }

    fn yield_the_drive(&self, inside: MutexGuard<'_, Inside>) {
        self.has_ended.store(inside.stream.has_ended(), Ordering::Release);
        self.is_driven.store(false, Ordering::SeqCst);
        self.keep(inside);
    }

    /// The machine's thread looks after the jobs itself, for now.
    fn keep(&self, inside: MutexGuard<'_, Inside>) {
        self.is_worth_it.store(inside.stream.is_worth_waking_for(), Ordering::Relaxed);
        self.is_handed.store(false, Ordering::SeqCst);
    }

    /// Wakes the thread if there is enough to do for it.
    fn hand_over(&self) {
        if self.is_worth_it.load(Ordering::Relaxed) && !self.is_handed.load(Ordering::Relaxed) {
            self.is_handed.store(true, Ordering::SeqCst);
            self.waker.wake();
        }
    }

    /// The thread.
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
                // Before anybody can hand something over, who would otherwise ring in vain.
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
            // They keep the memory that they are in, also of a worker that is gone by now.
            if !words.is_empty() {
                words.clear();
                since = None;
            }
        }
    }

    /// Lets the machine's thread know of jobs that have ended.
    fn tell(&self, inside: &Inside) {
        let is_new = inside.stream.has_ended() && !self.has_ended.swap(true, Ordering::SeqCst);
        if is_new && self.is_away.load(Ordering::SeqCst) {
            // An eventfd that cannot count further is readable already.
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Sleeps until the waker is used, or something comes at one of the words, if there is still a reason to. The waker is
    /// parked: whoever has rung it since ends the sleep at once.
    fn sleep(&self, words: &[Parked], limit: Duration, still: impl Fn() -> bool) {
        let waker = self.waker.parked();
        let sleeping: Vec<_> = std::iter::once(&waker).chain(words).map(Parked::sleeping).collect();
        if still() && !self.stops.load(Ordering::SeqCst) {
            sleep_on_any(&sleeping, limit);
        }
        self.waker.unpark();
    }
}
