//! Mistakes that the simulator must find: each is behind a feature that no build in use turns on. They cost nothing
//! there: the conditions are constants.

/// A gathered copy is freed before the read that it was gathered for.
pub(crate) const FREE_EARLY: bool = cfg!(feature = "planted-free-early");
/// Partial results are taken for whole ones.
pub(crate) const DROPPED_FOLD: bool = cfg!(feature = "planted-dropped-fold");
/// Shards are put together in the wrong order.
pub(crate) const GATHER_ORDER: bool = cfg!(feature = "planted-gather-order");
/// A dependent names itself as the first cause.
pub(crate) const CAUSE_LOST: bool = cfg!(feature = "planted-cause-lost");
/// An answer goes to the oldest session.
pub(crate) const ANSWER_ASTRAY: bool = cfg!(feature = "planted-answer-astray");
/// What a client held stays when it leaves.
pub(crate) const LEAK_ON_LEAVE: bool = cfg!(feature = "planted-leak-on-leave");
/// Copies of a replicated value are made and not remembered.
pub(crate) const REPLICA_FORGOTTEN: bool = cfg!(feature = "planted-replica-forgotten");
/// Nobody answers a request whose worker is gone.
pub(crate) const REQUEST_LOST: bool = cfg!(feature = "planted-request-lost");
