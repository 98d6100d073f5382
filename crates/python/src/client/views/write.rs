//! In-place writes: through a view into its storage, with PyTorch's checks before and autograd's
//! records after.

use super::indexing::NO_SHARD;
use crate::client::emission::emit::{self, Arg};
use crate::client::session::errors;
use crate::client::tape::{self, Edge};
use crate::client::value::SharedValue;
use crate::client::value::steps::{self, Back, Path, Step};
use crate::client::value::variable::{Origin, Storage, Var};
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Dims, Dtype, Meta, Op, Scalar};
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::Arc;

impl Var {
    /// Autograd's checks before a write, where this variable or (`others`) an operand requires
    /// grad. A copy looks at its source only where that has a gradient ([`Var::check_copied`]),
    /// other writes look at each operand.
    pub(crate) fn check_writable(&self, py: Python<'_>, others: bool) -> PyResult<()> {
        self.check_read_only(py)?;
        if !tape::grad_enabled() {
            return Ok(());
        }
        let requires = self.requires_grad(py);
        if !requires && !others {
            return Ok(());
        }
        let view = {
            let state = self.look(py);
            let view = state.alias().and_then(|alias| alias.view.as_ref());
            view.map(|view| (view.root(py), view.origin))
        };
        if let Some((root, origin)) = view {
            if origin != Origin::Recorded {
                return Err(self.forbidden(py, origin, false));
            }
            if requires && root.is_plain(py) {
                return Err(errors::mistake(
                    py,
                    ErrorClass::Runtime,
                    "a view of a leaf Variable that requires grad is being used in an in-place operation.",
                ));
            }
        }
        if requires && self.is_plain(py) {
            return Err(errors::mistake(
                py,
                ErrorClass::Runtime,
                "a leaf Variable that requires grad is being used in an in-place operation. \
                 Write it as `with gt.no_grad():` around the update",
            ));
        }
        Ok(())
    }

    /// [`Var::check_writable`] before `source` is copied here.
    pub(crate) fn check_copied(&self, py: Python<'_>, source: &Self) -> PyResult<()> {
        let differentiable = self.meta(py).dtype.is_differentiable();
        self.check_writable(py, differentiable && source.requires_grad(py))
    }

    /// Refuses a write to memory that [`Var::make_read_only`] was called for, also through views.
    fn check_read_only(&self, py: Python<'_>) -> PyResult<()> {
        let Some(storage) = self.storage(py) else { return Ok(()) };
        storage
            .read_only(py)
            .map_or(Ok(()), |text| Err(errors::mistake(py, ErrorClass::Runtime, text.to_string())))
    }

