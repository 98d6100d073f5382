//! Values that a node has saved for computing gradients: an error where one has been written
//! since, and the user's functions that pack and unpack them.

use crate::client::session::{errors, site};
use crate::client::tape::{Edge, Node, Place, SharedNode};
use crate::client::value::Tensor;
use crate::client::value::variable::{Kept, SavedValue, Var, Watched};
use gt_protocol::integer::to_usize;
use gt_protocol::rules::ErrorClass;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};

/// A pair of user functions: one packs a tensor that is saved, the other unpacks it.
struct Packing {
    pack: Py<PyAny>,
    unpack: Py<PyAny>,
}

thread_local! {
    /// The pairs in effect, innermost last.
    static PACKINGS: RefCell<Vec<Packing>> = const { RefCell::new(Vec::new()) };
    /// True if there is a pair: every recorded instruction looks at it.
    static PACKS: Cell<bool> = const { Cell::new(false) };
}

/// Adds a pair of functions for the values that this thread saves from here on.
pub(crate) fn push_packing(pack: Py<PyAny>, unpack: Py<PyAny>) {
    PACKINGS.with_borrow_mut(|packings| packings.push(Packing { pack, unpack }));
    PACKS.set(true);
}

/// Removes the innermost pair.
pub(crate) fn pop_packing() {
    let left = PACKINGS.with_borrow_mut(|packings| {
        let left = packings.pop();
        PACKS.set(!packings.is_empty());
        left
    });
    drop(left);
}

/// Passes all values that a new node saves to the user's function, and keeps its results instead.
#[inline]
pub(crate) fn pack(py: Python<'_>, node: &Node) -> PyResult<()> {
    if PACKS.get() { pack_all(py, node) } else { Ok(()) }
}

#[cold]
fn pack_all(py: Python<'_>, node: &Node) -> PyResult<()> {
    let functions = PACKINGS.with_borrow(|packings| {
        packings.last().map(|last| (last.pack.clone_ref(py), last.unpack.clone_ref(py)))
    });
    let (Some((pack, unpack)), Some(saved)) = (functions, node.saved.get_mut(py).take()) else {
        return Ok(());
    };
    let recorded = super::set_grad_enabled(false);
    let packed: PyResult<super::SavedValues> = saved
        .into_iter()
        // Only values that a formula reads are packed; the values that PyTorch would pack in
        // addition are not watched.
        .filter(|kept| !matches!(kept.value, Kept::Unread))
        .map(|kept| {
            let Kept::Value(value) = kept.value else { return Ok(kept) };
            // A leaf, so that the user's function does not keep the node alive through it.
            let var = Var::new(py, value, None);
            var.set_accumulates(py, has_gradient(node, kept.place));
            let tensor = Tensor::wrap(py, var)?;
            let value =
                Kept::Packed { packed: pack.call1(py, (tensor,))?, unpack: unpack.clone_ref(py) };
            // A write cannot be detected after the user's functions.
            Ok(SavedValue { value, watched: Watched::Never, ..kept })
        })
        .collect();
    super::set_grad_enabled(recorded);
    *node.saved.get_mut(py) = Some(packed?);
    Ok(())
}

/// Returns true if gradients flow through the saved value.
fn has_gradient(node: &Node, place: Place) -> bool {
    match place {
        Place::Operand(position) => {
            node.inputs.get(position).is_some_and(|input| input.edge.is_some())
        }
        Place::Output(output) => {
            let meta = node.outputs.get(to_usize(output));
            meta.is_some_and(|meta| meta.dtype.is_differentiable())
        }
    }
}

/// The variable of a saved operand or output; `None` where it was not saved.
pub(crate) fn at(py: Python<'_>, node: &SharedNode, place: Place) -> PyResult<Option<Var>> {
    let kept = {
        let saved = node.saved.get(py);
        let Some(kept) = saved.iter().flatten().find(|kept| kept.place == place) else {
            return Ok(None);
        };
        match &kept.value {
            Kept::Value(value) => {
                let read_from = super::grad_enabled().then(|| kept.watched.again(py));
                Ok((value.clone(), kept.watched.modified(py), read_from))
            }
            Kept::Unread => return Ok(None),
            // A write cannot be detected after the user's functions.
            Kept::Packed { packed, unpack } => Err((packed.clone_ref(py), unpack.clone_ref(py))),
        }
    };
    let (value, read_from) = match kept {
        Ok((value, None, read_from)) => (value, read_from),
        Ok((value, Some((then, now)), _)) => {
            return Err(modified(py, Some((node, place)), &value.meta, now, then));
        }
        Err((packed, unpack)) => {
            // Instructions that the function emits carry its own call sites.
            let outer = site::set_override(None);
            let tensor = unpack.bind(py).call1((packed,));
            site::set_override(outer);
            let tensor = tensor?;
            let Ok(tensor) = tensor.cast::<Tensor>() else {
                return Err(errors::mistake(
                    py,
                    ErrorClass::Type,
                    format!(
                        "Output of saved tensor unpack_hook expected to be a Tensor but got result of type {}",
                        tensor.get_type().name()?
                    ),
                ));
            };
            (tensor.get().var.value(py)?, None)
        }
    };
    let edge = match place {
        Place::Operand(position) => node.inputs.get(position).and_then(|input| input.edge.clone()),
        Place::Output(output) => {
            value.meta.dtype.is_differentiable().then(|| Edge::Node(node.clone(), output))
        }
    };
    let var = Var::new(py, value, edge);
    if read_from.is_some() {
        var.state(py).cold_mut().read_from = read_from;
    }
    Ok(Some(var))
}

