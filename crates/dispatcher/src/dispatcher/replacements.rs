//! Workers that die and are replaced, for whoever owns the workers' rings: the log of what they were
//! sent, what of it must not be sent, and the course of a recovery.
//!
//! A dead worker's place is vacant until its successor is there: words for it are written down only.
//! Then the owner calls [`Replacements::hold`], and nothing is sent to anybody until all have said
//! what they have lost and [`Replacements::finish`] has the words that make the rest again.

use super::Dispatcher;
use crate::event::{Sink, WorkerIndex};
use crate::lineage::Lineage;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Words of all workers together that are kept: 64 MiB, some million instructions.
pub const LINEAGE_WORDS: usize = 16 << 20;
/// Deaths of workers in that time after which values are not made again: it may be what they die of.
const DEATHS_MAX: usize = 60;
const DEATHS_WINDOW: Duration = Duration::from_mins(1);

/// Log of the workers' words, and the course of a recovery. The default one keeps nothing, and lets
/// everything be sent.
#[derive(Debug, Default)]
pub struct Replacements {
    lineage: Option<Lineage>,
    /// Times of the latest deaths.
    deaths: VecDeque<Duration>,
    /// Workers whose successor is not at work yet.
    vacant: BTreeSet<WorkerIndex>,
    /// Those among them whose successor has joined, and is part of the recovery.
    successors: BTreeSet<WorkerIndex>,
}

/// End of a recovery: words that make values again, by worker, and the successors that are at work
/// from here on.
#[derive(Debug, Default)]
pub struct Remade {
    pub words: BTreeMap<WorkerIndex, Vec<u32>>,
    pub successors: BTreeSet<WorkerIndex>,
}

impl Replacements {
    /// An empty log of at most so many words.
    #[must_use]
    pub fn new(words_max: usize) -> Self {
        Self { lineage: Some(Lineage::new(words_max)), ..Self::default() }
    }

    /// Keeps a log from here on. What was sent before is like what a full log has dropped.
    pub fn begin(&mut self, words_max: usize) {
        self.lineage.get_or_insert_with(|| Lineage::new(words_max));
    }

    /// Returns true if words are kept.
    pub fn is_on(&self) -> bool {
        self.lineage.is_some()
    }

    /// Writes down whole frames for a worker; returns true if they are to be sent.
    #[inline]
    pub fn note(&mut self, worker: WorkerIndex, words: &[u32]) -> bool {
        let Some(lineage) = &mut self.lineage else { return true };
        lineage.append(worker, words);
        self.sends_to(worker)
    }

    /// Writes down a chunk of an upload to a slot, with its bytes among the words, as far as there is
    /// room for such; returns true if it is to be sent.
    pub fn note_chunk(&mut self, worker: WorkerIndex, slot: u32, words: &[u32]) -> bool {
        let Some(lineage) = &mut self.lineage else { return true };
        lineage.append_beside(worker, slot, words);
        self.sends_to(worker)
    }

    /// Returns true if words for a worker are to be sent.
    #[inline]
    pub fn sends_to(&self, worker: WorkerIndex) -> bool {
        !self.is_holding() && (self.vacant.is_empty() || !self.vacant.contains(&worker))
    }

    /// Returns true while nothing is sent to anybody.
    #[inline]
    pub fn is_holding(&self) -> bool {
        self.lineage.as_ref().is_some_and(Lineage::is_held)
    }

    /// Notes the death of a worker whose successor is awaited. `now` is the time since any fixed
    /// moment.
    pub fn died(&mut self, core: &mut Dispatcher, worker: WorkerIndex, now: Duration) {
        let is_old = |at: &Duration| now.saturating_sub(*at) >= DEATHS_WINDOW;
        while self.deaths.front().is_some_and(is_old) {
            self.deaths.pop_front();
        }
        self.deaths.push_back(now);
        self.vacant.insert(worker);
        self.successors.remove(&worker);
        core.worker_vacant(worker);
    }

    /// Notes that a worker has left, and nobody is to succeed it.
    pub fn left(&mut self, worker: WorkerIndex) {
        self.vacant.remove(&worker);
        self.successors.remove(&worker);
        if let Some(lineage) = &mut self.lineage {
            lineage.leave(worker);
        }
    }

    /// Writes down from here on what the workers would be sent, until all have said what they have
    /// lost.
    pub fn hold(&mut self) {
        if let Some(lineage) = &mut self.lineage {
            lineage.hold();
        }
    }

    /// Makes a successor part of the recovery: `worker_replaced` of the core comes next.
    pub fn succeed(&mut self, worker: WorkerIndex) {
        self.successors.insert(worker);
    }

    /// Ends a recovery once all workers have said what they have lost: `None` before. What goes into
    /// the sink is for clients.
    pub fn finish(&mut self, core: &mut Dispatcher, sink: &mut dyn Sink) -> Option<Remade> {
        let makes_again = self.deaths.len() <= DEATHS_MAX;
        core.knows_losses().then(|| self.end(core, makes_again, sink))
    }

    /// Ends a recovery before all have answered: nothing is made again. `None` where there is none.
    pub fn abandon(&mut self, core: &mut Dispatcher, sink: &mut dyn Sink) -> Option<Remade> {
        core.is_recovering().then(|| self.end(core, false, sink))
    }

    fn end(&mut self, core: &mut Dispatcher, makes_again: bool, sink: &mut dyn Sink) -> Remade {
        let mut none = Lineage::new(0);
        let lineage = self.lineage.as_mut().unwrap_or(&mut none);
        let words = core.finish_recovery(lineage, makes_again, sink);
        lineage.resume();
        self.vacant.clear();
        Remade { words, successors: std::mem::take(&mut self.successors) }
    }

    /// Drops all words: a part of them was cancelled, and only the worker knows which.
    pub fn forget(&mut self) {
        if let Some(lineage) = &mut self.lineage {
            lineage.forget();
        }
    }
}
