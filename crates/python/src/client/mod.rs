//! The client: tensors, tape, emitter, and the connections to a dispatcher.
//!
//! Folders import only those before them in this order: `connection`, `session`, `value`, `tape`,
//! `emission`, `views`, `backward`, `surface`.
//!
//! **Architecture invariant:** the client never computes and never imports torch. Everything in here runs under the GIL,
//! which is its only lock ([`gil_cell`]); waiting releases it.

mod backward;
mod connection;
mod emission;
mod gil_cell;
mod session;
pub(crate) mod surface;
mod tape;
mod value;
mod views;
