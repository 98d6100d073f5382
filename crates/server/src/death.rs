//! Texts about a worker that has ended: how, and what it was at.

use gt_protocol::Op;
use std::fmt::{self, Display, Formatter};

/// Signals that end a worker, by number on Linux, with their names.
const SIGNALS: [(i32, &str); 9] = [
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (15, "SIGTERM"),
    (24, "SIGXCPU"),
    (31, "SIGSYS"),
];

/// Instruction that a worker was at when it was found dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastInstruction {
    pub session: u32,
    /// Low half of its number.
    pub tag: u32,
    pub op: Op,
}

impl LastInstruction {
    /// The instruction of a mark in the worker's ring; `None` where it waited, or where the words
    /// have no meaning: they are a peer's.
    pub fn of_mark([session, tag, code]: [u32; 3]) -> Option<Self> {
        let op = Op::from_code(u16::try_from(code).ok()?).filter(|_| session != 0)?;
        Some(Self { session, tag, op })
    }
}

/// Manner in which a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It is no child of ours.
    Unknown,
    Status(i32),
    Signal(i32),
}

impl Manner {
    /// The manner of an exit code, which is minus the signal where a signal has ended the process.
    pub fn of_code(code: i32) -> Self {
        if code < 0 { Self::Signal(code.saturating_neg()) } else { Self::Status(code) }
    }
}

impl Display for Manner {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unknown => formatter.write_str("its process ended"),
            Self::Status(status) => write!(formatter, "its process ended with status {status}"),
            Self::Signal(signal) => {
                write!(formatter, "its process was ended by signal {signal}")?;
                let name = SIGNALS.iter().find(|(number, _)| *number == signal);
                name.map_or(Ok(()), |(_, name)| write!(formatter, ", {name}"))
            }
        }
    }
}

/// `its process was ended by signal 9, SIGKILL, while it ran matmul`.
pub fn reason(manner: impl Display, last: Option<LastInstruction>) -> String {
    last.map_or_else(
        || manner.to_string(),
        |last| format!("{manner}, while it ran {}", last.op.info().name),
    )
}

#[cfg(test)]
mod tests {
    use super::{LastInstruction, Manner, reason};
    use gt_protocol::Op;

    #[test]
    fn a_mark_of_zeros_or_of_unknown_words_is_no_instruction() {
        let code = u32::from(Op::Matmul.info().code);
        let last = LastInstruction { session: 2, tag: 7, op: Op::Matmul };
        assert_eq!(LastInstruction::of_mark([2, 7, code]), Some(last));
        for mark in [[0; 3], [0, 7, code], [2, 7, 0], [2, 7, u32::MAX], [2, 7, code | 1 << 16]] {
            assert_eq!(LastInstruction::of_mark(mark), None, "{mark:?}");
        }
    }

    #[test]
    fn the_reason_says_how_and_in_which_operator() {
        let last = LastInstruction { session: 1, tag: 0, op: Op::Matmul };
        let cases = [
            (
                Manner::of_code(-9),
                Some(last),
                "was ended by signal 9, SIGKILL, while it ran matmul",
            ),
            (Manner::of_code(-64), None, "was ended by signal 64"),
            (Manner::of_code(3), None, "ended with status 3"),
            (Manner::Unknown, Some(last), "ended, while it ran matmul"),
        ];
        for (manner, last, text) in cases {
            assert_eq!(reason(manner, last), format!("its process {text}"));
        }
        assert_eq!(Manner::of_code(i32::MIN), Manner::Signal(i32::MAX));
    }
}
