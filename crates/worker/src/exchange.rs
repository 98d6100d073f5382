//! What one collective sends, takes in and reduces at one member, step by step, over whatever reaches the others.
//!
//! Nothing here knows of instructions that follow, of slots or of engines: the stream moves exchanges on, and a machine
//! decides what they are of.

mod bucket;
mod group;
mod header;
mod messages;
mod reads;
mod round;

pub use bucket::{ALIGNMENT, BucketMemory, MessageBytes};
pub use group::Group;
pub use messages::{Exchange, ExchangeStep};
pub use reads::first_payloads;
pub use round::{Round, RoundPayloads, RoundReply};
