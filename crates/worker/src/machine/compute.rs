//! Instructions that compute: operands are taken from their slots, the engine's results go into
//! theirs.

use crate::engine::{Engine, EngineOperand, Values};
use crate::failure::Fault;
use crate::state::MachineState;
use crate::table::{Held, NoValue, SlotTable, StorageId};
use crate::{joined, reuse, work};
use gt_protocol::message::FailureClass;
use gt_protocol::{Family, Id, Instruction, Meta, Operand, ViewKind};
use smallvec::SmallVec;

impl<E: Engine> MachineState<E> {
    pub fn compute(&mut self, instruction: &Instruction<'_>, next: &[u32]) -> Result<(), NoValue> {
        let early = self.group.early(instruction.op);
        let Given { operands: inputs, is_contiguous, made } = Given::of(&self.table, instruction)?;
        if let Some(made) = made {
            drop(inputs);
            return self.pass_on(made, instruction);
        }
        self.table.check_vacant(&instruction.outputs)?;
        let metas = reuse::results(&self.table, instruction);
        let mut ahead = 0;
        let (reuse, results) = if let Some(early) = early {
            early
        } else {
            let reuse = match self.engine.in_place(instruction.op) {
                0 => 0,
                in_place => reuse::reusable(&self.table, instruction, in_place, next, &metas),
            };
            let is_large = work::is_large(&self.table, instruction, &metas);
            self.engine.set_large(is_large);
            let is_for_group = !is_large || self.engine.groups_large();
            let begins = instruction.op.info().grouped && reuse != 0 && is_for_group;
            let results = if begins {
                let first = (instruction, reuse);
                self.group.run(&mut self.engine, &self.table, first, next)
            } else if joined::may_begin(&self.engine, instruction.op, &metas, is_large) {
                let first = (instruction, &inputs[..]);
                let together =
                    joined::run(&mut self.engine, &self.table, first, reuse, &metas, next);
                together.map(|(joined, value)| {
                    ahead = joined;
                    Values::from_iter([value])
                })
            } else {
                None
            };
            (reuse, results)
        };
        let mut values = match results {
            Some(values) => values,
            None => self.engine.execute(instruction, &inputs, reuse)?,
        };
        drop(inputs);
        self.joined += u64::from(ahead);
        if reuse == 0 {
            self.define(instruction, values, &metas, is_contiguous)?;
            return self.mark(instruction, ahead);
        }
        // In the common case, a result overwriting its first operand, the operand's entry in the
        // table is kept.
        if let (&[to], [_], Some(from)) =
            (&*instruction.outputs, &*values, only(instruction, reuse))
            && let Some(value) = values.pop()
        {
            self.table.succeed(from, to, value)?;
            return self.mark(instruction, ahead);
        }
        self.consume(instruction, reuse);
        self.define(instruction, values, &metas, is_contiguous)?;
        self.mark(instruction, ahead)
    }

    /// Notes how many of the following instructions have been applied to the result.
    #[inline]
    fn mark(&mut self, instruction: &Instruction<'_>, ahead: u8) -> Result<(), NoValue> {
        if ahead != 0 {
            self.table.held_mut(instruction.outputs[0])?.ahead = ahead;
        }
        Ok(())
    }

    /// Moves a value that already is the instruction's result to the result's slot.
    fn pass_on(&mut self, from: Id, instruction: &Instruction<'_>) -> Result<(), NoValue> {
        self.table.check_vacant(&instruction.outputs)?;
        let mut held = self.table.withdraw(from)?;
        held.ahead -= 1;
        self.table.put_held(instruction.outputs[0], held);
        Ok(())
    }

    fn consume(&mut self, instruction: &Instruction<'_>, reuse: u16) {
        for (position, operand) in instruction.operands.iter().take(16).enumerate() {
            if let Operand::Value(id) = operand
                && reuse & (1 << position) != 0
            {
                self.table.consume(*id);
            }
        }
    }

