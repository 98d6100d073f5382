//! The connection to an embedded dispatcher: its core called inline, a ring to each worker.

mod replacement;

use super::answers::Answers;
use super::payload::{self, Payloads};
use super::worker_child::{ForkReport, ForkServer, WorkerChild};
use super::{Connection, Deaths, SharedInbox};
use gt_dispatcher::{
    CostModel, Dispatcher, Event, Lineage, SessionId, Sink, TraceLine, TraceNotes, WorkerIndex,
    decision_line,
};
use gt_protocol::integer::{to_u64, to_usize};
use gt_protocol::message::{self, FromClient, FromWorker, ToClient, ToWorker};
use gt_protocol::text;
use gt_protocol::wire::{self, EncodeError, Frees};
use gt_protocol::{Family, Id, Instruction, Meta, Op};
use gt_server::{Backlog, LineLog};
use gt_transport::{CHUNK_BYTES_MAX, Producer, SlabReader, peer_closed};
use replacement::LifeLines;
pub(crate) use replacement::{ConnectWorkersError, StartWorker, connect_workers};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ring words that one instruction may need: the longest payload, and the plan around it.
const ROOM_WORDS: usize = 12 * 1024;
/// Number of frees that may wait for the next words of a worker; beyond it they are sent by
/// themselves.
const FREES_WORDS_MAX: usize = 1024;

/// One worker process.
pub(crate) struct WorkerProcess {
    pub producer: Producer,
    pub control: Arc<OwnedFd>,
    pub child: WorkerChild,
    pub inbox: SharedInbox,
    /// Words that did not fit into the ring; only a plan far longer than usual leaves any.
    pub backlog: Backlog,
    /// Frees that go with the next words.
    pub frees: Frees,
    pub alive: bool,
    /// True once the worker has sent something: it is ready for instructions.
    pub has_started: bool,
    /// Large payloads to the worker.
    pub payloads: Payloads,
}

impl WorkerProcess {
    fn is_full(&self) -> bool {
        self.alive && self.payloads.is_full()
    }
}

/// The workers of a connection that are starting.
#[derive(Default)]
pub(crate) struct StartedWorkers {
    pub links: Vec<WorkerProcess>,
    /// Large chunks of answers, by worker.
    pub chunks: Vec<SlabReader>,
    /// The process that forks the workers, if they are forked.
    pub fork_server: Option<ForkServer>,
    /// Starts another worker in the place of one whose process has ended.
    pub start: Option<StartWorker>,
}

/// Words of all workers together that are kept, so that values of a worker that dies can be made
/// again: 64 MiB, some million instructions.
const LINEAGE_WORDS: usize = 16 << 20;

pub(crate) struct EmbeddedConnection {
    core: Dispatcher,
    session: SessionId,
    links: Vec<WorkerProcess>,
    /// Large chunks of answers, by worker.
    chunks: Vec<SlabReader>,
    fork_server: Option<ForkServer>,
    start_worker: Option<StartWorker>,
    /// Number of workers before the present one, by index.
    incarnations: Vec<u32>,
    /// Number of the latest workers of an index that ended before they looked for work.
    failed_starts: Vec<u32>,
    life_lines: LifeLines,
    /// Times of the latest deaths.
    deaths: Vec<Instant>,
    /// Words that the workers were sent.
    lineage: Lineage,
    /// Workers that have taken a place, of which the client is told when the values are made again.
    successors: BTreeSet<WorkerIndex>,
    scratch: Vec<u32>,
    log: Option<Log>,
    backend: String,
    /// Workers that broke the protocol or missed an output, with the reasons: they are ended after
    /// the call of the core in which that happened.
    given_up: Vec<(WorkerIndex, String)>,
}

/// The instruction log, and the lines about decisions on standard error.
pub(crate) struct Log {
    /// `None` where there are only lines about decisions.
    pub lines: Option<LineLog>,
    /// Returns the current time as `12:03:07.123456`.
    pub clock: fn() -> String,
    /// True if each placement and its reason goes to standard error.
    pub shows_decisions: bool,
}

impl Log {
    /// Writes a line that is made of the time of day.
    fn write(&mut self, line: impl FnOnce(&str) -> String) {
        if let Some(lines) = &mut self.lines {
            lines.line().push_str(&line(&(self.clock)()));
            lines.end_line();
        }
    }
}

