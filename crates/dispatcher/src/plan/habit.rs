//! What becomes of partial values, step after step. A training loop folds each parameter's gradient where its update
//! reads it, and waits there. Who has seen that once folds gradients as soon as they are there: workers move them while
//! the backward pass goes on.
//!
//! Nothing but the instructions so far decides, and a fold is the same fold whenever it is made: no number depends on it.

use super::run::Held;
use crate::Dispatcher;
use crate::event::{SessionId, Sink};
use crate::handle::Value;
use crate::motion::{Reduction, settled};
use crate::session::Session;
use gt_protocol::placement::Layout;
use gt_protocol::{Family, Id, Instruction, Meta, Op};
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Kinds of values that are remembered; a program that makes more of them starts over.
const KINDS_MAX: usize = 1 << 12;

/// Values that a program makes again and again: by the same operator at the same line, of the same shape, lying alike.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Kind {
    /// Operator and signal.
    made_by: (u16, u16),
    site: u32,
    output: u8,
    meta: Meta,
    layout: Layout,
}

impl Kind {
    /// Nothing for a value that no plan over several workers has made.
    fn of(state: &Session, value: &Value) -> Option<Self> {
        Some(Self {
            made_by: value.note.as_ref()?.made_by(),
            site: state.site_of(value.number),
            output: value.output,
            meta: value.meta,
            layout: value.shards.layout.clone(),
        })
    }
}

/// What became of the values of a kind.
#[derive(Debug)]
struct Habit {
    /// How updates needed them; nothing where anything else has read one.
    updated: Option<Layout>,
    /// Who folds them, and to what: an update, whatever reads them before (gradients that are added up), or else their
    /// only reader. Nothing where there is no such.
    folded: Option<(Op, Layout)>,
}

/// A value that somebody will fold who is known, but not yet.
#[derive(Debug)]
struct Expected {
    slot: u32,
    number: u64,
    reader: Op,
    need: Layout,
}

/// One session's experience.
#[derive(Default)]
pub(crate) struct Habits {
    #[allow(clippy::disallowed_types, reason = "looked up only: its order is never seen")]
    known: std::collections::HashMap<Kind, Habit, BuildHasherDefault<DefaultHasher>>,
    expected: Vec<Expected>,
}

impl Habits {
    fn learn(&mut self, kind: Kind, reader: Op, need: Option<&Layout>) {
        if self.known.len() >= KINDS_MAX {
            self.known.clear();
        }
        let of_update = is_update(reader);
        let updated = need.filter(|_| of_update);
        let folded = need.map(|need| (reader, need.clone()));
        match self.known.entry(kind) {
            Entry::Vacant(entry) => {
                entry.insert(Habit { updated: updated.cloned(), folded });
            }
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                if known.updated.as_ref() != updated {
                    known.updated = None;
                }
                let by_update = known.folded.as_ref().is_some_and(|(op, _)| is_update(*op));
                if of_update && folded.is_some() {
                    known.folded = folded;
                } else if !by_update && known.folded != folded {
                    known.folded = None;
                }
            }
        }
    }
}

fn is_update(op: Op) -> bool {
    op.info().family == Family::Update
}

impl Dispatcher {
    /// An instruction needs a value as `need`. Only what updates read is a parameter's gradient; whatever else reads a
    /// partial value may follow another one that passes it on unfolded.
    pub(super) fn learn(&mut self, session: SessionId, held: &Held, reader: Op, need: &Layout) {
        let layout = &held.shards.layout;
        if let Some(slot) = held.slot {
            self.learn_need(session, slot, need);
        }
        let Some(slot) = held.slot.filter(|_| layout.is_partial()) else { return };
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let Some(kind) = state.value(slot).and_then(|value| Kind::of(state, value)) else { return };
        let folds = layout.mesh() == need.mesh() && !need.is_partial();
        if !folds {
            // Who has passed it on unfolded may be all that needed it.
            state.habits.expected.retain(|one| one.slot != slot);
        }
        state.habits.learn(kind, reader, folds.then_some(need));
    }

    /// Folds those of an instruction's results of which all that were like them have been folded alike for an update, and
    /// takes note of those that others will fold.
    pub(super) fn fold_expected(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) {
        for slot in instruction.outputs.iter().copied().filter_map(Id::as_slot) {
            let Some(state) = self.sessions.get_mut(&session) else { return };
            let Some(value) = state.value(slot).filter(|value| value.shards.layout.is_partial())
            else {
                continue;
            };
            let number = value.number;
            if self.folds_soon {
                let need = settled(&value.shards.layout);
                self.fold_soon(session, slot, &need, sink);
                continue;
            }
            let kind = Kind::of(state, value);
            let Some(habit) = kind.and_then(|kind| state.habits.known.get(&kind)) else { continue };
            if let Some(need) = habit.updated.clone() {
                self.fold_soon(session, slot, &need, sink);
            } else if let Some((reader, need)) = habit.folded.clone() {
                let expected = &mut state.habits.expected;
                if expected.len() >= KINDS_MAX {
                    expected.clear();
                }
                expected.push(Expected { slot, number, reader, need });
            }
        }
    }

    /// An instruction folds values: the others that such an instruction is going to fold by the same reduction.
    pub(super) fn expected_with(
        &mut self,
        session: SessionId,
        reader: Op,
        reduction: &Reduction,
        folded: &[u32],
    ) -> Vec<u32> {
        let mut found = Vec::new();
        let Some(state) = self.sessions.get_mut(&session) else { return found };
        let mut expected = std::mem::take(&mut state.habits.expected);
        expected.retain(|one| {
            let value = state.value(one.slot).filter(|value| value.number == one.number);
            let layout = value.map(|value| &value.shards.layout);
            let Some(layout) = layout.filter(|layout| layout.is_partial()) else { return false };
            if folded.contains(&one.slot) {
                return false;
            }
            let alike = is_update(reader) && is_update(one.reader) || reader == one.reader;
            let comes = alike && Reduction::between(layout, &one.need).as_ref() == Some(reduction);
            if comes {
                found.push(one.slot);
            }
            !comes
        });
        state.habits.expected = expected;
        found
    }
}
