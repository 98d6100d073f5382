//! Views as data: the strides of an operator whose result shares its operand's memory, and how a write through it goes
//! back. The expressions stand in `ops.toml`, in the columns `strided.*`; `rules/strided.rs` evaluates them.

use super::Op;

/// A whole number.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Literal(i64),
    Attr(usize),
    At(&'static List, &'static Number),
    Length(&'static List),
    Add(&'static Number, &'static Number),
    Subtract(&'static Number, &'static Number),
    Multiply(&'static Number, &'static Number),
    /// Rounded down.
    Divide(&'static Number, &'static Number),
    Min(&'static Number, &'static Number),
    Max(&'static Number, &'static Number),
    Less(&'static Number, &'static Number),
    Equal(&'static Number, &'static Number),
    /// The second if the first is not 0, else the third.
    If(&'static Number, &'static Number, &'static Number),
}

/// A number for each of some dimensions.
#[derive(Clone, Copy, Debug)]
pub enum List {
    /// Of the operand.
    Sizes,
    Strides,
    /// The sizes of the result.
    Result,
    /// The first attribute of the operator that was taken before, of two that become one.
    Before,
    Attr(usize),
    Of(&'static [Number]),
    Join(&'static List, &'static List),
    /// The list with another number at one place; a scalar has no place.
    Set(&'static List, &'static Number, &'static Number),
    Without(&'static List, &'static List),
    /// The numbers at these places.
    Pick(&'static List, &'static List),
    /// Where each dimension of an order went.
    Inverse(&'static List),
    /// Strides of the result, an operand stretched to it.
    Stretched,
    /// Strides of the result, the same elements in another shape; `None` where a copy is needed.
    Regrouped,
}

/// A mistake of the user: where `condition` is not 0. The text has numbers at its braces.
#[derive(Clone, Copy, Debug)]
pub struct ViewError {
    pub condition: Number,
    pub text: &'static str,
    pub numbers: &'static [Number],
}

/// What the columns `strided.*` say.
#[derive(Clone, Copy, Debug)]
pub struct Strided {
    /// Bit k: attribute k names dimensions, which may be counted from the back.
    pub dims: u16,
    /// Nothing where the row has a rule of its own.
    pub sizes: Option<List>,
    pub errors: &'static [ViewError],
    pub strides: List,
    pub offset: Number,
    /// The first attribute is the result's shape, with sizes left open.
    pub sized: bool,
    /// The attribute with which the operator takes its result back.
    pub undo: Option<List>,
    /// The attribute with which it does what twice would.
    pub merged: Option<List>,
    /// The operator that writes a part of a value where this one reads.
    pub scatter: Option<Op>,
}
