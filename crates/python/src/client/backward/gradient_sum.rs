//! The gradient that arrives at one place: whole gradients, summed as they arrive, and gradients
//! of views, by view. The views' gradients are combined once, when all have arrived
//! ([`super::view_gradients`]): a loop over the slices of a value would otherwise make a whole
//! gradient for each slice.

use super::view_gradients::{self, plus};
use super::windows::ViewGradient;
use crate::client::tape::{self, Node, SharedNode};
use crate::client::value::variable::Var;
use gt_protocol::Attr;
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;

/// Depth up to which views of views are kept apart, so that no recursion goes deeper.
const DEPTH_MAX: usize = 8;
/// Gradients of operands, by their places.
pub(super) type Gradients = SmallVec<[(usize, Var); 2]>;

/// Gradients of overlapping views are combined once their elements exceed this many times those of
/// the whole.
const HELD_MAX: i64 = 2;

#[derive(Default)]
pub(super) struct Sum {
    whole: Option<Var>,
    views: Option<Box<Views>>,
}

/// Gradients of views of one value.
struct Views {
    by_key: BTreeMap<ViewKey, ViewSum>,
    depth: usize,
    /// Number of elements of all gradients held here.
    elements: i64,
}

struct ViewSum {
    /// One of the recorded instructions that took the view.
    node: SharedNode,
    sum: Sum,
}

/// A view operator and its attributes. Nodes of one value with the same key take the same view.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ViewKey(SmallVec<[i64; 8]>);

impl ViewKey {
    /// `None` where the node is no view.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let info = node.op()?.info();
        if info.view.is_none() || node.inputs.len() != 1 {
            return None;
        }
        let mut key: SmallVec<[i64; 8]> = smallvec![info.code.into()];
        for attr in &node.attrs {
            match attr {
                Attr::Int(value) => key.push(*value),
                Attr::Ints(dims) => {
                    key.push(dims.rank());
                    key.extend_from_slice(dims.as_slice());
                }
                Attr::Absent
                | Attr::Bool(_)
                | Attr::Float(_)
                | Attr::Scalar(_)
                | Attr::Dtype(_)
                | Attr::List(_)
                | Attr::Choice(_)
                | Attr::Text(_) => return None,
            }
        }
        Some(Self(key))
    }
}

impl Sum {
    pub(super) fn of(whole: Option<Var>) -> Self {
        Self { whole, views: None }
    }

    /// Returns true if only gradients of views have arrived, so that they may be passed on
    /// separately.
    pub(super) fn is_of_views(&self) -> bool {
        let shallow = self.views.as_ref().is_some_and(|views| views.depth < DEPTH_MAX);
        self.whole.is_none() && shallow
    }

    pub(super) fn add(&mut self, py: Python<'_>, grad: Var) -> PyResult<()> {
        self.whole = Some(match self.whole.take() {
            None => grad,
            Some(sum) => plus(py, &sum, &grad)?,
        });
        Ok(())
    }

    /// Adds the gradient that arrived at a view of this value; `node` took the view.
    pub(super) fn add_view(
        &mut self,
        py: Python<'_>,
        node: &SharedNode,
        key: ViewKey,
        sum: Self,
    ) -> PyResult<()> {
        let empty = || Box::new(Views { by_key: BTreeMap::new(), depth: 0, elements: 0 });
        let views = self.views.get_or_insert_with(empty);
        views.depth = views.depth.max(sum.depth() + 1);
        if let Some(view) = views.by_key.get_mut(&key) {
            return view.sum.merge(py, sum);
        }
        views.elements = views.elements.saturating_add(sum.elements(py));
        views.by_key.insert(key, ViewSum { node: node.clone_ref(py), sum });
        let held = views.elements;
        let whole = node.inputs.first().and_then(|input| input.meta.as_ref());
        let elements = whole.map_or(0, |meta| meta.elements());
        if !tape::grad_enabled() && held > elements.saturating_mul(HELD_MAX) {
            self.whole = std::mem::take(self).total(py)?;
        }
        Ok(())
    }

    fn merge(&mut self, py: Python<'_>, other: Self) -> PyResult<()> {
        if let Some(grad) = other.whole {
            self.add(py, grad)?;
        }
        for (key, ViewSum { node, sum }) in other.views.into_iter().flat_map(|views| views.by_key) {
            self.add_view(py, &node, key, sum)?;
        }
        Ok(())
    }

    /// Combines everything into one gradient; `None` where nothing has arrived.
    pub(super) fn total(self, py: Python<'_>) -> PyResult<Option<Var>> {
        let Some(views) = self.views else { return Ok(self.whole) };
        let mut parts = Vec::with_capacity(views.by_key.len());
        for ViewSum { node, sum } in views.by_key.into_values() {
            if let Some(grad) = sum.total(py)? {
                parts.push(ViewGradient::new(node, grad));
            }
        }
        view_gradients::combined(py, self.whole, parts)
    }

    fn depth(&self) -> usize {
        self.views.as_ref().map_or(0, |views| views.depth)
    }

    fn elements(&self, py: Python<'_>) -> i64 {
        let whole = self.whole.as_ref().map_or(0, |grad| grad.meta(py).elements());
        self.views.as_ref().map_or(whole, |views| whole.saturating_add(views.elements))
    }
}
