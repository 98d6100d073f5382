//! Workers whose process has ended: how it ended, and another one in its place.
//!
//! A first worker that ends before it has looked for work is not replaced: the next one would end in
//! the same way. Neither is one that was given up because it broke the protocol.

use super::super::answers::Answers;
use super::super::ring_inbox::PROCESS_ENDED;
use super::super::worker_child::{ForkServer, LAST_WORDS};
use super::super::{Connection, Deaths};
use super::{EmbeddedConnection, LinkSink, WorkerProcess};
use gt_dispatcher::{Dispatcher, Event, Remade, Replacements, Sink, WorkerIndex};
use gt_protocol::Kind;
use gt_protocol::integer::to_usize;
use gt_protocol::message::{Peer, Reach, ToClient, ToWorker};
use gt_protocol::wire::cut::frames;
use gt_server::death::{self, LastInstruction, Manner};
use gt_transport::{ControlKind, ControlRecord, SlabReader, eventfd, slab};
use rustix::event::epoll;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Successors of one worker that may end in a row before they have looked for work.
const FAILED_STARTS_MAX: u32 = 3;

/// Starts a worker of this index.
pub(crate) type StartWorker =
    Box<dyn FnMut(u32, Option<&ForkServer>) -> Result<(WorkerProcess, SlabReader), String> + Send>;

/// The control sockets of the workers in an epoll instance, for a thread that waits for an end.
pub(super) struct LifeLines {
    /// None where the system refuses an epoll instance: then ends are noticed at the next look at
    /// the inboxes.
    deaths: Option<Deaths>,
    end: Option<OwnedFd>,
}

impl LifeLines {
    pub(super) fn new<'a>(controls: impl Iterator<Item = &'a OwnedFd>) -> Self {
        let made = epoll::create(epoll::CreateFlags::CLOEXEC).ok().zip(eventfd().ok());
        let Some((epoll, end)) = made else { return Self { deaths: None, end: None } };
        let flags = epoll::EventFlags::IN;
        if epoll::add(&epoll, &end, epoll::EventData::new_u64(Deaths::END), flags).is_err() {
            return Self { deaths: None, end: None };
        }
        let lines = Self { deaths: Some(Deaths(Arc::new(epoll))), end: Some(end) };
        for (index, control) in (0..).zip(controls) {
            lines.add(index, control);
        }
        lines
    }

    /// Watches one more socket, for its end, once. A socket that is closed leaves by itself.
    fn add(&self, index: u32, control: &OwnedFd) {
        let Some(Deaths(epoll)) = &self.deaths else { return };
        let flags = epoll::EventFlags::RDHUP | epoll::EventFlags::ONESHOT;
        // One that is not watched is noticed at the next look at its inbox.
        let _ = epoll::add(&**epoll, control, epoll::EventData::new_u64(index.into()), flags);
    }

    pub(super) fn deaths(&self) -> Option<Deaths> {
        self.deaths.clone()
    }

    /// Tells the thread that waits that the connection ends.
    pub(super) fn end(&self) {
        if let Some(end) = &self.end {
            // An eventfd of ours takes a number, unless it has one.
            let _ = rustix::io::write(end, &1_u64.to_ne_bytes());
        }
    }
}

impl EmbeddedConnection {
    /// Handles the end of a worker's process: starts another one in its place, and lets the core
    /// make its values again.
    pub(super) fn replace_lost(&mut self, index: usize, reason: &str, answers: &mut Answers) {
        self.take_reports(answers);
        let Some(link) = self.links.get_mut(index).filter(|link| link.alive) else { return };
        let has_run = link.has_run();
        self.failed_starts[index] = if has_run { 0 } else { self.failed_starts[index] + 1 };
        let is_successor = self.incarnations[index] > 0;
        if reason != PROCESS_ENDED {
            return self.end_worker(index, reason, answers);
        }
        let (manner, last) = self.end(index, answers);
        let reason = death::reason(manner, last);
        if has_run || is_successor && self.failed_starts[index] <= FAILED_STARTS_MAX {
            self.start_another(index, &reason, last, answers);
        } else {
            self.end_worker(index, &reason, answers);
        }
    }

    /// Returns the manner in which a worker's process has ended, and the instruction that it was at.
    fn end(&mut self, index: usize, answers: &mut Answers) -> (Manner, Option<LastInstruction>) {
        let mut manner = self.links[index].child.manner();
        // The loop ends where no report comes in time.
        while self.links[index].child.awaits_report() && self.take_report(LAST_WORDS, answers) {
            manner = self.links[index].child.manner();
        }
        let inbox = self.links[index].inbox.try_lock();
        let last = inbox.ok().and_then(|inbox| inbox.last_instruction());
        (manner, last)
    }

    /// Ends a worker that is lost, and tells the core and the other workers.
    pub(super) fn end_worker(&mut self, index: usize, reason: &str, answers: &mut Answers) {
        self.take_reports(answers);
        let Some(link) = self.links.get_mut(index).filter(|link| link.alive) else { return };
        link.alive = false;
        link.end();
        let value = self.incarnations[index].into();
        let (core, mut outputs) = self.split(answers);
        let index = WorkerIndex::try_from(index).expect("workers are few");
        core.handle(Event::WorkerLeft { index, reason }, &mut outputs);
        self.replacements.left(index);
        self.end_given_up(answers);
        self.tell_gone(index, value);
        self.finish_recovery(answers);
    }

