//! The session: the connection and its state, the caller of an instruction (call site and signal),
//! errors, and the start of local workers. Nothing in here knows about tensors.

pub(crate) mod caller;
pub(crate) mod describe;
pub(crate) mod errors;
pub(crate) mod generator;
pub(crate) mod interpreter;
pub(crate) mod known;
pub(crate) mod region;
pub(crate) mod runtime;
pub(crate) mod signal;
pub(crate) mod site;
pub(crate) mod spawn;
