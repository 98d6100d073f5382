//! How an operator runs on a mesh: the strategies of its rules, what they cost, and the plans that were made before. Pure
//! functions of metadata and layouts; nothing is emitted here.

pub(crate) mod cache;
pub(crate) mod choose;
pub(crate) mod member;
pub(crate) mod replay;
