//! The thread that owns the core: it takes words and events in, lets the core plan, sends in
//! batches, then sleeps.
//!
//! **Architecture invariant:** no socket is touched here; the sockets' thread passes links in, and
//! takes them back when their cancel token is dropped. Nothing here blocks except
//! [`EventLoop::sleep`].

mod recovery;
mod sessions;
mod succession;
#[cfg(test)]
mod tests;
mod usage;

use crate::accounts::Accounts;
use crate::audit::CoreAudit;
use crate::client::{Breach, ServedClient};
use crate::death;
use crate::journal::Party;
use crate::leases::Leases;
use crate::link::{Inbound, PeerLink, SlabPayloads};
use crate::net_event::{Introduction, NetEvent, NewWorker};
use crate::outbound::Outbound;
use crate::outbox::{Load, LostPeer, Outbox};
use crate::probing::Probing;
use crate::sleep::{self, Doze, EpollSleeper, SleepError};
use crate::standby::{Standby, Successor};
use crate::waker::Waker;
use gt_dispatcher::{Dispatcher, Event, SessionId, Sink, WorkerIndex};
use gt_protocol::message::{self, FromWorker, Peer, ToClient, ToWorker};
use gt_protocol::wire::cut;
use recovery::WorkerSuccession;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Messages and words of one worker before the next one's turn: two chunks of a long answer, or
/// many short ones.
const QUANTUM_MESSAGES: usize = 64;
const QUANTUM_WORDS: usize = 32 * 1024;
/// Time limit for sending the remaining words when the dispatcher stops.
const FAREWELL: Duration = Duration::from_millis(200);
/// Reason given to all peers when the dispatcher stops.
const STOPPING: &str = "the dispatcher stops";

/// The thread's state.
pub(crate) struct EventLoop {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) outbox: Outbox,
    /// Leases of named sessions.
    pub(crate) leases: Leases,
    /// Policy and usage by user.
    pub(crate) accounts: Accounts,
    pub(crate) audit: CoreAudit,
    /// Clients in the order of their turns.
    clients: Vec<ServedClient>,
    workers: BTreeMap<WorkerIndex, Inbound>,
    events: mpsc::UnboundedReceiver<NetEvent>,
    waker: Arc<Waker>,
    sleeper: EpollSleeper,
    probing: Option<Probing>,
    /// Index of the client whose turn is first.
    turn: usize,
    standby: Option<Standby>,
    /// Workers that are supervised, and dead ones whose successors are awaited.
    succession: WorkerSuccession,
}

impl EventLoop {
    pub fn new(
        dispatcher: Dispatcher,
        outbox: Outbox,
        probing: Option<Probing>,
        events: mpsc::UnboundedReceiver<NetEvent>,
        waker: Arc<Waker>,
    ) -> Result<Self, SleepError> {
        let sleeper = EpollSleeper::new(&*waker)?;
        let (clients, workers) = (Vec::new(), BTreeMap::new());
        let (turn, leases) = (0, Leases::new(Duration::ZERO));
        let accounts = Accounts::new(None);
        Ok(Self {
            dispatcher,
            outbox,
            leases,
            accounts,
            audit: CoreAudit::default(),
            clients,
            workers,
            events,
            waker,
            sleeper,
            probing,
            turn,
            standby: None,
            succession: WorkerSuccession::default(),
        })
    }

    /// Keeps a standby from the first round on.
    pub fn with_standby(mut self, standby: Option<Standby>) -> Self {
        if let Some(standby) = &standby {
            self.outbox.note_in(standby.journal());
        }
        Self { standby, ..self }
    }

    /// Sets the leases of named sessions, which are 0 by default.
    pub fn with_leases(self, leases: Leases) -> Self {
        Self { leases, ..self }
    }

    /// Sets the time for which a dead worker's values wait for its successor, 0 by default.
    pub fn with_successor_wait(self, wait: Duration) -> Self {
        Self { succession: WorkerSuccession::new(wait), ..self }
    }

