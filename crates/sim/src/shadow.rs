//! Shadow accounting: the values of each session and the workers that have held them, derived from
//! the instructions and compared with the dispatcher's own counts.

use crate::exact::exact;
use gt_dispatcher::{Dispatcher, SessionId};
use gt_protocol::{Attr, Id, Instruction, Op};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
struct SlotEntry {
    id: Id,
    /// Workers that hold a shard, by layout: the value's own and those of its copies; empty if it
    /// has failed.
    holdings: Vec<Holding>,
    live: bool,
}

/// One layout of a value.
#[derive(Debug)]
struct Holding {
    members: Vec<u32>,
    /// True if each member holds the whole value.
    whole: bool,
}

impl Holding {
    fn parse(layout: &str) -> Self {
        let whole = !layout.contains("shard(") && !layout.contains("partial(");
        Self { members: members(layout), whole }
    }

    /// Returns true if it is still complete without that worker.
    fn survives(&self, worker: u32) -> bool {
        let elsewhere = self.members.iter().any(|&member| member != worker);
        self.whole && elsewhere || !self.members.contains(&worker)
    }
}

impl SlotEntry {
    fn members(&self) -> impl Iterator<Item = u32> + '_ {
        self.holdings.iter().flat_map(|holding| holding.members.iter().copied())
    }
}

/// History of a number's value and its operands: the workers that have held them.
#[derive(Clone, Debug, Default)]
struct NumberHistory {
    holders: BTreeSet<u32>,
    /// True if no worker was there to compute it.
    homeless: bool,
}

#[derive(Debug, Default)]
struct Account {
    slots: BTreeMap<u32, SlotEntry>,
    origins: Vec<NumberHistory>,
}

#[derive(Debug, Default)]
pub struct ShadowAccounts {
    alive: BTreeSet<u32>,
    accounts: BTreeMap<SessionId, Account>,
}

/// Expected totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    pub values: usize,
    pub ranges: usize,
}

impl ShadowAccounts {
    pub fn open(&mut self, session: SessionId) {
        self.accounts.insert(session, Account::default());
    }

    pub fn close(&mut self, session: SessionId) {
        self.accounts.remove(&session);
    }

    /// Enters an instruction that the dispatcher has accepted.
    pub fn enter(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        dispatcher: &Dispatcher,
    ) {
        let Some(account) = self.accounts.get_mut(&session) else { return };
        let operands: Vec<u32> = instruction.values().filter_map(Id::as_slot).collect();
        if instruction.op == Op::Free {
            for slot in operands {
                account.slots.remove(&slot);
            }
            return;
        }
        // The instruction may have changed its operands' layouts.
        for &slot in &operands {
            account.refresh(slot, session, dispatcher);
        }
        if !instruction.outputs.is_empty() {
            // A layout may name a worker that has left.
            let homeless = match (instruction.op, instruction.attrs.get(1)) {
                (Op::Distribute, Some(Attr::Text(layout))) => {
                    members(layout).iter().any(|member| !self.alive.contains(member))
                }
                _ => self.alive.is_empty(),
            };
            account.define(instruction, &operands, homeless);
        }
        let outputs = instruction.outputs.iter().filter_map(|id| id.as_slot());
        for slot in outputs {
            account.refresh(slot, session, dispatcher);
        }
    }

    pub fn worker_joined(&mut self, index: u32) {
        self.alive.insert(index);
    }

    /// Updates all values after a worker is gone. A value with a copy on another worker must
    /// survive.
    ///
    /// # Errors
    /// A value that the dispatcher gave up wrongly.
    pub fn worker_left(&mut self, index: u32, dispatcher: &Dispatcher) -> Result<(), String> {
        self.alive.remove(&index);
        let mut checked = Ok(());
        for (&session, account) in &mut self.accounts {
            let copied = |entry: &SlotEntry| {
                entry.live && entry.holdings.iter().any(|holding| holding.survives(index))
            };
            let slots: Vec<(u32, bool)> =
                account.slots.iter().map(|(&slot, entry)| (slot, copied(entry))).collect();
            for (slot, copied) in slots {
                account.refresh(slot, session, dispatcher);
                if copied && account.slots.get(&slot).is_none_or(|entry| !entry.live) {
                    let text = "is given up, and not only worker";
                    let text =
                        format!("slot {slot} of session {} {text} {index} held it", session.0);
                    checked = checked.and(Err(text));
                }
            }
        }
        checked
    }

