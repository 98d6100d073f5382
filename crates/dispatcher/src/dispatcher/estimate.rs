//! Estimate of the time for which an instruction keeps its workers busy, by the cost model.

use super::Dispatcher;
use crate::cost::real;
use crate::event::SessionId;
use crate::session::Session;
use crate::session::value::Value;
use gt_protocol::{Family, Kind, Meta, Op, wire};
use smallvec::SmallVec;

/// Bytes that an instruction touches below which it is not estimated: a client that sends many is
/// limited by the number of their words.
const TOUCHED_BYTES_MIN: u64 = 16 * 1024;
/// Words of a header: code and length, tag, and flags.
const HEAD_WORDS: usize = 3;

impl Dispatcher {
    /// The operator of an instruction that has just been planned, and the microseconds that each
    /// worker of its first result computes for it. `words` are the client's, before they were
    /// rewritten; those after its operands may be absent. `None` for an instruction that computes
    /// nothing, or little.
    #[inline]
    pub fn estimate(&self, session: SessionId, words: &[u32]) -> Option<(Op, f64)> {
        if self.core.touched_bytes < TOUCHED_BYTES_MIN {
            return None;
        }
        self.estimate_large(session, words)
    }

    fn estimate_large(&self, session: SessionId, words: &[u32]) -> Option<(Op, f64)> {
        let op = Op::from_code(wire::halves(*words.first()?).0)?;
        let info = op.info();
        if info.kind() != Kind::Compute || info.output_list {
            return None;
        }
        let state = self.sessions.get(&session)?;
        let slots = words.get(HEAD_WORDS..)?;
        let (outputs, rest) = slots.split_at_checked(usize::from(info.outputs))?;
        let first = state.value(*outputs.first()?)?;
        // An operand that is a list is about as large as the result.
        let operands = rest.get(..info.operands.len()).filter(|_| !info.has_list());
        let operands = operands.unwrap_or(outputs);
        let model = &self.core.cost_model;
        let cost = if info.family == Family::View {
            model.kernel
        } else if info.family == Family::Contract {
            let metas = |slots: &[u32]| -> SmallVec<[Option<Meta>; 4]> {
                slots.iter().map(|&slot| Some(*state.value(slot)?.meta())).collect()
            };
            let results: SmallVec<[Meta; 2]> = metas(outputs).into_iter().flatten().collect();
            model.work(op, &metas(operands), &results)
        } else {
            real(bytes(state, operands) + bytes(state, outputs)) * model.touch + model.kernel
        };
        let members = u32::try_from(first.layout().mesh().len()).unwrap_or(u32::MAX).max(1);
        Some((op, cost / f64::from(members)))
    }
}

fn bytes(state: &Session, slots: &[u32]) -> u64 {
    let values = slots.iter().filter_map(|&slot| state.value(slot));
    values.map(|value: &Value| value.spec().bytes).fold(0, u64::saturating_add)
}
