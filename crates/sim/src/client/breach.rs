//! Clients that are malicious, or whose program is broken.

use super::{Client, write};
use crate::arithmetic::tensor::wide;
use crate::exact::exact;
use crate::random::Random;
use gt_protocol::{
    Attr, AttrKind, Dims, Dtype, Family, Id, Instruction, Op, Operand, OperandKind, Scalar,
};

/// A breach of the protocol, which must fail this session and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreachKind {
    UnknownSlot,
    SlotInUse,
    NotForClients,
    TooManyValues,
    NoSuchDim,
    Garbage,
    /// Instructions with a binary form and no meaning; they may or may not be a breach.
    Nonsense,
}

impl BreachKind {
    pub const ALL: [Self; 7] = [
        Self::UnknownSlot,
        Self::SlotInUse,
        Self::NotForClients,
        Self::TooManyValues,
        Self::NoSuchDim,
        Self::Garbage,
        Self::Nonsense,
    ];
}

impl Client {
    pub(super) fn break_rules(&mut self, breach: BreachKind, words: &mut Vec<u32>) {
        let free = exact::<_, u32>(self.slots.len() + self.slots_free.len()) + 7;
        let slot = self.slots.values().next().copied();
        let mut instruction = Instruction::new(Op::Neg);
        instruction.operands.push(Operand::Value(Id::slot(slot.unwrap_or(free))));
        instruction.outputs.push(Id::slot(free));
        match breach {
            BreachKind::UnknownSlot => instruction.operands[0] = Operand::Value(Id::slot(free + 1)),
            BreachKind::SlotInUse => {
                instruction.outputs[0] = Id::slot(slot.unwrap_or(u32::MAX >> 1));
            }
            BreachKind::NotForClients => {
                instruction = Instruction::new(Op::Session);
                instruction.attrs.push(Attr::Int(1));
            }
            BreachKind::TooManyValues => instruction.outputs[0] = Id::slot((1 << 24) - 1),
            BreachKind::NoSuchDim => {
                instruction.op = Op::Distribute;
                instruction.attrs.extend([Attr::Int(9), Attr::Absent]);
            }
            BreachKind::Nonsense => return,
            BreachKind::Garbage => {
                let word = exact::<_, u32>(self.random.below(1 << 16));
                // A word with an impossible length, or with an unknown code.
                words.push(if word & 1 == 0 { word } else { 0x0001_ffff });
                return;
            }
        }
        write(&instruction, words);
    }

    /// Emits any operator with existing operands and attributes of the right kinds.
    pub(super) fn emit_nonsense(&mut self, words: &mut Vec<u32>) {
        if !self.is_nonsense {
            self.is_nonsense = true;
            self.nonsense = self.slots.values().copied().collect();
        }
        let rows = Op::table();
        let drawn = &rows[self.random.index(rows.len())];
        let forbidden = drawn.family == Family::Collective || drawn.op == Op::Session;
        let ends = forbidden && !self.random.percent(5);
        // Published values are the session's beside those that the accounts count.
        let is_uncounted = drawn.op == Op::Publish;
        let info = if ends || is_uncounted { Op::Add.info() } else { drawn };
        let mut instruction = Instruction::new(info.op);
        for operand in info.operands {
            let count = match operand.kind {
                OperandKind::List => self.random.index(4),
                OperandKind::Required | OperandKind::Optional => 1,
            };
            for _ in 0..count {
                let absent = operand.kind == OperandKind::Optional && self.random.percent(50);
                let operand = if absent { Operand::Absent } else { self.any_operand() };
                instruction.operands.push(operand);
            }
        }
        for attr in info.attrs {
            let absent = attr.optional && self.random.percent(40);
            let value = if absent { Attr::Absent } else { any_attr(attr.kind, &mut self.random) };
            instruction.attrs.push(value);
        }
        // A request number of this client, so that the answer shows its origin.
        if let Some(place) = info.attrs.iter().position(|attr| attr.name == "request") {
            instruction.attrs[place] = Attr::Int(self.next_request.cast_signed());
            self.next_request += 1;
        }
        let first = exact::<_, u32>(self.slots.len() + self.slots_free.len());
        let outputs =
            if info.output_list { 1 + self.random.index(3) } else { usize::from(info.outputs) };
        for _ in 0..outputs {
            let slot = first + 16 + exact::<_, u32>(self.nonsense.len());
            instruction.outputs.push(Id::slot(slot));
            self.nonsense.push(slot);
        }
        let payload = [7; 24];
        if matches!(instruction.op, Op::Upload | Op::Chunk) {
            instruction.payload = &payload[..self.random.index(payload.len() + 1)];
        }
        write(&instruction, words);
    }

    fn any_operand(&mut self) -> Operand {
        match self.random.pick(&self.nonsense) {
            Some(&slot) if self.random.percent(85) => Operand::Value(Id::slot(slot)),
            Some(_) | None => Operand::Scalar(any_scalar(&mut self.random)),
        }
    }
}

fn any_attr(kind: AttrKind, random: &mut Random) -> Attr {
    match kind {
        AttrKind::Bool => Attr::Bool(random.percent(50)),
        AttrKind::Int => Attr::Int(any_int(random)),
        AttrKind::Float => Attr::Float(f64::from(exact::<_, u8>(random.below(5))) / 2.0),
        AttrKind::Scalar => Attr::Scalar(any_scalar(random)),
        AttrKind::Dtype => {
            Attr::Dtype(*random.pick(&Dtype::ALL).expect("the list of dtypes is not empty"))
        }
        AttrKind::Ints => {
            let list: Vec<i64> = (0..random.index(5)).map(|_| any_int(random)).collect();
            Attr::Ints(Dims::new(&list).unwrap_or_else(|| panic!("too many: {list:?}")))
        }
        AttrKind::List => Attr::List((0..random.index(12)).map(|_| any_int(random)).collect()),
        AttrKind::Text => Attr::Text("nonsense".into()),
        AttrKind::Choice(words) => Attr::Choice(exact::<_, u8>(random.index(words.len()))),
    }
}

/// Mostly small; else so large that every sum with it overflows.
fn any_int(random: &mut Random) -> i64 {
    match random.below(40) {
        0 => i64::MIN,
        1 => i64::MAX,
        _ => wide(random.index(8)) - 2,
    }
}

fn any_scalar(random: &mut Random) -> Scalar {
    match random.below(3) {
        0 => Scalar::Bool(random.percent(50)),
        1 => Scalar::Int(wide(random.index(9)) - 2),
        _ => Scalar::Float(f64::from(exact::<_, u8>(random.below(9)))),
    }
}
