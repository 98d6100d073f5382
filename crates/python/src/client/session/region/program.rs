//! Held instructions as a program: a pure function of some of the session's values.

use super::{HeldInstruction, HeldItem};
use gt_protocol::digest::Digest;
use gt_protocol::operator::OUTPUTS_MAX;
use gt_protocol::wire::{self, PROGRAM_MAGIC};
use gt_protocol::{Id, Meta, Operand};
use std::collections::{HashMap, HashSet};
use std::hash::Hasher;

/// Maximum number of operands of a program.
const OPERANDS_MAX: usize = 4096;
/// Maximum number of numbers that state results.
const STATED_MAX: usize = wire::LIST_MAX;

/// Reason why a segment is no program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Too few instructions.
    Short,
    /// Nothing that it computes is used.
    Unused,
    /// Too many operands or results.
    Wide,
    /// An operand whose metadata is unknown.
    Unknown,
    /// The function has had too many different programs.
    Variants,
}

impl Unfit {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Short => "too few instructions",
            Self::Unused => "nothing that it computes is used",
            Self::Wide => "more operands or results than one instruction can have",
            Self::Unknown => "an operand that was made in another way",
            Self::Variants => "too many variants: shapes, numbers or branches differ at each call",
        }
    }
}

/// A program and its place in the session.
#[derive(Debug)]
pub(crate) struct RegionProgram {
    /// Equal for equal instructions on operands of equal metadata.
    pub digest: u64,
    /// Metadata of operands and of all results: with the words everything that makes two programs
    /// the same.
    pub facts: Vec<i64>,
    /// `PROGRAM_MAGIC`, the number of operands, the number of results, the results' numbers, then the
    /// instructions as on the wire. Operands are numbered from 0; results follow.
    pub words: Vec<u32>,
    /// Slots of its operands, in order.
    pub operands: Vec<u32>,
    /// Slots of its results that are used outside, with their metadata.
    pub results: Vec<(u32, Meta)>,
    /// Indices of held views of its results, and of its operands, that are taken outside.
    pub views: Vec<usize>,
    pub instructions: usize,
}

impl RegionProgram {
    /// The attribute `results`.
    pub(crate) fn stated(&self) -> Box<[i64]> {
        self.results.iter().flat_map(|(_, meta)| stated(meta)).collect()
    }
}

fn stated(meta: &Meta) -> impl Iterator<Item = i64> + '_ {
    let rank = i64::try_from(meta.dims.len()).expect("a few dimensions");
    [i64::from(meta.dtype.code()), rank].into_iter().chain(meta.dims.iter().copied())
}

/// Numbers of operands come first, and their count is known last: results are numbered from here
/// until then.
const RESULTS_FROM: u32 = 1 << 24;

/// Builds the program of everything that is held.
pub(crate) fn build<'a>(
    held: impl Iterator<Item = &'a HeldItem> + Clone,
    metas: &HashMap<u32, Meta>,
    least: usize,
) -> Result<RegionProgram, Unfit> {
    let mut builder = Builder::new(metas);
    for one in held.clone() {
        match one {
            HeldItem::Instruction(one) => builder.push(one)?,
            HeldItem::Freed(slots) => builder.freed.extend(slots),
            HeldItem::Made(_) => return Err(Unfit::Unknown),
        }
    }
    if builder.instructions < least {
        return Err(Unfit::Short);
    }
    builder.finish(held)
}

struct Builder<'m> {
    metas: &'m HashMap<u32, Meta>,
    /// Numbers of results, by slot.
    made: HashMap<u32, u32>,
    numbers: HashMap<u32, u32>,
    operands: Vec<u32>,
    results: u32,
    freed: HashSet<u32>,
    body: Vec<u32>,
    facts: Vec<i64>,
    instructions: usize,
}

impl<'m> Builder<'m> {
    fn new(metas: &'m HashMap<u32, Meta>) -> Self {
        Self {
            metas,
            made: HashMap::new(),
            numbers: HashMap::new(),
            operands: Vec::new(),
            results: 0,
            freed: HashSet::new(),
            body: Vec::new(),
            facts: Vec::new(),
            instructions: 0,
        }
    }

    fn number(&mut self, slot: u32) -> Result<u32, Unfit> {
        if let Some(made) = self.made.get(&slot) {
            return Ok(*made);
        }
        if let Some(&number) = self.numbers.get(&slot) {
            return Ok(number);
        }
        let meta = self.metas.get(&slot).ok_or(Unfit::Unknown)?;
        self.facts.extend(stated(meta));
        let number = u32::try_from(self.operands.len()).map_err(|_| Unfit::Wide)?;
        if self.operands.len() == OPERANDS_MAX {
            return Err(Unfit::Wide);
        }
        self.operands.push(slot);
        self.numbers.insert(slot, number);
        Ok(number)
    }

