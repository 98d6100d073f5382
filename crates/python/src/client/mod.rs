//! The client: tensors, tape, emitter, and the doors to a dispatcher.
//!
//! **Architecture invariant:** the client never computes and never imports torch. Everything in here runs under the GIL,
//! which is its only lock ([`gil_cell`]); waiting releases it.

mod alias;
mod answers;
mod backward;
mod caller;
mod connect;
mod convert;
mod default_float;
mod door;
mod dtype;
mod edge;
mod embedded;
mod emit;
mod errors;
mod function;
mod generated_methods;
mod generator;
mod gil_cell;
mod gradient_rules;
mod history;
mod in_place;
mod indexing;
mod interface;
mod interpreter;
mod methods;
mod new_array;
mod payload;
mod placing;
mod properties;
mod read;
mod ring_door;
mod runtime;
mod saved;
mod signal;
mod site;
mod spawn;
mod storage;
mod tape;
mod tcp_door;
mod tensor;
mod trace;
mod update;
mod upload;
mod usual;
mod value;
mod views;
mod write;

pub(crate) use interface::register;
