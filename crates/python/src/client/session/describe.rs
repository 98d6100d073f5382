//! Requests for descriptions that the dispatcher answers without a worker.

use gt_protocol::{Attr, Instruction, Op, Operand};

/// Kinds of descriptions, in the order of the choice in the row `describe`.
#[derive(Clone, Copy)]
pub(crate) enum DescribeKind {
    Layout,
    Explanation,
    Counters,
    Workers,
    /// Workers from which this session waits for an answer.
    Unanswered,
    /// Names under which the session keeps values.
    Published,
}

impl DescribeKind {
    /// The instruction that requests the description, of a value or of the session.
    pub(crate) fn instruction(self, request: u64, operand: Operand) -> Instruction<'static> {
        let choice = match self {
            Self::Layout => 0,
            Self::Explanation => 1,
            Self::Counters => 2,
            Self::Workers => 3,
            Self::Unanswered => 4,
            Self::Published => 5,
        };
        let mut word = Instruction::new(Op::Describe);
        word.operands.push(operand);
        word.attrs.push(Attr::Int(i64::try_from(request).expect("requests are counted from 0")));
        word.attrs.push(Attr::Choice(choice));
        word
    }
}
