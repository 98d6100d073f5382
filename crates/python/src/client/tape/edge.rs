//! The edge of a variable, where its gradient goes: leaves, recorded operators, and views whose
//! memory was written since.

use crate::client::session::errors;
use crate::client::tape::{self, Edge};
use crate::client::value::Tensor;
use crate::client::value::steps::Step;
use crate::client::value::variable::{Origin, Var};
use gt_protocol::rules::ErrorClass;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;

impl Tensor {
    /// Sets whether a leaf accumulates gradients; its node then leads back to this very object.
    pub(crate) fn require_grad(slf: &Bound<'_, Self>, requires: bool) -> PyResult<()> {
        let (py, var) = (slf.py(), &slf.get().var);
        var.set_requires_grad(py, requires)?;
        if requires && var.accumulates(py) { Self::remember(slf) } else { Ok(()) }
    }

    /// The program's Python object of a leaf, or a new one where that is gone.
    pub(crate) fn of_leaf<'py>(py: Python<'py>, leaf: &Var) -> PyResult<Bound<'py, Self>> {
        let known = {
            let state = leaf.look(py);
            state.cold().and_then(|cold| cold.object.as_ref().map(|object| object.clone_ref(py)))
        };
        if let Some(weak) = known
            && let Some(object) = weak.bind(py).upgrade_as::<Self>()?
        {
            return Ok(object);
        }
        let object = Self::wrap(py, leaf.clone())?;
        Self::remember(&object)?;
        Ok(object)
    }

    fn remember(slf: &Bound<'_, Self>) -> PyResult<()> {
        let weak = PyWeakrefReference::new(slf)?.unbind();
        let old = slf.get().var.state(slf.py()).cold_mut().object.replace(weak);
        drop(old);
        Ok(())
    }
}

impl Var {
    pub(crate) fn requires_grad(&self, py: Python<'_>) -> bool {
        let state = self.look(py);
        if self.accumulates(py) || state.edge.is_some() {
            return true;
        }
        let root = state.alias().and_then(|alias| alias.view.as_ref()).map(|view| &view.root);
        root.is_some_and(|root| root.requires_grad(py))
    }

    /// Returns true if a gradient may have to flow through here. It looks at its own state only, so
    /// it is true for a view.
    #[inline]
    pub(crate) fn may_require_grad(&self, py: Python<'_>) -> bool {
        let state = self.look(py);
        self.accumulates(py) || state.edge.is_some() || state.alias().is_some()
    }

    /// Returns true if no recorded operator is known to have made the variable; a stale view is not
    /// taken again for this.
    pub(crate) fn is_plain(&self, py: Python<'_>) -> bool {
        self.look(py).edge.is_none()
    }

    /// Returns true if no recorded operator made the variable.
    pub(crate) fn is_leaf(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(!matches!(self.edge(py)?, Some(Edge::Node(..))))
    }

    /// Sets whether a leaf accumulates gradients.
    pub(crate) fn set_requires_grad(&self, py: Python<'_>, requires: bool) -> PyResult<()> {
        let mistake = |text: &str| Err(errors::mistake(py, ErrorClass::Runtime, text));
        if !self.is_plain(py) {
            if requires {
                return Ok(());
            }
            return mistake(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable \
                 in a subgraph that doesn't require differentiation use var_no_grad = var.detach().",
            );
        }
        if requires && !self.meta(py).dtype.is_differentiable() {
            return mistake("only Tensors of floating point dtype can require gradients");
        }
        self.set_accumulates(py, requires);
        Ok(())
    }

    /// Edge of the variable; a view whose memory was written derives it from its root again.
    pub(crate) fn edge(&self, py: Python<'_>) -> PyResult<Option<Edge>> {
        let stale = {
            let state = self.look(py);
            match state.alias() {
                None => {
                    return Ok(match &state.edge {
                        None if self.accumulates(py) => Some(Edge::Leaf(self.clone_ref(py))),
                        edge => edge.as_ref().map(|edge| edge.clone_ref(py)),
                    });
                }
                Some(alias) => alias.view.as_ref().map(|view| view.version != alias.counter.now()),
            }
        };
        if stale == Some(true) {
            self.refresh(py)?;
        }
        let edge = self.look(py).edge.as_ref().map(|edge| edge.clone_ref(py));
        if edge.is_some() || !self.requires_grad(py) {
            return Ok(edge);
        }
        let leaf = || Edge::Leaf(self.clone_ref(py));
        Ok(Some(if self.accumulates(py) { leaf() } else { Edge::Nowhere }))
    }