    fn tell_gone(&self, index: WorkerIndex, value: u64) {
        let record = ControlRecord { kind: ControlKind::PeerGone, index, value };
        for link in self.links.iter().filter(|link| link.alive) {
            // A peer that cannot be told is ending too.
            drop(gt_transport::send_record(link.control.as_fd(), &record, &[]));
        }
    }

    /// Starts a worker in the place of one whose process has ended. Where that fails, the place is
    /// empty from here on.
    fn start_another(
        &mut self,
        place: usize,
        reason: &str,
        last: Option<LastInstruction>,
        answers: &mut Answers,
    ) {
        let index = WorkerIndex::try_from(place).expect("workers are few");
        let Some(start) = &mut self.start_worker else {
            return self.end_worker(place, reason, answers);
        };
        let started = start(index, self.fork_server.as_ref());
        // A fork server that was killed is not missed.
        let (link, chunks) = match started.or_else(|_| start(index, None)) {
            Ok(started) => started,
            Err(why) => {
                let reason = format!("{reason}; no other could be started: {why}");
                return self.end_worker(place, &reason, answers);
            }
        };
        self.life_lines.add(index, &link.control);
        let mut old = std::mem::replace(&mut self.links[place], link);
        old.end();
        self.chunks[place] = chunks;
        let value = self.incarnations[place].into();
        self.incarnations[place] += 1;
        self.links[place].alive = false; // the others alone are told
        self.tell_gone(index, value);
        self.links[place].alive = true;
        self.introduce(place, answers);
        let process = self.links[place].child.id();
        self.replacements.note(index, old.frees.words());
        // Written down from here on, until all have said what they have lost.
        self.flush();
        self.replacements.hold();
        self.replacements.died(&mut self.core, index, self.began.elapsed());
        self.core.successor_joined(index);
        self.replacements.succeed(index);
        // A member that waits in a collective has not brought itself down.
        let last = last.filter(|last| last.op.info().kind() != Kind::Collective);
        let last = last.map(|last| (last.session, last.tag));
        let (core, mut outputs) = self.split(answers);
        core.worker_replaced((index, reason), last, &mut outputs);
        core.handle(Event::WorkerProcess { index, process }, &mut outputs);
        self.end_given_up(answers);
        self.finish_recovery(answers);
    }

    /// Makes the values of dead workers again once all others have said what they have lost.
    pub(super) fn finish_recovery(&mut self, answers: &mut Answers) {
        if self.core.knows_losses() {
            self.end_recovery(Replacements::finish, answers);
        }
    }

    /// Ends a recovery before all have answered: nothing is made again.
    pub(super) fn abandon_recovery(&mut self, answers: &mut Answers) {
        if self.core.is_recovering() {
            self.end_recovery(Replacements::abandon, answers);
        }
    }

    fn end_recovery(
        &mut self,
        end: fn(&mut Replacements, &mut Dispatcher, &mut dyn Sink) -> Option<Remade>,
        answers: &mut Answers,
    ) {
        self.flush();
        let mut outputs = LinkSink {
            links: &mut [],
            scratch: &mut self.scratch,
            replacements: &mut Replacements::default(),
            answers,
            log: &mut self.log,
            given_up: &mut self.given_up,
        };
        let Some(remade) = end(&mut self.replacements, &mut self.core, &mut outputs) else {
            return;
        };
        for (index, words) in remade.words {
            let Some(link) = self.links.get_mut(to_usize(index)) else { continue };
            frames(&words).for_each(|frame| link.write_unlogged(frame));
        }
        for index in remade.successors {
            answers.receive(&ToClient::WorkerJoined { index, is_late: false });
        }
    }

    /// Introduces a new worker and the others to each other: before any instruction that means it.
    fn introduce(&mut self, place: usize, answers: &mut Answers) {
        for other in 0..self.links.len() {
            if other == place || !self.links[other].alive {
                continue;
            }
            let peers = [self.peer(place), self.peer(other)];
            let controls = [&self.links[place].control, &self.links[other].control];
            // One that is not told is ending, which will be noticed.
            drop(connect_workers(peers, controls));
            let [new, old] = peers;
            let (_, mut outputs) = self.split(answers);
            outputs.worker_message(old.index, &ToWorker::Peer(new));
            outputs.worker_message(new.index, &ToWorker::Peer(old));
        }
    }

    fn peer(&self, place: usize) -> Peer<'static> {
        let index = WorkerIndex::try_from(place).expect("workers are few");
        Peer { index, incarnation: self.incarnations[place], reach: Reach::Memory }
    }
}

/// Reason why two workers could not be connected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectWorkersError {
    #[error("{0}")]
    Slab(#[from] gt_transport::RingError),
    #[error("{0}")]
    Socket(#[from] gt_transport::DescriptorError),
}

/// Gives two workers a slab in each direction.
pub(crate) fn connect_workers(
    [first, second]: [Peer<'static>; 2],
    [first_control, second_control]: [&Arc<OwnedFd>; 2],
) -> Result<(), ConnectWorkersError> {
    let (forth, back) = (slab::create()?, slab::create()?);
    let record = |peer: Peer<'static>| ControlRecord {
        kind: ControlKind::Peer,
        index: peer.index,
        value: peer.incarnation.into(),
    };
    let ends = [forth.as_fd(), back.as_fd()];
    gt_transport::send_record(first_control.as_fd(), &record(second), &ends)?;
    let ends = [back.as_fd(), forth.as_fd()];
    gt_transport::send_record(second_control.as_fd(), &record(first), &ends)?;
    Ok(())
}
