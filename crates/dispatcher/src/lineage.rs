//! The lineage of the workers' values: the words that the workers were sent, from which the same
//! values are made again where a worker has died.
//!
//! Modules from the bottom up: `log` (the words), `history` (their meaning: instructions, and the
//! versions of each slot), `needed` (the part that is run again), `remake` (the words that run it).
//! None of it knows of sessions' values, or of workers other than by their indices.

mod history;
mod log;
mod needed;
mod remake;

pub use log::Lineage;
pub use needed::{Possible, WantedValues, WorkerLosses};
pub use remake::{Remake, Vacancies};
