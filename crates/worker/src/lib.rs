//! The worker as a stepping machine: words of instructions in, messages out, values in slots between them.
//!
//! **Architecture invariant:** there is no transport, no thread and no clock here, and nothing knows of Python. What
//! executes is an [`Engine`], what answers is a [`Replies`], what reaches other workers is a [`Peers`]; `crates/python`
//! and `crates/sim` supply them.
//!
//! The words come from a dispatcher, which may be wrong: garbage becomes a failure message, never a panic.

mod collective;
mod engine;
mod failure;
mod machine;
mod reuse;
mod table;
#[cfg(test)]
mod tests;

pub use collective::{Parcel, PeerLost, Peers, Received};
pub use engine::{Engine, Fold, Input, Values};
pub use failure::{Cause, Fault};
pub use machine::{Machine, Replies, Stop};
