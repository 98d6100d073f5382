//! Printer from an instruction to a line.

use super::{
    Names, PAYLOAD_INLINE_BYTES, PayloadText, fnv128,
    literal::{is_bare, write_float, write_quoted, write_scalar},
};
use crate::instruction::{Attr, Id, Instruction, Operand};
use crate::operator::{AttrInfo, AttrKind};
use std::fmt;

/// An instruction that prints itself as its line.
#[derive(Clone, Copy)]
pub struct TextLine<'a> {
    pub instruction: &'a Instruction<'a>,
    pub names: &'a dyn Names,
    pub payload: PayloadText,
}

impl fmt::Display for TextLine<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instruction = self.instruction;
        let info = instruction.op.info();
        for &id in &instruction.outputs {
            write_id(out, id, info.has_several_outputs())?;
            out.write_str(" ")?;
        }
        if !instruction.outputs.is_empty() {
            out.write_str("= ")?;
        }
        out.write_str(info.name)?;
        for (position, operand) in instruction.operands.iter().enumerate() {
            out.write_str(" ")?;
            match operand {
                Operand::Absent => out.write_str("_")?,
                Operand::Scalar(scalar) => write_scalar(out, *scalar)?,
                Operand::Value(id) => write_id(out, *id, false)?,
            }
            if position < 16 && instruction.consumes >> position & 1 == 1 {
                out.write_str("!")?;
            }
        }
        for (attr, row) in instruction.attrs.iter().zip(info.attrs) {
            write_attr(out, attr, row)?;
        }
        self.write_signal(out)?;
        if instruction.tag != 0 {
            write!(out, " ~{}", instruction.tag)?;
        }
        self.write_payload(out)
    }
}

impl TextLine<'_> {
    fn write_signal(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = self.instruction.signal;
        if signal == 0 {
            return Ok(());
        }
        match self.names.signal_name(signal) {
            None => write!(out, " @{signal}"),
            Some(name) if is_bare(name) => write!(out, " @{name}"),
            Some(name) => {
                out.write_str(" @")?;
                write_quoted(out, name)
            }
        }
    }

    fn write_payload(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.instruction.payload;
        if bytes.is_empty() {
            return Ok(());
        }
        if self.payload == PayloadText::Reference && bytes.len() > PAYLOAD_INLINE_BYTES {
            return write!(out, " payload=@{:032x}:{}", fnv128(bytes), bytes.len());
        }
        out.write_str(" payload=0x")?;
        bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

fn write_id(out: &mut fmt::Formatter<'_>, id: Id, always_output: bool) -> fmt::Result {
    match id.parts() {
        (number, 0) if !always_output => write!(out, "%{number}"),
        (number, output) => write!(out, "%{number}.{output}"),
    }
}

fn write_attr(out: &mut fmt::Formatter<'_>, attr: &Attr, row: &AttrInfo) -> fmt::Result {
    if matches!(attr, Attr::Absent) {
        return Ok(());
    }
    write!(out, " {}=", row.name)?;
    match attr {
        Attr::Absent => Ok(()),
        Attr::Bool(value) => write!(out, "{value}"),
        Attr::Int(value) => write!(out, "{value}"),
        Attr::Float(value) => write_float(out, *value),
        Attr::Scalar(value) => write_scalar(out, *value),
        Attr::Dtype(value) => out.write_str(value.short()),
        Attr::Text(text) => write_quoted(out, text),
        Attr::Choice(index) => match choice_word(row, *index) {
            Some(word) => out.write_str(word),
            None => write!(out, "{index}"),
        },
        Attr::Ints(dims) => write_integers(out, dims.as_slice()),
        Attr::List(values) => write_integers(out, values),
    }
}

fn write_integers(out: &mut fmt::Formatter<'_>, values: &[i64]) -> fmt::Result {
    out.write_str("[")?;
    for (position, value) in values.iter().enumerate() {
        write!(out, "{}{value}", if position == 0 { "" } else { "," })?;
    }
    out.write_str("]")
}

fn choice_word(row: &AttrInfo, index: u8) -> Option<&'static str> {
    match row.kind {
        AttrKind::Choice(words) => words.get(usize::from(index)).copied(),
        AttrKind::Bool
        | AttrKind::Int
        | AttrKind::Float
        | AttrKind::Scalar
        | AttrKind::Dtype
        | AttrKind::Ints
        | AttrKind::List
        | AttrKind::Text => None,
    }
}
