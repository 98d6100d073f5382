//! Strategies of an operator on a mesh: those that its rules offer, their costs, and cached plans.
//! Pure functions of metadata and layouts; nothing is emitted here.

pub(crate) mod cache;
pub(crate) mod choose;
pub(crate) mod member;
pub(crate) mod replay;
