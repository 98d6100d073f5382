//! One line of a stream, owned: operator, results, operands, attributes.
//!
//! One type serves client, dispatcher and worker. The meaning of an [`Id`] depends on the place of
//! the instruction: a client's slot on the way to the dispatcher, a worker's slot on the way to a
//! worker, a number in a trace.

use crate::operator::{AttrInfo, Op};
use crate::value::{Dims, Dtype, Scalar};
use smallvec::SmallVec;

/// Names a value. In a trace the low eight bits are the output's index and the rest the number (`%7.1`); on the wire
/// it is a slot and the low eight bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(u64);

impl Id {
    pub const fn slot(slot: u32) -> Self {
        // A u32 always fits; `From` is not const.
        #[allow(clippy::as_conversions, reason = "u64::from is not const")]
        Self((slot as u64) << 8)
    }

    pub fn number(number: u64, output: u8) -> Self {
        Self((number << 8) | u64::from(output))
    }

    /// The slot, where the id is one.
    pub fn as_slot(self) -> Option<u32> {
        if self.parts().1 == 0 { u32::try_from(self.0 >> 8).ok() } else { None }
    }

    /// Number and output index.
    pub fn parts(self) -> (u64, u8) {
        (self.0 >> 8, self.0.to_le_bytes()[0])
    }
}

/// Content of an operand position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// An optional operand that is not there.
    Absent,
    Value(Id),
    /// A number written in place of a tensor: it promotes as `PyTorch`'s Python scalars do.
    Scalar(Scalar),
}

/// The value of an attribute; the row's [`crate::operator::AttrKind`] determines the variant.
#[derive(Clone, Debug, PartialEq)]
pub enum Attr {
    /// An optional attribute that is not there.
    Absent,
    Bool(bool),
    Int(i64),
    Float(f64),
    Scalar(Scalar),
    Dtype(Dtype),
    Ints(Dims),
    /// Integers beyond the eight of [`Dims`]: the members of a group, their sizes.
    List(Box<[i64]>),
    Choice(u8),
    Text(Box<str>),
}

/// Signal of an instruction on its way to a worker that is executed even where a user cancels what
/// is around it, since a value from before depends on it.
pub const KEPT: u16 = 1;

/// One instruction. `operands` holds the fixed positions of the row first, then the list's values.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction<'a> {
    pub op: Op,
    /// Client to dispatcher: the interned source position. Dispatcher to worker: the low 32 bits of
    /// the instruction's number.
    pub tag: u32,
    /// The interned signal scope, 0 for none. Dispatcher to worker: 0, or [`KEPT`].
    pub signal: u16,
    /// Bit k: this instruction holds the last reference to operand k.
    pub consumes: u16,
    pub outputs: SmallVec<[Id; 4]>,
    pub operands: SmallVec<[Operand; 4]>,
    pub attrs: SmallVec<[Attr; 2]>,
    /// Tensor bytes that the instruction carries (`upload`, `chunk`).
    pub payload: &'a [u8],
}

impl Instruction<'_> {
    /// An instruction of an operator with everything else empty.
    pub fn new(op: Op) -> Self {
        Self {
            op,
            tag: 0,
            signal: 0,
            consumes: 0,
            outputs: SmallVec::new(),
            operands: SmallVec::new(),
            attrs: SmallVec::new(),
            payload: &[],
        }
    }

    /// The attribute `name` of the row; `Absent` where the row has none of this name.
    pub fn attr(&self, name: &str) -> &Attr {
        self.op
            .info()
            .attr_index(name)
            .and_then(|index| self.attrs.get(index))
            .unwrap_or(&Attr::Absent)
    }

    /// Values among the operands, in order.
    pub fn values(&self) -> impl Iterator<Item = Id> + '_ {
        self.operands.iter().filter_map(|operand| match operand {
            Operand::Value(id) => Some(*id),
            Operand::Absent | Operand::Scalar(_) => None,
        })
    }
}

impl Attr {
    /// Returns true if the value's kind is that of the attribute.
    pub fn fits(&self, info: &AttrInfo) -> bool {
        use crate::operator::AttrKind;
        match (self, info.kind) {
            (Self::Absent, _) => info.optional,
            (Self::Bool(_), AttrKind::Bool)
            | (Self::Int(_), AttrKind::Int)
            | (Self::Float(_), AttrKind::Float)
            | (Self::Scalar(_), AttrKind::Scalar)
            | (Self::Dtype(_), AttrKind::Dtype)
            | (Self::Ints(_), AttrKind::Ints)
            | (Self::List(_), AttrKind::List)
            | (Self::Text(_), AttrKind::Text) => true,
            (Self::Choice(index), AttrKind::Choice(words)) => usize::from(*index) < words.len(),
            (
                Self::Bool(_)
                | Self::Int(_)
                | Self::Float(_)
                | Self::Scalar(_)
                | Self::Dtype(_)
                | Self::Ints(_)
                | Self::List(_)
                | Self::Choice(_)
                | Self::Text(_),
                AttrKind::Bool
                | AttrKind::Int
                | AttrKind::Float
                | AttrKind::Scalar
                | AttrKind::Dtype
                | AttrKind::Ints
                | AttrKind::List
                | AttrKind::Text
                | AttrKind::Choice(_),
            ) => false,
        }
    }
}
