//! Values that sessions lend each other: a session borrows what another one has published under a name
//! and granted to its user. A borrowed value is an alias on the workers, of which nobody can change the
//! other's, and counts for its owner until both have let it go.

use super::Dispatcher;
use crate::control::listed;
use crate::event::{ClientFault, SessionId, Sink};
use crate::number::wide;
use crate::planner::Planner;
use crate::session::Session;
use crate::session::failure::{RootCause, ValueFailure};
use crate::session::published::{VALUES_MAX, borrowed_as};
use crate::session::requests::request_number;
use crate::session::value::{Borrowing, Handle, Shards, Value, ValueState};
use gt_protocol::message::ToClient;
use gt_protocol::{Attr, Instruction, Meta};
use std::sync::{Arc, Weak};

/// Number of a failure that is none of the borrower's instructions.
pub(super) const NO_NUMBER: u64 = u64::MAX;

/// A kept value that others have borrowed.
pub(super) struct BorrowedValue {
    owner: SessionId,
    user: Option<Arc<str>>,
    bytes: u64,
    /// Lives while the owner keeps the value.
    kept: Weak<()>,
    /// Lives while somebody has borrowed it.
    borrowed: Weak<()>,
}

/// A value as its owner lends it.
enum GrantedValue {
    Live { meta: Meta, shards: Shards, token: Arc<()> },
    Failed(ValueFailure),
}

impl Dispatcher {
    /// The instruction `borrow`. The first letter of the answer tells if it was done: `+` or `-`;
    /// then come the number of elements of the first value, or, without a name, those that are
    /// granted, a line each.
    pub(super) fn borrow(
        &mut self,
        id: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), ClientFault> {
        let op = instruction.op;
        let request = request_number(instruction)?;
        let (Attr::Text(from), Attr::Text(name)) =
            (instruction.attr("session"), instruction.attr("name"))
        else {
            return Err(ClientFault::Attribute { op, name: "session" });
        };
        let mut planner = self.planner(id, sink).ok_or(ClientFault::NoSession { session: id })?;
        planner.trace_plain(instruction);
        let held = planner.session.return_borrowed();
        planner.core.workers.free_all(held.into_iter(), planner.sink);
        let text =
            if from.is_empty() { Ok(String::new()) } else { self.lend(id, from, name, sink) };
        let text = text.map_or_else(|text| format!("-{text}"), |text| format!("+{text}"));
        sink.session(id, &ToClient::Description { request, text: &text });
        Ok(())
    }

    fn lend(
        &mut self,
        id: SessionId,
        from: &str,
        name: &str,
        sink: &mut dyn Sink,
    ) -> Result<String, String> {
        let user = self.sessions.get(&id).and_then(|session| session.user.clone());
        let user = user.as_deref().unwrap_or_default();
        let owner = self.owner_of(id, from, user)?;
        let Some(state) = self.sessions.get(&owner) else { unreachable!("{from:?} is named") };
        if name.is_empty() {
            return Ok(state.published.granted_to(user).collect::<Vec<_>>().join("\n"));
        }
        let entry = state.published.entry(name);
        let entry = entry.filter(|_| state.published.granted_to(user).any(|one| one == name));
        let Some(entry) = entry else { return Err(refusal(state, from, name, user)) };
        let slots = entry.slots.clone();
        let own = self.sessions.get(&id).map_or(0, |session| session.published.values());
        if own + slots.len() > VALUES_MAX {
            return Err(format!("a session holds at most {VALUES_MAX} values under names"));
        }
        let values: Vec<GrantedValue> =
            slots.into_iter().map(|slot| self.granted_value(owner, slot, from)).collect();
        let elements = match values.first() {
            Some(GrantedValue::Live { meta, .. }) => meta.elements(),
            Some(GrantedValue::Failed(_)) | None => 0,
        };
        let Some(mut planner) = self.planner(id, sink) else { unreachable!("{id:?} has asked") };
        let handles = values.into_iter().map(|value| planner.borrowed(value)).collect();
        planner.session.keep(&borrowed_as(from, name), handles);
        Ok(elements.to_string())
    }

    /// The session of a name, of any user.
    fn owner_of(&self, id: SessionId, from: &str, user: &str) -> Result<SessionId, String> {
        let Some(named) = self.named().find(|named| named.name == from) else {
            let grants = |session: SessionId| {
                let state = self.sessions.get(&session);
                state.is_some_and(|state| state.published.granted_to(user).next().is_some())
            };
            let all = self.named().filter(|named| named.session != id && grants(named.session));
            let names = listed(all.map(|named| named.name));
            return Err(format!(
                "there is no session {from:?}; sessions that grant something to {}: {names}",
                called(user)
            ));
        };
        if named.session == id {
            return Err(format!("session {from:?} is this one: gt.session[NAME] without a call"));
        }
        Ok(named.session)
    }