    /// Refuses a write in which one element would be written twice, or read after it was written.
    pub(crate) fn check_overlap(&self, py: Python<'_>, others: &[Arg<'_>]) -> PyResult<()> {
        if self.storage(py).is_none() {
            return Ok(());
        }
        let layout = self.layout(py);
        if layout.elements() == 0 {
            return Ok(());
        }
        if layout
            .dims
            .iter()
            .zip(layout.strides.iter())
            .any(|(&size, &stride)| size > 1 && stride == 0)
        {
            return Err(errors::mistake(
                py,
                ErrorClass::Runtime,
                "unsupported operation: more than one element of the written-to tensor refers to a single memory \
                 location. Please clone() the tensor before performing the operation.",
            ));
        }
        for other in others {
            if let Arg::Var(other) = other
                && !self.is(other)
                && self.overlap_with(py, other) == Overlap::Partial
            {
                return Err(overlap(py));
            }
        }
        Ok(())
    }

    /// Refuses to write `value` into parts of this variable where both share memory.
    pub(crate) fn check_apart(&self, py: Python<'_>, value: &Self) -> PyResult<()> {
        match self.overlap_with(py, value) {
            Overlap::No => Ok(()),
            Overlap::Partial | Overlap::Full => Err(overlap(py)),
        }
    }

    /// Returns true if both name the same elements in the same order.
    pub(crate) fn is_same_data(&self, py: Python<'_>, other: &Self) -> bool {
        let storages = self.storage(py).zip(other.storage(py));
        storages.is_some_and(|(mine, its)| Arc::ptr_eq(&mine, &its))
            && self.layout(py) == other.layout(py)
    }

    fn layout(&self, py: Python<'_>) -> MemoryLayout {
        MemoryLayout {
            dims: self.meta(py).dims,
            strides: self.strides(py),
            offset: self.offset(py),
        }
    }

    /// Overlap of two variables, by `PyTorch`'s rule (`at::get_overlap_status`) for dense ranges of
    /// one storage.
    fn overlap_with(&self, py: Python<'_>, other: &Self) -> Overlap {
        if self.is(other) {
            return if self.layout(py).elements() == 0 { Overlap::No } else { Overlap::Full };
        }
        match (self.storage(py), other.storage(py)) {
            (Some(mine), Some(its)) if Arc::ptr_eq(&mine, &its) => {
                self.layout(py).overlap_with(&other.layout(py))
            }
            (_, _) => Overlap::No,
        }
    }

    /// Returns true if nothing else holds the value that it names.
    fn names_alone(&self, py: Python<'_>) -> bool {
        let count = self.with_value(py, |value| value.count(py));
        count.expect("a variable without alias has a value") == 1
    }

    /// Returns true if the value's buffer may be given to the operator that replaces it. Views drop
    /// their values: they would have to take themselves again anyway.
    pub(crate) fn sole_owner(&self, py: Python<'_>) -> bool {
        let storage = {
            let state = self.look(py);
            match state.alias() {
                None => return self.names_alone(py),
                Some(alias) if alias.path.is_none() => Arc::clone(&alias.storage),
                Some(_) => return false,
            }
        };
        storage.forget_views(py);
        storage.is_alone(py)
    }

    /// Replaces the value without a record, for optimizers and accumulated gradients.
    pub(crate) fn overwrite(&self, py: Python<'_>, value: SharedValue) -> PyResult<()> {
        self.store(py, value)?;
        self.count(py);
        Ok(())
    }

    /// Writes `new` (of this variable's shape and dtype), and takes over its edge. `keeps` is true
    /// if `new` was computed from the old value, so that its edge leads there.
    pub(crate) fn write(&self, py: Python<'_>, new: &Self, keeps: bool) -> PyResult<()> {
        let resolved = new.resolve(py)?;
        let recorded = tape::grad_enabled() && (resolved.edge.is_some() || self.requires_grad(py));
        if !recorded {
            return self.overwrite(py, resolved.value);
        }
        let (old, edge) = (self.edge(py)?, resolved.edge);
        let (before, made) = (self.watched(py), if keeps { edge.clone() } else { None });
        let slice_value = resolved.value.clone();
        let view = self.way_from_root(py)?;
        self.store(py, resolved.value)?;
        match view {
            None => {
                let edge = if keeps && edge.is_some() {
                    edge
                } else {
                    overwritten(py, old, edge, self.meta(py))
                };
                self.set_edge(py, edge);
                self.count(py);
            }
            Some((root, steps)) => {
                let edge = if steps.iter().any(steps::is_by_number) {
                    let (value, root_edge) = (root.value(py)?, root.edge(py)?);
                    let slice = Self::new(py, slice_value.clone(), edge);
                    put_at_places(py, &Self::new(py, value, root_edge), &steps, &slice)?.edge(py)?
                } else {
                    written_through(py, &root, &steps, edge, keeps)?
                };
                root.set_edge(py, edge);
                self.count(py);
                self.edge(py)?;
            }
        }
        if let Some(Edge::Node(node, _)) = made {
            node.written_over(py, &before, || self.watched(py));
        }
        Ok(())
    }

    /// Increments autograd's count of writes.
    pub(crate) fn count(&self, py: Python<'_>) {
        let mut state = self.state(py);
        if let Some(alias) = state.alias() {
            alias.counter.raise();
            return;
        }
        let version = &mut state.cold_mut().version;
        *version = version.wrapping_add(1);
    }

    /// Stores the value, through the path into the storage.
    fn store(&self, py: Python<'_>, value: SharedValue) -> PyResult<()> {
        let place = {
            let state = self.look(py);
            state
                .alias()
                .map(|alias| (Arc::clone(&alias.storage), Path::steps(alias.path.as_ref())))
        };
        let Some((storage, steps)) = place else {
            self.name(py, Some(value));
            return Ok(());
        };
        // A view of all elements has the same buffer as the whole, so it need not be taken again.
        let whole_view = !steps.is_empty() && steps.iter().all(steps::is_whole);
        let kept = whole_view.then(|| value.clone());
        let before = tape::set_grad_enabled(false);
        let whole = if steps.iter().any(steps::is_by_number) {
            let whole = Self::new(py, storage.value(py), None);
            let slice = Self::new(py, value, None);
            put_at_places(py, &whole, &steps, &slice).and_then(|whole| whole.value(py))
        } else {
            scatter(py, &storage, &steps, value)
        };
        tape::set_grad_enabled(before);
        let whole = whole?;
        storage.forget_views(py);
        storage.replace(py, whole);
        if kept.is_some() {
            self.name(py, kept);
        }
        Ok(())
    }
}

