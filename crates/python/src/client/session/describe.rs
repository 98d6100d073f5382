//! Questions to the dispatcher, which no worker answers.

use gt_protocol::{Attr, Instruction, Op, Operand};

/// What `describe` may be asked, in the order of its row's choice.
#[derive(Clone, Copy)]
pub(crate) enum DescribeKind {
    Layout,
    Explanation,
    Counters,
    Workers,
    /// Which workers owe this session an answer.
    Unanswered,
}

impl DescribeKind {
    /// The instruction that asks it, of a value or of the session.
    pub(crate) fn instruction(self, request: u64, operand: Operand) -> Instruction<'static> {
        let choice = match self {
            Self::Layout => 0,
            Self::Explanation => 1,
            Self::Counters => 2,
            Self::Workers => 3,
            Self::Unanswered => 4,
        };
        let mut word = Instruction::new(Op::Describe);
        word.operands.push(operand);
        word.attrs.push(Attr::Int(i64::try_from(request).expect("requests are counted from 0")));
        word.attrs.push(Attr::Choice(choice));
        word
    }
}
