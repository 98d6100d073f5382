//! The text form: one line for each instruction, the exact inverse of the instruction in memory.
//!
//! ```text
//! %3 = matmul %1! %2 @layer1 ~12   # f32[128,64] train.py:42
//! %4.0 %4.1 = max_dim %3 dim=0 keepdim=false
//! %5 = clamp %4 _ 2.5
//! free %1 %2
//! ```
//!
//! The order is: results, `=`, operator, operands (`_` absent, `!` consumed), attributes by name,
//! `@` signal, `~` source position, payload. Everything behind `#` is derived and never parsed.
//! `docs/wire.md` has the grammar.

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

/// Names of signals' ids, where they are known.
pub trait Names {
    fn signal_name(&self, id: u16) -> Option<&str>;
    /// The id of a name; an implementation may assign a new one here.
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

/// Form in which a payload is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadText {
    /// In full, so that the line can be parsed again.
    Full,
    /// Hash and length in place of a payload longer than [`PAYLOAD_INLINE_BYTES`]: for logs.
    Reference,
}

/// Maximum bytes of a payload that a log prints in full: a few numbers are worth reading, more are
/// noise.
pub const PAYLOAD_INLINE_BYTES: usize = 64;

/// The line of an instruction, without a line break.
pub fn format(instruction: &Instruction<'_>, names: &dyn Names, payload: PayloadText) -> String {
    TextLine { instruction, names, payload }.to_string()
}

/// The log comment for a failure that a worker reports: the instruction's own line was written
/// before it ran.
pub fn failure(failure: &Failure<'_>, time: &str) -> String {
    let op = failure.op.map_or("", |op| op.info().name);
    let text = failure.text.replace(['\n', '\r'], " ");
    format!("# ERROR %{} {op}: {text} {time} s{}", failure.number, failure.session)
}

/// Error of a line that is no instruction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: expected {expected}, found {actual}")]
pub struct ParseError {
    /// Column in characters, from 1.
    pub column: usize,
    pub expected: String,
    pub actual: String,
}
