//! The client: tensors, tape, emitter, and the connections to a dispatcher.
//!
//! **Architecture invariant:** the client never computes and never imports torch. Everything in here runs under the GIL,
//! which is its only lock ([`gil_cell`]); waiting releases it.

mod alias;
mod answers;
mod backward;
mod caller;
mod connection;
mod convert;
mod default_float;
mod dial;
mod dtype;
mod edge;
mod embedded_connection;
mod emission;
mod emit;
mod errors;
mod evaluate;
mod formula;
mod function;
#[rustfmt::skip]
mod generated_formulas;
mod generated_methods;
mod generated_operators;
mod generator;
mod gil_cell;
mod greeting;
mod history;
mod in_place;
mod incoming;
mod indexing;
mod interface;
mod interpreter;
mod metadata;
mod methods;
mod new_array;
mod payload;
mod placing;
mod pool;
mod properties;
mod read;
mod ring_connection;
mod ring_inbox;
mod runtime;
mod saved;
mod sharing;
mod signal;
mod site;
mod spawn;
mod steps;
mod tape;
mod tcp_connection;
mod tensor;
mod term;
mod trace;
mod update;
mod upload;
mod value;
mod views;
mod write;

pub(crate) use interface::register;
