//! What a recorded instruction has kept for its gradient formulas: an error where it has been written since.

use crate::client::session::errors;
use crate::client::tape::{self, Edge, Node, Place, SharedNode};
use crate::client::value::variable::Var;
use gt_protocol::rules::ErrorClass;
use pyo3::prelude::*;

/// The variable of a saved operand or output; `None` where it was not saved.
pub(crate) fn at(py: Python<'_>, node: &SharedNode, place: Place) -> PyResult<Option<Var>> {
    let (value, modification) = {
        let saved = node.saved.get(py);
        let Some(kept) = saved.iter().flatten().find(|kept| kept.place == place) else {
            return Ok(None);
        };
        (kept.value.clone(), kept.watched.modified(py))
    };
    if let Some((then, now)) = modification {
        return Err(modified(py, node, place, &value.meta, now, then));
    }
    let edge = match place {
        Place::Operand(position) => node.inputs.get(position).and_then(|input| input.edge.clone()),
        Place::Output(output) => {
            value.meta.dtype.is_float().then(|| Edge::Node(node.clone(), output))
        }
    };
    Ok(Some(Var::new(py, value, edge)))
}

/// Raises where an output was written since: `PyTorch` looks at those whether or not the gradient is used.
pub(crate) fn check_outputs(py: Python<'_>, node: &SharedNode) -> PyResult<()> {
    for (output, _) in (0..).zip(&node.outputs) {
        at(py, node, Place::Output(output))?;
    }
    Ok(())
}

fn modified(
    py: Python<'_>,
    node: &Node,
    place: Place,
    meta: &gt_protocol::Meta,
    now: u32,
    version: u32,
) -> PyErr {
    let maker = match place {
        Place::Operand(position) => {
            match node.inputs.get(position).and_then(|input| input.edge.as_ref()) {
                Some(Edge::Node(maker, output)) => Some((tape::function_name(maker.op), *output)),
                Some(Edge::Leaf(_) | Edge::Nowhere) | None => None,
            }
        }
        Place::Output(output) => Some((tape::function_name(node.op), output)),
    };
    let which = maker
        .map_or(String::new(), |(name, output)| format!(", which is output {output} of {name},"));
    errors::mistake(
        py,
        ErrorClass::Runtime,
        format!(
            "one of the variables needed for gradient computation has been modified by an inplace operation: \
             [torch.{}Tensor {}]{which} is at version {now}; expected version {version} instead.",
            meta.dtype.scalar_type_name(),
            meta.dims
        ),
    )
}
