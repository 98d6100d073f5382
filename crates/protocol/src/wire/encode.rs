//! Encoder from an instruction to words.

use super::{
    EncodeError, FRAME_WORDS_MAX, HEADER_WORDS, IMMEDIATE, LIST_MAX, NONE, PAYLOAD_BYTES_MAX,
    SLOT_LIMIT, TEXT_BYTES_MAX, consumable, has_payload,
    words::{count_word, push_bytes, push_dims, push_i64, push_list, push_scalar, push_u64},
};
use crate::instruction::{Attr, Id, Instruction, Operand};
use crate::operator::{AttrInfo, Op, OpInfo, OperandKind};

/// Op code and length, tag, flags, count.
pub(super) const FREE_HEADER_WORDS: usize = 4;

/// Appends the words of an instruction; on an error `out` is unchanged.
pub fn encode(instruction: &Instruction<'_>, out: &mut Vec<u32>) -> Result<(), EncodeError> {
    let start = out.len();
    let result = append(instruction, out, start);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Appends instructions that free these slots: one, unless they exceed an instruction's room.
pub fn encode_free(slots: &[u32], out: &mut Vec<u32>) {
    for slots in slots.chunks(FRAME_WORDS_MAX - FREE_HEADER_WORDS) {
        let count = count_word(slots.len());
        let length = count_word(FREE_HEADER_WORDS + slots.len());
        out.extend([u32::from(Op::Free.info().code) | length << 16, 0, 0, count]);
        out.extend_from_slice(slots);
    }
}

/// Replaces the tag, outputs and operands of an encoded instruction, and clears its signal, as a
/// dispatcher does with most instructions. The remaining words stay.
pub fn rebind(
    words: &mut [u32],
    instruction: &Instruction<'_>,
    tag: u32,
    outputs: impl IntoIterator<Item = u32>,
    operand: impl Fn(u32) -> u32,
) {
    let info = instruction.op.info();
    let [_, tag_word, flags, rest @ ..] = words else {
        unreachable!("{} words of a decoded instruction", words.len())
    };
    *tag_word = tag;
    *flags &= 0xffff;
    let (_, rest) = rest.split_at_mut(usize::from(info.output_list).min(rest.len()));
    let (defined, rest) = rest.split_at_mut(instruction.outputs.len().min(rest.len()));
    for (word, slot) in defined.iter_mut().zip(outputs) {
        *word = slot;
    }
    let fixed = info.fixed_operands();
    let count_word = usize::from(info.has_list());
    let total = instruction.operands.len() + count_word;
    for (position, word) in rest.iter_mut().take(total).enumerate() {
        let is_count = count_word == 1 && position == fixed;
        if !is_count && *word < SLOT_LIMIT {
            *word = operand(*word);
        }
    }
}

fn append(
    instruction: &Instruction<'_>,
    out: &mut Vec<u32>,
    start: usize,
) -> Result<(), EncodeError> {
    let info = instruction.op.info();
    check_counts(instruction, info)?;
    let flags = u32::from(instruction.consumes) | u32::from(instruction.signal) << 16;
    out.extend_from_slice(&[info.code.into(), instruction.tag, flags]);
    if info.output_list {
        out.push(count_word(instruction.outputs.len()));
    }
    for &id in &instruction.outputs {
        out.push(slot(id, info)?);
    }
    append_operands(instruction, info, out)?;
    append_attrs(info, &instruction.attrs, out)?;
    if has_payload(instruction.op) {
        push_bytes(out, instruction.payload);
    }
    close(info.name, out, start)
}

/// Inserts the count of results, and placeholders for their slots, behind the header of an
/// instruction whose row does not count them.
pub fn count_outputs(words: &mut Vec<u32>, count: usize) {
    let room = u32::try_from(count).into_iter().chain(std::iter::repeat_n(0, count));
    words.splice(HEADER_WORDS..HEADER_WORDS, room);
}

/// Appends the words of an instruction's attributes.
pub fn append_attrs(
    info: &'static OpInfo,
    attrs: &[Attr],
    out: &mut Vec<u32>,
) -> Result<(), EncodeError> {
    let (count, expected) = (attrs.len(), info.attrs.len());
    let left_out = info.attrs.get(count..);
    if !left_out.is_some_and(|rest| rest.iter().all(|row| row.appended)) {
        return Err(EncodeError::Attrs { op: info.name, count, expected });
    }
    for (attr, row) in written_attrs(attrs, info).iter().zip(info.attrs) {
        append_attr(attr, row, info, out)?;
    }
    Ok(())
}

/// Writes the length into the first word of the frame that begins at `start`.
pub fn close(op: &'static str, out: &mut [u32], start: usize) -> Result<(), EncodeError> {
    let words = out.len() - start;
    let Ok(length) = u16::try_from(words) else { return Err(EncodeError::TooLong { op, words }) };
    if let Some(word) = out.get_mut(start) {
        *word |= u32::from(length) << 16;
    }
    Ok(())
}

/// Checks the counts that the row fixes, the limits, and the payload.
#[inline]
fn check_counts(instruction: &Instruction<'_>, info: &'static OpInfo) -> Result<(), EncodeError> {
    let op = info.name;
    let count = instruction.outputs.len();
    if !info.fits_outputs(count) {
        return Err(EncodeError::Outputs { op, count, expected: info.outputs });
    }
    let (count, expected) = (instruction.operands.len(), info.fixed_operands());
    if count < expected || (count > expected && !info.has_list()) {
        return Err(EncodeError::Operands { op, count, expected });
    }
    if count > FRAME_WORDS_MAX {
        return Err(EncodeError::TooLong { op, words: count });
    }
    let bytes = instruction.payload.len();
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(EncodeError::PayloadTooLong { op, bytes });
    }
    if bytes > 0 && !has_payload(instruction.op) {
        return Err(EncodeError::Payload { op });
    }
    let consumes = instruction.consumes;
    if consumes != 0 && consumes & !consumable_operands(&instruction.operands) != 0 {
        return Err(EncodeError::Consumes { op, consumes });
    }
    Ok(())
}

