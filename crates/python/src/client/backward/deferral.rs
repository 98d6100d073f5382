//! Work that a backward pass to a few leaves defers: data only; [`super::split`] fills it and
//! resumes from it.

use super::evaluate::SharedTerms;
use crate::client::tape::{Edge, SharedNode};
use crate::client::value::variable::Var;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Work that a pass to a few leaves defers.
#[derive(Default)]
pub(crate) struct Deferrals {
    /// Gradients of roots that lead to none of the inputs.
    pub(super) seeds: SmallVec<[(Edge, Var); 1]>,
    /// Nodes of which some operands' gradients are deferred, by the order of recording.
    pub(super) nodes: BTreeMap<u64, Deferral>,
}

/// A node of which a pass has computed only the gradients that lead to its inputs.
pub(crate) struct Deferral {
    pub(super) node: SharedNode,
    /// Gradients that had arrived at the node's outputs.
    pub(super) grads: SmallVec<[Option<Var>; 2]>,
    pub(super) shared: SharedTerms,
    /// Positions of operands whose gradients are deferred; a gradient is here where hooks or the
    /// user's functions gave it already.
    pub(super) operands: SmallVec<[(usize, Option<Var>); 2]>,
}
