//! Optimizer steps: one fused instruction for each parameter, whose buffers its results reuse.

use super::tensor::Tensor;
use crate::client::emission::emit::{Arg, emit_consuming};
use crate::client::tape;
use crate::client::value::variable::Var;
use gt_protocol::{Attr, Op};
use pyo3::prelude::*;
use smallvec::SmallVec;

type Tensors<'py> = Vec<Bound<'py, Tensor>>;

/// Turns grad mode off while it lives.
struct NoGrad(bool);

impl NoGrad {
    fn enter() -> Self {
        Self(tape::set_grad_enabled(false))
    }
}

impl Drop for NoGrad {
    fn drop(&mut self) {
        tape::set_grad_enabled(self.0);
    }
}

/// Emits the fused operator and replaces the values of the parameter and of `state` by its results.
fn step(
    py: Python<'_>,
    op: Op,
    operands: &[Option<&Var>],
    written: &[usize],
    attrs: SmallVec<[Attr; 2]>,
) -> PyResult<SmallVec<[Var; 2]>> {
    let mut consumes = 0_u16;
    for &position in written {
        if let Some(Some(var)) = operands.get(position)
            && var.sole_owner(py)
        {
            consumes |= 1 << position;
        }
    }
    let args: SmallVec<[Arg<'_>; 8]> =
        operands.iter().map(|operand| operand.map_or(Arg::Absent, Arg::Var)).collect();
    let results = emit_consuming(py, op, &args, attrs, consumes)?;
    for (&position, result) in written.iter().zip(&results) {
        if let Some(Some(var)) = operands.get(position) {
            var.overwrite(py, result.resolve(py)?.value)?;
        }
    }
    Ok(results)
}

/// Refuses to step parameters of which one is read-only, before any is written.
fn check_writable(py: Python<'_>, params: &Tensors<'_>) -> PyResult<()> {
    params.iter().try_for_each(|param| param.get().var.check_writable(py, false))
}

/// One SGD step for each parameter; returns the new momentum buffers (None without momentum).
#[pyfunction]
#[pyo3(signature = (params, grads, buffers, *, lr, momentum, dampening, weight_decay, nesterov, maximize))]
#[allow(clippy::too_many_arguments, reason = "PyTorch's own list of options")]
pub(crate) fn sgd_step<'py>(
    py: Python<'py>,
    params: Tensors<'py>,
    grads: Tensors<'py>,
    buffers: Vec<Option<Bound<'py, Tensor>>>,
    lr: f64,
    momentum: f64,
    dampening: f64,
    weight_decay: f64,
    nesterov: bool,
    maximize: bool,
) -> PyResult<Vec<Option<Bound<'py, Tensor>>>> {
    let _guard = NoGrad::enter();
    check_writable(py, &params)?;
    let mut kept = Vec::with_capacity(params.len());
    for ((param, grad), buffer) in params.iter().zip(&grads).zip(buffers) {
        let old = buffer.as_ref().map(|buffer| &*buffer.get().var);
        let operands = [Some(&*param.get().var), Some(&*grad.get().var), old];
        let mut attrs: SmallVec<[Attr; 2]> =
            [lr, momentum, dampening, weight_decay].into_iter().map(Attr::Float).collect();
        attrs.extend([nesterov, maximize, old.is_none()].into_iter().map(Attr::Bool));
        let mut results = step(py, Op::Sgd, &operands, &[0, 2], attrs)?;
        kept.push(match (buffer, momentum == 0.0) {
            (_, true) => None,
            (Some(buffer), false) => Some(buffer),
            (None, false) => results.pop().map(|var| Tensor::wrap(py, var)).transpose()?,
        });
    }
    Ok(kept)
}

/// One `AdamW` step (Adam with L2 regularization unless `decoupled`) for each parameter; moments
/// are written in place.
#[pyfunction]
#[pyo3(signature = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, *, lr, beta1, beta2, eps,
                    weight_decay, decoupled, maximize))]
#[allow(clippy::too_many_arguments, reason = "PyTorch's own list of options")]
pub(crate) fn adamw_step<'py>(
    py: Python<'py>,
    params: Tensors<'py>,
    grads: Tensors<'py>,
    exp_avgs: Tensors<'py>,
    exp_avg_sqs: Tensors<'py>,
    max_exp_avg_sqs: Option<Tensors<'py>>,
    steps: Vec<i64>,
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    decoupled: bool,
    maximize: bool,
) -> PyResult<()> {
    let _guard = NoGrad::enter();
    check_writable(py, &params)?;
    for (place, (param, grad)) in params.iter().zip(&grads).enumerate() {
        let at = |list: &Tensors<'py>| list.get(place).map(|tensor| Var::clone(&tensor.get().var));
        let (first, second) = (at(&exp_avgs), at(&exp_avg_sqs));
        let largest = max_exp_avg_sqs.as_ref().and_then(at);
        let operands = [
            Some(&*param.get().var),
            Some(&*grad.get().var),
            first.as_ref(),
            second.as_ref(),
            largest.as_ref(),
        ];
        let mut attrs: SmallVec<[Attr; 2]> =
            [lr, beta1, beta2, eps, weight_decay].into_iter().map(Attr::Float).collect();
        attrs.push(Attr::Int(steps[place]));
        attrs.extend([decoupled, maximize].into_iter().map(Attr::Bool));
        step(py, Op::Adamw, &operands, &[0, 2, 3, 4], attrs)?;
    }
    Ok(())
}