fn consumable_operands(operands: &[Operand]) -> u16 {
    consumable(operands.iter().map(|operand| match operand {
        Operand::Value(_) => true,
        Operand::Absent | Operand::Scalar(_) => false,
    }))
}

fn append_operands(
    instruction: &Instruction<'_>,
    info: &'static OpInfo,
    out: &mut Vec<u32>,
) -> Result<(), EncodeError> {
    let fixed = info.fixed_operands();
    let mut scalars = false;
    for (position, operand) in instruction.operands.iter().enumerate() {
        if position == fixed {
            push_count(instruction, fixed, out);
        }
        out.push(match operand {
            Operand::Value(id) => slot(*id, info)?,
            Operand::Scalar(_) => {
                scalars = true;
                IMMEDIATE
            }
            Operand::Absent => {
                let kind = info.operands.get(position).map(|operand| operand.kind);
                if kind == Some(OperandKind::Required) {
                    return Err(EncodeError::OperandAbsent { op: info.name, position });
                }
                NONE
            }
        });
    }
    if info.has_list() && instruction.operands.len() == fixed {
        push_count(instruction, fixed, out);
    }
    if scalars {
        for operand in &instruction.operands {
            if let Operand::Scalar(scalar) = operand {
                push_scalar(out, *scalar);
            }
        }
    }
    Ok(())
}

fn push_count(instruction: &Instruction<'_>, fixed: usize, out: &mut Vec<u32>) {
    // Below the limit of words, as checked at the beginning.
    out.push(count_word(instruction.operands.len() - fixed));
}

#[inline]
fn slot(id: Id, info: &'static OpInfo) -> Result<u32, EncodeError> {
    match id.as_slot() {
        Some(slot) if slot < SLOT_LIMIT => Ok(slot),
        Some(_) | None => {
            let (number, output) = id.parts();
            Err(EncodeError::NoSlot { op: info.name, number, output })
        }
    }
}

/// The attributes that have words: without absent ones at the end that were added after the row's
/// release.
#[inline]
fn written_attrs<'a>(attrs: &'a [Attr], info: &OpInfo) -> &'a [Attr] {
    let pairs = attrs.iter().zip(info.attrs).rev();
    let left_out = pairs.take_while(|(attr, row)| row.appended && **attr == Attr::Absent).count();
    attrs.split_at(attrs.len() - left_out).0
}

fn append_attr(
    attr: &Attr,
    row: &AttrInfo,
    info: &'static OpInfo,
    out: &mut Vec<u32>,
) -> Result<(), EncodeError> {
    if !attr.fits(row) {
        return Err(EncodeError::Attr { op: info.name, attr: row.name });
    }
    if row.optional {
        out.push(u32::from(!matches!(attr, Attr::Absent)));
    }
    match attr {
        Attr::Absent => {}
        Attr::Bool(value) => out.push(u32::from(*value)),
        Attr::Int(value) => push_i64(out, *value),
        Attr::Float(value) => push_u64(out, value.to_bits()),
        Attr::Scalar(value) => push_scalar(out, *value),
        Attr::Dtype(value) => out.push(u32::from(value.code())),
        Attr::Ints(dims) => push_dims(out, dims),
        Attr::List(values) => {
            if values.len() > LIST_MAX {
                return Err(EncodeError::ListTooLong { op: info.name, count: values.len() });
            }
            push_list(out, values);
        }
        Attr::Choice(index) => out.push(u32::from(*index)),
        Attr::Text(text) => {
            if text.len() > TEXT_BYTES_MAX {
                return Err(EncodeError::TextTooLong { op: info.name, bytes: text.len() });
            }
            push_bytes(out, text.as_bytes());
        }
    }
    Ok(())
}