/// The storage's value with `slice` written at the elements that `steps` take.
fn scatter(
    py: Python<'_>,
    storage: &Arc<Storage>,
    steps: &[Step],
    slice: SharedValue,
) -> PyResult<SharedValue> {
    let metas = metas(**storage.value(py).meta, steps);
    let mut slice = slice;
    for (level, (step, meta)) in steps.iter().zip(&metas).enumerate().rev() {
        match steps::back(step, meta) {
            Back::Whole(turn) => slice = emit::take(py, slice, &[turn])?,
            Back::ByNumber => unreachable!("{} is written by element indices", step.op.info().name),
            Back::Part(over) => {
                let inner = emit::take(py, storage.value(py), &steps[..level])?;
                storage.forget_views(py);
                // Two references, the storage's and `inner`: the old elements have no other reader.
                let alone = level == 0 && inner.count(py) == 2;
                let (inner, part) = (Var::new(py, inner, None), Var::new(py, slice, None));
                let args = [Arg::Var(&inner), Arg::Var(&part)];
                slice = emit::only(emit::emit_consuming(
                    py,
                    over.op,
                    &args,
                    over.attrs,
                    u16::from(alone),
                )?)?
                .value(py)?;
            }
        }
    }
    Ok(slice)
}

/// `whole` with `slice` written at the elements that `steps` take, by their indices.
fn put_at_places(py: Python<'_>, whole: &Var, steps: &[Step], slice: &Var) -> PyResult<Var> {
    let run =
        |op, args: &[Arg<'_>], attrs: steps::Attrs| emit::only(emit::emit(py, op, args, attrs)?);
    let shaped = |var: &Var, dims: Dims| {
        run(Op::Reshape, &[Arg::Var(var)], SmallVec::from_elem(Attr::Ints(dims), 1))
    };
    let flat = |var: &Var| shaped(var, Dims::new(&[-1]).expect("a shape of one dimension"));
    let dims = whole.meta(py).dims;
    let count = dims.elements().expect("checked where the shape was made");
    let range = [Scalar::Int(0), Scalar::Int(count), Scalar::Int(1)].map(Attr::Scalar);
    let attrs = range.into_iter().chain([Attr::Dtype(Dtype::I64)]).collect();
    let numbers = shaped(&run(Op::Arange, &[], attrs)?, dims)?;
    let (conjugations, moves): (Vec<Step>, Vec<Step>) =
        steps.iter().cloned().partition(steps::conjugates);
    let places = flat(&Var::new(py, emit::take(py, numbers.value(py)?, &moves)?, None))?;
    let mut slice = flat(slice)?;
    for Step { op, attrs } in conjugations.into_iter().rev() {
        slice = run(op, &[Arg::Var(&slice)], attrs)?;
    }
    let whole = flat(whole)?;
    let args = [Arg::Var(&whole), Arg::Var(&slice), Arg::Var(&places)];
    let attrs = std::iter::once(Attr::Bool(false)).chain(NO_SHARD).collect();
    shaped(&run(Op::IndexPut, &args, attrs)?, dims)
}

/// Metadata of the operand of each step.
fn metas(whole: Meta, steps: &[Step]) -> Vec<Meta> {
    let mut metas = Vec::with_capacity(steps.len());
    let mut meta = whole;
    for step in steps {
        metas.push(meta);
        meta = steps::result_of(step, meta);
    }
    metas
}

/// The root's edge after a write through a view: the old edge outside of the view, the edge of
/// `slice` inside.
fn written_through(
    py: Python<'_>,
    root: &Var,
    steps: &[Step],
    slice: Option<Edge>,
    keeps: bool,
) -> PyResult<Option<Edge>> {
    let metas = metas(root.meta(py), steps);
    let old = root.edge(py)?;
    let mut slice = slice;
    for (level, (step, meta)) in steps.iter().zip(&metas).enumerate().rev() {
        let taken = steps::result_of(step, *meta);
        match steps::back(step, meta) {
            Back::Whole(turn) => {
                slice = slice.and_then(|edge| tape::link_views(py, Some(edge), taken, &[turn]));
            }
            Back::ByNumber => unreachable!("{} is written by element indices", step.op.info().name),
            Back::Part(over) => {
                let above = &steps[..level];
                let outside = old
                    .clone()
                    .and_then(|edge| tape::link_views(py, Some(edge), root.meta(py), above));
                if outside.is_some() || slice.is_some() {
                    let inputs = vec![(outside, *meta), (slice, taken)];
                    slice = Some(tape::link(py, over.op, over.attrs, inputs, *meta));
                }
            }
        }
    }
    let part = steps
        .iter()
        .zip(&metas)
        .any(|(step, meta)| matches!(steps::back(step, meta), Back::Part(_)));
    if part || (keeps && slice.is_some()) {
        return Ok(slice);
    }
    // A view of all elements: the old value takes part too, with a gradient of zero.
    Ok(overwritten(py, old, slice, root.meta(py)))
}

/// The edge of a variable whose value was replaced as a whole: its old edge gets zeros.
fn overwritten(py: Python<'_>, old: Option<Edge>, new: Option<Edge>, meta: Meta) -> Option<Edge> {
    let old = old.map(|old| zeroed(py, old, meta));
    let inputs: Vec<_> = [old, new].into_iter().flatten().map(|edge| (Some(edge), meta)).collect();
    match inputs.len() {
        0 => None,
        1 => {
            let attrs = SmallVec::from_elem(Attr::Ints(meta.dims), 1);
            Some(tape::link(py, Op::Reshape, attrs, inputs, meta))
        }
        _ => Some(tape::link(py, Op::Add, SmallVec::new(), inputs, meta)),
    }
}

/// An edge that passes zeros on: the gradient of `floor` is zero.
fn zeroed(py: Python<'_>, edge: Edge, meta: Meta) -> Edge {
    tape::link(py, Op::Floor, SmallVec::new(), vec![(Some(edge), meta)], meta)
}

fn overlap(py: Python<'_>) -> PyErr {
    errors::mistake(
        py,
        ErrorClass::Runtime,
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory \
         location. Please clone() the tensor before performing the operation.",
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Overlap {
    No,
    /// Some elements share memory, or all do in different orders.
    Partial,
    Full,
}

/// Position of elements in a storage.
#[derive(PartialEq, Eq)]
struct MemoryLayout {
    dims: Dims,
    strides: Dims,
    offset: i64,
}

impl MemoryLayout {
    fn overlap_with(&self, other: &Self) -> Overlap {
        let (mine, its) = (self.elements(), other.elements());
        if mine == 0 || its == 0 || !self.is_dense() || !other.is_dense() {
            return Overlap::No;
        }
        let (end, other_end) = (self.offset + mine, other.offset + its);
        if (self.offset, end) == (other.offset, other_end) {
            return if self.strides == other.strides { Overlap::Full } else { Overlap::Partial };
        }
        if self.offset < other_end && other.offset < end { Overlap::Partial } else { Overlap::No }
    }

    fn elements(&self) -> i64 {
        self.dims.elements().expect("checked where the shape was made")
    }

    /// Returns true if the elements fill a range of memory, in any order.
    fn is_dense(&self) -> bool {
        let walked = self.dims.iter().zip(self.strides.iter()).filter(|(size, _)| **size > 1);
        let mut places: SmallVec<[(i64, i64); 8]> =
            walked.map(|(&size, &stride)| (stride, size)).collect();
        places.sort_unstable();
        let mut expected = 1;
        places.iter().all(|&(stride, size)| {
            let dense = stride == expected;
            expected *= size;
            dense
        })
    }
}
