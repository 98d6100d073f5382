//! The standby: a forked copy of the dispatcher's process, which waits for the dispatcher's death
//! and goes on in its place. A new one is forked when a peer has come or gone, and when the journal is
//! almost full; between these moments the journal has what the copy lacks.

use crate::journal::Journal;
use crate::net::Heirloom;
use crate::options::ServerOptions;
use crate::tokens::TokenList;
use gt_dispatcher::WorkerIndex;
use gt_transport::{Forked, ProcessHandle, fork, fork_process, signals};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Time between two tries to get a standby: forks may fail for want of memory, and a standby may be
/// killed for it.
const PAUSE: Duration = Duration::from_secs(1);
/// Name of a standby's thread, and of the core's.
const STANDBY_NAME: &std::ffi::CStr = c"gt-standby";
const CORE_NAME: &std::ffi::CStr = c"gt-core";
/// Exit code of a standby that cannot go on.
const FAILED: i32 = 1;
/// Incarnations of workers that a takeover leaves out: some may have been introduced to others without
/// the standby's knowledge.
const INCARNATIONS_SKIPPED: u32 = 1 << 16;

/// The core's thread's part of a standby.
#[derive(Debug)]
pub(crate) struct Standby {
    journal: Arc<Journal>,
    heirloom: Heirloom,
    /// This process, which the standby waits for.
    own: ProcessHandle,
    child: Option<ProcessHandle>,
    /// Earlier ones that have been killed and not been collected.
    killed: Vec<ProcessHandle>,
    /// Time before which no fork is tried.
    paused_until: Option<Instant>,
    /// Last incarnation of each worker's index.
    incarnations: BTreeMap<WorkerIndex, u32>,
    /// Incarnation that a new index begins with.
    first_incarnation: u32,
    /// The rest of this process, if it was a standby itself.
    successor: Option<Successor>,
}

/// The rest of a process that was a standby: its thread of sockets, which ends with the core's.
#[derive(Debug)]
pub(crate) struct Successor {
    pub net: JoinHandle<io::Result<()>>,
    pub core_ended: oneshot::Sender<()>,
    /// Watches the policy file until it is dropped.
    pub watching: Option<std::sync::mpsc::Sender<()>>,
}

/// Side of a fork.
pub(crate) enum Side {
    Dispatcher,
    /// The dispatcher of this number has ended; this process goes on in its place.
    Successor {
        before: i32,
    },
}

impl Standby {
    /// # Errors
    /// No memory for the journal, or a kernel before Linux 5.9.
    pub fn new(heirloom: Heirloom) -> io::Result<Self> {
        Ok(Self {
            journal: Arc::new(Journal::new()?),
            heirloom,
            own: ProcessHandle::own()?,
            child: None,
            killed: Vec::new(),
            paused_until: None,
            incarnations: BTreeMap::new(),
            first_incarnation: 0,
            successor: None,
        })
    }

    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    pub fn heirloom(&self) -> &Heirloom {
        &self.heirloom
    }

    pub fn options(&self) -> &ServerOptions {
        &self.heirloom.options
    }

    /// Notes the lines of the token file that has changed.
    pub fn note_tokens(&mut self, tokens: TokenList) {
        self.heirloom.tokens = Some(tokens);
    }

    /// Notes which of an index's workers is there.
    pub fn note_worker(&mut self, index: WorkerIndex, incarnation: u32) {
        self.incarnations.insert(index, incarnation);
    }

    /// Last incarnations by index, and the one that a new index begins with.
    pub fn incarnations(&self) -> (&BTreeMap<WorkerIndex, u32>, u32) {
        (&self.incarnations, self.first_incarnation)
    }

    /// Returns true if the journal is almost full.
    pub fn is_due(&self) -> bool {
        self.journal.is_low()
    }

    /// Returns true if a standby stands by.
    pub fn is_there(&self) -> bool {
        self.journal.is_on() && self.child.is_some()
    }

    /// The process that stands by.
    pub fn child(&self) -> Option<&ProcessHandle> {
        self.child.as_ref()
    }

