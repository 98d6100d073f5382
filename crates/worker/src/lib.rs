//! The worker as a stepping machine: words of instructions come in, messages go out, and slots hold
//! the values.
//!
//! **Architecture invariant:** there is no transport, no thread and no clock here, and nothing
//! knows of Python. An [`Engine`] executes, a [`Replies`] takes the answers, a [`Peers`] behind a
//! [`CommunicationStream`] reaches other workers; `crates/python` and `crates/sim` supply them.
//!
//! The words come from a dispatcher, which may be wrong: garbage becomes a failure message, never a
//! panic. Messages of other workers are not trusted either.

mod attributes;
mod backend;
mod buffers;
mod codec;
mod collective;
mod engine;
mod exchange;
mod failure;
mod frame;
mod incarnations;
mod joined;
mod look_ahead;
mod machine;
mod peers;
mod reduce_op;
mod replies;
mod reuse;
mod rounding;
mod state;
mod stream;
mod strided_range;
mod table;
#[cfg(test)]
mod tests;
mod update_group;
mod work;

pub use attributes::same_attr;
pub use backend::{Backend, Collective, DirectReads, Pull, ReadReduction, Turn};
pub use buffers::{BorrowedBuffers, Buffers};
pub use codec::Codec;
pub use engine::{Engine, EngineOperand, Follower, Places, Values};
pub use failure::{Broken, Cause, FailedInstruction, Fault};
pub use gt_protocol::placement::ReduceOp;
pub use incarnations::Incarnations;
pub use look_ahead::LookAhead;
pub use machine::{Machine, Stop};
pub use peers::{CopyBytes, Front, MessageId, PeerId, PeerLost, Peers, Progress};
pub use reduce_op::{ReduceBytes, Shard, reduce};
pub use replies::{Replies, Running};
pub use stream::{Abort, CommunicationStream, Driver, Ended, Job};
pub use strided_range::StridedRange;