impl EmbeddedConnection {
    pub(crate) fn new(workers: StartedWorkers, log: Option<Log>, backend: String) -> Self {
        let StartedWorkers { links, chunks, fork_server, start: start_worker } = workers;
        let mut core = Dispatcher::new();
        let mut answers = Answers::default();
        let mut ignore = LinkSink {
            links: &mut [],
            scratch: &mut Vec::new(),
            lineage: &mut Lineage::new(0),
            answers: &mut answers,
            log: &mut None,
            given_up: &mut Vec::new(),
        };
        let processes: Vec<u32> = links.iter().map(|link| link.child.id()).collect();
        for (index, process) in processes.into_iter().enumerate() {
            let index = WorkerIndex::try_from(index).expect("workers are few");
            core.handle(Event::WorkerJoined { index }, &mut ignore);
            core.handle(Event::WorkerProcess { index, process }, &mut ignore);
        }
        core.set_tracing(log.is_some());
        core.set_reasoning(log.as_ref().is_some_and(|log| log.shows_decisions));
        let session = core.open_session();
        let scratch = Vec::new();
        let given_up = Vec::new();
        let (incarnations, failed_starts) = (vec![0; links.len()], vec![0; links.len()]);
        let life_lines = LifeLines::new(links.iter().map(|link| &*link.control));
        Self {
            core,
            session,
            links,
            chunks,
            fork_server,
            start_worker,
            incarnations,
            failed_starts,
            life_lines,
            deaths: Vec::new(),
            lineage: Lineage::new(LINEAGE_WORDS),
            successors: BTreeSet::new(),
            scratch,
            log,
            backend,
            given_up,
        }
    }

    /// Sets the costs of work and traffic that the planner uses.
    pub(crate) fn set_cost_model(&mut self, cost_model: CostModel) {
        self.core.set_cost_model(cost_model);
    }

    fn split<'a>(&'a mut self, answers: &'a mut Answers) -> (&'a mut Dispatcher, LinkSink<'a>) {
        let outputs = LinkSink {
            links: &mut self.links,
            scratch: &mut self.scratch,
            lineage: &mut self.lineage,
            answers,
            log: &mut self.log,
            given_up: &mut self.given_up,
        };
        (&mut self.core, outputs)
    }

    /// Sends what found no room in the rings before. Other words that are sent do so too, which there
    /// are none of while a dead worker's values are not made again.
    fn flush_backlogs(&mut self) {
        for link in self.links.iter_mut().filter(|link| link.alive && !link.backlog.is_empty()) {
            link.backlog.flush(&mut link.producer);
        }
    }

    /// Ends the workers that were given up in the last call of the core.
    #[inline]
    fn end_given_up(&mut self, answers: &mut Answers) {
        // The loop ends: each worker is ended once, and a lost worker is sent nothing more.
        while let Some((index, reason)) = self.given_up.pop() {
            self.end_worker(to_usize(index), &reason, answers);
        }
    }
}

impl EmbeddedConnection {
    /// Takes the fork server's reports since the last call.
    fn take_reports(&mut self, answers: &mut Answers) {
        while self.take_report(Duration::ZERO, answers) {}
    }

    /// Takes a report of the fork server, if one arrives within `patience`.
    fn take_report(&mut self, patience: Duration, answers: &mut Answers) -> bool {
        let server = self.fork_server.as_ref();
        let Some(report) = server.and_then(|server| server.take_report(patience)) else {
            return false;
        };
        match report {
            ForkReport::Forked(worker, child) => {
                let process = child.id();
                let Some(link) = self.links.get_mut(to_usize(worker)) else { return true };
                link.child = child;
                if !link.alive {
                    link.end(); // lost before it was known
                }
                let (core, mut outputs) = self.split(answers);
                core.handle(Event::WorkerProcess { index: worker, process }, &mut outputs);
            }
            ForkReport::Ended { index, process, manner } => {
                if let Some(link) = self.links.get_mut(to_usize(index)) {
                    link.child.note_end(process, manner);
                }
            }
        }
        true
    }

    /// Handles the first message among a worker's words, with its bytes if those came through the
    /// slab; returns the message's length.
    fn handle_first(
        &mut self,
        place: usize,
        words: &[u32],
        answers: &mut Answers,
    ) -> Result<usize, String> {
        let Self { core, links, chunks, scratch, lineage, log, given_up, .. } = self;
        let mut outputs = LinkSink { links, scratch, lineage, answers, log, given_up };
        let index = WorkerIndex::try_from(place).expect("workers are few");
        let mut slab = chunks.get_mut(place);
        let mut is_beside = false;
        let decoded = message::decode_with::<FromWorker<'_>>(words, || {
            is_beside = true;
            let slab = slab.as_deref_mut()?;
            slab.refresh();
            Some(slab.front()?.bytes)
        });
        let (message, used) =
            decoded.map_err(|error| format!("it sent bytes that are no message: {error}"))?;
        core.handle(Event::FromWorker { index, message }, &mut outputs);
        if let Some(slab) = slab.filter(|_| is_beside) {
            slab.release();
        }
        Ok(used)
    }
}

