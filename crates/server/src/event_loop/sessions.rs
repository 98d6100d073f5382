//! Named sessions: clients that attach and leave, leases that end, and what clients ask of sessions
//! other than their own.

use super::EventLoop;
use crate::audit::Quoted;
use crate::journal::Party;
use crate::leases::SessionRequest;
use crate::net_event::NetEvent;
use gt_dispatcher::{Event, NamedSummary, SessionId, Sink};
use gt_protocol::handshake::NamedSession;
use gt_protocol::message::{DESCRIPTION_BYTES_MAX, SessionAction, ToClient};
use std::fmt::Write;
use std::time::Instant;
use tokio::sync::oneshot;

/// Bytes of a list that are left for its last line.
const LAST_LINE_BYTES: usize = 64;

impl EventLoop {
    /// Opens the session of a new client, or attaches it to the one that it names.
    pub(crate) fn open_session(
        &mut self,
        named: Option<NamedSession>,
        user: &str,
        answer: oneshot::Sender<Result<SessionId, String>>,
    ) {
        let is_new = |named: &NamedSession| !self.dispatcher.named().any(|n| n.name == named.name);
        let event =
            if named.as_ref().is_none_or(is_new) { "session-opened" } else { "session-attached" };
        let called = named.as_ref().map(|named| named.name.clone()).unwrap_or_default();
        let refusal = named.as_ref().is_none_or(is_new).then(|| self.session_limit(user)).flatten();
        let opened = match (refusal, named) {
            (Some(text), _) => Err(text),
            (None, None) => Ok(self.dispatcher.open_session()),
            (None, Some(NamedSession { name, lease_s })) => {
                let attached = self.dispatcher.attach(&name, user);
                attached
                    .inspect(|&session| {
                        self.leases.attach(session, lease_s);
                        tracing::info!("session {} is {name:?} of {user:?}", session.0);
                    })
                    .map_err(|refusal| refusal.to_string())
            }
        };
        let session = opened.as_ref().ok().copied();
        if let Some(session) = session {
            self.note_user(session, user, Some(&*called).filter(|name| !name.is_empty()));
            let (user, called) = (Quoted("user", user), Quoted("name", &called));
            self.audit.write(event, format_args!(" session={}{user}{called}", session.0));
        }
        if answer.send(opened).is_err()
            && let Some(session) = session
        {
            self.client_gone(session);
        }
    }

    /// Handles the end of a client's connection: a named session waits for its next client.
    pub(crate) fn client_gone(&mut self, session: SessionId) {
        self.drop_client(session);
        if let Some(length) = self.leases.detach(session) {
            tracing::info!("session {} is detached for {} s", session.0, length.as_secs());
            let seconds = length.as_secs();
            self.audit.write(
                "session-detached",
                format_args!(" session={} lease-seconds={seconds}", session.0),
            );
            return self.dispatcher.handle(Event::SessionDetached { session }, &mut self.outbox);
        }
        self.end_session(session);
    }

    /// Writes to the audit log that a peer is gone.
    pub(super) fn note_end(&mut self, party: Party, reason: &str) {
        let field = match party {
            Party::Session(session) => format!("session={}", session.0),
            Party::Worker(index) => format!("worker={index}"),
        };
        self.audit.write("left", format_args!(" {field}{}", Quoted("reason", reason)));
    }

    /// Writes to the audit log which peers had gone when the dispatcher was told to stop. Those that
    /// go from now on are noted by the sockets' thread.
    pub(super) fn note_last_ends(&mut self) {
        self.events.close();
        // The loop ends: nothing more is put into the channel.
        while let Ok(event) = self.events.try_recv() {
            match event {
                NetEvent::ClientGone { session, reason } => {
                    self.note_end(Party::Session(session), &reason);
                }
                NetEvent::WorkerGone { index, reason } => {
                    self.note_end(Party::Worker(index), &reason);
                }
                NetEvent::OpenSession { .. }
                | NetEvent::Client { .. }
                | NetEvent::Worker { .. }
                | NetEvent::Policy(_)
                | NetEvent::Tokens(_)
                | NetEvent::Stop => {}
            }
        }
        self.audit.release();
    }

