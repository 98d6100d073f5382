//! What rounding has lost of a gradient, to be added to the same gradient of the next step.
//!
//! No instruction says which parameter a gradient is of. But a training loop computes the same instructions in each step, and
//! optimizers' updates stand between one step and the next: a gradient is known by its session, its group, its length and how many
//! instructions before it have computed since the last update. One that is found nowhere begins with nothing lost; what was
//! lost is then simply lost, as it is in a program that updates its parameters by hand.

use crate::peers::PeerId;
use gt_protocol::integer::to_usize;
use gt_protocol::{Family, Id, Instruction, Kind};
use std::collections::BTreeMap;

/// Bytes of all residuals of a worker: as many as its float32 gradients have, up to this. The longest unused go first.
const BYTES_MAX: usize = 1 << 30;
/// Slots whose instruction is remembered.
const SLOTS_MAX: usize = 1 << 22;
/// Sessions whose instructions are counted.
const SESSIONS_MAX: usize = 1 << 10;

/// Which gradient.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResidualKey {
    session: u32,
    members: Vec<PeerId>,
    bytes: usize,
    /// Instructions since the last update.
    place: u32,
}

#[derive(Debug)]
struct Residual {
    numbers: Vec<f32>,
    used: u64,
}

/// Those of one worker.
#[derive(Debug, Default)]
pub struct Residuals {
    kept: BTreeMap<ResidualKey, Residual>,
    bytes: usize,
    uses: u64,
    /// Instructions since each session's last update; a session without one has none.
    places: BTreeMap<u32, u32>,
    /// Where the value in each slot was computed.
    made: Vec<Option<u32>>,
}

impl Residuals {
    /// An instruction has its outputs in their slots, or is about to.
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

    /// Of the value in a slot, if steps are told apart by updates.
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

    /// What was lost last time, all zeros at first; nothing where it is too long to be kept.
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

    /// A worker has been introduced anew: what was lost on the way to the one before it is nobody's.
    pub fn forget_member(&mut self, member: u32) {
        self.kept.retain(|key, _| {
            let stays = !key.members.iter().any(|one| one.index == member);
            self.bytes -= if stays { 0 } else { key.bytes };
            stays
        });
    }
}
