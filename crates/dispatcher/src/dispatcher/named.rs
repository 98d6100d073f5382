//! Sessions with names: they outlive their clients. A client that names one opens it or attaches to
//! it; when the client is gone the session is detached, until another one attaches or its owner
//! ends it. Leases are the owner's of the sockets, who has a clock.

use super::Dispatcher;
use crate::event::{SessionId, Sink};
use crate::session::published::Published;
use gt_protocol::handshake::SESSION_NAME_BYTES_MAX;

/// Maximum number of named sessions, and of one user.
const NAMED_MAX: usize = 1024;
const NAMED_OF_USER_MAX: usize = 64;

/// A named session.
#[derive(Debug)]
pub(super) struct Named {
    session: SessionId,
    user: Box<str>,
    is_attached: bool,
}

/// Reason why a client gets no session of the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionRefusal {
    #[error(
        "{0:?} is no name of a session: letters, digits, `.`, `_`, `-` and `/`, {SESSION_NAME_BYTES_MAX} at most"
    )]
    Name(String),
    #[error("session {0:?} belongs to another user")]
    OtherUser(String),
    #[error(
        "session {0:?} has a client already: end that one, or take the session from it with `gt detach {0}`"
    )]
    Attached(String),
    #[error("there is no session {0:?}; {1}")]
    Unknown(String, String),
    #[error(
        "{NAMED_OF_USER_MAX} sessions of this user have names, more are not taken: `gt sessions` lists them, `gt kill NAME` ends one"
    )]
    FullUser,
    #[error("{NAMED_MAX} sessions have names, more are not taken")]
    Full,
}

/// A named session, as a list of them shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedSummary<'a> {
    pub session: SessionId,
    pub name: &'a str,
    pub user: &'a str,
    pub is_attached: bool,
    /// Names, values and bytes that it keeps.
    pub names: usize,
    pub values: usize,
    pub bytes: u64,
}

impl Dispatcher {
    /// Opens the session of a name, or attaches to it; the session has a client from here on.
    ///
    /// # Errors
    /// [`SessionRefusal`]: the name has a client, belongs to another user, or is one too many.
    pub fn attach(&mut self, name: &str, user: &str) -> Result<SessionId, SessionRefusal> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/".contains(letter);
        let is_long = name.len() > SESSION_NAME_BYTES_MAX;
        if name.is_empty() || is_long || !name.chars().all(is_plain) {
            return Err(SessionRefusal::Name(name.to_owned()));
        }
        if let Some(named) = self.named.get_mut(name) {
            if *named.user != *user {
                return Err(SessionRefusal::OtherUser(name.to_owned()));
            }
            if std::mem::replace(&mut named.is_attached, true) {
                return Err(SessionRefusal::Attached(name.to_owned()));
            }
            return Ok(named.session);
        }
        if self.named.len() >= NAMED_MAX {
            return Err(SessionRefusal::Full);
        }
        if self.named.values().filter(|named| *named.user == *user).count() >= NAMED_OF_USER_MAX {
            return Err(SessionRefusal::FullUser);
        }
        let session = self.open_session();
        let named = Named { session, user: user.into(), is_attached: true };
        self.named.insert(name.into(), named);
        Ok(session)
    }

    /// Description of what a session keeps under names; `None` for a session without a name.
    pub fn published_text(&self, session: SessionId) -> Option<String> {
        let state = self.sessions.get(&session).filter(|_| self.is_named(session))?;
        Some(state.published_text())
    }

    /// Returns true if a session has a name, and so outlives its client.
    pub fn is_named(&self, session: SessionId) -> bool {
        self.named.values().any(|named| named.session == session)
    }

    /// The named sessions, by name.
    pub fn named(&self) -> impl Iterator<Item = NamedSummary<'_>> {
        self.named.iter().map(|(name, named)| {
            let &Named { session, ref user, is_attached } = named;
            let published = self.sessions.get(&session).map(|state| &state.published);
            let names = published.map_or(0, Published::names);
            let values = published.map_or(0, Published::values);
            let bytes = published.map_or(0, Published::bytes);
            NamedSummary { session, name, user, is_attached, names, values, bytes }
        })
    }

    /// The session that a user means by a name.
    ///
    /// # Errors
    /// No such session, with the names of those that the user has; or one of another user.
    pub fn session_of(&self, name: &str, user: &str) -> Result<NamedSummary<'_>, SessionRefusal> {
        if let Some(named) = self.named().find(|named| named.name == name) {
            if named.user != user {
                return Err(SessionRefusal::OtherUser(name.to_owned()));
            }
            return Ok(named);
        }
        let own = self.named().filter(|named| named.user == user).map(|named| named.name);
        let own: Vec<&str> = own.take(NAMED_OF_USER_MAX).collect();
        let known = if own.is_empty() {
            "no session has a name".to_owned()
        } else {
            format!("there are {}", own.join(", "))
        };
        Err(SessionRefusal::Unknown(name.to_owned(), known))
    }

    /// Detaches a session whose client is gone: its published values stay, everything else of it is
    /// freed.
    pub(super) fn detach_session(&mut self, id: SessionId, sink: &mut dyn Sink) {
        let Some(named) = self.named.values_mut().find(|named| named.session == id) else {
            return self.close_session(id, sink);
        };
        named.is_attached = false;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        self.core.requests.open.retain(|_, request| request.session != id);
        let held = session.detach();
        self.core.workers.free_all(held.into_iter(), sink);
    }

    /// Forgets the name of a session that is closed.
    pub(super) fn forget_name(&mut self, id: SessionId) {
        self.named.retain(|_, named| named.session != id);
    }
}