    /// Updates all values.
    pub fn refresh_all(&mut self, dispatcher: &Dispatcher) {
        for (&session, account) in &mut self.accounts {
            let slots: Vec<u32> = account.slots.keys().copied().collect();
            for slot in slots {
                account.refresh(slot, session, dispatcher);
            }
        }
    }

    pub fn totals(&self) -> Totals {
        let entries = || self.accounts.values().flat_map(|account| account.slots.values());
        let ranges = entries().map(|entry| entry.members().count()).sum();
        Totals { values: entries().filter(|entry| entry.live).count(), ranges }
    }

    /// Numbers of a session's values, each with true if the dispatcher counts it as alive.
    pub fn held(&self, session: SessionId) -> impl Iterator<Item = (Id, bool)> {
        let account = self.accounts.get(&session);
        account
            .into_iter()
            .flat_map(|account| account.slots.values())
            .map(|entry| (entry.id, entry.live))
    }

    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.accounts.keys().copied()
    }

    pub fn was_on(&self, session: SessionId, number: u64, workers: &BTreeSet<u32>) -> bool {
        self.origin(session, number).is_some_and(|origin| !origin.holders.is_disjoint(workers))
    }

    pub fn was_homeless(&self, session: SessionId, number: u64) -> bool {
        self.origin(session, number).is_some_and(|origin| origin.homeless)
    }

    /// The number of the value in a slot, if the session has one there.
    pub fn number_of(&self, session: SessionId, slot: u32) -> Option<u64> {
        let entry = self.accounts.get(&session)?.slots.get(&slot)?;
        Some(entry.id.parts().0)
    }

    /// The number that the session's next value gets.
    pub fn next_number(&self, session: SessionId) -> u64 {
        let count = self.accounts.get(&session).map_or(0, |account| account.origins.len());
        exact::<_, u64>(count)
    }

    fn origin(&self, session: SessionId, number: u64) -> Option<&NumberHistory> {
        self.accounts.get(&session)?.origins.get(usize::try_from(number).ok()?)
    }
}

impl Account {
    fn define(&mut self, instruction: &Instruction<'_>, operands: &[u32], homeless: bool) {
        let number = exact::<_, u64>(self.origins.len());
        let mut origin = NumberHistory { homeless, ..NumberHistory::default() };
        for slot in operands {
            let Some(entry) = self.slots.get(slot) else { continue };
            let place = exact::<_, usize>(entry.id.parts().0);
            if let Some(operand) = self.origins.get(place) {
                origin.holders.extend(&operand.holders);
                origin.homeless |= operand.homeless;
            }
        }
        self.origins.push(origin);
        for (output, id) in (0..).zip(&instruction.outputs) {
            let named = Id::number(number, output);
            let entry = SlotEntry { id: named, holdings: Vec::new(), live: false };
            let slot = id.as_slot().expect("results are named by slots");
            self.slots.insert(slot, entry);
        }
    }

    fn refresh(&mut self, slot: u32, session: SessionId, dispatcher: &Dispatcher) {
        let Some(entry) = self.slots.get_mut(&slot) else { return };
        let layout = dispatcher.layout_of(session, slot);
        let copies = dispatcher.copies_of(session, slot);
        entry.live = layout.is_some();
        let own = layout.iter().filter(|_| !dispatcher.is_deferred(session, slot));
        entry.holdings = own.chain(&copies).map(|layout| Holding::parse(layout)).collect();
        let place = exact::<_, usize>(entry.id.parts().0);
        if let Some(origin) = self.origins.get_mut(place) {
            origin.holders.extend(entry.members());
            // A deferred value is lost with the last worker, including those on which it was to be
            // created.
            origin.holders.extend(layout.iter().flat_map(|layout| members(layout)));
        }
    }
}

/// The workers in `shard(0),replicate@[[0,1],[2,3]]`.
fn members(layout: &str) -> Vec<u32> {
    // A client may write a text that is no layout.
    let (_, mesh) = layout.split_once('@').unwrap_or_default();
    mesh.split(['[', ']', ',']).filter_map(|member| member.parse().ok()).collect()
}
