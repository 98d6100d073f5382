//! The binary form of an instruction: little-endian 32-bit words, the same in a ring and in a TCP
//! frame.
//!
//! `docs/wire.md` specifies it. Only the form is here: rules define the meaning of an instruction,
//! and the transport carries the words.

pub mod cut;
mod decode;
mod encode;
mod frees;
#[cfg(test)]
mod tests;
mod view;
mod words;

pub use decode::{decode, decode_into, halves};
pub use encode::{append_attrs, close, count_outputs, encode, encode_free, rebind};
pub use frees::Frees;
pub use view::{InstructionView, freed};
pub(crate) use words::{WordReader, count_word, push_bytes, push_dims, push_u64};
pub use words::{scalar, scalar_words};

use crate::operator::Op;
use crate::placement::MESH_MEMBERS_MAX;

#[cfg(target_endian = "big")]
compile_error!(
    "words are viewed as bytes without a copy, which is right on little-endian machines only"
);

/// Maximum words of a frame: the header's length field has 16 bits. A longer instruction would also
/// delay the others in its ring.
pub const FRAME_WORDS_MAX: usize = 0xffff;
/// Op code and length, tag, consumed operands and signal.
pub const HEADER_WORDS: usize = 3;
/// Maximum bytes of one chunk of an upload: long enough that its header is negligible (0.1 %),
/// short enough that a ring of 64 KiB holds one while the next is being written.
pub const PAYLOAD_BYTES_MAX: usize = 32 * 1024;
/// Maximum bytes of names of signals and source positions: Linux's longest path.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Maximum length of a list: one number for each member of a group. A row has at most three such
/// lists, which fit a frame.
pub const LIST_MAX: usize = MESH_MEMBERS_MAX;
/// Limit of slots; words from here on have meanings of their own.
pub const SLOT_LIMIT: u32 = 0xffff_0000;
/// Operand word of an absent optional operand.
pub const NONE: u32 = 0xffff_ffff;
/// Operand word of a scalar, whose three words follow the operands.
pub const IMMEDIATE: u32 = 0xffff_fffe;
/// First word of a program, the operand of `compile` and `call`.
pub const PROGRAM_MAGIC: u32 = 0x6774_7031;
/// First code of messages, so that they can never be confused with an operator's.
pub const MESSAGE_CODE_FIRST: u16 = 0xf000;

/// Error of an instruction that has no binary form: a bug of ours or a user's mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    #[error("{op}: {words} words, the limit is {FRAME_WORDS_MAX}")]
    TooLong { op: &'static str, words: usize },
    #[error("{op}: a text of {bytes} bytes, the limit is {TEXT_BYTES_MAX}")]
    TextTooLong { op: &'static str, bytes: usize },
    #[error("{op}: a list of {count}, the limit is {LIST_MAX}")]
    ListTooLong { op: &'static str, count: usize },
    #[error("{op}: a payload of {bytes} bytes, the limit is {PAYLOAD_BYTES_MAX}")]
    PayloadTooLong { op: &'static str, bytes: usize },
    #[error("{op} carries no payload")]
    Payload { op: &'static str },
    #[error("{op}: %{number}.{output} is not a slot")]
    NoSlot { op: &'static str, number: u64, output: u8 },
    #[error("{op}: {count} outputs, its row has {expected}")]
    Outputs { op: &'static str, count: usize, expected: u8 },
    #[error("{op}: {count} operands, its row has {expected}")]
    Operands { op: &'static str, count: usize, expected: usize },
    #[error("{op}: operand {position} is absent but required")]
    OperandAbsent { op: &'static str, position: usize },
    #[error("{op}: consumes {consumes:#06x} names an operand that is not a value")]
    Consumes { op: &'static str, consumes: u16 },
    #[error("{op}: {count} attributes, its row has {expected}")]
    Attrs { op: &'static str, count: usize, expected: usize },
    #[error("{op}: {what} do not agree")]
    Disagreement { op: &'static str, what: &'static str },
    #[error("{op}: {attr} holds a value that does not fit")]
    Attr { op: &'static str, attr: &'static str },
}

/// The peer's mistake: words that are no instruction or message. `word` is the index at which
/// reading stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("word {word}: {reason}")]
pub struct WireError {
    pub word: usize,
    pub reason: WireReason,
}

/// Fault in the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireReason {
    #[error("the words end inside a frame")]
    Truncated,
    #[error("unknown code {0:#06x}")]
    UnknownCode(u16),
    #[error("{0} is no message of this direction")]
    Direction(&'static str),
    #[error("the bytes beside the words are missing")]
    Beside,
    #[error("the declared length holds {0} words too many")]
    Trailing(usize),
    #[error("{0:#x} is not a slot")]
    Slot(u32),
    #[error("a required operand is absent")]
    OperandAbsent,
    #[error("consumes {0:#06x} names an operand that is not a value")]
    Consumes(u16),
    #[error("{1:#x} is no {0}")]
    Value(&'static str, u32),
    #[error("{0} of {1} is over the limit")]
    Limit(&'static str, u64),
    #[error("padding is not zero")]
    Padding,
    #[error("text is not UTF-8")]
    Utf8,
    #[error("{0} do not agree")]
    Disagreement(&'static str),
}

/// Returns true if instructions of this operator carry tensor bytes.
pub fn has_payload(op: Op) -> bool {
    op.info().payload
}

/// The mask of operands that may be consumed; item k of `values` is true if operand k is a value.
pub(crate) fn consumable(values: impl Iterator<Item = bool>) -> u16 {
    let mut mask = 0;
    for (position, is_value) in values.take(16).enumerate() {
        mask |= u16::from(is_value) << position;
    }
    mask
}

/// Number of words of a string of `bytes` bytes, with its padding.
const fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(4)
}
