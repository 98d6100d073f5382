//! Parts of a tensor: variables and values in entries, shared metadata, storages, and the tape as
//! data.

pub(crate) mod dtype;
mod entry;
mod memory;
pub(crate) mod metadata;
mod object;
pub(crate) mod pool;
pub(crate) mod steps;
pub(crate) mod variable;

pub(crate) use entry::ValueHandle;
pub(crate) use memory::contiguous;
pub(crate) use variable::{SharedValue, Tensor};