    /// Stores results in their slots, contiguous; `is_contiguous` is true if all operands were.
    pub(super) fn define(
        &mut self,
        instruction: &Instruction<'_>,
        values: Values<E::Value>,
        metas: &[Meta],
        is_contiguous: bool,
    ) -> Result<(), NoValue> {
        if values.len() != instruction.outputs.len() {
            let (count, expected) = (values.len(), instruction.outputs.len());
            let text = format!("{count} results instead of {expected}");
            return Err(Fault::new(FailureClass::Internal, text).into());
        }
        let family = instruction.op.info().family;
        let is_known = family == Family::Create
            || is_contiguous && matches!(family, Family::Elementwise | Family::Update);
        for (place, (&id, value)) in instruction.outputs.iter().zip(values).enumerate() {
            let meta = match metas.get(place) {
                Some(meta) => *meta,
                None => self.engine.meta(&value)?,
            };
            if let Some((storage, contiguous)) = self.viewed(instruction, &value)? {
                self.table.put_alias(id, Held { value, meta, storage, contiguous, ahead: 0 });
                continue;
            }
            // A state that an optimizer does not keep may be represented by less memory than its
            // shape needs.
            let is_update = family == Family::Update;
            let bytes = if is_update { self.engine.memory_bytes(&value)? } else { meta.bytes() };
            let stands_for_nothing = bytes < meta.bytes();
            let copy = if is_known || stands_for_nothing {
                None
            } else {
                self.engine.contiguous(&value, &meta)?
            };
            match copy {
                Some(copy) => self.table.put(id, copy, meta),
                None => self.table.put_in(id, value, meta, bytes),
            }
        }
        Ok(())
    }

    /// Memory that a result shares with operand 0, and whether it is contiguous there.
    fn viewed(
        &mut self,
        instruction: &Instruction<'_>,
        result: &E::Value,
    ) -> Result<Option<(StorageId, bool)>, NoValue> {
        let (true, Some(id)) = (reuse::aliases(instruction.op), instruction.values().next()) else {
            return Ok(None);
        };
        let held = self.table.held(id)?;
        let may_be_copy = instruction.op.info().view == Some(ViewKind::Possible);
        if may_be_copy && !self.engine.is_view(result, &held.value)? {
            return Ok(None);
        }
        Ok(Some((held.storage, held.contiguous && may_be_copy)))
    }
}

/// Operands of an instruction.
struct Given<'a, V> {
    operands: SmallVec<[EngineOperand<'a, V>; 4]>,
    /// True if all values are contiguous.
    is_contiguous: bool,
    /// An operand that already is the instruction's result.
    made: Option<Id>,
}

impl<'a, V> Given<'a, V> {
    #[inline]
    fn of(table: &'a SlotTable<V>, instruction: &Instruction<'_>) -> Result<Self, NoValue> {
        let mut operands = SmallVec::new();
        let (mut is_contiguous, mut made) = (true, None);
        for operand in &instruction.operands {
            operands.push(match operand {
                Operand::Absent => EngineOperand::Absent,
                Operand::Scalar(scalar) => EngineOperand::Scalar(*scalar),
                Operand::Value(id) => {
                    let held = table.held(*id)?;
                    if held.ahead != 0 {
                        made = Some(*id);
                    }
                    is_contiguous &= held.contiguous;
                    EngineOperand::Value(&held.value)
                }
            });
        }
        Ok(Self { operands, is_contiguous, made })
    }
}

/// The operand whose buffer was reused, if it is just one.
fn only(instruction: &Instruction<'_>, reuse: u16) -> Option<Id> {
    let position = usize::try_from(reuse.trailing_zeros()).ok()?;
    match instruction.operands.get(position)? {
        Operand::Value(id) if reuse.is_power_of_two() => Some(*id),
        Operand::Value(_) | Operand::Scalar(_) | Operand::Absent => None,
    }
}
