//! `x[...]` and `x[...] = y`: integers, 0-d integer tensors, slices, None and Ellipsis take views;
//! other tensors, lists and masks look elements up.

use super::in_place::{assign, fill};
use super::picking::{Picked, pick};
use crate::client::emission::complex;
use crate::client::emission::convert::OperandArg;
use crate::client::emission::emit::{self, Arg, cast};
use crate::client::session::errors;
use crate::client::value::Tensor;
use crate::client::value::variable::Var;
use crate::client::views;
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Dims, Dtype, Meta, Op, Scalar};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};

pub(crate) fn get_item<'py>(
    tensor: &Bound<'py, Tensor>,
    index: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, Tensor>> {
    let py = tensor.py();
    let picked = pick(py, &tensor.get().var, index)?;
    if !picked.is_lookup() {
        // `x[...]` is a new view, not x itself.
        let var = if picked.view.is(&tensor.get().var) {
            views::alias(py, &picked.view)?
        } else {
            picked.view
        };
        return Tensor::wrap(py, var);
    }
    let mut args: SmallVec<[Arg<'_>; 4]> = smallvec![Arg::Var(&picked.view)];
    args.extend(picked.lookups());
    emit::tensor(py, Op::Index, &args, SmallVec::from(NO_SHARD.as_slice()))
}

/// Trailing attributes of a look-up that is not on a shard.
pub(crate) const NO_SHARD: [Attr; 3] = [Attr::Absent, Attr::Absent, Attr::Absent];

pub(crate) fn set_item(
    tensor: &Bound<'_, Tensor>,
    index: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = tensor.py();
    let picked = pick(py, &tensor.get().var, index)?;
    let value = match OperandArg::required(value, "__setitem__")? {
        OperandArg::Scalar(number) if !picked.is_lookup() => {
            OperandArg::Scalar(copied(number, picked.view.meta(py).dtype))
        }
        OperandArg::Large(_) => {
            return Err(PyValueError::new_err("Overflow when unpacking long long"));
        }
        value => value,
    };
    if picked.is_lookup() {
        return put_at_lookups(py, &picked, &value);
    }
    let dims = picked.view.meta(py).dims;
    match &value {
        OperandArg::Tensor(value)
            if value.get().var.meta(py).dims == dims
                || !value.get().var.meta(py).dims.is_empty() =>
        {
            put(py, &picked.view, &value.get().var)
        }
        value => fill(py, &picked.view, value),
    }
}

/// The number as a copy would store it: it is a float32 first, and becomes an infinity in a half
/// dtype.
fn copied(number: Scalar, dtype: Dtype) -> Scalar {
    let half = matches!(dtype, Dtype::F16 | Dtype::Bf16);
    if half && !number.fits(dtype) {
        return Scalar::Float(f64::INFINITY.copysign(number.as_f64()));
    }
    number
}

/// Writes `value` at the elements that tensors look up.
fn put_at_lookups(py: Python<'_>, picked: &Picked, value: &OperandArg<'_>) -> PyResult<()> {
    let (view, target) = (&picked.view, picked.view.meta(py));
    let value = match value {
        OperandArg::Tensor(value) => {
            view.check_writable(py, value.get().var.requires_grad(py))?;
            without_leading_ones(py, value.get().var.clone())?
        }
        OperandArg::Scalar(scalar) => {
            view.check_writable(py, false)?;
            if picked.takes_nothing_of(&target.dims) {
                return Ok(()); // PyTorch does not look at the indices either
            }
            emit::full(py, Dims::EMPTY, *scalar, target.dtype)?
        }
        OperandArg::Complex(parts) => {
            view.check_writable(py, false)?;
            complex::number(py, *parts, target.dtype)?.get().var.clone()
        }
        OperandArg::Absent | OperandArg::Large(_) => {
            return Err(PyTypeError::new_err("can't assign a NoneType to a Tensor"));
        }
    };
    view.check_apart(py, &value)?;
    let value_meta = value.meta(py);
    let is_filled =
        picked.masks == 1 && !picked.by_numbers && value_meta.dims.elements() == Some(1);
    if is_filled && picked.of_bytes {
        return Err(errors::mistake(py, ErrorClass::Dtype, FILLED_BY_BYTES.to_owned()));
    }
    let value =
        if value_meta.dtype == target.dtype { value } else { cast(py, &value, target.dtype)? };
    let mut args: SmallVec<[Arg<'_>; 4]> = smallvec![Arg::Var(view), Arg::Var(&value)];
    args.extend(picked.lookups());
    let attrs: SmallVec<[Attr; 2]> = std::iter::once(Attr::Bool(false)).chain(NO_SHARD).collect();
    // Shapes are checked first, then dtypes, and both before the instruction may consume the old
    // value.
    let op = Op::IndexPut;
    emit::results_of(py, op, &args, &attrs)?;
    // A value of one element is filled in under masks, which casts it.
    if picked.by_numbers || value_meta.dims.elements() != Some(1) {
        same_dtype(py, &target, &value_meta)?;
    }
    let consumes = u16::from(view.sole_owner(py));
    let written = emit::only(emit::emit_consuming(py, op, &args, attrs, consumes)?)?;
    assign(py, view, written, true)
}

const FILLED_BY_BYTES: &str =
    "masked_fill_ only supports boolean masks, but got mask with dtype unsigned char";

/// Checks the dtypes: `PyTorch` casts a value that is copied into a view, but not one that is put
/// at looked-up elements.
fn same_dtype(py: Python<'_>, target: &Meta, value: &Meta) -> PyResult<()> {
    if target.dtype == value.dtype {
        return Ok(());
    }
    Err(errors::mistake(
        py,
        ErrorClass::Dtype,
        format!(
            "Index put requires the source and destination dtypes match, got {} for the destination and {} for the \
             source.",
            target.dtype.scalar_type_name(),
            value.dtype.scalar_type_name()
        ),
    ))
}

/// Copies `value` into a view, broadcast.
fn put(py: Python<'_>, view: &Var, value: &Var) -> PyResult<()> {
    let target = view.meta(py);
    let fitted = fit(py, value.clone(), &target.dims)?;
    view.check_copied(py, value)?;
    if !view.is_same_data(py, &fitted) {
        view.check_overlap(py, &[Arg::Var(&fitted)])?;
    }
    let same = fitted.meta(py).dtype == target.dtype;
    let fitted = if same { fitted } else { cast(py, &fitted, target.dtype)? };
    assign(py, view, fitted, false)
}

/// `value` in the target's shape: leading dimensions of size 1 are dropped, the rest broadcasts.
fn fit(py: Python<'_>, value: Var, dims: &Dims) -> PyResult<Var> {
    let mut value = value;
    let value_dims = value.meta(py).dims;
    if value_dims == *dims {
        return Ok(value);
    }
    value = without_leading_ones(py, value)?;
    if value.meta(py).dims == *dims {
        return Ok(value);
    }
    views::expand(py, &value, *dims)
}

/// Drops leading dimensions of size 1 from an assigned value, as PyTorch does.
fn without_leading_ones(py: Python<'_>, value: Var) -> PyResult<Var> {
    let value_dims = value.meta(py).dims;
    let rest: SmallVec<[i64; 8]> =
        value_dims.iter().copied().skip_while(|&size| size == 1).collect();
    if rest.len() == value_dims.len() {
        return Ok(value);
    }
    views::reshape(py, &value, Dims::new(&rest).expect("fewer dimensions than before"))
}