impl Connection for EmbeddedConnection {
    fn has_room(&mut self) -> bool {
        let has_room = !self.core.is_recovering()
            && self.links.iter_mut().filter(|link| link.alive).all(WorkerProcess::has_room);
        if !has_room {
            // A worker whose ring is full may wait for one whose words are not sent yet.
            self.flush_backlogs();
        }
        has_room
    }

    fn has_dispatcher_room(&mut self) -> bool {
        true
    }

    fn is_on_this_host(&self) -> bool {
        true
    }

    fn has_ample_room(&mut self) -> bool {
        let resumed = |link: &mut WorkerProcess| {
            link.has_room() && (link.producer.has_resumed(ROOM_WORDS) || link.producer.is_corrupt())
        };
        !self.core.is_recovering() && self.links.iter_mut().filter(|link| link.alive).all(resumed)
    }

    fn send(&mut self, instruction: &Instruction<'_>, answers: &mut Answers) -> Result<(), String> {
        let session = self.session;
        let (core, mut outputs) = self.split(answers);
        let sent = core.instruction(session, instruction, &mut outputs);
        self.end_given_up(answers);
        sent.map_err(|fault| fault.to_string())
    }

    fn send_words(
        &mut self,
        op: Op,
        words: &mut [u32],
        outputs: &[Meta],
        answers: &mut Answers,
    ) -> Result<(), String> {
        let info = op.info();
        let session = self.session;
        let (core, mut sink) = self.split(answers);
        let is_plain =
            !info.has_list() && !matches!(info.family, Family::Control | Family::Collective);
        let sent = if is_plain {
            core.inferred_words(session, op, words, outputs, &mut sink)
        } else {
            let (instruction, _) = wire::decode(words).map_err(|error| error.to_string())?;
            core.inferred(session, &instruction, outputs, &mut sink)
        };
        self.end_given_up(answers);
        sent.map_err(|fault| fault.to_string())
    }

    fn flush(&mut self) {
        for (index, link) in (0..).zip(&mut self.links) {
            link.write((index, &mut self.lineage), &[]);
        }
        self.flush_backlogs();
    }

    fn has_backlog(&self) -> bool {
        self.links.iter().any(|link| link.alive && !link.backlog.is_empty())
    }

    fn begin_wait(&mut self) -> bool {
        let mut shares_cpu = false;
        for link in self.links.iter_mut().filter(|link| link.alive) {
            link.producer.end_nap();
            shares_cpu |= link.producer.shares_cpu();
        }
        shares_cpu
    }

    fn chunk_bytes_max(&self) -> usize {
        CHUNK_BYTES_MAX
    }

    fn full_payloads(&mut self) -> Option<Payloads> {
        self.links.iter().find(|link| link.is_full()).map(|link| link.payloads.clone())
    }

    fn release(&mut self, slots: &[u32], answers: &mut Answers) -> Result<(), String> {
        let session = self.session;
        let (core, mut sink) = self.split(answers);
        let released = core.release(session, slots, &mut sink);
        self.end_given_up(answers);
        released.map_err(|fault| fault.to_string())
    }

    fn say(&mut self, message: &FromClient<'_>, answers: &mut Answers) {
        let session = self.session;
        let (core, mut outputs) = self.split(answers);
        let event = match *message {
            FromClient::StatsRequest { request } => Event::StatsRequest { session, request },
            FromClient::Sessions { request, .. } => {
                // An embedded dispatcher has one session, which ends with its program.
                outputs.session(session, &ToClient::Description { request, text: "" });
                return;
            }
            FromClient::Cancel => return self.cancel(answers),
            FromClient::Goodbye { .. } => Event::SessionClosed { session },
        };
        core.handle(event, &mut outputs);
        self.end_given_up(answers);
    }

