//! Values that a session keeps under names, for its next client. They are handles of the session in
//! slots that no client can define or free.

use super::Session;
use super::value::{Handle, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// First slot of kept values: clients' slots are below [`super::SLOTS_MAX`].
pub(crate) const KEPT_FIRST: u32 = 1 << 31;
/// Maximum number of names of a session: one description lists them all.
pub(crate) const NAMES_MAX: usize = 256;
/// Maximum number of values that a session keeps under all its names together.
pub(crate) const VALUES_MAX: usize = 1 << 16;

/// Maximum number of users to whom a name is granted.
const GRANTS_MAX: usize = 64;
/// User of a grant to everybody.
pub(crate) const EVERYBODY: &str = "";
/// Letter of names under which borrowed values are kept: clients publish none with it.
const BORROWED: char = '\t';

/// A name and its values.
#[derive(Debug)]
pub(crate) struct PublishedEntry {
    pub slots: Vec<u32>,
    pub bytes: u64,
    /// Place in the order of publication.
    order: u64,
}

/// A client's random generator at the time of its last publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GeneratorState {
    pub seed: i64,
    pub draw: i64,
}

/// All names of a session.
/// Name under which a session keeps what it has borrowed from another one.
pub(crate) fn borrowed_as(session: &str, name: &str) -> String {
    format!("{session}{BORROWED}{name}")
}

#[derive(Default)]
pub(crate) struct Published {
    entries: BTreeMap<Box<str>, PublishedEntry>,
    handles: Vec<Handle>,
    free: Vec<u32>,
    publications: u64,
    /// Users to whom a name is granted.
    grants: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    /// State of the last client's generator; `None` before the first publication.
    pub generator: Option<GeneratorState>,
}

impl Published {
    pub fn entry(&self, name: &str) -> Option<&PublishedEntry> {
        self.entries.get(name)
    }

    pub fn names(&self) -> usize {
        self.own().count()
    }

    /// The names that the client has published: all but those of borrowed values.
    fn own(&self) -> impl Iterator<Item = (&str, &PublishedEntry)> {
        let all = self.entries.iter().map(|(name, entry)| (name.as_ref(), entry));
        all.filter(|(name, _)| !name.contains(BORROWED))
    }

    /// The name of borrowed values, if there are any.
    pub fn borrowed_name(&self) -> Option<Box<str>> {
        self.entries.keys().find(|name| name.contains(BORROWED)).cloned()
    }

    /// Grants a name to a user; returns false if it is granted to too many.
    pub fn grant(&mut self, name: &str, user: &str) -> bool {
        let users = self.grants.entry(name.into()).or_default();
        let has_room = users.len() < GRANTS_MAX || users.contains(user);
        if has_room {
            users.insert(user.into());
        }
        has_room
    }

    /// Takes a grant back; returns false if there was none.
    pub fn revoke(&mut self, name: &str, user: &str) -> bool {
        let Some(users) = self.grants.get_mut(name) else { return false };
        let was_granted = users.remove(user);
        if users.is_empty() {
            self.grants.remove(name);
        }
        was_granted
    }

    /// Takes back all grants of a name.
    pub fn revoke_all(&mut self, name: &str) {
        self.grants.remove(name);
    }

    /// The names that a user may borrow.
    pub fn granted_to<'p>(&'p self, user: &'p str) -> impl Iterator<Item = &'p str> {
        let is_for =
            move |users: &BTreeSet<Box<str>>| users.contains(EVERYBODY) || users.contains(user);
        let all = self.grants.iter().filter(move |(_, users)| is_for(users));
        all.map(|(name, _)| name.as_ref())
    }

    /// All names with their values, in the order of publication.
    pub fn entries(&self) -> Vec<(&str, &PublishedEntry)> {
        let mut all: Vec<_> = self.own().collect();
        all.sort_by_key(|(_, entry)| entry.order);
        all
    }

    /// Number of values under all names.
    pub fn values(&self) -> usize {
        self.handles.len() - self.free.len()
    }

    pub fn bytes(&self) -> u64 {
        self.own().map(|(_, entry)| entry.bytes).fold(0, u64::saturating_add)
    }

    pub fn handle(&self, slot: u32) -> Option<&Handle> {
        self.handles.get(place(slot)?)
    }

