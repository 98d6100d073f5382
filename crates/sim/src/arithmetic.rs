//! Operators in plain arithmetic modulo a prime: tensors, one loop for each kernel, and operators
//! with their attributes.
//!
//! The oracle runs these on whole values and the simulated workers on the shards they are sent. Nothing of the rules, the
//! planner or the sharding may be used here: the oracle would repeat their mistakes.

pub mod compute;
pub mod kernels;
pub mod tensor;