    fn granted_value(&mut self, owner: SessionId, slot: u32, from: &str) -> GrantedValue {
        let Some(state) = self.sessions.get_mut(&owner) else { unreachable!("{owner:?} lends") };
        let user = state.user.clone();
        if let Handle::Failed(failure) = state.handle(slot) {
            let RootCause { class, op, text, .. } = failure.cause();
            let (number, site) = (NO_NUMBER, 0);
            let text = format!("{text} (in session {from:?}, which lends it)");
            let cause = RootCause { number, class: *class, op: *op, site, text };
            return GrantedValue::Failed(ValueFailure::new(cause));
        }
        let Some(value) = state.value_mut(slot) else { unreachable!("slot {slot} is kept") };
        let (meta, shards, bytes) = (*value.meta(), value.shards(), value.spec().bytes);
        let kept = match value.borrowing() {
            Some(Borrowing::Owner(token)) => Arc::clone(token),
            Some(Borrowing::Borrower(_)) | None => {
                let token = Arc::new(());
                value.set_borrowing(Borrowing::Owner(Arc::clone(&token)));
                token
            }
        };
        self.shared.retain(|one| one.borrowed.strong_count() > 0);
        let is_it = |one: &&BorrowedValue| one.kept.as_ptr() == Arc::as_ptr(&kept);
        let known = self.shared.iter().find(is_it).and_then(|one| one.borrowed.upgrade());
        let token = known.unwrap_or_else(|| {
            let token = Arc::new(());
            let (kept, borrowed) = (Arc::downgrade(&kept), Arc::downgrade(&token));
            self.shared.push(BorrowedValue { owner, user, bytes, kept, borrowed });
            token
        });
        GrantedValue::Live { meta, shards, token }
    }

    /// Bytes that others still hold of what a user's sessions no longer keep.
    pub(super) fn borrowed_bytes(&self, user: &str) -> u64 {
        let own = self.shared.iter().filter(|one| one.user.as_deref() == Some(user));
        own.map(BorrowedValue::left_bytes).fold(0, u64::saturating_add)
    }

    /// [`Self::borrowed_bytes`] of each one.
    pub(super) fn borrowed_by_user(&self) -> impl Iterator<Item = (Arc<str>, u64)> {
        let left = self.shared.iter().filter(|one| one.left_bytes() > 0);
        left.filter_map(|one| Some((Arc::clone(one.user.as_ref()?), one.left_bytes())))
    }

    /// [`Self::borrowed_bytes`] of one session.
    pub(super) fn borrowed_bytes_of(&self, session: SessionId) -> u64 {
        let own = self.shared.iter().filter(|one| one.owner == session);
        own.map(BorrowedValue::left_bytes).fold(0, u64::saturating_add)
    }

    /// Number of values that are borrowed, for the invariants of tests.
    pub fn borrowed_count(&self) -> u64 {
        wide(self.shared.iter().filter(|one| one.borrowed.strong_count() > 0).count())
    }
}

impl BorrowedValue {
    /// Bytes that only borrowers hold: what the owner keeps counts there.
    fn left_bytes(&self) -> u64 {
        let is_left = self.borrowed.strong_count() > 0 && self.kept.strong_count() == 0;
        if is_left { self.bytes } else { 0 }
    }
}

impl Planner<'_> {
    /// A granted value as the borrower keeps it.
    fn borrowed(&mut self, value: GrantedValue) -> Handle {
        let (meta, shards, token) = match value {
            GrantedValue::Live { meta, shards, token } => (meta, shards, token),
            GrantedValue::Failed(failure) => return Handle::Failed(failure),
        };
        let slots = self.aliases(meta, &shards);
        let spec = self.session.specs.of(&meta, &shards.layout);
        let mut value = Value::new(spec, 0, 0, ValueState::Ready(slots));
        value.set_borrowing(Borrowing::Borrower(token));
        Handle::Live(value)
    }
}

/// Answers a `grant` in a session that no other can name.
pub(super) fn refuse_grant(
    id: SessionId,
    instruction: &Instruction<'_>,
    sink: &mut dyn Sink,
) -> Result<(), ClientFault> {
    let request = request_number(instruction)?;
    let text = "-this session has no name by which another one could ask for it: \
                gt.connect(address, session=NAME) gives it one";
    sink.session(id, &ToClient::Description { request, text });
    Ok(())
}

fn refusal(owner: &Session, from: &str, name: &str, user: &str) -> String {
    let of = owner.user.as_deref().filter(|user| !user.is_empty());
    let of = of.map_or_else(String::new, |user| format!(" of user {user}"));
    let granted = listed(owner.published.granted_to(user));
    let remedy = if user.is_empty() {
        format!("gt.grant({name:?})")
    } else {
        format!("gt.grant({name:?}, {user:?})")
    };
    format!(
        "session {from:?}{of} grants no {name:?} to {}: it grants {granted}; {remedy} there changes \
         that",
        called(user)
    )
}

fn called(user: &str) -> String {
    if user.is_empty() { "other sessions".to_owned() } else { format!("user {user}") }
}