    fn cancel(&mut self, answers: &mut Answers) {
        self.abandon_recovery(answers);
        self.lineage.forget();
        for link in self.links.iter_mut().filter(|link| link.alive) {
            link.producer.announce();
        }
        let workers = (0..).zip(&self.links).filter(|(_, link)| link.alive);
        let workers: Vec<WorkerIndex> = workers.map(|(index, _)| index).collect();
        let (_, mut outputs) = self.split(answers);
        for worker in workers {
            outputs.worker_message(worker, &ToWorker::Cancel);
        }
        self.end_given_up(answers);
    }

    fn inboxes(&self) -> Vec<SharedInbox> {
        self.links.iter().map(|link| Arc::clone(&link.inbox)).collect()
    }

    fn take_notice(&mut self) -> Option<String> {
        self.log.as_mut()?.lines.as_mut()?.take_notice()
    }

    fn start(&self) -> Option<String> {
        let (count, backend) = (self.links.len(), &self.backend);
        let ready = self.links.iter().filter(|link| link.has_started || !link.alive).count();
        let plural = if count == 1 { "" } else { "s" };
        (ready < count)
            .then(|| format!("starting {count} worker{plural} ({backend}): {ready} ready"))
    }

    fn receive(&mut self, index: usize, words: &[u32], answers: &mut Answers) {
        if self.links.get(index).is_some_and(|link| !link.has_started) && !words.is_empty() {
            self.take_reports(answers);
            self.links[index].has_started = true;
        }
        let mut rest = words;
        while !rest.is_empty() {
            match self.handle_first(index, rest, answers) {
                Ok(used) => rest = rest.get(used..).unwrap_or_default(),
                Err(reason) => return self.end_worker(index, &reason, answers),
            }
            self.end_given_up(answers);
            if self.links.get(index).is_none_or(|link| !link.alive) {
                return;
            }
        }
        self.finish_recovery(answers);
    }

    fn lost(&mut self, index: usize, reason: &str, answers: &mut Answers) {
        self.replace_lost(index, reason, answers);
    }

    fn deaths(&self) -> Option<Deaths> {
        self.life_lines.deaths()
    }

    fn has_dead_worker(&mut self) -> bool {
        self.core.is_recovering()
            || self.links.iter().any(|link| link.alive && peer_closed(link.control.as_fd()))
    }

    fn describe(&self) -> String {
        let workers = self.links.iter().filter(|link| link.alive).count();
        format!("embedded dispatcher, {workers} worker(s), backend {}", self.backend)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let held = self.core.statistics();
        vec![
            ("workers", to_u64(held.workers)),
            ("sessions", to_u64(held.sessions)),
            ("values", to_u64(held.values)),
            ("bytes", held.bytes),
            ("requests", to_u64(held.requests)),
            ("worker_slots", to_u64(held.worker_slots)),
            ("moved_bytes", held.moved_bytes),
        ]
    }

    fn close(&mut self) {
        self.life_lines.end();
        self.take_reports(&mut Answers::default());
        for link in &mut self.links {
            link.end();
        }
        if let Some(server) = &mut self.fork_server {
            server.end();
        }
        if let Some(lines) = self.log.as_mut().and_then(|log| log.lines.as_mut()) {
            lines.end();
        }
    }
}

impl WorkerProcess {
    #[inline]
    fn has_room(&mut self) -> bool {
        if !self.backlog.is_empty() {
            self.backlog.flush(&mut self.producer);
        }
        (self.backlog.is_empty() && self.producer.has_space(ROOM_WORDS))
            || self.producer.is_corrupt()
    }

    /// Sends words, after the frees that wait; while a dead worker's values are not made again, only
    /// writes them down.
    #[inline]
    fn write(&mut self, (index, lineage): (WorkerIndex, &mut Lineage), words: &[u32]) {
        if !self.alive {
            return;
        }
        lineage.append(index, self.frees.words());
        lineage.append(index, words);
        if !lineage.is_held() {
            self.backlog.send(&mut self.producer, &[self.frees.words(), words]);
        }
        self.frees.clear();
    }

    /// Sends a message, which is part of no lineage.
    fn write_message(&mut self, (index, lineage): (WorkerIndex, &mut Lineage), words: &[u32]) {
        self.write((index, lineage), &[]);
        self.write_unlogged(words);
    }

    fn write_unlogged(&mut self, words: &[u32]) {
        if self.alive {
            self.backlog.send(&mut self.producer, &[words]);
        }
    }

