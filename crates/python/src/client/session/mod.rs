//! The session: the connection and its state, who makes an instruction (call site and signal), what goes wrong, and how workers
//! of one's own are started. Nothing in here knows what a tensor is.

pub(crate) mod caller;
pub(crate) mod describe;
pub(crate) mod errors;
pub(crate) mod generator;
pub(crate) mod interpreter;
pub(crate) mod runtime;
pub(crate) mod signal;
pub(crate) mod site;
pub(crate) mod spawn;
