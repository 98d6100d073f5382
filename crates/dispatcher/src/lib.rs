//! The dispatcher's core: handles, planning, placement, failures. A pure state machine.
//!
//! It has two entry points. [`Dispatcher::instruction`] is the hot one: an instruction of a client
//! comes in, instructions for workers go out through a [`Sink`]. [`Dispatcher::handle`] takes
//! everything else: peers that join and leave, and messages of workers. The owner of the sockets
//! and rings calls both; the simulator drives them in the same way.
//!
//! Modules from the bottom up: `event` (inputs and outputs), `cost`; `workers` (their slots), `lineage` (how their values are made again),
//! `session` (one client's values and history), `strategy` (strategies of an operator on a mesh);
//! `planner` (the context of one instruction's plan); `reshard` (redistributing shards); `plan`
//! (planning one instruction); `control` (instructions that compute nothing); `dispatcher`.
//!
//! **Architecture invariant:** no I/O, clock, thread, randomness or hash-map iteration here. The same calls in the same
//! order give the same outputs. The core never looks inside tensor bytes.

mod control;
mod cost;
mod dispatcher;
mod event;
mod lineage;
mod number;
mod plan;
mod planner;
mod reshard;
mod session;
mod strategy;
mod trace_line;
mod workers;

pub use cost::{CostModel, CostModelError, LinkCost, Links};
pub use dispatcher::probe::{Measured, Probe};
pub use dispatcher::{Dispatcher, NamedSummary, SessionRefusal, UserHolding};
pub use event::{ClientFault, Event, SessionId, Sink, Statistics, TraceNotes, WorkerIndex};
pub use lineage::{Lineage, Possible, Remake, Vacancies, WantedValues, WorkerLosses};
pub use planner::Config;
pub use trace_line::{TraceLine, decision_line};
