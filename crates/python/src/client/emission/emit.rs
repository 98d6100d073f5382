//! Emits operators on variables: stale views are taken again and operands are cast first, then
//! [`super`] emits.

use super::autocast;
use super::complex;
use super::default_float::{self, default_float};
use crate::client::emission::{self, Emission, of_operands};
use crate::client::session::{errors, runtime};
use crate::client::tape;
use crate::client::value::SharedValue;
use crate::client::value::Tensor;
use crate::client::value::steps::{Path, Step};
use crate::client::value::variable::{Edge, Var};
use gt_protocol::rules as shape_rules;
use gt_protocol::{Attr, Dims, Dtype, Op, Scalar};
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::Arc;

pub(crate) use super::Arg;
pub(crate) use crate::client::value::variable::Vars;

/// Emits one instruction.
pub(crate) fn emit(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: SmallVec<[Attr; 2]>,
) -> PyResult<Vars> {
    emit_again(py, op, args, &attrs)
}

/// Emits one instruction and leaves the attributes to the caller, who uses them again.
pub(crate) fn emit_again(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
) -> PyResult<Vars> {
    let mut vars = Vars::new();
    let one = cast_first(py, op, args, attrs, &mut vars)?;
    vars.extend(one);
    Ok(vars)
}

/// Emits one instruction whose operands in `consumes` are not used afterwards and whose dtypes no
/// autocast changes: an in-place result, or an operator that writes.
pub(crate) fn emit_consuming(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: SmallVec<[Attr; 2]>,
    consumes: u16,
) -> PyResult<Vars> {
    let mut vars = Vars::new();
    let one = with_attrs(py, op, args, &attrs, consumes, &mut vars)?;
    vars.extend(one);
    Ok(vars)
}

/// [`emit`] for an operator without attributes and with one result: what `x + y` calls.
pub(crate) fn one(py: Python<'_>, op: Op, args: &[Arg<'_>]) -> PyResult<Var> {
    single(py, op, args, &[])
}

/// The one result of an operator that has one.
fn single(py: Python<'_>, op: Op, args: &[Arg<'_>], attrs: &[Attr]) -> PyResult<Var> {
    let mut vars = Vars::new();
    match cast_first(py, op, args, attrs, &mut vars)? {
        Some(result) => Ok(result),
        None => only(vars),
    }
}

/// [`with_attrs`], after autocast, where a region is open, has cast the operands.
#[inline]
fn cast_first(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
    vars: &mut Vars,
) -> PyResult<Option<Var>> {
    if autocast::is_open()
        && let Some(dtype) = autocast::dtype_of(py, op, args, attrs)?
    {
        return emit_autocast(py, op, args, attrs, dtype, vars);
    }
    with_attrs(py, op, args, attrs, 0, vars)
}

