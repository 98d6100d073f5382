//! What tests of several modules share, and the tests of released frames.

pub(crate) mod arbitrary;
mod released;