    /// Sends a chunk of an upload, whose bytes may have gone beside the words.
    fn write_chunk(
        &mut self,
        (index, lineage): (WorkerIndex, &mut Lineage),
        words: &[u32],
        chunk: &Instruction<'_>,
    ) {
        self.write((index, lineage), &[]);
        let slot = chunk.values().next().and_then(Id::as_slot).unwrap_or(u32::MAX);
        let mut whole = Vec::new();
        // Without its words in the log, the value cannot be made again.
        drop(payload::encode(chunk, None, &mut whole));
        lineage.append_beside(index, slot, &whole);
        if !lineage.is_held() {
            self.backlog.send(&mut self.producer, &[words]);
        }
    }

    /// Frees slots with the next words.
    fn free(&mut self, (index, lineage): (WorkerIndex, &mut Lineage), slots: &[u32]) {
        self.frees.add(slots);
        if self.frees.words().len() > FREES_WORDS_MAX {
            self.write((index, lineage), &[]);
        }
    }

    /// Returns true once its process has looked for work.
    fn has_run(&self) -> bool {
        self.has_started || self.producer.has_reader()
    }

    /// Ends the worker at once: none of its values is needed any more.
    fn end(&mut self) {
        self.child.end();
    }
}

impl Drop for EmbeddedConnection {
    fn drop(&mut self) {
        self.close();
    }
}

struct LinkSink<'a> {
    links: &'a mut [WorkerProcess],
    scratch: &'a mut Vec<u32>,
    lineage: &'a mut Lineage,
    answers: &'a mut Answers,
    log: &'a mut Option<Log>,
    given_up: &'a mut Vec<(WorkerIndex, String)>,
}

impl LinkSink<'_> {
    fn deliver(&mut self, worker: WorkerIndex) {
        let place = to_usize(worker);
        if let Some(link) = self.links.get_mut(place) {
            link.write((worker, self.lineage), self.scratch);
        }
    }
}

impl Sink for LinkSink<'_> {
    fn worker(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>) {
        self.scratch.clear();
        let place = to_usize(worker);
        // Nothing waits for words that are sent to a worker that is gone, or that are written down.
        let is_sent = |link: &&WorkerProcess| link.alive && !self.lineage.is_held();
        let link = self.links.get(place).filter(is_sent);
        match payload::encode(instruction, link.map(|link| &link.payloads), self.scratch) {
            Ok(()) if instruction.op == Op::Chunk => {
                if let Some(link) = self.links.get_mut(place).filter(|link| link.alive) {
                    link.write_chunk((worker, self.lineage), self.scratch, instruction);
                }
            }
            Ok(()) => self.deliver(worker),
            // The worker's slots differ from the core's from here on.
            Err(error) => self.give_up(worker, &unsent(&error)),
        }
    }

    fn words(&mut self, worker: WorkerIndex, words: &[u32]) {
        let place = to_usize(worker);
        if let Some(link) = self.links.get_mut(place) {
            link.write((worker, self.lineage), words);
        }
    }

    fn free(&mut self, worker: WorkerIndex, slots: &[u32]) {
        let place = to_usize(worker);
        if let Some(link) = self.links.get_mut(place) {
            link.free((worker, self.lineage), slots);
        }
    }

    fn worker_message(&mut self, worker: WorkerIndex, message: &ToWorker<'_>) {
        self.scratch.clear();
        match message::encode(message, self.scratch) {
            Ok(()) => {
                if let Some(link) = self.links.get_mut(to_usize(worker)) {
                    link.write_message((worker, self.lineage), self.scratch);
                }
            }
            Err(error) => self.give_up(worker, &unsent(&error)),
        }
    }

    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        self.given_up.push((worker, reason.to_owned()));
    }

    fn session(&mut self, _session: SessionId, message: &ToClient<'_>) {
        if let (Some(log), ToClient::Failure(failure)) = (&mut *self.log, message) {
            log.write(|time| text::failure(failure, time));
        }
        self.answers.receive(message);
    }

    fn trace(
        &mut self,
        _session: SessionId,
        instruction: &Instruction<'_>,
        notes: &TraceNotes<'_>,
    ) {
        let Some(log) = self.log else { return };
        log.write(|time| TraceLine { instruction, notes, time, session: None }.to_string());
        if log.shows_decisions
            && let Some(line) = decision_line(instruction, notes)
        {
            // If standard error is closed, there is nowhere to report it.
            let _ = writeln!(std::io::stderr(), "gt: {line}");
        }
    }
}

/// Reason why a worker is given up that misses an output: our own mistake, since the core plans
/// only what can be sent.
fn unsent(error: &EncodeError) -> String {
    format!("an output of the dispatcher has no binary form: {error}")
}
