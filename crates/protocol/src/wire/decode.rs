//! Decoder from words to an instruction. The words come from a peer: nothing here panics, and
//! allocations are bounded by a fixed multiple of the frame.

use super::{
    HEADER_WORDS, IMMEDIATE, NONE, PAYLOAD_BYTES_MAX, SLOT_LIMIT, TEXT_BYTES_MAX, WireError,
    WireReason, consumable, has_payload, words::WordReader,
};
use crate::instruction::{Attr, Id, Instruction, Operand};
use crate::operator::{AttrInfo, AttrKind, Op, OpInfo, OperandKind};
use crate::value::Scalar;
use smallvec::SmallVec;

/// The instruction at the front of `words`, and its length in words.
///
/// A loop is faster with [`decode_into`]: an instruction has 300 bytes, and moving it takes longer
/// than decoding it.
#[inline]
pub fn decode(words: &[u32]) -> Result<(Instruction<'_>, usize), WireError> {
    // The operator is overwritten.
    let mut instruction = Instruction::new(Op::Free);
    let length = decode_into(words, &mut instruction)?;
    Ok((instruction, length))
}

/// [`decode`] into the caller's instruction; after an error its content is meaningless.
pub fn decode_into<'a>(
    words: &'a [u32],
    instruction: &mut Instruction<'a>,
) -> Result<usize, WireError> {
    let (op, length) = frame(words)?;
    let info = op.info();
    let Some((words, _)) = words.split_at_checked(length) else {
        return Err(WireError { word: words.len(), reason: WireReason::Truncated });
    };
    let mut reader = WordReader::new(words, 1);
    instruction.op = op;
    instruction.tag = reader.word()?;
    (instruction.consumes, instruction.signal) = halves(reader.word()?);
    instruction.outputs.clear();
    for _ in 0..outputs(&mut reader, info)? {
        let word = reader.word()?;
        instruction.outputs.push(slot(word, &reader)?);
    }
    instruction.operands.clear();
    operands(&mut reader, info, &mut instruction.operands)?;
    if instruction.consumes != 0 {
        check_consumes(instruction.consumes, &instruction.operands)?;
    }
    instruction.attrs.clear();
    attrs(&mut reader, info, &mut instruction.attrs)?;
    instruction.payload = if has_payload(op) { reader.bytes(PAYLOAD_BYTES_MAX)? } else { &[] };
    reader.finish()?;
    Ok(length)
}

/// Reads the number of results.
fn outputs(reader: &mut WordReader<'_>, info: &OpInfo) -> Result<usize, WireError> {
    if !info.output_list {
        return Ok(usize::from(info.outputs));
    }
    let word = reader.word()?;
    match usize::try_from(word) {
        Ok(count) if info.fits_outputs(count) => Ok(count),
        Ok(_) | Err(_) => {
            Err(reader.error(WireReason::Limit("the number of results", u64::from(word))))
        }
    }
}

/// Reads all attributes of the row.
pub(super) fn attrs(
    reader: &mut WordReader<'_>,
    info: &OpInfo,
    attrs: &mut SmallVec<[Attr; 2]>,
) -> Result<(), WireError> {
    for row in info.attrs {
        attrs.push(if row.appended { appended(reader, row)? } else { attr(reader, row)? });
    }
    Ok(())
}

/// The operator and the length of the frame at the front of `words`, all of which must be there.
#[inline]
pub(super) fn frame(words: &[u32]) -> Result<(Op, usize), WireError> {
    let &[first, ..] = words else {
        return Err(WireError { word: 0, reason: WireReason::Truncated });
    };
    let (code, length) = halves(first);
    let length = usize::from(length);
    if length < HEADER_WORDS || length > words.len() {
        return Err(WireError { word: words.len().min(length), reason: WireReason::Truncated });
    }
    match Op::from_code(code) {
        Some(op) => Ok((op, length)),
        None => Err(WireError { word: 0, reason: WireReason::UnknownCode(code) }),
    }
}

/// The low and high 16 bits: code and length in a frame's first word, consumed operands and signal
/// in its third.
pub const fn halves(word: u32) -> (u16, u16) {
    let [a, b, c, d] = word.to_le_bytes();
    (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
}

fn slot(word: u32, reader: &WordReader<'_>) -> Result<Id, WireError> {
    if word < SLOT_LIMIT { Ok(Id::slot(word)) } else { Err(reader.error(WireReason::Slot(word))) }
}

fn operands(
    reader: &mut WordReader<'_>,
    info: &OpInfo,
    operands: &mut SmallVec<[Operand; 4]>,
) -> Result<(), WireError> {
    let mut scalars = false;
    for row in info.operands {
        let count = if row.kind == OperandKind::List { reader.word()? } else { 1 };
        for _ in 0..count {
            let word = reader.word()?;
            operands.push(match word {
                NONE if row.kind == OperandKind::Required => {
                    return Err(reader.error(WireReason::OperandAbsent));
                }
                NONE => Operand::Absent,
                IMMEDIATE => {
                    scalars = true;
                    Operand::Scalar(Scalar::Bool(false))
                }
                _ => Operand::Value(slot(word, reader)?),
            });
        }
    }
    if scalars {
        for operand in operands.iter_mut() {
            if let Operand::Scalar(scalar) = operand {
                *scalar = reader.scalar()?;
            }
        }
    }
    Ok(())
}

fn check_consumes(consumes: u16, operands: &[Operand]) -> Result<(), WireError> {
    let values = operands.iter().map(|operand| match operand {
        Operand::Value(_) => true,
        Operand::Absent | Operand::Scalar(_) => false,
    });
    if consumes & !consumable(values) == 0 {
        return Ok(());
    }
    Err(WireError { word: 2, reason: WireReason::Consumes(consumes) })
}

fn attr(reader: &mut WordReader<'_>, row: &AttrInfo) -> Result<Attr, WireError> {
    if row.optional && !reader.bool()? {
        return Ok(Attr::Absent);
    }
    Ok(match row.kind {
        AttrKind::Bool => Attr::Bool(reader.bool()?),
        AttrKind::Int => Attr::Int(reader.i64()?),
        AttrKind::Float => Attr::Float(reader.f64()?),
        AttrKind::Scalar => Attr::Scalar(reader.scalar()?),
        AttrKind::Dtype => Attr::Dtype(reader.dtype()?),
        AttrKind::Ints => Attr::Ints(reader.dims()?),
        AttrKind::List => Attr::List(reader.list()?),
        AttrKind::Text => Attr::Text(reader.text(TEXT_BYTES_MAX)?.into()),
        AttrKind::Choice(words) => Attr::Choice(choice(reader, words)?),
    })
}

/// Reads an attribute that was added after the row's release: it is absent at a frame's end.
fn appended(reader: &mut WordReader<'_>, row: &AttrInfo) -> Result<Attr, WireError> {
    if reader.finish().is_ok() {
        return Ok(Attr::Absent);
    }
    let attr = attr(reader, row)?;
    if attr == Attr::Absent && reader.finish().is_ok() {
        return Err(reader.error(WireReason::Value("attribute at the end", 0)));
    }
    Ok(attr)
}

fn choice(reader: &mut WordReader<'_>, words: &[&str]) -> Result<u8, WireError> {
    let word = reader.word()?;
    match u8::try_from(word) {
        Ok(index) if usize::from(index) < words.len() => Ok(index),
        Ok(_) | Err(_) => Err(reader.error(WireReason::Value("choice", word))),
    }
}