    /// Sets the policy, which limits nobody by default.
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        Self { accounts, ..self }
    }

    /// Sets the audit log, which is none by default.
    pub fn with_audit(self, audit: CoreAudit) -> Self {
        Self { audit, ..self }
    }

    /// Runs until it is told to stop. In a process that was the standby, and took over meanwhile, the
    /// rest of that process is returned: it has to be ended.
    pub fn run(mut self) -> (Result<(), SleepError>, Option<Successor>) {
        let outcome = self.serve();
        self.farewell();
        (outcome, self.standby.take().and_then(Standby::end))
    }

    fn serve(&mut self) -> Result<(), SleepError> {
        // A woken thread that waited for its slice showed as 1.5 ms (p99) in another user's short
        // read.
        let _ = gt_transport::set_short_slice();
        let _ = gt_transport::set_timer_slack_1us();
        let mut busy_at = Instant::now();
        loop {
            let now = Instant::now();
            let Some(progress) = self.round(now) else { break };
            if progress {
                busy_at = now;
                continue;
            }
            let idle = now.saturating_duration_since(busy_at);
            let held_back = self.clients.iter().any(|client| client.held_back)
                || self.probing.as_ref().is_some_and(Probing::is_waiting);
            // A worker on this CPU makes no room while this thread polls for it.
            if sleep::is_due(idle, held_back) || held_back && self.outbox.shares_cpu() {
                self.sleep(idle, held_back)?;
            } else {
                gt_transport::yield_now();
            }
        }
        Ok(())
    }

    /// One turn of everybody; returns true if there was anything to do, and `None` to stop.
    fn round(&mut self, now: Instant) -> Option<bool> {
        if self.accounts.is_due(now) {
            self.count(now);
            self.look_after_standby();
        }
        let mut progress = self.receive_events()?;
        progress |= self.end_waits(now);
        self.renew_if_due();
        progress |= self.serve_workers();
        self.renew_if_due();
        progress |= self.outbox.flush();
        progress |= self.serve_clients(now);
        self.renew_if_due();
        progress |= self.measure(now);
        progress |= self.end_leases(now);
        self.renew_if_due();
        progress |= self.outbox.flush();
        if !self.drop_lost() {
            return None;
        }
        self.renew_if_due();
        Some(progress)
    }

    /// Takes the events of the sockets' thread; `None` to stop.
    fn receive_events(&mut self) -> Option<bool> {
        let mut progress = false;
        // The loop ends: every round takes one of a finite number of events.
        while let Ok(event) = self.events.try_recv() {
            progress = true;
            self.outbox.hold();
            match event {
                NetEvent::OpenSession { named, user, answer } => {
                    self.open_session(named, &user, answer);
                }
                NetEvent::Client { session, name, user, link } => {
                    self.add_client(session, name, *link);
                    if let Some(client) = self.clients.last_mut() {
                        client.user = user;
                    }
                }
                NetEvent::ClientGone { session, reason } => {
                    self.note_end(Party::Session(session), &reason);
                    self.client_gone(session);
                }
                NetEvent::Worker(worker) => self.worker_joined(*worker),
                NetEvent::WorkerGone { index, reason } => {
                    self.note_end(Party::Worker(index), &reason);
                    self.lose_worker(index, &reason);
                }
                NetEvent::Policy(policy) => self.set_policy(policy),
                NetEvent::Tokens(list) => {
                    if let Some(standby) = &mut self.standby {
                        standby.note_tokens(list);
                    }
                }
                NetEvent::Stop => return None,
            }
        }
        Some(progress)
    }

    fn add_client(&mut self, session: SessionId, name: String, link: PeerLink) {
        self.outbox.add_session(session, Outbound::new(link.target, link.cancel, link.slab_down));
        let mut inbound = Inbound::new(link.source, link.slab);
        if let Some(standby) = &self.standby {
            inbound.note_in(standby.journal(), Party::Session(session), link.inherited);
        }
        let mut client = ServedClient::new(session, name, inbound, Instant::now());
        client.waits_for_worker = self.workers.is_empty();
        for &index in self.workers.keys() {
            self.outbox.session(session, &ToClient::WorkerJoined { index, is_late: false });
        }
        // The description goes before anything else: request 0 is no client's.
        if let Some(text) = self.dispatcher.published_text(session) {
            self.outbox.session(session, &ToClient::Description { request: 0, text: &text });
        }
        self.sleeper.watch(&client.inbound);
        self.clients.push(client);
    }

    /// Adds a worker, or the successor of one that is gone.
    fn worker_joined(&mut self, worker: NewWorker) {
        let NewWorker { index, incarnation, is_supervised, link, introductions } = worker;
        if let Some(standby) = &mut self.standby {
            standby.note_worker(index, incarnation);
        }
        if is_supervised && self.succession.awaits(index) {
            return self.add_successor(index, link, introductions);
        }
        self.end_wait(index);
        self.supervise(index, is_supervised);
        self.succession.note_reach(&link);
        self.add_worker(index, link, introductions);
    }

    /// Adds the connection of a worker.
    fn add_worker_link(&mut self, index: WorkerIndex, link: PeerLink) {
        self.outbox.add_worker(index, Outbound::new(link.target, link.cancel, link.slab_down));
        let mut inbound = Inbound::new(link.source, link.slab);
        if let Some(standby) = &self.standby {
            inbound.note_in(standby.journal(), Party::Worker(index), link.inherited);
        }
        self.sleeper.watch(&inbound);
        self.workers.insert(index, inbound);
    }

    fn introduce(&mut self, introductions: &[Introduction]) {
        for Introduction { to, peer, incarnation, reach } in introductions {
            let peer = Peer { index: *peer, incarnation: *incarnation, reach: reach.as_ref() };
            self.outbox.worker_message(*to, &ToWorker::Peer(peer));
        }
    }

    fn add_worker(&mut self, index: WorkerIndex, link: PeerLink, introductions: Vec<Introduction>) {
        let process = link.process;
        self.add_worker_link(index, link);
        let introductions = self.succession.keep_those_of_successors(introductions);
        self.introduce(&introductions);
        self.dispatcher.handle(Event::WorkerJoined { index }, &mut self.outbox);
        if let Some(process) = process {
            self.dispatcher.handle(Event::WorkerProcess { index, process }, &mut self.outbox);
        }
        if let Some(probing) = &mut self.probing {
            probing.joined(index, self.workers.keys().copied(), &self.dispatcher);
        }
        for client in &mut self.clients {
            client.waits_for_worker = false;
            let is_late = self.dispatcher.has_layouts(client.session);
            self.outbox.session(client.session, &ToClient::WorkerJoined { index, is_late });
        }
    }

    /// Closes the session of a client that broke the protocol or cannot be reached. A named one is
    /// detached when its connection has ended: no other client attaches before.
    fn close_session(&mut self, session: SessionId) {
        self.outbox.hold();
        if !self.dispatcher.is_named(session) {
            self.dispatcher.handle(Event::SessionClosed { session }, &mut self.outbox);
        }
        self.drop_client(session);
    }

    /// Drops the connection of a client.
    pub(crate) fn drop_client(&mut self, session: SessionId) {
        if let Some(at) = self.clients.iter().position(|client| client.session == session) {
            let client = self.clients.remove(at);
            self.sleeper.forget(&client.inbound);
        }
        self.outbox.remove_session(session);
    }

    /// The user of a client; empty where the dispatcher knows no users.
    pub(crate) fn user_of(&self, session: SessionId) -> String {
        let client = self.clients.iter().find(|client| client.session == session);
        client.map_or_else(String::new, |client| client.user.clone())
    }

    /// Handles the end of a worker's connection: the reason gains what it was at.
    fn lose_worker(&mut self, index: WorkerIndex, reason: &str) {
        let last = self.workers.get(&index).and_then(Inbound::last_instruction);
        let reason = death::reason(reason, last);
        if self.succession.is_supervised(index) {
            return self.await_successor(index, reason, last);
        }
        self.drop_worker(index, &reason);
    }

    fn drop_worker(&mut self, index: WorkerIndex, reason: &str) {
        if self.drop_worker_link(index, reason) {
            self.give_up_worker(index, reason);
        }
    }

    /// Drops the connection of a worker; returns false if there is none.
    fn drop_worker_link(&mut self, index: WorkerIndex, reason: &str) -> bool {
        self.outbox.hold();
        let Some(inbound) = self.workers.remove(&index) else { return false };
        self.sleeper.forget(&inbound);
        self.outbox.remove_worker(index);
        tracing::warn!("worker {index} is gone: {reason}");
        if let Some(probing) = &mut self.probing {
            probing.left(index);
        }
        true
    }

    fn serve_workers(&mut self) -> bool {
        let mut progress = false;
        let mut broken = Vec::new();
        let Self { workers, dispatcher, outbox, events, succession, .. } = self;
        for (&index, inbound) in workers {
            if self.standby.as_ref().is_some_and(Standby::is_due) {
                break;
            }
            let is_early = |frame: &[u32], core: &Dispatcher| {
                succession.expects_deaths(core)
                    && recovery::tells_of_loss(frame)
                    && (!events.is_empty() || succession.doubts(index))
            };
            match answers((index, inbound), is_early, dispatcher, outbox) {
                Ok(some) => progress |= some,
                Err(breach) => broken.push((index, breach)),
            }
        }
        for (index, breach) in broken {
            self.drop_worker(index, &breach.to_string());
        }
        progress
    }

    /// Measures the links of new workers while no client is at work.
    fn measure(&mut self, now: Instant) -> bool {
        let Self { dispatcher, outbox, probing, clients, .. } = self;
        let Some(probing) = probing.as_mut().filter(|_| !dispatcher.is_recovering()) else {
            return false;
        };
        let quiet = clients.iter().all(|client| client.active_until <= now);
        probing.step(quiet, dispatcher, outbox)
    }

    /// Gives each client its quantum. The first one that was held back is first next time, so that
    /// room is shared out in turn.
    fn serve_clients(&mut self, now: Instant) -> bool {
        let active = || self.clients.iter().filter(|client| client.active_until > now);
        let asked_at = active().map(|client| client.asked_at).max();
        let quiet = asked_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let load = if active().count() > 1 { Load::Several(quiet) } else { Load::One };
        let count = self.clients.len();
        let (mut progress, mut next, mut breaches) = (false, None, Vec::new());
        let mut requests = Vec::new();
        let mut order: SmallVec<[usize; 16]> =
            (0..count).map(|step| (self.turn + step) % count).collect();
        if load != Load::One {
            self.set_weights(now);
            self.sort_by_claim(&mut order, now);
        }
        for place in order {
            if self.standby.as_ref().is_some_and(Standby::is_due) {
                break;
            }
            let Some(client) = self.clients.get_mut(place) else { continue };
            match client.quantum(now, load, &mut self.dispatcher, &mut self.outbox) {
                Ok(some) => progress |= some,
                Err(breach) => breaches.push((client.session, breach)),
            }
            requests.extend(client.asked.take().map(|asked| (client.session, asked)));
            client.note_wait(now);
            if client.held_back {
                next = next.or(Some(place));
            }
        }
        self.turn = next.unwrap_or(self.turn + 1);
        for (session, asked) in requests {
            self.outbox.hold();
            self.answer_sessions(session, &asked);
        }
        for (session, breach) in breaches {
            self.expel(session, &breach);
        }
        progress
    }

    /// Ends the session of a client that broke the protocol.
    fn expel(&mut self, session: SessionId, breach: &Breach) {
        let name = self.clients.iter().find(|client| client.session == session);
        let name = name.map_or("", |client| client.name.as_str()).to_owned();
        if let Breach::Goodbye(reason) = breach {
            tracing::info!("session {} ({name:?}) said goodbye: {reason:?}", session.0);
        } else {
            tracing::warn!("session {} ({name:?}) closed: {breach}", session.0);
            self.say_goodbye(session, &breach.to_string());
        }
        self.close_session(session);
    }

    /// Tells a client why its session ends, if it still reads.
    fn say_goodbye(&mut self, session: SessionId, reason: &str) {
        self.outbox.hold();
        self.outbox.session(session, &ToClient::Goodbye { reason: message::clip(reason) });
        self.outbox.flush_session(session);
    }

    /// Ends the sessions of peers that the outbox could not reach; `false` to stop.
    fn drop_lost(&mut self) -> bool {
        let lost = self.outbox.take_lost();
        // A socket's task reports the reason of its peer's end before it closes the channel: that
        // reason is the better one.
        if !lost.is_empty() && self.receive_events().is_none() {
            return false;
        }
        for lost in lost {
            match lost {
                LostPeer::Worker(index, why) => self.drop_worker(index, &why),
                LostPeer::Session(session, why) => {
                    if self.clients.iter().any(|client| client.session == session) {
                        tracing::warn!("session {} closed: {why}", session.0);
                        self.say_goodbye(session, &why);
                        self.close_session(session);
                    }
                }
            }
        }
        true
    }

    fn sleep(&mut self, idle: Duration, held_back: bool) -> Result<(), SleepError> {
        self.outbox.flush_trace();
        let doze = if held_back || self.outbox.is_waiting() {
            Doze::Nap(idle)
        } else {
            let lease = self.leases.next_end(Instant::now());
            let pause = self.standby.as_ref().and_then(Standby::pause_left);
            let successor = self.succession.next_end(Instant::now());
            lease.into_iter().chain(pause).chain(successor).min().map_or(Doze::Sound, Doze::Until)
        };
        self.waker.sleep_begin();
        let mut quiet = self.events.is_empty();
        for inbound in self.workers.values_mut() {
            quiet &= inbound.sleep_begin();
        }
        for client in self.clients.iter_mut().filter(|client| !client.is_on_hold()) {
            quiet &= client.inbound.sleep_begin();
        }
        let mut has_ended = false;
        if quiet {
            has_ended = self.sleeper.sleep(doze)?;
        }
        self.waker.sleep_end();
        for inbound in self.workers.values_mut() {
            inbound.sleep_end();
        }
        for client in self.clients.iter_mut().filter(|client| !client.is_on_hold()) {
            client.inbound.sleep_end();
        }
        if has_ended || matches!(doze, Doze::Until(_)) {
            self.look_after_standby();
        }
        Ok(())
    }

    /// Says goodbye to all peers, and sends the remaining words within a time limit.
    fn farewell(&mut self) {
        if let Some(standby) = &mut self.standby {
            standby.dismiss();
        }
        self.outbox.release();
        self.note_last_ends();
        for (index, inbound) in &self.workers {
            tracing::info!("worker {index}: received {} bytes", inbound.arrived_bytes());
        }
        let goodbye = ToClient::Goodbye { reason: STOPPING };
        for client in &self.clients {
            self.outbox.session(client.session, &goodbye);
        }
        for &index in self.workers.keys() {
            self.outbox.worker_message(index, &ToWorker::Goodbye { reason: STOPPING });
        }
        let deadline = Instant::now() + FAREWELL;
        self.outbox.flush();
        while self.outbox.is_waiting() && Instant::now() < deadline {
            self.outbox.flush();
            gt_transport::yield_now();
        }
        self.outbox.end_trace();
    }
}

