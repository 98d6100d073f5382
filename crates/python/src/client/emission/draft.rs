//! An instruction whose words are written while its operands are examined.

use super::inference::{InferenceKey, OperandKey};
use super::operands::{Arg, check_operands};
use crate::client::session::runtime;
use gt_protocol::wire::{self, EncodeError};
use gt_protocol::{Attr, Op, Scalar};
use pyo3::Python;
use smallvec::SmallVec;

/// Maximum number of words whose allocation is kept: a long list's is freed.
const WORDS_KEPT: usize = 1024;

/// Buffers for one instruction, reused by the next.
pub(crate) struct Draft {
    pub words: Vec<u32>,
    operands: Vec<OperandKey>,
    /// Word index at which numbers and attributes begin.
    tail: usize,
    /// True if a value belongs to an earlier connection.
    pub is_foreign: bool,
    has_absent: bool,
}

impl Draft {
    pub(crate) const fn new() -> Self {
        Self {
            words: Vec::new(),
            operands: Vec::new(),
            tail: 0,
            is_foreign: false,
            has_absent: false,
        }
    }

    /// Begins an instruction: writes its header, placeholders for its results' slots, and its
    /// operands. Returns the position of the first stale view, if there is one.
    #[inline]
    pub(crate) fn begin(&mut self, py: Python<'_>, op: Op, args: &[Arg<'_>]) -> Option<usize> {
        if self.words.capacity() > WORDS_KEPT {
            *self = Self::new();
        }
        let info = op.info();
        let epoch = runtime::epoch();
        let Self { words, operands, is_foreign, has_absent, .. } = self;
        words.clear();
        operands.clear();
        (*is_foreign, *has_absent) = (false, false);
        words.reserve(wire::HEADER_WORDS + 8 + args.len());
        words.extend_from_slice(&[info.code.into(), 0, 0]);
        for _ in 0..info.outputs {
            words.push(0);
        }
        let list_at = if info.has_list() { info.fixed_operands() } else { usize::MAX };
        let mut scalars: SmallVec<[Scalar; 3]> = SmallVec::new();
        for (position, arg) in args.iter().enumerate() {
            if list_at == position {
                words.push(list_length(args.len() - position));
            }
            let key = match arg {
                // A complex or large number travels in the arguments of the generic row.
                Arg::Absent | Arg::Complex(_) | Arg::Large(_) => {
                    *has_absent = true;
                    words.push(wire::NONE);
                    OperandKey::ABSENT
                }
                Arg::Scalar(scalar) => {
                    scalars.push(*scalar);
                    words.push(wire::IMMEDIATE);
                    OperandKey::SCALAR
                }
                Arg::Var(var) => {
                    let seen = var.with_value(py, |value| {
                        *is_foreign |= value.epoch != epoch;
                        words.push(value.slot);
                        OperandKey::of(&value.meta)
                    });
                    match seen {
                        Some(key) => key,
                        None => return Some(position),
                    }
                }
            };
            operands.push(key);
        }
        if list_at == args.len() {
            words.push(0);
        }
        self.tail = words.len();
        for scalar in scalars {
            words.extend_from_slice(&wire::scalar_words(scalar));
        }
        None
    }

    /// Writes attributes and the length: the instruction is complete except for its placeholders.
    #[inline]
    pub(crate) fn end(
        &mut self,
        op: Op,
        args: &[Arg<'_>],
        attrs: &[Attr],
    ) -> Result<(), EncodeError> {
        let info = op.info();
        if self.has_absent
            || !attrs.is_empty()
            || !info.attrs.is_empty()
            || args.len() != info.operands.len()
        {
            check_operands(op, args)?;
            wire::append_attrs(info, attrs, &mut self.words)?;
        }
        wire::close(info.name, &mut self.words, 0)
    }

    /// Writes the number of results, for an operator whose attributes do not imply it.
    pub(crate) fn count_outputs(&mut self, op: Op, count: usize) -> Result<(), EncodeError> {
        wire::count_outputs(&mut self.words, count);
        self.words[0] = op.info().code.into(); // drops the length of the instruction before
        wire::close(op.info().name, &mut self.words, 0)
    }

    /// The key that determines the results' metadata.
    #[inline]
    pub(crate) fn key(&self, op: Op) -> InferenceKey<'_> {
        InferenceKey { op, operands: &self.operands, words: &self.words[self.tail..] }
    }
}

#[cold]
fn list_length(count: usize) -> u32 {
    u32::try_from(count).unwrap_or_else(|_| panic!("a list of {count} operands"))
}
