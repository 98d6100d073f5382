//! A run of updates in one call: the results of all of them are computed with the first, and each
//! takes its own when its turn comes. Nothing else happens early: slots are filled, frees are
//! executed and failures are reported in the stream's order.

use crate::attributes::same_attr;
use crate::engine::{Engine, EngineOperand, Values};
use crate::frame::split_frame;
use crate::table::SlotTable;
use crate::{reuse, work};
use gt_protocol::integer::to_usize;
use gt_protocol::{Dtype, Id, Instruction, Op, Operand, wire};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Maximum number of operands of the updates that join a first one, as many as 256 of `AdamW` have:
/// the words that a worker reads at a time have fewer.
const OPERANDS_MAX: usize = 1280;
/// Maximum number of values freed between two updates; each update frees the values that it has
/// read and replaced, about six.
const FREED_MAX: usize = 16;

/// Updates of one call whose turn has not come.
#[derive(Debug)]
pub struct UpdateGroup<V> {
    /// Results; `None` if the update is to be executed by itself.
    results: VecDeque<Option<Values<V>>>,
    /// Bit mask of operands that each of them overwrites.
    reuse: u16,
    slots: SlotMarks,
}

/// An update that was examined before its turn: the operands that it overwrites, and its results if
/// they were computed.
pub type Early<V> = (u16, Option<Values<V>>);

impl<V> Default for UpdateGroup<V> {
    fn default() -> Self {
        Self { results: VecDeque::new(), reuse: 0, slots: SlotMarks::default() }
    }
}

impl<V> UpdateGroup<V> {
    /// The next update's, if it has joined an earlier one.
    #[inline]
    pub fn early(&mut self, op: Op) -> Option<Early<V>> {
        if !op.info().grouped {
            debug_assert!(self.results.is_empty(), "{op:?} between two updates of a call");
            return None;
        }
        self.results.pop_front().map(|results| (self.reuse, results))
    }

    /// Returns true if the next update's results were computed with an earlier one.
    pub fn is_computed(&self, op: Op) -> bool {
        op.info().grouped && matches!(self.results.front(), Some(Some(_)))
    }

    /// The results of an update that overwrites the operands in `reuse`, computed together with the
    /// following ones where possible.
    pub fn run<E: Engine<Value = V>>(
        &mut self,
        engine: &mut E,
        table: &SlotTable<V>,
        (instruction, reuse): (&Instruction<'_>, u16),
        next: &[u32],
    ) -> Option<Values<V>> {
        let first = First { instruction, reuse, groups_large: engine.groups_large() };
        let followers = self.followers(table, &first, next);
        let width = instruction.operands.len();
        let count = followers.len().checked_div(width).filter(|&count| count > 0)?;
        let mut operands = Vec::with_capacity(width + followers.len());
        for operand in instruction.operands.iter().chain(&followers) {
            operands.push(match operand {
                Operand::Absent => EngineOperand::Absent,
                Operand::Scalar(scalar) => EngineOperand::Scalar(*scalar),
                Operand::Value(id) => EngineOperand::Value(&table.held(*id).ok()?.value),
            });
        }
        self.reuse = reuse;
        let Some(results) = engine.execute_group(instruction, &operands, reuse) else {
            self.results.extend((0..count).map(|_| None));
            return None;
        };
        assert_eq!(results.len(), count + 1, "updates of a call of {:?}", instruction.op);
        let mut results = results.into_iter();
        let first = results.next();
        self.results.extend(results.map(Some));
        first
    }

    /// Operands, concatenated, of the following updates that may be computed with this one.
    fn followers(
        &mut self,
        table: &SlotTable<V>,
        first: &First<'_, '_>,
        next: &[u32],
    ) -> Vec<Operand> {
        let slots = &mut self.slots;
        slots.run += 1;
        slots.use_all(first.instruction);
        let mut found = Vec::new();
        let mut freed = 0;
        let mut one = Instruction::new(Op::Free);
        let mut rest = next;
        while found.len() < OPERANDS_MAX
            && let Ok(Some((frame, after))) = split_frame(rest)
            && wire::decode_into(frame, &mut one).is_ok()
        {
            if one.op == Op::Free {
                freed += one.operands.len();
                if freed > FREED_MAX || !vacate(table, slots, &one) {
                    break;
                }
            } else if joins(table, slots, first, &one, after) {
                slots.use_all(&one);
                found.extend(one.operands.iter().copied());
                freed = 0;
            } else {
                break;
            }
            rest = after;
        }
        found
    }
}

/// The first update of a run: the operands that it overwrites, and true if large ones join it.
struct First<'a, 'w> {
    instruction: &'a Instruction<'w>,
    reuse: u16,
    groups_large: bool,
}

/// Changes of slots by the updates of a run and the frees between them.
#[derive(Debug, Default)]
struct SlotMarks {
    run: u64,
    /// Marks by slot: the run that last named it, and true if it is vacant since.
    marks: Vec<(u64, bool)>,
}

impl SlotMarks {
    fn is_named(&self, id: Id) -> bool {
        self.mark(id).is_some()
    }