/// Emits an operator whose floating-point operands become `dtype` first.
#[cold]
fn emit_autocast(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
    dtype: Dtype,
    vars: &mut Vars,
) -> PyResult<Option<Var>> {
    let mut casts: SmallVec<[Option<Var>; 4]> = SmallVec::new();
    for arg in args {
        casts.push(match arg {
            Arg::Var(var) if autocast::changes(var.meta(py).dtype, dtype) => {
                Some(autocast_to(py, var, dtype)?)
            }
            Arg::Absent | Arg::Scalar(_) | Arg::Complex(_) | Arg::Large(_) | Arg::Var(_) => None,
        });
    }
    let args: SmallVec<[Arg<'_>; 4]> =
        args.iter().zip(&casts).map(|(arg, cast)| cast.as_ref().map_or(*arg, Arg::Var)).collect();
    with_attrs(py, op, &args, attrs, 0, vars)
}

/// Casts an operand for autocast; a parameter is cast once in the outermost region.
pub(crate) fn autocast_to(py: Python<'_>, var: &Var, dtype: Dtype) -> PyResult<Var> {
    if let Some(kept) = autocast::kept(py, var, dtype) {
        return Ok(kept);
    }
    let made = cast(py, var, dtype)?;
    autocast::keep(py, var, dtype, &made);
    Ok(made)
}

/// Emits one instruction; its results are added to `vars`, but for one that is returned.
fn with_attrs(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
    consumes: u16,
    vars: &mut Vars,
) -> PyResult<Option<Var>> {
    loop {
        // This repeats only if a view's memory was written while the view was taken: by another
        // thread, or by a destructor.
        match emission::emit(py, op, args, attrs, consumes, vars)? {
            Emission::One(result) => return Ok(Some(result)),
            Emission::Done => return Ok(None),
            Emission::Floats(floats) => return emit_cast(py, op, args, attrs, floats, vars),
            Emission::Complex => {
                return complex::emit(py, op, args, attrs, vars).map(|()| None);
            }
            Emission::Stale(position) => {
                if let Some(Arg::Var(var)) = args.get(position) {
                    var.value(py)?;
                }
            }
        }
    }
}

/// Emits an operator after casting the operands in `floats` to the default float dtype, which is
/// not float32.
#[cold]
fn emit_cast(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
    floats: u16,
    vars: &mut Vars,
) -> PyResult<Option<Var>> {
    let default = default_float(py);
    let mut casts: SmallVec<[Option<Var>; 4]> = SmallVec::new();
    for (position, arg) in args.iter().enumerate() {
        let is_cast = position < 16 && floats & (1 << position) != 0;
        casts.push(match arg {
            Arg::Scalar(scalar) if is_cast => Some(full(py, Dims::EMPTY, *scalar, default)?),
            Arg::Var(var) if is_cast => Some(cast(py, var, default)?),
            Arg::Absent | Arg::Scalar(_) | Arg::Complex(_) | Arg::Large(_) | Arg::Var(_) => None,
        });
    }
    let args: SmallVec<[Arg<'_>; 4]> =
        args.iter().zip(&casts).map(|(arg, cast)| cast.as_ref().map_or(*arg, Arg::Var)).collect();
    with_attrs(py, op, &args, attrs, 0, vars)
}

pub(crate) fn cast(py: Python<'_>, var: &Var, dtype: Dtype) -> PyResult<Var> {
    single(py, Op::Cast, &[Arg::Var(var)], &[Attr::Dtype(dtype)])
}

/// A tensor filled with one number.
pub(crate) fn full(py: Python<'_>, dims: Dims, scalar: Scalar, dtype: Dtype) -> PyResult<Var> {
    single(py, Op::Full, &[], &[Attr::Ints(dims), Attr::Scalar(scalar), Attr::Dtype(dtype)])
}

/// A tensor filled with one number, on the mesh of `like`.
pub(crate) fn full_like(
    py: Python<'_>,
    like: &Var,
    dims: Dims,
    scalar: Scalar,
    dtype: Dtype,
) -> PyResult<Var> {
    let attrs = [Attr::Ints(dims), Attr::Scalar(scalar), Attr::Dtype(dtype)];
    single(py, Op::FullLike, &[Arg::Var(like)], &attrs)
}

/// Infers the results of an operator; nothing is sent.
pub(crate) fn results_of(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
) -> PyResult<shape_rules::Outputs> {
    of_operands(py, args, |operands| {
        shape_rules::infer(op, operands, attrs).and_then(|found| {
            default_float::results_of(py, op, operands, attrs).unwrap_or(Ok(found))
        })
    })
    .map_err(|error| errors::of_rule(py, &error))
}

/// The dtype that an operator computes in.
pub(crate) fn promoted(py: Python<'_>, args: &[Arg<'_>]) -> Dtype {
    of_operands(py, args, shape_rules::promote)
}

/// The one result of an operator that has one.
#[inline]
pub(crate) fn only(mut vars: Vars) -> PyResult<Var> {
    if vars.len() > 1 {
        vars.truncate(1);
    }
    vars.pop().ok_or_else(no_result)
}

#[cold]
fn no_result() -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err("an operator without a result was used as a value")
}

/// Emits an operator with one result, as a Python tensor.
pub(crate) fn tensor<'py>(
    py: Python<'py>,
    op: Op,
    args: &[Arg<'_>],
    attrs: SmallVec<[Attr; 2]>,
) -> PyResult<Bound<'py, Tensor>> {
    Tensor::wrap(py, single(py, op, args, &attrs)?)
}

/// A variable's value and the edge that its gradient takes.
pub(crate) struct Resolved {
    pub value: SharedValue,
    /// Set only while gradients are recorded.
    pub edge: Option<Edge>,
}

impl Var {
    /// The current value and edge; a view is taken again where its memory has been written.
    pub(crate) fn resolve(&self, py: Python<'_>) -> PyResult<Resolved> {
        if self.look(py).alias().is_none() {
            return Ok(Resolved { value: self.value(py)?, edge: self.edge(py)? });
        }
        let edge = if tape::grad_enabled() { self.edge(py)? } else { None };
        Ok(Resolved { value: self.value(py)?, edge })
    }

    /// The current value.
    pub(crate) fn value(&self, py: Python<'_>) -> PyResult<SharedValue> {
        runtime::begin_new_child(py)?;
        if let Some(value) = self.named(py) {
            return Ok(value);
        }
        let (storage, steps) = {
            let state = self.look(py);
            let alias = state.alias().expect("a variable without alias has a value");
            match &alias.path {
                None => return Ok(alias.storage.value(py)),
                path @ Some(_) => (Arc::clone(&alias.storage), Path::steps(path.as_ref())),
            }
        };
        let before = tape::set_grad_enabled(false);
        let taken = take(py, storage.value(py), &steps);
        tape::set_grad_enabled(before);
        let taken = taken?;
        self.name(py, Some(taken.clone_ref(py)));
        Ok(taken)
    }
}

/// Applies `steps` to `value`, one after the other; nothing is recorded.
pub(crate) fn take(py: Python<'_>, value: SharedValue, steps: &[Step]) -> PyResult<SharedValue> {
    let mut value = value;
    for step in steps {
        value = unary(py, value, step)?;
    }
    Ok(value)
}

/// One unrecorded operator.
pub(crate) fn unary(py: Python<'_>, value: SharedValue, step: &Step) -> PyResult<SharedValue> {
    let operand = Var::new(py, value, None);
    single(py, step.op, &[Arg::Var(&operand)], &step.attrs)?.value(py)
}
