//! One collective at one member: the messages that it sends, receives and reduces, step by step,
//! over any kind of link.
//!
//! Nothing here knows of other instructions, of slots or of engines: the stream advances exchanges,
//! and a machine decides what they belong to.

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