/// The operand (from 0 up) or result (from -1 down) of this number.
pub(crate) fn place_of(number: i64) -> Place {
    if let Ok(operand) = u32::try_from(number) {
        Place::Operand(to_usize(operand))
    } else {
        Place::Output(u32::try_from(-1 - number).expect("the number of a result fits u32"))
    }
}

/// Makes a node watch `keeps`, the `operands` and `results` that `PyTorch` saves, and nothing else.
///
/// Values are immutable, so gradients are right whatever is watched. This decides on errors alone:
/// exactly the programs that PyTorch refuses are refused.
pub(crate) fn watch(
    py: Python<'_>,
    node: &SharedNode,
    (operands, results): (&[Option<Var>], &[Var]),
    keeps: &[Place],
) {
    let mut saved = node.saved.get_mut(py);
    let saved = saved.get_or_insert_default();
    for value in saved.iter_mut() {
        if !keeps.contains(&value.place) {
            value.watched = Watched::Unsaved;
        }
    }
    for &place in keeps {
        let var = match place {
            Place::Operand(operand) => operands.get(operand).and_then(Option::as_ref),
            Place::Output(output) => results.get(to_usize(output)),
        };
        if let Some(var) = var
            && !PACKS.get()
            && !saved.iter().any(|value| value.place == place)
        {
            saved.push(SavedValue { place, value: Kept::Unread, watched: var.watched(py) });
        }
    }
}

/// Makes the node of `result` watch `kept`, which `PyTorch` saves for an operator that GT composes
/// of several; `result` is the last of them.
///
/// Only errors depend on it, as in [`watch`].
pub(crate) fn keep(py: Python<'_>, result: &Var, kept: &[Var]) -> PyResult<()> {
    let Some(Edge::Node(node, _)) = result.edge(py)? else { return Ok(()) };
    if !PACKS.get() {
        let watched = kept.iter().map(|var| (var.watched(py), var.shared_meta(py)));
        node.cold.get_mut(py).get_or_insert_default().composed.extend(watched);
    }
    Ok(())
}

/// Raises an error where a watched value was written since: `PyTorch` unpacks all of them before it
/// computes.
pub(crate) fn check(py: Python<'_>, node: &SharedNode) -> PyResult<()> {
    let written = node.saved.get(py).iter().flatten().find_map(|kept| {
        let (then, now) = kept.watched.modified(py)?;
        Some((kept.place, then, now))
    });
    let Some((place, then, now)) = written else { return check_composed(py, node) };
    let meta = match place {
        Place::Operand(operand) => node.inputs.get(operand).and_then(|input| input.meta.as_ref()),
        Place::Output(output) => node.outputs.get(to_usize(output)),
    };
    let Some(meta) = meta else { unreachable!("{place:?} is watched and has no metadata") };
    Err(modified(py, Some((node, place)), meta, now, then))
}

/// Raises an error where a value passed to [`keep`] was written since.
fn check_composed(py: Python<'_>, node: &SharedNode) -> PyResult<()> {
    let written =
        node.cold.get(py).iter().flat_map(|cold| &cold.composed).find_map(|(watched, meta)| {
            let (then, now) = watched.modified(py)?;
            Some((then, now, meta.clone_ref(py)))
        });
    match written {
        None => Ok(()),
        Some((then, now, meta)) => Err(modified(py, None, &meta, now, then)),
    }
}

/// Raises an error where an output was written since: `PyTorch` checks outputs whether or not the
/// gradient is used.
pub(crate) fn check_outputs(py: Python<'_>, node: &SharedNode) -> PyResult<()> {
    for (output, _) in (0..).zip(&node.outputs) {
        at(py, node, Place::Output(output))?;
    }
    Ok(())
}

fn modified(
    py: Python<'_>,
    at: Option<(&Node, Place)>,
    meta: &gt_protocol::Meta,
    now: u32,
    version: u32,
) -> PyErr {
    let maker = match at {
        None => None,
        Some((node, Place::Operand(position))) => {
            match node.inputs.get(position).and_then(|input| input.edge.as_ref()) {
                Some(Edge::Node(maker, output)) => Some((maker.function_name(), *output)),
                Some(Edge::Leaf(_) | Edge::Nowhere) | None => None,
            }
        }
        Some((node, Place::Output(output))) => Some((node.function_name(), output)),
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
