//! Answers that a client may get for values that it has cancelled.
//!
//! An instruction before a cancel has run, or its results fail as cancelled. A step of an optimizer
//! may also have left its operands as they were, so the elements of its results, and of what is
//! computed from them, are not known any more.

use super::Client;
use gt_protocol::message::{self, FromClient};
use gt_protocol::{Family, Id, Instruction};
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Cancelled {
    /// Instructions below this number may be cancelled.
    before: u64,
    /// Values of such instructions, and what depends on them.
    fragile: BTreeSet<Id>,
    /// Results of optimizers' steps, and what depends on them.
    updated: BTreeSet<Id>,
    /// Those of them whose elements are not known.
    unknown: BTreeSet<Id>,
    /// Number of answers that told of a cancelled value.
    pub answers: u64,
}

impl Cancelled {
    /// Returns true if a failure may be that of a cancelled instruction.
    pub fn is_allowed(&self, number: u64) -> bool {
        number < self.before
    }

    /// Returns true if the instruction of this number, or what it depends on, may be cancelled: its
    /// own failure may never be found.
    pub fn excuses(&self, number: u64) -> bool {
        self.is_allowed(number) || self.fragile.iter().any(|id| id.parts().0 == number)
    }

    pub fn has_unknown_elements(&self, value: Id) -> bool {
        self.unknown.contains(&value)
    }
}

impl Client {
    /// The words of a cancel, which concerns all instructions so far.
    pub fn cancel(&mut self) -> Vec<u32> {
        self.cancelled.before = self.oracle.next_number();
        self.cancelled.unknown.extend(&self.cancelled.updated);
        self.cancelled.fragile.extend(&self.live);
        let mut words = Vec::new();
        if let Err(error) = message::encode(&FromClient::Cancel, &mut words) {
            unreachable!("a cancel has no binary form: {error}");
        }
        words
    }

    /// Returns true if a value, or what it depends on, may have been cancelled.
    pub fn may_be_cancelled(&self, value: Id) -> bool {
        self.cancelled.fragile.contains(&value)
    }

    /// Number of answers that told of a cancelled value.
    pub fn cancelled_answers(&self) -> u64 {
        self.cancelled.answers
    }

    /// Notes on what the results of an instruction depend.
    pub(super) fn note_dependence(&mut self, instruction: &Instruction<'_>, results: &[Id]) {
        let is_update = instruction.op.info().family == Family::Update;
        let Cancelled { fragile, updated, unknown, .. } = &mut self.cancelled;
        let slots = &self.slots;
        let has = |set: &BTreeSet<Id>| {
            set.iter().any(|id| {
                let slot = slots.get(id).copied();
                slot.is_some_and(|slot| instruction.values().any(|value| value == Id::slot(slot)))
            })
        };
        let (is_updated, is_unknown) = (is_update || has(updated), has(unknown));
        if has(fragile) {
            fragile.extend(results);
        }
        if is_updated {
            updated.extend(results);
        }
        if is_unknown {
            unknown.extend(results);
        }
    }
}
