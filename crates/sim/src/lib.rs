//! The simulator: the real core and real worker machines with simulated clients, links and clock, all from one seed.
//!
//! Every answer is compared with an oracle that executes each client's program by itself, in plain
//! arithmetic modulo a prime; the dispatcher's own counts are compared with a shadow accounting at
//! every step.
//!
//! **Architecture invariant:** no thread, clock, hash map or randomness except `random::Random`.
//! The oracle and the arithmetic know nothing of the rules, the planner or the sharding.

#![allow(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulator itself and has to stop it; no bytes come from outside"
)]

mod arithmetic;
mod client;
mod engine;
pub mod exact;
mod framed;
mod mistake;
mod network;
mod oracle;
mod program;
mod random;
mod shadow;
mod shell;
mod worker;
mod world;

pub use client::ProgramLine;
pub use mistake::Mistake;
pub use shell::Detail;
pub use world::{Scenario, Simulation, SimulationResult, Summary, Violation, shrink, simulate};