    fn push(&mut self, one: &HeldInstruction) -> Result<(), Unfit> {
        let (mut instruction, _) = wire::decode(&one.words).map_err(|_| Unfit::Unknown)?;
        (instruction.tag, instruction.signal, instruction.consumes) = (0, 0, 0);
        for operand in &mut instruction.operands {
            if let Operand::Value(id) = operand {
                let slot = id.as_slot().ok_or(Unfit::Unknown)?;
                *operand = Operand::Value(Id::slot(self.number(slot)?));
            }
        }
        for (&slot, output) in one.results().iter().zip(&mut instruction.outputs) {
            let number = RESULTS_FROM + self.results;
            self.results += 1;
            self.made.insert(slot, number);
            *output = Id::slot(number);
        }
        for meta in &one.outputs {
            self.facts.extend(stated(meta));
        }
        self.instructions += 1;
        wire::encode(&instruction, &mut self.body).map_err(|_| Unfit::Unknown)
    }

    fn finish<'a>(self, held: impl Iterator<Item = &'a HeldItem>) -> Result<RegionProgram, Unfit> {
        let held: Vec<&HeldItem> = held.collect();
        let (views, used) = self.outside(&held)?;
        let (mut results, mut numbers) = (Vec::new(), Vec::new());
        for (at, one) in held.iter().enumerate() {
            let HeldItem::Instruction(one) = one else { continue };
            if views.binary_search(&at).is_ok() {
                continue;
            }
            for (&slot, meta) in one.results().iter().zip(&one.outputs) {
                if used.contains(&slot) {
                    results.push((slot, *meta));
                    numbers.push(self.made[&slot]);
                }
            }
        }
        if results.is_empty() {
            return Err(Unfit::Unused);
        }
        let count = u32::try_from(self.operands.len()).map_err(|_| Unfit::Wide)?;
        let stated: usize = results.iter().map(|(_, meta)| 2 + meta.dims.len()).sum();
        if results.len() > OUTPUTS_MAX || stated > STATED_MAX {
            return Err(Unfit::Wide);
        }
        let last = |number| last_number(number, count);
        let mut words =
            vec![PROGRAM_MAGIC, count, u32::try_from(results.len()).map_err(|_| Unfit::Wide)?];
        words.extend(numbers.into_iter().map(last));
        self.append_body(&mut words, last)?;
        let mut digest = Digest::default();
        digest.write_sizes(&self.facts);
        for &word in &words {
            digest.write_u32(word);
        }
        Ok(RegionProgram {
            digest: digest.finish(),
            facts: self.facts,
            words,
            operands: self.operands,
            results,
            views,
            instructions: self.instructions,
        })
    }

    /// Held views that are taken outside of the program, and slots whose values are used there.
    fn outside(&self, held: &[&HeldItem]) -> Result<(Vec<usize>, HashSet<u32>), Unfit> {
        let (mut views, mut used) = (Vec::new(), HashSet::new());
        // Backwards, so that a view's base is looked at after the view.
        for (at, one) in held.iter().enumerate().rev() {
            let HeldItem::Instruction(one) = one else { continue };
            let lives = |slot: &u32| !self.freed.contains(slot);
            if !one.results().iter().any(|slot| lives(slot) || used.contains(slot)) {
                continue;
            }
            if one.op.info().view.is_none() {
                used.extend(one.results().iter().copied().filter(lives));
                continue;
            }
            views.push(at);
            let (instruction, _) = wire::decode(&one.words).map_err(|_| Unfit::Unknown)?;
            used.extend(instruction.values().filter_map(Id::as_slot));
        }
        views.reverse();
        Ok((views, used))
    }

    /// Appends the instructions, with the final numbers of results.
    fn append_body(
        &self,
        words: &mut Vec<u32>,
        last: impl Fn(u32) -> u32 + Copy,
    ) -> Result<(), Unfit> {
        let mut rest = &self.body[..];
        // The encoder has written every frame, so each turn takes one.
        while !rest.is_empty() {
            let (instruction, length) = wire::decode(rest).map_err(|_| Unfit::Unknown)?;
            let start = words.len();
            words.extend_from_slice(&rest[..length]);
            let outputs = instruction.outputs.iter().filter_map(|id| id.as_slot()).map(last);
            wire::rebind(&mut words[start..], &instruction, 0, outputs, last);
            rest = &rest[length..];
        }
        Ok(())
    }
}

/// The number of an operand or a result once there are so many operands.
fn last_number(number: u32, operands: u32) -> u32 {
    if number >= RESULTS_FROM { number - RESULTS_FROM + operands } else { number }
}
