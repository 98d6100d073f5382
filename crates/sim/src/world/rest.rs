//! Rules that hold at every step, and those that hold when nothing is in flight any more.

use super::{Checked, SessionEvidence, Summary, World};
use crate::client::Evidence;
use crate::exact::exact;
use crate::network::{Packet, Route};
use crate::oracle::Expectation;
use gt_dispatcher::SessionId;
use gt_protocol::Id;
use std::collections::BTreeSet;

impl World {
    /// Checks that the dispatcher's own counts equal its clients' values.
    pub(super) fn check_accounts(&self) -> Checked {
        let statistics = self.shell.dispatcher.statistics();
        let totals = self.shell.accounts.totals();
        if statistics.values != totals.values {
            return Err(format!(
                "{} values are counted, clients hold {}",
                statistics.values, totals.values
            ));
        }
        if statistics.worker_slots != totals.ranges {
            return Err(format!(
                "{} worker slots are taken, values have {} shards",
                statistics.worker_slots, totals.ranges
            ));
        }
        let bytes = self.bytes_of_clients();
        // Only the core knows the values of nonsense.
        let nonsense = self.shell.sessions().iter().any(|session| self.is_nonsense(session.0));
        if statistics.bytes != bytes && !(nonsense && statistics.bytes > bytes) {
            return Err(format!("{} bytes are counted, clients hold {bytes}", statistics.bytes));
        }
        Ok(())
    }

    fn bytes_of_clients(&self) -> u64 {
        let sessions = self.shell.accounts.sessions();
        let of_session = |session: SessionId| {
            let client = self.shell.client_of(session)?;
            let bytes_of = |(id, live): (Id, bool)| {
                let meta = self.clients[client].client.meta_of(id).filter(|_| live)?;
                Some(meta.bytes())
            };
            Some(self.shell.accounts.held(session).filter_map(bytes_of).sum::<u64>())
        };
        sessions.filter_map(of_session).sum()
    }

    /// Checks that everything is answered, every queue is empty, and nothing is lost without a
    /// reason.
    pub(super) fn check_rest(&self) -> Checked {
        for (index, connection) in self.clients.iter().enumerate() {
            let (unanswered, finished) =
                (connection.client.unanswered(), connection.client.finished());
            if unanswered > 0 || !finished {
                let workers: Vec<String> =
                    self.workers.values().map(|host| host.worker.describe()).collect();
                return Err(format!(
                    "client {index} waits for {unanswered} answers for ever: {workers:?}"
                ));
            }
        }
        if let Some(host) = self.workers.values().find(|host| !host.worker.is_idle()) {
            return Err(format!("stuck: {}", host.worker.describe()));
        }
        let requests = self.shell.dispatcher.statistics().requests;
        if requests > 0 {
            return Err(format!("{requests} requests are open and nobody waits for them"));
        }
        for session in self.shell.sessions() {
            self.check_session(session)?;
        }
        self.check_accounts()?;
        self.check_memory()
    }

    fn check_session(&self, session: SessionId) -> Checked {
        let Some(client) = self.shell.client_of(session) else { return Ok(()) };
        let client = &self.clients[client].client;
        if client.is_hostile() {
            return Ok(());
        }
        let evidence = SessionEvidence { world: (&self.shell, &self.crashed), session };
        let values: BTreeSet<Id> = self.shell.accounts.held(session).map(|(id, _)| id).collect();
        if !values.iter().eq(client.live().iter().collect::<BTreeSet<_>>()) {
            return Err(format!(
                "session {} holds {values:?} instead of {:?}",
                session.0,
                client.live()
            ));
        }
        for (id, live) in self.shell.accounts.held(session) {
            let (number, _) = id.parts();
            let excused =
                evidence.lost(number) || evidence.homeless(number) || client.may_be_cancelled(id);
            let refused =
                matches!(client.oracle.outcome(id), Some(Expectation::Failed { shape: None, .. }));
            if !live && !excused && !refused {
                return Err(format!("%{number} of session {} is lost without a reason", session.0));
            }
        }
        Ok(())
    }

    /// Checks that workers hold no more than the shards of the clients' values. They hold less
    /// where a shard failed or shares memory.
    fn check_memory(&self) -> Checked {
        let ranges = self.shell.accounts.totals().ranges;
        let values: u64 = self.workers.values().map(|host| host.worker.held().0).sum();
        match usize::try_from(values) {
            Ok(values) if values <= ranges => Ok(()),
            _ => Err(format!("workers hold {values} values, clients' values have {ranges} shards")),
        }
    }

    /// Half of the clients free their values.
    pub(super) fn free_some(&mut self) {
        for client in 0..self.clients.len() {
            let leave = self.random.percent(50);
            let connection = &mut self.clients[client];
            if leave
                && connection.session.is_some()
                && !connection.client.closed
                && !connection.client.emits_nonsense()
            {
                let words = connection.client.free_all();
                let bytes = connection.near.send(words);
                self.network.send(Route::FromClient(client), Packet::Bytes(bytes));
            }
        }
    }

    pub(super) fn close_all(&mut self) {
        for client in 0..self.clients.len() {
            if self.clients[client].session.is_some() {
                self.network.send(Route::FromClient(client), Packet::Closed);
            }
        }
    }

    /// Checks that nothing is left when all clients are gone.
    pub(super) fn check_end(&self) -> Checked {
        let statistics = self.shell.dispatcher.statistics();
        let counts = [
            ("sessions", statistics.sessions),
            ("values", statistics.values),
            ("requests", statistics.requests),
            ("worker slots", statistics.worker_slots),
        ];
        if let Some((what, count)) = counts.into_iter().find(|(_, count)| *count > 0) {
            return Err(format!("all clients have left, and there are {count} {what}"));
        }
        for host in self.workers.values() {
            let (values, bytes) = host.worker.held();
            if values > 0 || bytes > 0 || !host.worker.is_idle() {
                let worker = host.worker.describe();
                return Err(format!(
                    "all clients have left; {worker} holds {values} values, {bytes} bytes"
                ));
            }
        }
        let hostile = self.clients.iter().find(|connection| connection.session.is_some());
        hostile.map_or(Ok(()), |_| Err("a session outlives its client".to_owned()))
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            steps: self.step,
            ticks: self.network.now(),
            instructions: self.shell.instructions,
            exchanges: self.exchanges,
            breaches: self.breaches,
            resumed: self.resumed,
            answers: self.clients.iter().map(|connection| connection.client.answers).sum(),
            failures: self.clients.iter().map(|connection| connection.client.failures).sum(),
            crashes: exact::<_, u64>(self.crashed.len()),
            cancelled: self
                .clients
                .iter()
                .map(|connection| connection.client.cancelled_answers())
                .sum(),
            replaced: self.incarnations.values().copied().map(u64::from).sum(),
            joined: self.workers.values().map(|host| host.worker.joined()).sum(),
            sessions: self.clients.len(),
        }
    }
}
