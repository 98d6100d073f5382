//! The operators: which there are, and the row of each. The rows are written from `ops.toml`; what they mean is in the rules.

mod generated_op;
mod generated_rows;
mod row;
mod strided;

pub use generated_op::Op;
pub use row::*;
pub use strided::{List, Number, Strided, ViewError};
