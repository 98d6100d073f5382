//! The event loop's part of a standby: when one is forked, and how it goes on.

use super::{EventLoop, answer};
use crate::certificate::{ServerCertificate, TlsFileError};
use crate::client::ServedClient;
use crate::frames::{self, FrameTarget};
use crate::journal::replay::{BrokenJournal, Record};
use crate::journal::{Journal, Party};
use crate::link::Inbound;
use crate::net;
use crate::net::{ResumedPeer, Start};
use crate::net_event::NetEvent;
use crate::outbound::RingMismatch;
use crate::policy_watch::watch_policy;
use crate::sleep::{EpollSleeper, SleepError};
use crate::standby::{Side, Successor};
use crate::waker::Waker;
use gt_dispatcher::{SessionId, WorkerIndex};
use gt_protocol::integer::to_usize;
use gt_transport::{DescriptorError, fork};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Reason why a standby cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum SuccessionError {
    #[error(transparent)]
    Journal(#[from] BrokenJournal),
    #[error("turn of {0:?}: its instructions are not there")]
    Turn(Party),
    #[error("worker {0}: {1}")]
    Worker(WorkerIndex, RingMismatch),
    #[error(transparent)]
    Sleep(#[from] SleepError),
    #[error(transparent)]
    Waker(#[from] DescriptorError),
    #[error(transparent)]
    Tls(#[from] TlsFileError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl EventLoop {
    /// Gets a new standby if the one that stands by lacks something that is not in the journal; what
    /// was held is published afterwards.
    pub(super) fn renew_if_due(&mut self) {
        let Some(standby) = &self.standby else { return };
        if self.outbox.is_held() || standby.is_due() {
            self.renew_standby();
        }
    }

    /// Notices the end of a standby, and gets another one.
    pub(super) fn look_after_standby(&mut self) {
        let Some(standby) = &mut self.standby else { return };
        standby.look();
        if standby.is_wanted() {
            self.renew_standby();
        }
    }

    fn renew_standby(&mut self) {
        let mut before = None;
        // The loop ends: each round is another process.
        loop {
            let Self { standby: Some(standby), outbox, clients, workers, audit, .. } = self else {
                return;
            };
            if !standby.is_there() {
                if !standby.is_wanted() {
                    // The one before lacks the change, so it must not take over.
                    standby.journal().end();
                    break;
                }
                outbox.outbounds().for_each(|(_, outbound)| outbound.begin_place());
            }
            let frames = outbox.outbounds().filter_map(|(_, outbound)| outbound.frames());
            frames.for_each(FrameTarget::forget_acknowledged);
            let clients = clients.iter().map(|client| &client.inbound);
            let inbounds = workers.values().chain(clients);
            let descriptors = inbounds.flat_map(Inbound::descriptors).chain(audit.descriptor());
            match standby.fork(descriptors) {
                Side::Dispatcher => {
                    if let Some(child) = standby.child() {
                        self.sleeper.watch_process(child.pidfd());
                    }
                    break;
                }
                Side::Successor { before: ended } => {
                    self.succeed(ended);
                    before = Some(ended);
                }
            }
        }
        self.outbox.release();
        self.audit.release();
        if let Some(before) = before {
            let own = std::process::id();
            tracing::warn!(
                "the dispatcher, process {before}, was ended by a signal; its standby, process {own}, goes on: nothing was lost"
            );
        }
    }

    /// Goes on in place of a dispatcher that was killed, or ends the process.
    fn succeed(&mut self, before: i32) {
        match catch_unwind(AssertUnwindSafe(|| self.take_over(before))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(
                    "the dispatcher, process {before}, was ended by a signal, and its standby cannot go on: {error}"
                );
                fork::exit_now(1);
            }
            Err(_) => fork::exit_now(1),
        }
    }

    fn take_over(&mut self, before: i32) -> Result<(), SuccessionError> {
        // Held until a standby of this process has the state.
        self.outbox.hold();
        let (events, inbox) = mpsc::unbounded_channel();
        let waker = Arc::new(Waker::new()?);
        let sleeper = EpollSleeper::new(&*waker)?;
        // Their owners' threads may have held locks at the fork, and their descriptors are closed.
        std::mem::forget(std::mem::replace(&mut self.events, inbox));
        std::mem::forget(std::mem::replace(&mut self.waker, Arc::clone(&waker)));
        std::mem::forget(std::mem::replace(&mut self.sleeper, sleeper));
        let Some(journal) = self.standby.as_ref().map(|standby| Arc::clone(standby.journal()))
        else {
            return Ok(());
        };
        self.catch_up(&journal)?;
        for inbound in self.workers.values() {
            self.sleeper.watch(inbound);
        }
        for client in &self.clients {
            self.sleeper.watch(&client.inbound);
        }
        self.serve_sockets(before, events, waker)
    }

    /// Comes to where the process before this one was, with all rings and slabs.
    pub(super) fn catch_up(&mut self, journal: &Journal) -> Result<(), SuccessionError> {
        self.replay(journal)?;
        self.outbox.resume().map_err(|(index, why)| SuccessionError::Worker(index, why))?;
        self.workers.values_mut().for_each(Inbound::resume);
        self.clients.iter_mut().for_each(|client| client.inbound.resume());
        Ok(())
    }

    /// Takes again what the process before this one has taken since the fork.
    fn replay(&mut self, journal: &Journal) -> Result<(), SuccessionError> {
        // The loop ends: each round reads a record.
        while let Some(record) = journal.next() {
            match record? {
                Record::Words { party, words } => self.replay_words(party, &words)?,
                Record::Mark { worker, request } => self.outbox.replay_mark(worker, request),
                Record::Sent { place, words, sum } => {
                    let sent = self.outbox.replay_frame(place, words, sum);
                    sent.map_err(|(index, why)| SuccessionError::Worker(index, why))?;
                }
                Record::Run { party, is_cancelled, is_continued, frames } => {
                    let turn = (is_cancelled, is_continued, to_usize(frames));
                    if !self.replay_turn(party, turn) {
                        return Err(SuccessionError::Turn(party));
                    }
                }
            }
        }
        journal.end_replay();
        Ok(())
    }

    fn replay_words(&mut self, party: Party, words: &[u32]) -> Result<(), SuccessionError> {
        let inbound = match party {
            Party::Worker(index) => self.workers.get_mut(&index),
            Party::Session(session) => self.client(session).map(|client| &mut client.inbound),
        };
        inbound.ok_or(SuccessionError::Turn(party))?.replay(words);
        Ok(())
    }

    fn replay_turn(&mut self, party: Party, turn: (bool, bool, usize)) -> bool {
        let Self { dispatcher, outbox, workers, clients, .. } = self;
        match party {
            Party::Session(session) => {
                let client = clients.iter_mut().find(|client| client.session == session);
                client.is_some_and(|client| client.replay(turn, dispatcher, outbox))
            }
            Party::Worker(index) => {
                let Some(inbound) = workers.get_mut(&index) else { return false };
                let (_, _, messages) = turn;
                for _ in 0..messages {
                    match answer(index, inbound, dispatcher, outbox) {
                        Ok(0) => return false,
                        Ok(_) => {}
                        // Found again where it stands, at the worker's next turn.
                        Err(_) => break,
                    }
                }
                true
            }
        }
    }

    fn client(&mut self, session: SessionId) -> Option<&mut ServedClient> {
        self.clients.iter_mut().find(|client| client.session == session)
    }

    /// Starts this process's thread of sockets, with the listeners and the peers that are there.
    fn serve_sockets(
        &mut self,
        before: i32,
        events: mpsc::UnboundedSender<NetEvent>,
        waker: Arc<Waker>,
    ) -> Result<(), SuccessionError> {
        let peers = self.resumed_peers(&events)?;
        let audit = self.audit.inherit()?;
        let Some(standby) = &mut self.standby else { return Ok(()) };
        let (core_ended, has_ended) = oneshot::channel();
        let options = standby.options().clone();
        let watching = options.policy.as_deref().map(crate::policy::PolicyFile::open).transpose();
        let watching = watching.inspect_err(|error| tracing::warn!("{error}")).ok().flatten();
        let watching = watching.map(|(file, policy)| {
            let _ = events.send(NetEvent::Policy(policy));
            watch_policy(file, &events, &waker, audit.clone())
        });
        let watching = watching.transpose()?;
        let listeners = standby.heirloom().inherit()?;
        let certificate = standby.heirloom().certificate.as_ref();
        let tls = certificate.map(ServerCertificate::acceptor).transpose()?;
        let (incarnations, first) = standby.incarnations();
        let incarnations = (incarnations.clone(), first);
        let start = Start {
            listeners,
            tokens: options.token_file.clone().zip(standby.heirloom().tokens.clone()),
            tls,
            audit,
            events,
            waker,
            core_ended: has_ended,
            peers,
            incarnations,
            before: Some(before),
        };
        let serve = move || net::serve(start, &options);
        let net = std::thread::Builder::new().name("gt-net".into()).spawn(serve)?;
        standby.succeed(Successor { net, core_ended, watching });
        Ok(())
    }

    /// All peers, with new channels where they are connected by TCP. One that cannot be served on is
    /// gone.
    pub(super) fn resumed_peers(
        &mut self,
        events: &mpsc::UnboundedSender<NetEvent>,
    ) -> io::Result<Vec<ResumedPeer>> {
        let Self { outbox, workers, clients, .. } = self;
        let mut peers = Vec::new();
        for (party, outbound) in outbox.outbounds() {
            let inbound = match party {
                Party::Worker(index) => workers.get_mut(&index),
                Party::Session(session) => {
                    let client = clients.iter_mut().find(|client| client.session == session);
                    client.map(|client| &mut client.inbound)
                }
            };
            let (cancel, held) = oneshot::channel();
            outbound.replace_cancel(cancel);
            let Some(inbound) = inbound else { continue };
            let Some(inherited) = inbound.inherited() else { continue };
            let frames = match (inbound.frames(), outbound.frames()) {
                (Some(source), Some(target)) => Some(frames::renew(source, target)),
                (None, _) => None,
                (Some(source), None) => {
                    source.give_up();
                    let Party::Session(session) = party else { continue };
                    let reason = "it cannot be served on".to_owned();
                    // Received by this very thread.
                    let _ = events.send(NetEvent::ClientGone { session, reason });
                    continue;
                }
            };
            peers.push(ResumedPeer { party, inherited: inherited?, frames, held });
        }
        Ok(peers)
    }
}
