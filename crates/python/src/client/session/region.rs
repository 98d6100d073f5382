//! A region of the user's program that may be compiled: its instructions are held back until
//! something else has to be sent, and then go out as one `call`, or one by one.
//!
//! Python runs every line of a region each time, so nothing that the program does is ever assumed.
//! What is held back was named and inferred as always; only the sending waits.

mod program;
mod table;

pub(crate) use program::{RegionProgram, Unfit, build};
pub(crate) use table::{ProgramTable, Way};

use gt_protocol::{Family, Instruction, Meta, Op};
use std::collections::HashMap;
use std::collections::VecDeque;

/// Maximum number of words that a region holds back: longer ones are sent in parts.
const WORDS_MAX: usize = 1 << 20;

/// Treatment of an instruction while a region is open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// It is held back.
    Held,
    /// It depends on nothing that is held back, and is sent at once.
    Passed,
    /// It is sent after what is held back.
    Ends,
}

/// Something that is held back.
pub(crate) enum HeldItem {
    Instruction(HeldInstruction),
    /// Slots whose values are gone.
    Freed(Vec<u32>),
    /// A `compile` or a `call`, which closing puts in front.
    Made(Box<Instruction<'static>>),
}

/// An instruction in its wire form, with the session's slots.
pub(crate) struct HeldInstruction {
    pub op: Op,
    pub words: Vec<u32>,
    pub outputs: Vec<Meta>,
}

impl HeldInstruction {
    /// Slots of its results.
    pub(crate) fn results(&self) -> &[u32] {
        let first = self.first_result();
        &self.words[first..first + self.outputs.len()]
    }

    fn first_result(&self) -> usize {
        gt_protocol::wire::HEADER_WORDS + usize::from(self.op.info().output_list)
    }

    pub(crate) fn site(&self) -> u32 {
        self.words[1]
    }
}

/// A part of a region that was held back together, and its fate.
pub(crate) struct Segment {
    /// Source position of its first instruction.
    pub site: u32,
    pub instructions: usize,
    pub outcome: SegmentOutcome,
    /// Operator that ended it before the region did; `None` where something else did, such as a read.
    pub end: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentOutcome {
    /// Sent one by one: seen too rarely, or not compiled yet.
    Plain,
    Called,
    Unfit(Unfit),
}

/// An open region.
pub(crate) struct HeldRegion {
    pub held: VecDeque<HeldItem>,
    words: usize,
    /// Metadata of operands, by slot.
    pub operands: HashMap<u32, Meta>,
    /// Slots that are free again once nothing is held back: a number is used once in a segment.
    pub vacated: Vec<u32>,
    /// True once the way in which the held instructions are sent is decided.
    pub is_closing: bool,
    pub table: ProgramTable,
    pub segments: Vec<Segment>,
    /// Operator that ends the segment.
    pub ended_by: Option<&'static str>,
    /// True for a signal with placements.
    placing: HashMap<u16, bool>,
}

impl HeldRegion {
    pub(crate) fn new(table: ProgramTable) -> Self {
        Self {
            held: VecDeque::new(),
            words: 0,
            operands: HashMap::new(),
            vacated: Vec::new(),
            is_closing: false,
            table,
            segments: Vec::new(),
            ended_by: None,
            placing: HashMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.words >= WORDS_MAX
    }

    /// Treatment of an instruction of an operator; `places` tells if its signal has placements.
    pub(crate) fn treatment(
        &mut self,
        op: Op,
        signal: u16,
        places: impl FnOnce(u16) -> bool,
    ) -> Treatment {
        let info = op.info();
        let is_held = match info.family {
            Family::Create
            | Family::Elementwise
            | Family::Contract
            | Family::Reduce
            | Family::Normalize
            | Family::View
            | Family::Index
            | Family::Loss => true,
            Family::Generic => matches!(op, Op::Aten | Op::AtenVjp),
            Family::Random if info.operands.is_empty() => return Treatment::Passed,
            Family::Random | Family::Update | Family::Control | Family::Collective => false,
        };
        let is_plain =
            signal == 0 || !*self.placing.entry(signal).or_insert_with(|| places(signal));
        if is_held && is_plain && !self.is_full() { Treatment::Held } else { Treatment::Ends }
    }

    /// Holds an instruction back.
    pub(crate) fn hold(&mut self, op: Op, words: &[u32], outputs: &[Meta]) {
        self.words += words.len();
        let (words, outputs) = (words.to_vec(), outputs.to_vec());
        self.held.push_back(HeldItem::Instruction(HeldInstruction { op, words, outputs }));
    }

    /// Notes that the values of these slots are gone.
    pub(crate) fn free(&mut self, slots: &[u32]) {
        self.vacated.extend_from_slice(slots);
        self.held.push_back(HeldItem::Freed(slots.to_vec()));
    }

    /// Notes an operand's metadata.
    pub(crate) fn operand(&mut self, slot: u32, meta: &Meta) {
        // The latest counts: while nothing is held back a slot may be used again.
        self.operands.insert(slot, *meta);
    }

    /// Begins the next segment: nothing is held back any more. Returns the slots that are free.
    pub(crate) fn begin_segment(&mut self) -> Vec<u32> {
        self.words = 0;
        self.operands.clear();
        self.is_closing = false;
        self.ended_by = None;
        std::mem::take(&mut self.vacated)
    }
}
