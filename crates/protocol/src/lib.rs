//! What an instruction is: operators, shapes, dtypes, placements, their rules, and the wire and text forms.
//!
//! **Architecture invariant:** pure data and functions. There is no I/O, no clock, no thread and no `unsafe` here, and
//! nothing in this crate knows of Python, sockets or workers.

#![deny(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "bytes from outside are read here, and none of them may end the process"
)]

#[cfg(test)]
mod arbitrary;
pub mod dtype;
mod generated;
pub mod handshake;
pub mod instruction;
pub mod link;
pub mod message;
pub mod meta;
pub mod op;
pub mod placement;
#[cfg(test)]
mod released;
pub mod rules;
pub mod scope;
pub mod text;
pub mod wire;

pub use dtype::{Dtype, Scalar};
pub use generated::Op;
pub use instruction::{Attr, Id, Instruction, Operand};
pub use meta::{Dims, Meta};
pub use op::{
    AttrInfo, AttrKind, DtypeRule, Family, OpInfo, OperandInfo, OperandKind, View, WeightInfo,
};
