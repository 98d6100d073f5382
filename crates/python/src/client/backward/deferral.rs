//! What a backward pass to a few leaves puts off: data, which [`super::split`] fills and goes on with.

use super::evaluate::SharedTerms;
use crate::client::tape::{Edge, SharedNode};
use crate::client::value::variable::Var;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// What a pass to a few leaves leaves for later.
#[derive(Default)]
pub(crate) struct Deferrals {
    /// Gradients of roots that lead to none of the inputs.
    pub(super) seeds: SmallVec<[(Edge, Var); 1]>,
    /// Nodes whose operands' gradients are put off, in part, by the order of recording.
    pub(super) nodes: BTreeMap<u64, Deferral>,
}

/// A node of which a pass has computed what leads to its inputs.
pub(crate) struct Deferral {
    pub(super) node: SharedNode,
    /// What had arrived at its outputs.
    pub(super) grads: SmallVec<[Option<Var>; 2]>,
    pub(super) shared: SharedTerms,
    /// Operands whose gradients are put off; those that hooks or functions of the user's have given already.
    pub(super) operands: SmallVec<[(usize, Option<Var>); 2]>,
}
