//! Residuals: the rounding errors of a gradient, which are added to the same gradient in the next
//! step.
//!
//! No instruction names the parameter of a gradient. But a training loop computes the same
//! instructions in each step, and optimizers' updates separate the steps: a gradient is identified
//! by its session, its group, its length and the number of computing instructions between the last
//! update and it. A gradient without a match starts without a residual; the old residual is then
//! lost, as in a program that updates its parameters by hand.

use crate::peers::PeerId;
use gt_protocol::integer::to_usize;
use gt_protocol::{Family, Id, Instruction, Kind};
use std::collections::BTreeMap;

/// Maximum bytes of all residuals of a worker, which has as many as its float32 gradients. The
/// longest unused ones are dropped first.
const BYTES_MAX: usize = 1 << 30;
/// Number of slots whose instruction is remembered.
const SLOTS_MAX: usize = 1 << 22;
/// Number of sessions whose instructions are counted.
const SESSIONS_MAX: usize = 1 << 10;

/// Identifies a gradient.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResidualKey {
    session: u32,
    members: Vec<PeerId>,
    bytes: usize,
    /// Number of instructions since the last update.
    place: u32,
}

#[derive(Debug)]
struct Residual {
    numbers: Vec<f32>,
    used: u64,
}

/// The residuals of one worker.
#[derive(Debug, Default)]
pub struct Residuals {
    kept: BTreeMap<ResidualKey, Residual>,
    bytes: usize,
    uses: u64,
    /// Number of instructions since each session's last update; a session without an update has
    /// none.
    places: BTreeMap<u32, u32>,
    /// Place at which the value in each slot was computed.
    made: Vec<Option<u32>>,
}

impl Residuals {
    /// Counts an instruction whose outputs are in their slots, or will be.
    pub fn seen(&mut self, session: u32, instruction: &Instruction<'_>) {
        if instruction.op.info().family == Family::Update {
            if self.places.len() == SESSIONS_MAX {
                self.places.clear();
            }
            self.places.insert(session, 0);
        }
        let computes = u32::from(instruction.op.info().kind() == Kind::Compute);
        let place = self.places.get_mut(&session).map(|place| {
            *place = place.saturating_add(computes);
            *place
        });
        for slot in instruction.outputs.iter().filter_map(|id| id.as_slot()).map(to_usize) {
            if slot >= self.made.len() && slot < SLOTS_MAX {
                self.made.resize(slot + 1, None);
            }
            if let Some(made) = self.made.get_mut(slot) {
                *made = place;
            }
        }
    }

    /// Key of the value in a slot, if updates separate the session's steps.
    pub fn key(
        &self,
        session: u32,
        members: &[PeerId],
        id: Id,
        bytes: usize,
    ) -> Option<ResidualKey> {
        let place = (*self.made.get(to_usize(id.as_slot()?))?)?;
        Some(ResidualKey { session, members: members.to_vec(), bytes, place })
    }

    /// Residual of the last step, zeros at first; empty where it is too long to be kept.
    pub fn of(&mut self, key: &ResidualKey) -> &mut [f32] {
        if key.bytes > BYTES_MAX {
            return &mut [];
        }
        self.uses += 1;
        if !self.kept.contains_key(key) {
            while self.bytes + key.bytes > BYTES_MAX {
                self.forget_oldest();
            }
            self.bytes += key.bytes;
        }
        let residual = self.kept.entry(key.clone()).or_insert_with(|| Residual {
            numbers: vec![0.0; key.bytes / size_of::<f32>()],
            used: 0,
        });
        residual.used = self.uses;
        &mut residual.numbers
    }

    fn forget_oldest(&mut self) {
        let oldest = self.kept.iter().min_by_key(|(_, residual)| residual.used);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.kept.remove(&key);
            self.bytes -= key.bytes;
        }
    }

    /// Drops the residuals for a worker that has been introduced anew: they belong to its
    /// predecessor.
    pub fn forget_member(&mut self, member: u32) {
        self.kept.retain(|key, _| {
            let stays = !key.members.iter().any(|one| one.index == member);
            self.bytes -= if stays { 0 } else { key.bytes };
            stays
        });
    }
}