    /// Derives the edge of a view again: from its root's, by the operators between them.
    #[cold]
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        let (origin, now) = {
            let state = self.look(py);
            let Some(alias) = state.alias() else { return Ok(()) };
            let Some(view) = &alias.view else { return Ok(()) };
            if state.edge.is_none() && !view.root(py).requires_grad(py) {
                return Ok(());
            }
            (view.origin, alias.counter.now())
        };
        if origin != Origin::Recorded {
            return Err(self.forbidden(py, origin, true));
        }
        let Some((root, steps)) = self.way_from_root(py)? else { return Ok(()) };
        let edge = tape::link_views(py, root.edge(py)?, root.meta(py), &steps);
        self.set_edge(py, edge);
        let mut state = self.state(py);
        if let Some(view) = state.alias_mut().and_then(|alias| alias.view.as_mut()) {
            view.version = now;
        }
        Ok(())
    }

    /// The root of a view, and the operators from there to the view.
    pub(crate) fn way_from_root(&self, py: Python<'_>) -> PyResult<Option<(Self, Vec<Step>)>> {
        let way = {
            let state = self.look(py);
            let Some(alias) = state.alias() else { return Ok(None) };
            let Some(view) = &alias.view else { return Ok(None) };
            let root = view.root(py);
            let steps = alias.steps_from(py, &root, view);
            steps.map(|steps| (root, steps))
        };
        let missing = || {
            let text = "the tensor that this is a view of was resized in place since, and does not have all elements of \
                        the view: take the view again";
            errors::mistake(py, ErrorClass::Runtime, text)
        };
        way.map(Some).ok_or_else(missing)
    }

    /// Sets the edge after another operator made the current value; `retain_grad` moves along.
    pub(crate) fn set_edge(&self, py: Python<'_>, edge: Option<Edge>) {
        let (old, retains) = {
            let mut state = self.state(py);
            let retains = state.cold().is_some_and(|cold| cold.retains);
            (std::mem::replace(&mut state.edge, edge.clone()), retains)
        };
        drop(old);
        if let (true, Some(Edge::Node(node, output))) = (retains, edge) {
            node.cold
                .get_mut(py)
                .get_or_insert_default()
                .retained
                .push((output, self.downgrade(py)));
        }
    }

    /// `retain_grad()`: keeps the gradient of the current value, and of those that replace it.
    pub(crate) fn retain_grad(&self, py: Python<'_>) -> PyResult<()> {
        if !self.requires_grad(py) {
            let text = "can't retain_grad on Tensor that has requires_grad=False";
            return Err(errors::mistake(py, ErrorClass::Runtime, text));
        }
        if !self.is_plain(py)
            && let Some(edge @ Edge::Node(..)) = self.edge(py)?
        {
            let again = std::mem::replace(&mut self.state(py).cold_mut().retains, true);
            if !again {
                self.set_edge(py, Some(edge));
            }
        }
        Ok(())
    }

    /// Returns true if this variable's edge is still this output of `node`.
    pub(crate) fn comes_from(&self, py: Python<'_>, node: &tape::SharedNode, output: u32) -> bool {
        matches!(&self.look(py).edge, Some(Edge::Node(mine, place)) if mine.is(node) && *place == output)
    }

    /// The error for writing a view of this origin or, if `indirect`, for using it after its root
    /// was written.
    pub(crate) fn forbidden(&self, py: Python<'_>, origin: Origin, indirect: bool) -> PyErr {
        let name = match &self.look(py).edge {
            Some(Edge::Node(node, _)) => Some(node.function_name()),
            Some(Edge::Leaf(_) | Edge::Nowhere) | None => None,
        };
        let what =
            if indirect { "its base or another view of its base has been" } else { "is being" };
        let what = match (origin, name) {
            (Origin::Several(place, function), Some(name)) => {
                let (place, name) =
                    function.map_or((0, name.as_str()), |function| (place, function));
                format!("Output {place} of {name} is a view and {what} modified inplace.")
            }
            (Origin::Function { place, .. }, Some(name)) => {
                format!("Output {place} of {name} is a view and {what} modified inplace.")
            }
            (_, Some(name)) => format!(
                "Output 0 of {name} is a view of a view which was created in no_grad mode and {what} modified \
                 inplace with grad mode enabled."
            ),
            (_, None) => format!(
                "A view was created in no_grad mode and {what} modified inplace with grad mode enabled."
            ),
        };
        let why = match origin {
            Origin::Function { several: false, .. } => {
                "This view was created inside a custom Function (or because an input was returned as-is) and the \
                 autograd logic to handle view+inplace would override the custom backward associated with the custom \
                 Function, leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning \
                 the output of the custom Function."
            }
            Origin::Several(..) | Origin::Function { several: true, .. } => {
                "This view is the output of a function that returns multiple views. Such functions do not allow the \
                 output views to be modified inplace. You should replace the inplace operation by an out-of-place \
                 one."
            }
            Origin::NoGrad | Origin::Recorded => {
                "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code \
                 by moving both the view and the inplace either both inside the no_grad block (if you don't want the \
                 inplace to be tracked) or both outside (if you want the inplace to be tracked)."
            }
        };
        errors::mistake(py, ErrorClass::Runtime, format!("{what} {why}"))
    }
}
