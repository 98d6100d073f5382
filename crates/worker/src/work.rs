//! How much an instruction computes: whether it is worth waking several threads for.

use crate::table::SlotTable;
use gt_protocol::{Family, Instruction, Meta};

/// Elements of an operator of one pass from which several threads are faster than one. Threads that sleep between two
/// instructions (they must not spin: the core is the client's) take 20 to 50 us to begin and to end; so many elements
/// take 50 us (an addition) to 400 us (an exponential).
const ELEMENTS_MIN: i64 = 1 << 19;
/// Multiplications of a product that take as long as one element of an operator of one pass.
const PRODUCTS_PER_ELEMENT: i64 = 16;
/// Passes of the operators that read and write each element several times.
const PASSES: i64 = 4;

/// Whether several threads are faster than one. It follows from the instruction and its operands' shapes alone, never from
/// load: with the number of threads the bits of a result may change.
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