    /// Ends a session that has no client any more.
    fn end_session(&mut self, session: SessionId) {
        self.audit.write("session-ended", format_args!(" session={}", session.0));
        self.leases.remove(session);
        self.count(Instant::now());
        self.accounts.close(session);
        self.dispatcher.handle(Event::SessionClosed { session }, &mut self.outbox);
    }

    /// Ends the sessions whose lease is over; returns true if there was one.
    pub(crate) fn end_leases(&mut self, now: Instant) -> bool {
        let ended = self.leases.ended(now);
        if !ended.is_empty() {
            self.outbox.hold();
        }
        for &session in &ended {
            tracing::info!("session {} ends: no client within its lease", session.0);
            self.end_session(session);
        }
        !ended.is_empty()
    }

    /// Answers a client's request that concerns other sessions.
    pub(crate) fn answer_sessions(&mut self, session: SessionId, asked: &SessionRequest) {
        let SessionRequest { request, action, name } = asked;
        let user = self.user_of(session);
        let text = match action {
            SessionAction::List => self.list(&user),
            SessionAction::Usage => self.usage(&user),
            SessionAction::Detach | SessionAction::End => {
                self.change(session, *action, name, &user).unwrap_or_else(|text| text)
            }
        };
        self.outbox.session(session, &ToClient::Description { request: *request, text: &text });
    }

    /// Takes a session from its client, or ends it. The first letter of the answer tells if that
    /// was done: `+` or `-`.
    fn change(
        &mut self,
        asker: SessionId,
        action: SessionAction,
        name: &str,
        user: &str,
    ) -> Result<String, String> {
        let named = self.dispatcher.session_of(name, user);
        let NamedSummary { session, is_attached, .. } =
            named.map_err(|refusal| format!("-{refusal}"))?;
        let is_end = action == SessionAction::End;
        if is_attached && session == asker {
            return Err(format!("-session {name:?} is the one that asks"));
        }
        if !is_attached && !is_end {
            return Err(format!("-session {name:?} has no client"));
        }
        let (event, by) = (if is_end { "session-killed" } else { "session-taken" }, asker.0);
        let (user, called) = (Quoted("user", user), Quoted("name", name));
        self.audit
            .write(event, format_args!(" session={} by-session={by}{user}{called}", session.0));
        if is_attached {
            let what = if is_end { "ended" } else { "detached" };
            let reason = format!("session {name} was {what} by `gt` of its user");
            self.outbox.session(session, &ToClient::Goodbye { reason: &reason });
            self.outbox.flush_session(session);
            // The end of its connection detaches the session, or ends it.
            if is_end {
                self.leases.end_with_client(session);
            }
            self.drop_client(session);
        } else {
            self.end_session(session);
        }
        Ok(format!("+session {name} is {}", if is_end { "ended" } else { "detached" }))
    }

    /// A line for each named session, the user's own first: `own` or `other`, the seconds since
    /// when it has no client and those left of its lease (`-` where it has one), names, values,
    /// bytes, user (`-` for none), name.
    fn list(&self, user: &str) -> String {
        let now = Instant::now();
        let mut all: Vec<NamedSummary<'_>> = self.dispatcher.named().collect();
        all.sort_by_key(|named| named.user != user);
        let mut text = String::new();
        for (place, named) in all.iter().enumerate() {
            let NamedSummary { names, values, bytes, name, .. } = named;
            let times = match self.leases.times(named.session, now) {
                Some((gone, left)) => format!("{} {}", gone.as_secs(), left.as_secs()),
                None => "- -".to_owned(),
            };
            let whose = if named.user == user { "own" } else { "other" };
            let of = if named.user.is_empty() { "-" } else { named.user };
            let line = format!("{whose} {times} {names} {values} {bytes} {of} {name}\n");
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
