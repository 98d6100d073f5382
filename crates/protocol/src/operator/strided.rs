//! Views as data: the strides of an operator whose result shares its operand's memory, and the
//! operator that writes back through it. The expressions are in `ops.toml`, in the columns
//! `strided.*`; `rules/strided.rs` evaluates them.

use super::Op;

/// An expression for an integer.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Literal(i64),
    Attr(usize),
    At(&'static List, &'static Number),
    Length(&'static List),
    Add(&'static Number, &'static Number),
    Subtract(&'static Number, &'static Number),
    Multiply(&'static Number, &'static Number),
    /// Quotient, rounded down.
    Divide(&'static Number, &'static Number),
    Min(&'static Number, &'static Number),
    Max(&'static Number, &'static Number),
    Less(&'static Number, &'static Number),
    Equal(&'static Number, &'static Number),
    /// The second value if the first is not 0, else the third.
    If(&'static Number, &'static Number, &'static Number),
}

/// An expression for one number for each of some dimensions.
#[derive(Clone, Copy, Debug)]
pub enum List {
    /// Sizes of the operand.
    Sizes,
    Strides,
    /// The sizes of the result.
    Result,
    /// The first attribute of the earlier operator, of two that are merged into one.
    Before,
    Attr(usize),
    Of(&'static [Number]),
    Join(&'static List, &'static List),
    /// The list with one number replaced; unchanged for a scalar, which has no dimension.
    Set(&'static List, &'static Number, &'static Number),
    Without(&'static List, &'static List),
    /// The numbers at these indices.
    Pick(&'static List, &'static List),
    /// Inverse of a permutation of dimensions.
    Inverse(&'static List),
    /// Strides of the result of broadcasting an operand.
    Stretched,
    /// Strides of the result of a reshape; `None` where a copy is needed.
    Regrouped,
}

/// A user's mistake, present where `condition` is not 0. The braces of the text are replaced by
/// numbers.
#[derive(Clone, Copy, Debug)]
pub struct ViewError {
    pub condition: Number,
    pub text: &'static str,
    pub numbers: &'static [Number],
}

/// The columns `strided.*` of a row.
#[derive(Clone, Copy, Debug)]
pub struct Strided {
    /// Bit k: attribute k names dimensions, which may be negative.
    pub dims: u16,
    /// Sizes of the result; `None` where the row has a rule of its own.
    pub sizes: Option<List>,
    pub errors: &'static [ViewError],
    pub strides: List,
    pub offset: Number,
    /// The first attribute is the result's shape, in which a size may be -1.
    pub sized: bool,
    /// The attribute with which the operator undoes itself.
    pub undo: Option<List>,
    /// The attribute with which one operator replaces two.
    pub merged: Option<List>,
    /// The operator that writes a part of a value where this one reads.
    pub scatter: Option<Op>,
}
