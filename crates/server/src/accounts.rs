//! Users of a dispatcher: the policy in force, and what each has used.

use crate::policy::{ClusterPolicy, Priority, SessionPolicy};
use gt_dispatcher::{SessionId, UserHolding};
use gt_protocol::message::DESCRIPTION_BYTES_MAX;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two counts of what users hold: byte hours are right to a second of it.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time between two looks at which sessions are active.
const WEIGHTS_INTERVAL: Duration = Duration::from_millis(10);
const HOUR_SECONDS: f64 = 3600.0;
/// Bytes of a list that are left for its last line.
const LAST_LINE_BYTES: usize = 64;

/// Use of the workers by a user since the dispatcher started.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// Seconds of workers.
    device_seconds: f64,
    byte_seconds: f64,
}

/// A session that is open.
#[derive(Clone, Debug)]
struct OpenSession {
    user: Arc<str>,
    name: Option<Box<str>>,
}

/// The policy, and usage by user.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    policy: ClusterPolicy,
    sessions: BTreeMap<SessionId, OpenSession>,
    usage: BTreeMap<Arc<str>, Usage>,
    /// Time of the last count of bytes.
    counted: Option<Instant>,
    /// True if there is or was a policy, which may have weights.
    has_weights: bool,
    /// Time at which weights were set last.
    weighed: Option<Instant>,
}

impl Accounts {
    /// Without a policy nobody has a limit, and everybody the same weight.
    pub fn new(policy: Option<ClusterPolicy>) -> Self {
        let has_weights = policy.is_some();
        Self { policy: policy.unwrap_or_default(), has_weights, ..Self::default() }
    }

    pub fn policy(&self) -> &ClusterPolicy {
        &self.policy
    }

    pub fn set_policy(&mut self, policy: ClusterPolicy) {
        self.policy = policy;
        self.weighed = None;
    }

    /// Notes that a session is a user's, and its name if it has one.
    pub fn open(&mut self, session: SessionId, user: &str, name: Option<&str>) {
        let (user, name): (Arc<str>, _) = (user.into(), name.map(Into::into));
        self.usage.entry(Arc::clone(&user)).or_default();
        self.sessions.insert(session, OpenSession { user, name });
    }

    fn user(&self, session: SessionId) -> Option<&Arc<str>> {
        self.sessions.get(&session).map(|open| &open.user)
    }

    fn policy_of(&self, open: &OpenSession) -> SessionPolicy {
        self.policy.of(&open.user).session(open.name.as_deref())
    }

    /// The memory quotas of those sessions that have one of their own.
    pub fn session_quotas(&self) -> BTreeMap<SessionId, u64> {
        let quota = |(&id, open)| Some((id, self.policy_of(open).memory?));
        self.sessions.iter().filter_map(quota).collect()
    }

    /// Class of a session.
    pub fn priority(&self, session: SessionId) -> Priority {
        let open = self.sessions.get(&session);
        open.map_or_else(Priority::default, |open| self.policy_of(open).priority)
    }

    /// Forgets a session that has ended; what it has used stays its user's.
    pub fn close(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// Returns true if weights are to be set again: there is a policy, and sessions may have come or
    /// gone since the last time.
    pub fn weights_are_due(&mut self, now: Instant) -> bool {
        let passed = self.weighed.map(|weighed| now.saturating_duration_since(weighed));
        let is_due = self.has_weights && passed.is_none_or(|passed| passed >= WEIGHTS_INTERVAL);
        if is_due {
            self.weighed = Some(now);
        }
        is_due
    }

    /// The weights of these sessions, which are the active ones.
    pub fn weights(
        &self,
        sessions: impl Iterator<Item = SessionId> + Clone,
    ) -> BTreeMap<SessionId, f64> {
        let user = |session: SessionId| Some((session, self.user(session)?));
        let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
        for (_, user) in sessions.clone().filter_map(user) {
            *counts.entry(user).or_default() += 1.0;
        }
        let weight = |user: &Arc<str>| self.policy.of(user).weight / counts[user.as_ref()];
        sessions.filter_map(user).map(|(session, user)| (session, weight(user))).collect()
    }

    /// The quotas of those of these users who have one.
    pub fn quotas<'u>(&self, users: impl Iterator<Item = &'u Arc<str>>) -> BTreeMap<Box<str>, u64> {
        let quota = |user: &str| Some((user.into(), self.policy.of(user).memory?));
        users.filter_map(|user| quota(user)).collect()
    }

