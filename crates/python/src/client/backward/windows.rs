//! Views that are a range of one dimension, by the table's columns, and which of them lie side by
//! side. Nothing is emitted.

use crate::client::tape::{Node, SharedNode};
use crate::client::value::steps::{Step, result_of, strided};
use crate::client::value::variable::Var;
use gt_protocol::integer::to_usize;
use gt_protocol::rules::strided::{ViewCall, contiguous};
use gt_protocol::{Attr, Dims};

/// The gradient of one view.
pub(super) struct ViewGradient {
    /// A recorded instruction that took the view.
    pub(super) node: SharedNode,
    pub(super) grad: Var,
    pub(super) window: Option<Window>,
}

/// A range of one dimension, with all of the other dimensions.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub dim: usize,
    pub start: i64,
    pub length: i64,
    /// True if the view removed the dimension: its range is one index.
    pub is_removed: bool,
}

impl Window {
    /// The window that a node's view reads; `None` where the view is not a window, or is empty.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let op = node.op()?;
        let info = op.info();
        let columns = strided(op);
        if columns.scatter.is_none() || columns.dims.count_ones() != 1 {
            return None;
        }
        let meta = ***node.inputs.first()?.meta.as_ref()?;
        let Some(Attr::Int(dim)) = node.attrs.get(to_usize(columns.dims.trailing_zeros())) else {
            return None;
        };
        let rank = meta.dims.rank();
        let dim = usize::try_from(if *dim < 0 { dim + rank } else { *dim }).ok()?;
        let step = Step { op: info.op, attrs: node.attrs.iter().cloned().collect() };
        let result = result_of(&step, meta).dims;
        if result.elements()? == 0 {
            return None;
        }
        let strides = contiguous(&meta.dims);
        let call =
            ViewCall { attrs: &node.attrs, sizes: &meta.dims, strides: &strides, result: &result };
        let (taken, offset) = columns.place(&call)?;
        Self::between(dim, &meta.dims, &strides, (&result, &taken, offset))
    }

    fn between(
        dim: usize,
        dims: &Dims,
        strides: &Dims,
        (result, taken, offset): (&Dims, &Dims, i64),
    ) -> Option<Self> {
        let stride = *strides.get(dim)?;
        let start = offset / stride;
        if result.len() < dims.len() {
            return Some(Self { dim, start, length: 1, is_removed: true });
        }
        let length = *result.get(dim)?;
        let steps = length > 1 && *taken.get(dim)? != stride;
        (!steps).then_some(Self { dim, start, length, is_removed: false })
    }

    pub(super) fn end(&self) -> i64 {
        self.start + self.length
    }
}

/// Windows along one dimension that do not overlap, from front to back.
pub(super) struct DisjointWindows {
    pub dim: usize,
    pub gradients: Vec<(Window, ViewGradient)>,
}

impl DisjointWindows {
    /// Takes as many windows as lie side by side along one dimension. `None` where fewer than two
    /// do, or, unless `any`, where they cover less than half of the whole: the zeros for the rest
    /// would outnumber them.
    pub(super) fn take(gradients: &mut Vec<ViewGradient>, any: bool) -> Option<Self> {
        let rank = gradients.first()?.whole().dims.len();
        let chosen = (0..rank).map(|dim| side_by_side(gradients, dim)).max_by_key(Vec::len)?;
        if chosen.len() < 2 {
            return None;
        }
        let window = |place: &usize| gradients.get(*place).and_then(|gradient| gradient.window);
        let covered: i64 = chosen.iter().filter_map(window).map(|window| window.length).sum();
        let dim = chosen.first().and_then(window)?.dim;
        let size = *gradients.first()?.whole().dims.get(dim)?;
        if !any && covered * 2 < size {
            return None;
        }
        let mut is_chosen = vec![false; gradients.len()];
        for place in chosen {
            is_chosen[place] = true;
        }
        let mut taken = Vec::new();
        let mut left = Vec::new();
        for (gradient, is_chosen) in std::mem::take(gradients).into_iter().zip(is_chosen) {
            match gradient.window {
                Some(window) if is_chosen => taken.push((window, gradient)),
                Some(_) | None => left.push(gradient),
            }
        }
        *gradients = left;
        taken.sort_by_key(|(window, _)| window.start);
        Some(Self { dim, gradients: taken })
    }

    pub(super) fn first(&self) -> &ViewGradient {
        let (_, gradient) = self.gradients.first().expect("there are two windows or more");
        gradient
    }

    /// Returns true if windows of one index cover at least half of the whole.
    pub(super) fn is_dense(&self) -> bool {
        let size = self.first().whole().dims[self.dim];
        i64::try_from(self.gradients.len()).is_ok_and(|count| count * 2 >= size)
    }
}

/// Indices of windows along `dim` that do not overlap: each begins at or after the end of the one
/// before.
fn side_by_side(gradients: &[ViewGradient], dim: usize) -> Vec<usize> {
    let along = |gradient: &ViewGradient| gradient.window.filter(|window| window.dim == dim);
    let mut windows: Vec<(Window, usize)> = gradients
        .iter()
        .enumerate()
        .filter_map(|(place, gradient)| along(gradient).map(|window| (window, place)))
        .collect();
    windows.sort_by_key(|(window, _)| (window.end(), window.start));
    let mut end = 0;
    let mut chosen = Vec::new();
    for (window, place) in windows {
        if window.start >= end {
            end = window.end();
            chosen.push(place);
        }
    }
    chosen
}
