//! Users: their limits when a session opens or the policy changes, and the answer of `gt usage`.

use super::EventLoop;
use crate::policy::ClusterPolicy;
use gt_dispatcher::SessionId;
use std::time::Instant;

/// Virtual microseconds by which a lead must differ to change the order of turns. Most tiny
/// instructions are not charged: the few that are must not decide who is first at each turn.
const LEAD_STEP: f64 = 250.0;

impl EventLoop {
    /// Takes a policy that has changed.
    pub(super) fn set_policy(&mut self, policy: ClusterPolicy) {
        self.accounts.set_policy(policy);
        self.set_quotas();
    }

    /// Reason why a user gets no further session.
    pub(super) fn session_limit(&self, user: &str) -> Option<String> {
        let limit = self.accounts.policy().of(user).sessions?;
        let count = self.dispatcher.session_count(user);
        let has_room = u32::try_from(count).is_ok_and(|count| count < limit);
        if has_room {
            return None;
        }
        let whose = if user.is_empty() { String::new() } else { format!(" of user {user}") };
        Some(format!(
            "the policy of this dispatcher allows {limit} sessions{whose} at once, and {count} are \
             open: end a program, or a session with a name by `gt kill NAME`"
        ))
    }

    /// Notes whose session it is.
    pub(super) fn note_user(&mut self, session: SessionId, user: &str, name: Option<&str>) {
        self.accounts.open(session, user, name);
        self.dispatcher.set_user(session, user);
        self.set_quotas();
    }

    /// A line for each user, the asker first: see [`Accounts::text`].
    pub(super) fn usage(&mut self, user: &str) -> String {
        self.count(Instant::now());
        self.accounts.text(user, &self.dispatcher.holdings())
    }

    /// Counts what has been used up to now.
    pub(super) fn count(&mut self, now: Instant) {
        self.accounts.count_bytes(now, &self.dispatcher.holdings());
        for (session, seconds) in self.outbox.take_device_seconds() {
            self.accounts.count_device(session, seconds);
        }
    }

    /// Gives the active sessions the weights of their users: a user's active sessions share the
    /// user's. Without a policy all sessions have one weight.
    pub(super) fn set_weights(&mut self, now: Instant) {
        if !self.accounts.weights_are_due(now) {
            return;
        }
        let active = self.clients.iter().filter(|client| client.active_until > now);
        let active = active.map(|client| client.session);
        let priorities = active.clone().map(|id| (id, self.accounts.priority(id))).collect();
        let weights = self.accounts.weights(active);
        self.outbox.set_weights(weights, priorities);
    }

    /// Moves to the front the active clients that have waited for long, then those that have had the
    /// least of their share; the order of the others, and of those that are level, stays.
    pub(super) fn sort_by_claim(&self, order: &mut [usize], now: Instant) {
        order.sort_by_cached_key(|&place| {
            let client = self.clients.get(place).filter(|client| client.active_until > now);
            let Some(client) = client else { return (true, 0) };
            let lead = self.outbox.lead(client.session, client.workers());
            (!client.has_waited(now), ordered(lead))
        });
    }

    fn set_quotas(&mut self) {
        let holdings = self.dispatcher.holdings();
        let quotas = self.accounts.quotas(holdings.keys());
        self.dispatcher.set_quotas(quotas);
        self.dispatcher.set_session_quotas(self.accounts.session_quotas());
    }
}

/// Whole steps of a lead: numbers that can be compared.
#[allow(clippy::as_conversions, clippy::cast_possible_truncation, reason = "saturates")]
fn ordered(lead: f64) -> i64 {
    (lead / LEAD_STEP) as i64
}