    fn is_vacated(&self, id: Id) -> bool {
        self.mark(id) == Some(true)
    }

    fn mark(&self, id: Id) -> Option<bool> {
        let &(run, is_vacant) = self.marks.get(to_usize(id.as_slot()?))?;
        (run == self.run).then_some(is_vacant)
    }

    /// Sets the mark of a slot, which is in the table or may get there.
    fn set(&mut self, id: Id, is_vacant: bool) {
        let place = to_usize(id.as_slot().expect("an instruction of the wire names slots"));
        if place >= self.marks.len() {
            self.marks.resize(place + 1, (0, false));
        }
        self.marks[place] = (self.run, is_vacant);
    }

    fn use_all(&mut self, instruction: &Instruction<'_>) {
        for id in instruction.values().chain(instruction.outputs.iter().copied()) {
            self.set(id, false);
        }
    }
}

/// Marks the slots that a `free` frees; returns false for one that is not in use, so that only
/// slots of the table have marks.
fn vacate<V>(table: &SlotTable<V>, slots: &mut SlotMarks, free: &Instruction<'_>) -> bool {
    for id in free.values() {
        if !slots.is_named(id) && !table.is_taken(id) {
            return false;
        }
        slots.set(id, true);
    }
    true
}

/// Returns true if an update may be computed with the first one of its run: it is the same
/// operation, on values that are there already and that no other update of the run names, and its
/// results' slots will be vacant.
fn joins<V>(
    table: &SlotTable<V>,
    slots: &SlotMarks,
    &First { instruction: first, reuse, groups_large }: &First<'_, '_>,
    one: &Instruction<'_>,
    next: &[u32],
) -> bool {
    if one.op != first.op
        || one.operands.len() != first.operands.len()
        || !one.attrs.iter().zip(&first.attrs).all(|(left, right)| same_attr(left, right))
    {
        return false;
    }
    for (own, its) in one.operands.iter().zip(&first.operands) {
        let fits = match (own, its) {
            (Operand::Absent, Operand::Absent) => true,
            (Operand::Value(own), Operand::Value(_)) => !slots.is_named(*own),
            (Operand::Absent | Operand::Scalar(_) | Operand::Value(_), _) => false,
        };
        if !fits {
            return false;
        }
    }
    let is_vacant =
        |&id: &Id| slots.is_vacated(id) || !slots.is_named(id) && table.check_vacant(&[id]).is_ok();
    let metas: SmallVec<_> = reuse::results(table, one);
    dtype(table, one).is_some_and(|own| Some(own) == dtype(table, first))
        && one.outputs.iter().all(is_vacant)
        && (groups_large || !work::is_large(table, one, &metas))
        && reuse::reusable(table, one, reuse, next, &metas) == reuse
}

/// The dtype of all operands, if they have the same one: an update with several dtypes makes
/// copies, and may fail for lack of memory after others of its call have been written.
fn dtype<V>(table: &SlotTable<V>, one: &Instruction<'_>) -> Option<Dtype> {
    let mut dtypes = one.values().map(|id| table.held(id).ok().map(|held| held.meta.dtype));
    let first = dtypes.next()??;
    dtypes.all(|other| other == Some(first)).then_some(first)
}
