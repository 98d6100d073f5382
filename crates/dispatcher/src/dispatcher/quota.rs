//! Memory quotas by user. An instruction whose results would take its user beyond the quota fails
//! before any worker is told of it. Values are counted by their metadata: whole, contiguous, once,
//! views among them.

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
        for session in self.sessions.values_mut() {
            session.allowance = u64::MAX;
        }
    }

    /// Prepares a session for its next instructions, during which no other session gets new values:
    /// what the others of its user hold is not its to use. The owner of the streams calls it.
    pub fn begin_turn(&mut self, id: SessionId) {
        if self.quotas.is_empty() {
            return;
        }
        let Some((user, quota)) = self.quota_of(id) else { return };
        let others = self.sessions_of(&user).filter(|(other, _)| *other != id);
        let others = others.map(|(_, session)| session.live_bytes()).fold(0, u64::saturating_add);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.allowance = quota.saturating_sub(others);
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
        let Some((user, quota)) = self.quota_of(id) else {
            unreachable!("session {} has an allowance and no quota", id.0)
        };
        let mut held: Vec<(u64, SessionId)> =
            self.sessions_of(&user).map(|(id, session)| (session.live_bytes(), id)).collect();
        held.sort_by_key(|&(bytes, id)| (std::cmp::Reverse(bytes), id));
        let total = held.iter().map(|(bytes, _)| *bytes).fold(0, u64::saturating_add);
        let mut holders = String::new();
        for &(bytes, holder) in held.iter().take(LISTED_MAX) {
            let gap = if holders.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(holders, "{gap}{} {}", self.label(holder, id), size(bytes));
        }
        if held.len() > LISTED_MAX {
            let _ = write!(holders, ", {} more sessions", held.len() - LISTED_MAX);
        }
        let user = if user.is_empty() { "nobody" } else { &user };
        let operation = operation(session, instruction);
        let (quota, total, needed) = (size(quota), size(total), size(needed));
        format!(
            "out of memory: user {user} has a quota of {quota}, holds {total} ({holders}) and needs \
             {needed} more; {operation}"
        )
    }

    /// Name of a session in the text of an error of the session `own`.
    fn label(&self, id: SessionId, own: SessionId) -> String {
        let name = self.named().find(|named| named.session == id).map(|named| named.name);
        let name = name.map_or_else(|| format!("session {}", id.0), |name| format!("{name:?}"));
        if id == own { format!("this session, {name},") } else { name }
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