    /// Time until a missing one may be tried.
    pub fn pause_left(&self) -> Option<Duration> {
        let end = self.paused_until.filter(|_| !self.is_there())?;
        Some(end.saturating_duration_since(Instant::now()))
    }

    /// Returns true if there is none and one may be tried.
    pub fn is_wanted(&self) -> bool {
        !self.is_there() && self.paused_until.is_none_or(|end| end <= Instant::now())
    }

    /// Forks the next standby, which keeps these descriptors and those of the listeners; then ends the
    /// one before. In the new one it returns when the dispatcher has been killed, and in a standby that
    /// is not needed it does not return.
    pub fn fork(&mut self, descriptors: impl Iterator<Item = RawFd>) -> Side {
        let listeners = self.heirloom.descriptors().chain([self.own.pidfd().as_raw_fd()]);
        let mut kept: Vec<RawFd> = descriptors.chain(listeners).collect();
        kept.sort_unstable();
        self.journal.turn_over();
        let begun = Instant::now();
        match fork_process() {
            Ok(Forked::Child) => self.stand_by(&kept),
            Ok(Forked::Parent(child)) => {
                self.journal.begin();
                let micros = begun.elapsed().as_micros();
                tracing::debug!("standby, process {}, was forked in {micros} us", child.id());
                self.end_child();
                self.child = Some(child);
                self.paused_until = None;
                Side::Dispatcher
            }
            Err(error) => {
                self.journal.end();
                self.end_child();
                self.pause(&format!("cannot be forked: {error}"));
                Side::Dispatcher
            }
        }
    }

    /// Collects what has ended.
    pub fn look(&mut self) {
        self.killed.retain(|killed| !killed.reap(false));
        if self.child.as_ref().is_some_and(|child| child.reap(false)) {
            self.journal.end();
            self.child = None;
            self.pause("has ended");
        }
    }

    /// Lets no standby take over: the dispatcher ends as it should.
    pub fn dismiss(&mut self) {
        self.journal.end();
        self.end_child();
        for killed in self.killed.drain(..) {
            killed.reap(true);
        }
    }

    /// Ends it; returns the rest of this process, if it was a standby itself.
    pub fn end(mut self) -> Option<Successor> {
        self.successor.take()
    }

    /// Makes this process one whose rest is to be ended.
    pub fn succeed(&mut self, successor: Successor) {
        self.successor = Some(successor);
    }

    fn pause(&mut self, why: &str) {
        tracing::warn!(
            "the standby {why}; until there is another one, the dispatcher's death would lose everything"
        );
        self.paused_until = Some(Instant::now() + PAUSE);
    }

    fn end_child(&mut self) {
        if let Some(child) = self.child.take() {
            child.kill();
            self.killed.push(child);
        }
    }

    /// Waits in the standby. Until the dispatcher has ended it makes system calls only: no lock is
    /// taken, and no memory.
    fn stand_by(&mut self, kept: &[RawFd]) -> Side {
        signals::ignore();
        let _ = rustix::thread::set_name(STANDBY_NAME);
        if fork::close_all_but(kept).is_err() {
            fork::exit_now(FAILED);
        }
        self.own.wait_for_end();
        if !self.journal.begin_replay() {
            fork::exit_now(0);
        }
        let _ = rustix::thread::set_name(CORE_NAME);
        let before = self.own.id();
        // Their descriptors are closed here, and the numbers may be others' soon.
        std::mem::forget(self.child.take());
        std::mem::forget(std::mem::take(&mut self.killed));
        std::mem::forget(self.successor.take());
        match ProcessHandle::own() {
            Ok(own) => self.own = own,
            Err(_) => fork::exit_now(FAILED),
        }
        self.first_incarnation += INCARNATIONS_SKIPPED;
        Side::Successor { before }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.dismiss();
    }
}

impl Successor {
    /// Ends the process, with the exit code of a dispatcher.
    pub fn finish(self, is_well: bool) -> ! {
        let Self { net, core_ended, watching } = self;
        drop(watching);
        // If this is not received, the sockets' thread has ended first.
        let _: Result<(), ()> = core_ended.send(());
        let served = net.join().is_ok_and(|served| served.is_ok());
        fork::exit_now(if served && is_well { 0 } else { FAILED });
    }
}
