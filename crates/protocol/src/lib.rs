//! Definition of instructions: operators, shapes, dtypes, placements, their rules, and the wire and
//! text forms.
//!
//! **Architecture invariant:** pure data and functions. There is no I/O, no clock, no thread and no `unsafe` here, and
//! nothing in this crate knows of Python, sockets or workers.

#![deny(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "bytes from outside are read here, and none of them may end the process"
)]

pub mod digest;
mod error_class;
pub mod handshake;
pub mod instruction;
pub mod integer;
pub mod link;
pub mod message;
pub mod operator;
pub mod peer;
pub mod placement;
pub mod rules;
pub mod scope;
#[cfg(test)]
mod tests;
pub mod text;
pub mod value;
pub mod wire;

pub use instruction::{Attr, Id, Instruction, KEPT, Operand};
pub use operator::{
    AttrInfo, AttrKind, DtypeRule, Family, Kind, Op, OpInfo, OperandInfo, OperandKind, ViewKind,
    WeightInfo,
};
pub use value::{Dims, Dtype, Meta, Scalar, dtype, meta};
