//! Metadata of a value: the dtype of its elements, and its shape. Nothing here knows of operators.

pub mod dtype;
pub mod meta;

pub use dtype::{Dtype, Scalar};
pub use meta::{DIMS_MAX, Dims, Meta};
