//! Amount of work of an instruction: decides if it is worth waking several threads for.

use crate::table::SlotTable;
use gt_protocol::{Family, Instruction, Meta};

/// Number of elements of a one-pass operator from which several threads are faster than one.
/// Threads that sleep between two instructions (they must not spin, because the core is the
/// client's) take 20 to 50 us to start and to end; this many elements take 50 us (an addition) to
/// 400 us (an exponential).
const ELEMENTS_MIN: i64 = 1 << 19;
/// Number of multiplications in a product that take as long as one element of a one-pass operator.
const PRODUCTS_PER_ELEMENT: i64 = 16;
/// Number of passes of the operators that read and write each element several times.
const PASSES: i64 = 4;

/// Returns true if several threads are faster than one. It depends only on the instruction and its
/// operands' shapes, never on load: the number of threads may change the bits of a result.
#[inline]
pub fn is_large<V>(table: &SlotTable<V>, instruction: &Instruction<'_>, results: &[Meta]) -> bool {
    let operands = || instruction.values().filter_map(|id| table.held(id).ok());
    let widest = |metas: &mut dyn Iterator<Item = i64>| metas.max().unwrap_or(0);
    let operand_elements = widest(&mut operands().map(|held| held.meta.elements()));
    let result_elements = widest(&mut results.iter().map(Meta::elements));
    let elements = operand_elements.max(result_elements);
    let work = match instruction.op.info().family {
        Family::Contract => {
            let inner = operands().next().and_then(|held| held.meta.dims.last().copied());
            result_elements.saturating_mul(inner.unwrap_or(1)) / PRODUCTS_PER_ELEMENT
        }
        Family::Random | Family::Normalize | Family::Loss | Family::Update | Family::Generic => {
            elements.saturating_mul(PASSES)
        }
        Family::Create
        | Family::Elementwise
        | Family::Reduce
        | Family::View
        | Family::Index
        | Family::Control
        | Family::Collective => elements,
    };
    work >= ELEMENTS_MIN
}
