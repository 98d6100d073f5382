//! Results that are written into a tensor: the conditions, and PyTorch's checks in its order.

use crate::client::emission::complex;
use crate::client::emission::convert::{OperandArg, TOO_LARGE, rounded};
use crate::client::emission::emit::{self, Arg, cast};
use crate::client::session::errors;
use crate::client::tape;
use crate::client::value::Tensor;
use crate::client::value::variable::Var;
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Dtype, DtypeRule, Meta, Op, Scalar};
use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};

/// Emits `op(x, rest…)` and writes the result into x, as PyTorch's in-place operators do.
pub(crate) fn write_result(
    target: &Tensor,
    py: Python<'_>,
    op: Op,
    rest: &[Arg<'_>],
    attrs: SmallVec<[Attr; 2]>,
) -> PyResult<()> {
    let var = &target.var;
    let others = rest.iter().any(|arg| matches!(arg, Arg::Var(other) if other.requires_grad(py)));
    var.check_writable(py, others)?;
    var.check_overlap(py, rest)?;
    let before;
    let mut args: SmallVec<[Arg<'_>; 4]> = smallvec![Arg::Var(var)];
    args.extend_from_slice(rest);
    if complex::is_generic(py, op, &args, &attrs) {
        return write_generic(py, var, op, &args, &attrs);
    }
    // Infer before the operator is sent: the operator may consume the old value.
    let metas = match emit::results_of(py, op, &args, &attrs) {
        // PyTorch reports a result that would not fit before a missing kernel, but after a mistake
        // in shapes.
        Err(mistake)
            if op.info().dtype == DtypeRule::Promote
                && mistake.is_instance_of::<PyNotImplementedError>(py) =>
        {
            check_kind(py, var.meta(py).dtype, emit::promoted(py, &args))?;
            return Err(mistake);
        }
        metas => metas?,
    };
    if let Some(result) = metas.first() {
        check_result(py, &var.meta(py), result)?;
    }
    let mut consumes = 0;
    if let Some(value) = before_write(py, var, others)? {
        before = value;
        if let Some(first) = args.first_mut() {
            *first = Arg::Var(&before);
        }
    } else {
        let shared = |arg: &Arg<'_>| matches!(arg, Arg::Var(other) if other.is(var));
        consumes = u16::from(!rest.iter().any(shared) && var.sole_owner(py));
    }
    let result = emit::only(emit::emit_consuming(py, op, &args, attrs, consumes)?)?;
    assign(py, var, result, true)
}

/// [`write_result`] where complex numbers are involved.
#[cold]
fn write_generic(
    py: Python<'_>,
    var: &Var,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
) -> PyResult<()> {
    let old = Var::new(py, var.resolve(py)?.value, var.edge(py)?);
    let mut renamed: SmallVec<[Arg<'_>; 4]> = SmallVec::from_slice(args);
    if let Some(first) = renamed.first_mut() {
        *first = Arg::Var(&old);
    }
    let result = emit::only(emit::emit_again(py, op, &renamed, attrs)?)?;
    assign(py, var, result, true)
}

/// A separate variable with the old value, where the operator that computes the new one is recorded
/// (`others`: because of another operand): the write that follows does not count as a change of the
/// values that the tape saves.
pub(crate) fn before_write(py: Python<'_>, var: &Var, others: bool) -> PyResult<Option<Var>> {
    if !tape::grad_enabled() || !(others || var.requires_grad(py)) {
        return Ok(None);
    }
    let resolved = var.resolve(py)?;
    Ok(Some(Var::new(py, resolved.value, resolved.edge)))
}

/// Checks that a result of `new` may be written into a variable of `old`.
fn check_result(py: Python<'_>, old: &Meta, new: &Meta) -> PyResult<()> {
    if old.dims != new.dims {
        return Err(errors::mistake(
            py,
            ErrorClass::Shape,
            format!(
                "output with shape {} doesn't match the broadcast shape {}",
                old.dims, new.dims
            ),
        ));
    }
    check_kind(py, old.dtype, new.dtype)
}

/// Checks that PyTorch casts `new` to `old` for an in-place result.
fn check_kind(py: Python<'_>, old: Dtype, new: Dtype) -> PyResult<()> {
    if can_cast(new, old) {
        return Ok(());
    }
    Err(errors::mistake(
        py,
        ErrorClass::Dtype,
        format!(
            "result type {} can't be cast to the desired output type {}",
            new.scalar_type_name(),
            old.scalar_type_name()
        ),
    ))
}

/// Writes `result` into `var` after the checks of shape and dtype. `computed` is true if the result
/// depends on the old value.
pub(crate) fn assign(py: Python<'_>, var: &Var, result: Var, computed: bool) -> PyResult<()> {
    let (old, new) = (var.meta(py), result.meta(py));
    check_result(py, &old, &new)?;
    let result = if old.dtype == new.dtype { result } else { cast(py, &result, old.dtype)? };
    var.write(py, &result, computed)
}

/// Fills `var` with a number (elements may share memory, but conjugates are refused) or a 0-d
/// tensor.
pub(crate) fn fill(py: Python<'_>, var: &Var, value: &OperandArg<'_>) -> PyResult<()> {
    let meta = var.meta(py);
    let filled = match value {
        OperandArg::Tensor(value) => {
            let value: &Var = &value.get().var;
            var.check_writable(py, value.requires_grad(py))?;
            var.check_overlap(py, &[])?;
            let value = if value.meta(py).dtype == meta.dtype {
                value.clone()
            } else {
                cast(py, value, meta.dtype)?
            };
            emit::only(emit::emit(
                py,
                Op::Expand,
                &[Arg::Var(&value)],
                smallvec![Attr::Ints(meta.dims)],
            )?)?
        }
        OperandArg::Scalar(scalar) => {
            var.check_writable(py, false)?;
            if meta.dtype.is_complex() && var.is_conjugate(py) {
                var.check_overlap(py, &[])?;
            }
            emit::full(py, meta.dims, *scalar, meta.dtype)?
        }
        OperandArg::Complex(parts) => {
            let number = complex::number(py, *parts, meta.dtype)?;
            return fill(py, var, &OperandArg::Tensor(number));
        }
        OperandArg::Large(number) => {
            if !meta.dtype.is_differentiable() {
                return Err(errors::mistake(py, ErrorClass::Runtime, TOO_LARGE));
            }
            return fill(py, var, &OperandArg::Scalar(Scalar::Float(rounded(*number))));
        }
        OperandArg::Absent => {
            return Err(PyTypeError::new_err("can't assign a NoneType to a Tensor"));
        }
    };
    var.write(py, &filled, false)
}

/// `PyTorch`'s rule for the dtype to which an in-place result may be cast.
pub(crate) fn can_cast(from: Dtype, to: Dtype) -> bool {
    from.category() <= to.category()
}
