//! Shape and dtype rules, one file for each family. The client calls them at the user's line, the
//! dispatcher on arrival.
//!
//! A rule sees metadata only and never panics: operands and attributes may come from a peer. The
//! execution and the placement of operators must not be in here.

mod call;
mod complex;
mod contract;
mod control;
mod create;
pub mod decomposition;
mod default_float;
mod elementwise;
mod equation;
mod error;
mod generated_rules;
mod generic;
mod index;
mod infer;
mod loss;
mod normalize;
mod outputs;
mod random;
mod reduce;
mod scatter;
mod shape;
pub mod spread;
pub mod strided;
#[cfg(test)]
mod tests;
mod unchanged;
mod update;
mod view;

pub use crate::error_class::ErrorClass;
pub use call::describe;
pub use complex::is_real_only;
pub use default_float::floats_by_default;
pub use error::RuleError;
pub use infer::infer;
pub use outputs::{Outputs, RuleArg, promote};
pub use shape::stored_name;
pub use unchanged::keeps_metadata;
pub use update::replaced_operands;
