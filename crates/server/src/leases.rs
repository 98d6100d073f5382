//! Leases of named sessions: how long each outlives its client.

use gt_dispatcher::SessionId;
use gt_protocol::handshake::LEASE_SECONDS_MAX;
use gt_protocol::message::SessionAction;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const LEASE_MAX: Duration = Duration::from_secs(LEASE_SECONDS_MAX);

/// Lease of a named session.
#[derive(Debug)]
struct Lease {
    length: Duration,
    /// Time at which the session lost its client; `None` while it has one.
    since: Option<Instant>,
}

impl Lease {
    fn end(&self) -> Option<Instant> {
        Some(self.since? + self.length)
    }
}

/// The leases of all named sessions.
#[derive(Debug)]
pub(crate) struct Leases {
    /// Lease of a client that asks for none.
    default: Duration,
    all: BTreeMap<SessionId, Lease>,
}

/// Request of a client that concerns other sessions.
#[derive(Debug)]
pub(crate) struct SessionRequest {
    pub request: u64,
    pub action: SessionAction,
    pub name: String,
}

impl Leases {
    pub fn new(default: Duration) -> Self {
        Self { default: default.min(LEASE_MAX), all: BTreeMap::new() }
    }

    /// Notes that a session has a client, which asks for this lease in seconds.
    pub fn attach(&mut self, session: SessionId, lease_s: Option<u32>) {
        let asked = lease_s.map(|seconds| Duration::from_secs(seconds.into()).min(LEASE_MAX));
        let length = asked.unwrap_or(self.default);
        self.all.insert(session, Lease { length, since: None });
    }

    /// Time until the first lease ends; `None` where every named session has its client.
    pub fn next_end(&self, now: Instant) -> Option<Duration> {
        let end = self.all.values().filter_map(Lease::end).min()?;
        Some(end.saturating_duration_since(now))
    }

    /// Notes that a session has lost its client; returns its lease, or `None` if it ends now.
    pub fn detach(&mut self, session: SessionId) -> Option<Duration> {
        let lease = self.all.get_mut(&session).filter(|lease| !lease.length.is_zero())?;
        lease.since = Some(Instant::now());
        Some(lease.length)
    }

    /// Makes a session end with its client.
    pub fn end_with_client(&mut self, session: SessionId) {
        if let Some(lease) = self.all.get_mut(&session) {
            lease.length = Duration::ZERO;
        }
    }

    /// Forgets a session that ends.
    pub fn remove(&mut self, session: SessionId) {
        self.all.remove(&session);
    }

    /// Time since a session lost its client, and time left of its lease; `None` while it has one.
    pub fn times(&self, session: SessionId, now: Instant) -> Option<(Duration, Duration)> {
        let lease = self.all.get(&session)?;
        let (since, end) = (lease.since?, lease.end()?);
        Some((now.saturating_duration_since(since), end.saturating_duration_since(now)))
    }

    /// Sessions whose lease is over.
    pub fn ended(&self, now: Instant) -> Vec<SessionId> {
        let is_over = |lease: &Lease| lease.end().is_some_and(|end| end <= now);
        self.all.iter().filter(|(_, lease)| is_over(lease)).map(|(&session, _)| session).collect()
    }
}
