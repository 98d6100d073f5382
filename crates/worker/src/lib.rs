//! The worker as a stepping machine: words of instructions in, messages out, values in slots between them.
//!
//! **Architecture invariant:** there is no transport, no thread and no clock here, and nothing knows of Python. What
//! executes is an [`Engine`], what answers is a [`Replies`], what reaches other workers is a [`Peers`] behind a [`Lane`];
//! `crates/python` and `crates/sim` supply them.
//!
//! The words come from a dispatcher, which may be wrong: garbage becomes a failure message, never a panic.

mod collective;
mod engine;
mod failure;
mod lane;
mod look_ahead;
mod machine;
mod peers;
mod reduce_op;
mod reuse;
mod table;
#[cfg(test)]
mod tests;
mod ways;
mod work;

pub use collective::Broken;
pub use engine::{Buffers, Engine, Input, Loan, Places, ReduceBytes, ReduceOp, Values};
pub use failure::{Cause, Fault};
pub use lane::{Driver, Ended, Job, Lane, Refusal};
pub use look_ahead::LookAhead;
pub use machine::{Machine, Replies, Stop};
pub use peers::{Front, Nobody, PeerLost, Peers, Progress, Stream};
pub use reduce_op::reduce;
pub use ways::{Meeting, Pull, Reducing, StridedRange, Turn, WORD_BYTES_MAX, Way, Work};