    pub fn handle_mut(&mut self, slot: u32) -> Option<&mut Handle> {
        self.handles.get_mut(place(slot)?)
    }

    /// The live values with their slots.
    pub fn live(&self) -> impl Iterator<Item = (u32, &Value)> {
        (KEPT_FIRST..).zip(&self.handles).filter_map(|(slot, handle)| match handle {
            Handle::Live(value) => Some((slot, value)),
            Handle::Free | Handle::Failed(_) => None,
        })
    }

    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let count = u32::try_from(self.handles.len());
            let count = count.expect("no more values than the limit of a session");
            self.handles.push(Handle::Free);
            KEPT_FIRST + count
        })
    }
}

/// Index of a kept value; `None` for a client's slot.
fn place(slot: u32) -> Option<usize> {
    usize::try_from(slot.checked_sub(KEPT_FIRST)?).ok()
}

impl Session {
    /// Keeps values under a name that is free.
    pub fn keep(&mut self, name: &str, handles: Vec<Handle>) {
        let mut bytes = 0_u64;
        let mut slots = Vec::with_capacity(handles.len());
        for handle in handles {
            let slot = self.published.take_slot();
            slots.push(slot);
            match handle {
                Handle::Live(value) => {
                    bytes = bytes.saturating_add(value.spec().bytes);
                    let site = value.site;
                    self.define(slot, value);
                    if let Some(value) = self.value_mut(slot) {
                        value.site = site;
                    }
                }
                failed @ Handle::Failed(_) => {
                    if let Some(handle) = self.published.handle_mut(slot) {
                        *handle = failed;
                    }
                }
                Handle::Free => unreachable!("a published value is live or has failed"),
            }
        }
        self.published.publications += 1;
        let order = self.published.publications;
        let entry = PublishedEntry { slots, bytes, order };
        let before = self.published.entries.insert(name.into(), entry);
        assert!(before.is_none(), "{name:?} still names {before:?}");
    }

    /// The next number and the generator's state, then a line for each name in the order of
    /// publication: number of values, bytes, elements of the first value, the name.
    pub fn published_text(&self) -> String {
        let mut text = format!("next={}", self.next_number());
        if let Some(GeneratorState { seed, draw }) = self.published.generator {
            // Writing to a string cannot fail.
            let _ = write!(text, " seed={seed} draw={draw}");
        }
        for (name, entry) in self.published.entries() {
            let first = entry.slots.first().and_then(|&slot| self.value(slot));
            let elements = first.map_or(0, |value| value.meta().elements());
            let (count, bytes) = (entry.slots.len(), entry.bytes);
            let _ = write!(text, "\n{count} {bytes} {elements} {name}");
        }
        text
    }

    /// Frees a name; returns the workers' slots of its values, which the caller frees.
    pub fn unkeep(&mut self, name: &str) -> Vec<(u32, u32)> {
        let Some(entry) = self.published.entries.remove(name) else { return Vec::new() };
        let mut held = Vec::new();
        for slot in entry.slots {
            held.extend(self.value(slot).into_iter().flat_map(Value::worker_slots));
            self.clear(slot);
            self.published.free.push(slot);
        }
        held
    }

    /// Frees what is borrowed; returns the workers' slots, which the caller frees.
    pub fn return_borrowed(&mut self) -> Vec<(u32, u32)> {
        self.published.borrowed_name().map_or_else(Vec::new, |name| self.unkeep(&name))
    }

    /// Forgets everything of a client that is gone except its published values; returns the
    /// workers' slots of the others, which the caller frees. Numbers go on, because a kept value
    /// may still fail.
    pub fn detach(&mut self) -> Vec<(u32, u32)> {
        let mut held = self.return_borrowed();
        for handle in std::mem::take(&mut self.handles) {
            if let Handle::Live(value) = handle {
                held.extend(value.worker_slots());
                self.live_values -= 1;
                self.live_bytes = self.live_bytes.saturating_sub(value.counted_bytes());
            }
        }
        // The next client numbers signals and call sites anew.
        self.sites.fill(super::NO_SITE);
        for handle in &mut self.published.handles {
            if let Handle::Live(value) = handle {
                value.site = super::NO_SITE;
            }
        }
        self.signals.clear();
        self.site_names.clear();
        self.scopes = super::Scopes::default();
        self.uploads = super::UploadHistory::default();
        self.reductions = super::Reductions::default();
        held
    }
}
