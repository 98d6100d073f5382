//! Combines the gradients of several views of one value into one gradient of the value. Windows
//! along one dimension that do not overlap are joined by one `stack` or `cat`, with zeros between
//! them; the rest is added in place, at its position.

use super::evaluate::Evaluation;
use super::windows::{DisjointWindows, ViewGradient, Window};
use crate::client::emission::emit::{self, Arg};
use crate::client::session::{signal, site};
use crate::client::tape::{self, SharedNode};
use crate::client::value::variable::Var;
use gt_protocol::{Attr, Dims, Meta, Op, Scalar};
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;

/// Maximum number of operands of one joining instruction: a frame has room for a few thousand.
const JOINED_MAX: usize = 2048;

/// A gradient of the whole.
struct WholeGradient {
    var: Var,
    /// True if the gradient was made here and nothing else refers to it, so it may be written in
    /// place.
    is_own: bool,
}

/// The sum of `whole` and of the views' gradients, each spread to the whole.
pub(super) fn combined(
    py: Python<'_>,
    whole: Option<Var>,
    gradients: Vec<ViewGradient>,
) -> PyResult<Option<Var>> {
    let Some(first) = gradients.first() else { return Ok(whole) };
    let outer = site::set_override(Some(first.node.site));
    let outer_signal = signal::set_override(Some(signal::backward_of(py, first.node.signal)));
    let total = summed(py, whole, gradients);
    site::set_override(outer);
    signal::set_override(outer_signal);
    total.map(Some)
}

fn summed(py: Python<'_>, whole: Option<Var>, mut gradients: Vec<ViewGradient>) -> PyResult<Var> {
    let recorded = tape::grad_enabled();
    let mut total = whole.map(|var| WholeGradient { var, is_own: false });
    while let Some(windows) = DisjointWindows::take(&mut gradients, recorded || total.is_none()) {
        let joined = join(py, &windows)?;
        let var = match total {
            None => joined,
            Some(sum) => plus(py, &sum.var, &joined)?,
        };
        total = Some(WholeGradient { var, is_own: true });
    }
    for gradient in gradients {
        total = Some(match total {
            None => WholeGradient { var: gradient.spread(py)?, is_own: false },
            Some(sum) => {
                match gradient
                    .node
                    .op()
                    .and_then(|op| op.info().strided)
                    .and_then(|strided| strided.scatter)
                {
                    Some(scatter) if !recorded => gradient.add_to(py, sum, scatter)?,
                    Some(_) | None => WholeGradient {
                        var: plus(py, &sum.var, &gradient.spread(py)?)?,
                        is_own: true,
                    },
                }
            }
        });
    }
    let Some(total) = total else { unreachable!("no gradients to sum") };
    Ok(total.var)
}

impl ViewGradient {
    pub(super) fn new(node: SharedNode, grad: Var) -> Self {
        let window = Window::of(&node);
        Self { node, grad, window }
    }

    /// The metadata of the value that the view was taken of.
    pub(super) fn whole(&self) -> Meta {
        let meta = self.node.inputs.first().and_then(|input| input.meta.as_ref());
        ***meta.expect("a view has a tensor operand")
    }

    /// The view's operator.
    fn op(&self) -> Op {
        self.node.op().expect("a function of the user's is no view")
    }

    /// The gradient of the whole, by the row's formula.
    fn spread(&self, py: Python<'_>) -> PyResult<Var> {
        let grads = [Some(self.grad.clone_ref(py))];
        let gradient = Evaluation::new(py, self.op(), &self.node, &grads).gradient(0)?;
        Ok(gradient.expect("a view has a gradient where its result has one"))
    }

    /// Adds this view's gradient to a gradient of the whole, in its memory where that may be
    /// written.
    fn add_to(&self, py: Python<'_>, sum: WholeGradient, scatter: Op) -> PyResult<WholeGradient> {
        let attrs = || self.node.attrs.iter().cloned().collect::<SmallVec<[Attr; 2]>>();
        let before = emit::only(emit::emit(py, self.op(), &[Arg::Var(&sum.var)], attrs())?)?;
        let after = plus(py, &before, &self.grad)?;
        before.release(py);
        let consumes = u16::from(sum.is_own && sum.var.sole_owner(py));
        let args = [Arg::Var(&sum.var), Arg::Var(&after)];
        let var = emit::only(emit::emit_consuming(py, scatter, &args, attrs(), consumes)?)?;
        Ok(WholeGradient { var, is_own: true })
    }