/// Passes a worker's next messages to the core; returns true if there were any.
///
/// One that `is_early` waits: it tells of another worker's end, of which the core does not know yet.
fn answers(
    (index, inbound): (WorkerIndex, &mut Inbound),
    mut is_early: impl FnMut(&[u32], &Dispatcher) -> bool,
    dispatcher: &mut Dispatcher,
    outbox: &mut Outbox,
) -> Result<bool, Breach> {
    let mut taken = 0;
    outbox.begin_run(Party::Worker(index), false);
    for _ in 0..QUANTUM_MESSAGES {
        if taken >= QUANTUM_WORDS || !inbound.fill()? || is_early(inbound.unread(), dispatcher) {
            break;
        }
        outbox.begin_message();
        taken += answer(index, inbound, dispatcher, outbox)?;
    }
    if inbound.is_corrupt() { Err(Breach::Ring) } else { Ok(taken > 0) }
}

/// Passes a worker's next message to the core; returns the number of its words, 0 where it has not
/// arrived.
fn answer(
    index: WorkerIndex,
    inbound: &mut Inbound,
    dispatcher: &mut Dispatcher,
    outbox: &mut Outbox,
) -> Result<usize, Breach> {
    let (unread, slab) = inbound.unread_and_slab();
    let Some(frame) = cut::first(unread)? else { return Ok(0) };
    let beside = || slab.and_then(SlabPayloads::take).map(|(_, bytes)| bytes);
    let (message, words) = message::decode_with(frame, beside)?;
    if let FromWorker::Goodbye { reason } = message {
        return Err(Breach::Goodbye(reason.to_owned()));
    }
    let is_mark = matches!(message, FromWorker::Done { request } if outbox.passed(index, request));
    if !is_mark {
        dispatcher.handle(Event::FromWorker { index, message }, outbox);
        recovery::finish(dispatcher, outbox);
    }
    inbound.consume(words);
    Ok(words)
}
