//! Helpers of several modules' tests, and the tests of released frames.

pub(crate) mod arbitrary;
mod released;