    /// The gradient with the dimension that the view removed restored as one of size 1.
    fn with_dim(&self, py: Python<'_>, window: &Window, whole: &Dims) -> PyResult<Var> {
        if !window.is_removed {
            return Ok(self.grad.clone_ref(py));
        }
        let attrs = smallvec![Attr::Ints(with_size(whole, window.dim, 1))];
        emit::only(emit::emit(py, Op::Reshape, &[Arg::Var(&self.grad)], attrs)?)
    }
}

/// Joins windows that do not overlap into one gradient of the whole, with zeros between them.
fn join(py: Python<'_>, windows: &DisjointWindows) -> PyResult<Var> {
    let whole = windows.first().whole();
    let size = whole.dims[windows.dim];
    let dim = Attr::Int(i64::try_from(windows.dim).expect("a rank is small"));
    let mut gaps = Gaps { like: &windows.first().grad, whole: &whole, zeros: BTreeMap::new() };
    let stacks =
        windows.is_dense() && windows.gradients.iter().all(|(window, _)| window.is_removed);
    let mut parts: Vec<Var> = Vec::new();
    let mut end = 0;
    for (window, gradient) in &windows.gradients {
        if stacks {
            for _ in end..window.start {
                parts.push(gaps.zeros(py, None, &gradient.grad.meta(py).dims)?);
            }
            parts.push(gradient.grad.clone_ref(py));
        } else {
            if end < window.start {
                let gap = with_size(&whole.dims, windows.dim, window.start - end);
                parts.push(gaps.zeros(py, Some(window.start - end), &gap)?);
            }
            parts.push(gradient.with_dim(py, window, &whole.dims)?);
        }
        end = window.end();
    }
    if stacks {
        let slice = windows.first().grad.meta(py).dims;
        for _ in end..size {
            parts.push(gaps.zeros(py, None, &slice)?);
        }
    } else if end < size {
        let gap = with_size(&whole.dims, windows.dim, size - end);
        parts.push(gaps.zeros(py, Some(size - end), &gap)?);
    }
    joined(py, if stacks { Op::Stack } else { Op::Cat }, &dim, &parts)
}

fn joined(py: Python<'_>, op: Op, dim: &Attr, parts: &[Var]) -> PyResult<Var> {
    let one = |op: Op, parts: &[Var]| {
        let args: Vec<Arg<'_>> = parts.iter().map(Arg::Var).collect();
        emit::only(emit::emit(py, op, &args, smallvec![dim.clone()])?)
    };
    if parts.len() <= JOINED_MAX {
        return one(op, parts);
    }
    let some: Vec<Var> =
        parts.chunks(JOINED_MAX).map(|chunk| one(op, chunk)).collect::<PyResult<_>>()?;
    joined(py, Op::Cat, dim, &some)
}

/// Zeros between windows, one value for each size.
struct Gaps<'a> {
    like: &'a Var,
    whole: &'a Meta,
    zeros: BTreeMap<Option<i64>, Var>,
}

impl Gaps<'_> {
    fn zeros(&mut self, py: Python<'_>, length: Option<i64>, dims: &Dims) -> PyResult<Var> {
        if let Some(zeros) = self.zeros.get(&length) {
            return Ok(zeros.clone_ref(py));
        }
        let zeros = emit::full_like(py, self.like, *dims, Scalar::Int(0), self.whole.dtype)?;
        self.zeros.insert(length, zeros.clone_ref(py));
        Ok(zeros)
    }
}

fn with_size(dims: &Dims, dim: usize, size: i64) -> Dims {
    let mut dims = *dims;
    if let Some(place) = dims.as_mut_slice().get_mut(dim) {
        *place = size;
    }
    dims
}

pub(super) fn plus(py: Python<'_>, sum: &Var, grad: &Var) -> PyResult<Var> {
    plus_consuming(py, sum, grad, 0)
}

/// Adds `grad` to `sum`; the operands whose bits `consumes` has are not used afterwards.
pub(super) fn plus_consuming(
    py: Python<'_>,
    sum: &Var,
    grad: &Var,
    consumes: u16,
) -> PyResult<Var> {
    let args = [Arg::Var(sum), Arg::Var(grad)];
    emit::only(emit::emit_consuming(py, Op::Add, &args, SmallVec::new(), consumes)?)
}
