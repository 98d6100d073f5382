//! A view of an encoded instruction, for code that passes it on: it makes the checks of `decode`
//! and builds nothing.

use super::decode::{attrs, frame, halves};
use super::{
    HEADER_WORDS, IMMEDIATE, SLOT_LIMIT, WireError, consumable, has_payload, words::WordReader,
};
use crate::instruction::Attr;
use crate::operator::Op;
use crate::value::Scalar;
use smallvec::SmallVec;

/// An instruction without a list of operands or results, without a payload, and with all operands
/// present.
#[derive(Clone, Debug, PartialEq)]
pub struct InstructionView<'a> {
    pub op: Op,
    /// The slots of its results.
    pub outputs: &'a [u32],
    /// A slot or [`IMMEDIATE`] for each operand.
    pub operands: &'a [u32],
    /// The scalars among the operands, in order.
    pub scalars: SmallVec<[Scalar; 3]>,
    pub attrs: SmallVec<[Attr; 2]>,
}

impl<'a> InstructionView<'a> {
    /// The one instruction in `words`. `None` for another form, whose words are not checked here.
    ///
    /// # Errors
    /// Words that `decode` refuses.
    #[inline]
    pub fn new(words: &'a [u32]) -> Result<Option<Self>, WireError> {
        let (op, length) = frame(words)?;
        let info = op.info();
        let (results, fixed) = (usize::from(info.outputs), info.operands.len());
        let slots = words.get(HEADER_WORDS..).and_then(|rest| rest.split_at_checked(results));
        let Some((outputs, rest)) = slots else { return Ok(None) };
        let Some(operands) = rest.get(..fixed) else { return Ok(None) };
        let is_operand = |&word: &u32| word < SLOT_LIMIT || word == IMMEDIATE;
        if info.has_list()
            || info.output_list
            || has_payload(op)
            || length != words.len()
            || !operands.iter().all(is_operand)
            || !outputs.iter().all(|&word| word < SLOT_LIMIT)
        {
            return Ok(None);
        }
        let (consumes, _) = words.get(2).map_or((0, 0), |&flags| halves(flags));
        let values = operands.iter().map(|&word| word < SLOT_LIMIT);
        if consumes != 0 && consumes & !consumable(values) != 0 {
            return Ok(None);
        }
        let (mut scalars, mut attributes) = (SmallVec::new(), SmallVec::new());
        let mut reader = WordReader::new(words, HEADER_WORDS + results + fixed);
        if operands.contains(&IMMEDIATE) {
            for _ in operands.iter().filter(|&&word| word == IMMEDIATE) {
                scalars.push(reader.scalar()?);
            }
        }
        attrs(&mut reader, info, &mut attributes)?;
        reader.finish()?;
        Ok(Some(Self { op, outputs, operands, scalars, attrs: attributes }))
    }
}

/// The slots of a `free`; `None` for other instructions, or for one that needs the full decoder.
#[inline]
pub fn freed(words: &[u32]) -> Option<&[u32]> {
    let (&[first, _, flags, count], slots) = words.split_first_chunk()?;
    let is_free = halves(first).0 == Op::Free.info().code;
    let length = usize::from(halves(first).1);
    let is_whole = length == words.len() && usize::try_from(count) == Ok(slots.len());
    let is_plain = is_free && is_whole && halves(flags).0 == 0;
    (is_plain && slots.iter().all(|&slot| slot < SLOT_LIMIT)).then_some(slots)
}
