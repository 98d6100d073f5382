//! What becomes of partial values, step after step. A training loop folds each parameter's gradient where its update
//! reads it, and waits there. Who has seen that once folds gradients as soon as they are there: workers move them while
//! the backward pass goes on.
//!
//! Nothing but the instructions so far decides, and a fold is the same fold whenever it is made: no number depends on it.

use super::spread::Held;
use crate::Dispatcher;
use crate::event::{SessionId, Sink};
use crate::handle::Value;
use crate::motion::Mover;
use crate::session::Session;
use gt_protocol::placement::Layout;
use gt_protocol::{Family, Id, Instruction, Meta, Op};
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

/// One session's experience.
#[derive(Default)]
pub(crate) struct Habits {
    /// How updates needed values of a kind; nothing where anything else has read one.
    #[allow(clippy::disallowed_types, reason = "looked up only: its order is never seen")]
    known: std::collections::HashMap<Kind, Option<Layout>, BuildHasherDefault<DefaultHasher>>,
}

impl Habits {
    fn learn(&mut self, kind: Kind, need: Option<&Layout>) {
        if self.known.len() >= KINDS_MAX {
            self.known.clear();
        }
        let known = self.known.entry(kind).or_insert_with(|| need.cloned());
        if known.as_ref() != need {
            *known = None;
        }
    }
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
        let updates = reader.info().family == Family::Update;
        state.habits.learn(kind, (folds && updates).then_some(need));
    }

    /// Folds those of an instruction's results of which all that were like them have been folded alike for an update.
    pub(super) fn fold_expected(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) {
        for slot in instruction.outputs.iter().copied().filter_map(Id::as_slot) {
            let Some(state) = self.sessions.get(&session) else { return };
            let Some(value) = state.value(slot).filter(|value| value.shards.layout.is_partial())
            else {
                continue;
            };
            let kind = Kind::of(state, value);
            let need = kind.and_then(|kind| state.habits.known.get(&kind)?.clone());
            let (meta, shards) = (value.meta, value.shards.clone());
            if let Some(need) = need {
                Mover::new(self, session, sink).settle(meta, &shards, slot, &need);
            }
        }
    }
}