    /// Returns true if bytes have not been counted lately.
    pub fn is_due(&self, now: Instant) -> bool {
        self.counted.is_none_or(|counted| now.saturating_duration_since(counted) >= INTERVAL)
    }

    /// Counts what users have held since the last count.
    pub fn count_bytes(&mut self, now: Instant, holdings: &BTreeMap<Arc<str>, UserHolding>) {
        let since = self.counted.replace(now).unwrap_or(now);
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        for (user, holding) in holdings {
            let usage = self.usage.entry(Arc::clone(user)).or_default();
            usage.byte_seconds += real(holding.bytes) * seconds;
        }
    }

    /// Counts time of workers for a session's user.
    pub fn count_device(&mut self, session: SessionId, seconds: f64) {
        let open = self.sessions.get(&session);
        let usage = open.and_then(|open| self.usage.get_mut(&open.user));
        if let Some(usage) = usage {
            usage.device_seconds += seconds;
        }
    }

    /// A line for each user, `own` first: sessions, weight, bytes, quota (`-` for none), seconds of
    /// workers, byte hours, user (`-` for none).
    pub fn text(&self, own: &str, holdings: &BTreeMap<Arc<str>, UserHolding>) -> String {
        let mut all: Vec<(&Arc<str>, &Usage)> = self.usage.iter().collect();
        all.sort_by_key(|(user, _)| user.as_ref() != own);
        let mut text = String::new();
        for (place, (user, usage)) in all.iter().enumerate() {
            let UserHolding { sessions, bytes } = holdings.get(*user).copied().unwrap_or_default();
            let policy = self.policy.of(user);
            let quota = policy.memory.map_or_else(|| "-".to_owned(), |quota| quota.to_string());
            let (device, byte_hours) = (usage.device_seconds, usage.byte_seconds / HOUR_SECONDS);
            let name = if user.is_empty() { "-" } else { user };
            let line = format!(
                "{sessions} {} {bytes} {quota} {device:.3} {byte_hours:.0} {name}\n",
                policy.weight
            );
            if text.len() + line.len() > DESCRIPTION_BYTES_MAX - LAST_LINE_BYTES {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "more {}", all.len() - place);
                break;
            }
            text.push_str(&line);
        }
        text
    }
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "an amount for people")]
fn real(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_time_are_counted_by_user() {
        let policy =
            ClusterPolicy::parse("users: {ada: {weight: 3, memory: 1 KiB}}").expect("it is right");
        let mut accounts = Accounts::new(Some(policy));
        let (first, second, other) = (SessionId(1), SessionId(2), SessionId(3));
        for (session, user) in [(first, "ada"), (second, "ada"), (other, "bob")] {
            accounts.open(session, user, None);
        }
        let holding = |sessions, bytes| UserHolding { sessions, bytes };
        let holdings =
            BTreeMap::from([("ada".into(), holding(2, 1000)), ("bob".into(), holding(1, 10))]);
        let start = Instant::now();
        assert!(accounts.is_due(start));
        accounts.count_bytes(start, &holdings);
        assert!(!accounts.is_due(start));
        accounts.count_bytes(start + Duration::from_hours(2), &holdings);
        accounts.count_device(first, 1.0);
        accounts.count_device(second, 0.5);
        let weights = accounts.weights([first, second, other].into_iter());
        assert_eq!(weights, BTreeMap::from([(first, 1.5), (second, 1.5), (other, 1.0)]));
        accounts.close(second);
        let weights = accounts.weights([first, other].into_iter());
        assert_eq!(weights, BTreeMap::from([(first, 3.0), (other, 1.0)]));
        let expected = "1 1 10 - 0.000 20 bob\n2 3 1000 1024 1.500 2000 ada\n";
        assert_eq!(accounts.text("bob", &holdings), expected);
        accounts.count_device(second, 100.0);
        assert_eq!(accounts.text("bob", &holdings), expected, "the session is closed");
        assert_eq!(accounts.quotas(holdings.keys()), BTreeMap::from([("ada".into(), 1024)]));
    }
}
