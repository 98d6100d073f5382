//! The text form: one line an instruction, the exact inverse of the instruction in memory.
//!
//! ```text
//! %3 = matmul %1! %2 @layer1 ~12   # f32[128,64] train.py:42
//! %4.0 %4.1 = max_dim %3 dim=0 keepdim=false
//! %5 = clamp %4 _ 2.5
//! free %1 %2
//! ```
//!
//! In this order stand: results, `=`, operator, operands (`_` absent, `!` consumed), attributes by name, `@` signal,
//! `~` source position, payload. Everything behind `#` is derived and never parsed. `docs/wire.md` has the grammar.

mod hash;
mod literal;
mod parse;
mod print;
mod scan;
#[cfg(test)]
mod tests;

pub use hash::fnv128;
pub use parse::parse;
pub use print::TextLine;

use crate::instruction::Instruction;
use crate::message::Failure;

/// Which name a signal's id has, where one is known.
pub trait Names {
    fn signal_name(&self, id: u16) -> Option<&str>;
    /// The id of a name; a table may give out a new one here.
    fn signal_id(&mut self, name: &str) -> Option<u16>;
}

/// Signals as bare numbers: `@7`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn signal_name(&self, _id: u16) -> Option<&str> {
        None
    }

    fn signal_id(&mut self, _name: &str) -> Option<u16> {
        None
    }
}

/// How a payload is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadText {
    /// In full, so that the line can be parsed again.
    Full,
    /// Where it is longer than [`PAYLOAD_INLINE_BYTES`], its hash and length: for logs.
    Reference,
}

/// A payload of a few numbers is worth reading; a longer one is noise.
pub const PAYLOAD_INLINE_BYTES: usize = 64;

/// The line of an instruction, without a line break.
pub fn format(instruction: &Instruction<'_>, names: &dyn Names, payload: PayloadText) -> String {
    TextLine { instruction, names, payload }.to_string()
}

/// The comment that a log gets when a worker reports a failure: the instruction's own line was written before it ran.
pub fn failure(failure: &Failure<'_>, time: &str) -> String {
    let op = failure.op.map_or("", |op| op.info().name);
    let text = failure.text.replace(['\n', '\r'], " ");
    format!("# ERROR %{} {op}: {text} {time} s{}", failure.number, failure.session)
}

/// A line that is no instruction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: expected {expected}, found {actual}")]
pub struct ParseError {
    /// In characters, from 1.
    pub column: usize,
    pub expected: String,
    pub actual: String,
}
