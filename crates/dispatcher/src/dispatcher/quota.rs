//! Memory quotas by user and by session. An instruction whose results would take either beyond its
//! quota fails before any worker is told of it. Values are counted by their metadata: whole,
//! contiguous, once, views among them; what a session lends counts for it until nobody holds it.

use super::Dispatcher;
use crate::event::SessionId;
use crate::plan::{infer_outputs, operation};
use crate::session::Session;
use crate::session::value::Handle;
use gt_protocol::{Id, Instruction, Meta};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// Number of sessions that an error lists, the largest first.
const LISTED_MAX: usize = 4;

/// Sessions and values of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserHolding {
    pub sessions: usize,
    pub bytes: u64,
}

impl Dispatcher {
    /// Says whose session it is; nobody's before.
    pub fn set_user(&mut self, session: SessionId, user: &str) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.user = Some(user.into());
        }
    }

    /// Sets the bytes that all sessions of each user may hold together; users without an entry may
    /// hold any number.
    pub fn set_quotas(&mut self, quotas: BTreeMap<Box<str>, u64>) {
        self.quotas = quotas;
        self.forget_allowances();
    }

    /// Sets the bytes that single sessions may hold; those without an entry may hold what their user
    /// may.
    pub fn set_session_quotas(&mut self, quotas: BTreeMap<SessionId, u64>) {
        self.session_quotas = quotas;
        self.forget_allowances();
    }

    fn forget_allowances(&mut self) {
        for session in self.sessions.values_mut() {
            session.allowance = u64::MAX;
        }
    }

    /// Prepares a session for its next instructions, during which no other session gets new values:
    /// what the others of its user hold is not its to use. The owner of the streams calls it.
    pub fn begin_turn(&mut self, id: SessionId) {
        if self.quotas.is_empty() && self.session_quotas.is_empty() {
            return;
        }
        let of_session = self.session_quotas.get(&id);
        let of_session = of_session.map(|quota| quota.saturating_sub(self.borrowed_bytes_of(id)));
        let of_user = self.quota_of(id).map(|(user, quota)| {
            let others = self.sessions_of(&user).filter(|(other, _)| *other != id);
            let others = others.map(|(_, session)| session.live_bytes());
            quota.saturating_sub(others.fold(self.borrowed_bytes(&user), u64::saturating_add))
        });
        let Some(allowance) = of_session.into_iter().chain(of_user).min() else { return };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.allowance = allowance;
        }
    }

    /// Sessions and bytes by user.
    pub fn holdings(&self) -> BTreeMap<Arc<str>, UserHolding> {
        let mut all: BTreeMap<Arc<str>, UserHolding> = BTreeMap::new();
        for session in self.sessions.values() {
            let Some(user) = &session.user else { continue };
            let holding = all.entry(Arc::clone(user)).or_default();
            holding.sessions += 1;
            holding.bytes = holding.bytes.saturating_add(session.live_bytes());
        }
        for (user, bytes) in self.borrowed_by_user() {
            let holding = all.entry(user).or_default();
            holding.bytes = holding.bytes.saturating_add(bytes);
        }
        all
    }

    /// Number of sessions of a user.
    pub fn session_count(&self, user: &str) -> usize {
        self.sessions_of(user).count()
    }

    fn quota_of(&self, id: SessionId) -> Option<(Arc<str>, u64)> {
        let user = self.sessions.get(&id)?.user.as_ref()?;
        let quota = self.quotas.get(user.as_ref())?;
        Some((Arc::clone(user), *quota))
    }

    fn sessions_of(&self, user: &str) -> impl Iterator<Item = (SessionId, &Session)> {
        let own = move |session: &Session| session.user.as_deref() == Some(user);
        self.sessions.iter().filter(move |(_, session)| own(session)).map(|(&id, one)| (id, one))
    }

    /// Text of the failure of an instruction whose results exceed its user's quota.
    pub(super) fn over_quota(
        &self,
        id: SessionId,
        instruction: &Instruction<'_>,
        known: Option<&[Meta]>,
    ) -> Option<String> {
        let session = self.sessions.get(&id).filter(|session| session.allowance < u64::MAX)?;
        let is_live = |value: Id| {
            let handle = value.as_slot().map(|slot| session.handle(slot));
            matches!(handle, Some(Handle::Live(_)))
        };
        // Other mistakes come first.
        if !instruction.values().all(is_live) {
            return None;
        }
        let inferred;
        let outputs = if let Some(known) = known {
            known
        } else {
            inferred = infer_outputs(session, instruction).ok()?;
            &inferred
        };
        let needed = outputs.iter().map(Meta::bytes).fold(0, u64::saturating_add);
        session.exceeds(needed).then(|| self.over_quota_text(id, session, instruction, needed))
    }

    #[cold]
    fn over_quota_text(
        &self,
        id: SessionId,
        session: &Session,
        instruction: &Instruction<'_>,
        needed: u64,
    ) -> String {
        let operation = operation(session, instruction);
        let needed_text = size(needed);
        let borrowed = self.borrowed_bytes_of(id);
        let held_alone = session.live_bytes().saturating_add(borrowed);
        if let Some(&quota) = self.session_quotas.get(&id)
            && held_alone.saturating_add(needed) > quota
        {
            let (quota, held) = (size(quota), size(held_alone));
            let name = self.name_of(id);
            return format!(
                "out of memory: {name} has a quota of {quota}, holds {held}{} and needs {needed_text} \
                 more; {operation}",
                borrowed_text(borrowed)
            );
        }
        let Some((user, quota)) = self.quota_of(id) else {
            unreachable!("session {} has an allowance and no quota", id.0)
        };
        let borrowed = self.borrowed_bytes(&user);
        let mut held: Vec<(u64, SessionId)> =
            self.sessions_of(&user).map(|(id, session)| (session.live_bytes(), id)).collect();
        held.sort_by_key(|&(bytes, id)| (std::cmp::Reverse(bytes), id));
        let total = held.iter().map(|(bytes, _)| *bytes).fold(borrowed, u64::saturating_add);
        let mut holders = String::new();
        for &(bytes, holder) in held.iter().take(LISTED_MAX) {
            let gap = if holders.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(holders, "{gap}{} {}", self.label(holder, id), size(bytes));
        }
        if held.len() > LISTED_MAX {
            let _ = write!(holders, ", {} more sessions", held.len() - LISTED_MAX);
        }
        holders.push_str(&borrowed_text(borrowed));
        let user = if user.is_empty() { "nobody" } else { &user };
        let (quota, total) = (size(quota), size(total));
        format!(
            "out of memory: user {user} has a quota of {quota}, holds {total} ({holders}) and needs \
             {needed_text} more; {operation}"
        )
    }

    /// Name of a session in the text of an error of the session `own`.
    fn label(&self, id: SessionId, own: SessionId) -> String {
        let name = self.named().find(|named| named.session == id).map(|named| named.name);
        let name = name.map_or_else(|| format!("session {}", id.0), |name| format!("{name:?}"));
        if id == own { format!("this session, {name},") } else { name }
    }

    fn name_of(&self, id: SessionId) -> String {
        let name = self.named().find(|named| named.session == id).map(|named| named.name);
        name.map_or_else(|| format!("session {}", id.0), |name| format!("session {name:?}"))
    }
}

/// The part of an error about values that only others still hold.
fn borrowed_text(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        _ => format!(", {} of it borrowed by sessions that still hold it", size(bytes)),
    }
}

/// Bytes in the largest unit of which there is one.
fn size(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >> shift > 0 {
            // Tenths, by whole numbers: 2^64 / 2^10 * 10 fits.
            let tenths = ((bytes >> (shift - 10)) * 10) >> 10;
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} B")
}
