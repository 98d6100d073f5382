//! The operators and their rows. The rows are generated from `ops.toml`; the rules define their
//! meaning.

mod generated_op;
mod generated_rows;
mod row;
mod strided;

pub use generated_op::Op;
pub use row::*;
pub use strided::{List, Number, Strided, ViewError};
