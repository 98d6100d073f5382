//! Helpers of the generated methods, and the view methods that the table does not have.

use super::call::results;
use super::generated_help::help;
use super::tensor::{Tensor, as_arg};
use crate::client::emission::convert::{
    DimsArg, FactorArg, OperandArg, TOO_LARGE, required, rounded,
};
use crate::client::emission::convert::{integer, optional_integer};
use crate::client::emission::emit::{self, Arg};
use crate::client::session::errors;
use crate::client::value::dtype::{DtypeArg, PyDtype};
use crate::client::value::variable::Var;
use crate::client::views;
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Dims, Dtype, Op, Scalar};
use pyo3::exceptions::{PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::{SmallVec, smallvec};
use std::ffi::CString;

/// Emits an operator; returns one tensor or a tuple.
pub(crate) fn run<'py>(
    py: Python<'py>,
    op: Op,
    args: &[Arg<'_>],
    attrs: SmallVec<[Attr; 2]>,
) -> PyResult<Bound<'py, PyAny>> {
    results(py, emit::emit(py, op, args, attrs)?)
}

/// A view operator on a tensor.
pub(crate) fn take_view<'py>(
    tensor: &Bound<'py, Tensor>,
    op: Op,
    attrs: SmallVec<[Attr; 2]>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = tensor.py();
    Ok(Tensor::wrap(py, views::take(py, &tensor.get().var, op, attrs)?)?.into_any())
}

/// Reads operand and factor from `x.add(other, alpha=2)`, or from the form that `PyTorch`
/// deprecates, `x.add(2, other)`.
pub(crate) fn factor_first<'py>(
    py: Python<'py>,
    op: &str,
    operands: [Option<OperandArg<'py>>; 3],
    alpha: FactorArg,
) -> PyResult<(OperandArg<'py>, FactorArg)> {
    match operands {
        [Some(only), None, None] | [None, None, Some(only)] => Ok((only, alpha)),
        [None, None, None] => required(None, op, "other").map(|other| (other, alpha)),
        [Some(OperandArg::Scalar(factor)), Some(second), None]
        | [Some(OperandArg::Scalar(factor)), None, Some(second)]
            if alpha == FactorArg::ONE =>
        {
            let text = format!(
                "This overload of {op} is deprecated:\n\t{op}(Number alpha, Tensor other)\nConsider using one of the \
                 following signatures instead:\n\t{op}(Tensor other, *, Number alpha = 1)"
            );
            let text = CString::new(text)?;
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1)?;
            Ok((second, FactorArg::Scalar(factor)))
        }
        [_, None, Some(_)] => {
            let text = format!("{op}() got multiple values for argument 'other'");
            Err(PyTypeError::new_err(text))
        }
        _ => {
            let text = format!("{op}() takes 1 positional argument but 2 were given");
            Err(PyTypeError::new_err(text))
        }
    }
}

/// `alpha * operand`, in the promoted dtype of `first` and the operand: the operand's own might not
/// hold the product.
pub(crate) fn scaled<'py>(
    py: Python<'py>,
    first: &Var,
    operand: OperandArg<'py>,
    alpha: FactorArg,
) -> PyResult<OperandArg<'py>> {
    if alpha == FactorArg::ONE {
        return Ok(operand);
    }
    let dtype = emit::promoted(py, &[Arg::Var(first), as_arg(&operand)]);
    let alpha = match alpha {
        FactorArg::Scalar(alpha) => alpha,
        FactorArg::Complex(parts) => return scaled_by_complex(py, operand, dtype, parts),
    };
    check_factor(py, dtype, alpha)?;
    let alpha = if dtype == Dtype::Bool { Scalar::Bool(alpha.as_f64() != 0.0) } else { alpha };
    if alpha == Scalar::Float(1.0) || alpha == Scalar::Bool(true) {
        return Ok(operand);
    }
    if let OperandArg::Scalar(number) = operand {
        return Ok(OperandArg::Scalar(times(number, alpha, dtype)));
    }
    if let OperandArg::Large(number) = operand {
        if !dtype.is_differentiable() {
            return Err(errors::mistake(py, ErrorClass::Runtime, TOO_LARGE));
        }
        return Ok(OperandArg::Scalar(times(Scalar::Float(rounded(number)), alpha, dtype)));
    }
    if let OperandArg::Complex(parts) = operand {
        return Ok(OperandArg::Complex(parts.map(|part| part * alpha.as_f64())));
    }
    let operand = cast(py, operand, dtype)?;
    let product =
        emit::tensor(py, Op::Mul, &[as_arg(&operand), Arg::Scalar(alpha)], SmallVec::new())?;
    Ok(OperandArg::Tensor(product))
}

const WHOLE: &str =
    "For integral input tensors, argument alpha must not be a floating point number.";

/// Raises `PyTorch`'s errors for an `alpha` whose kind does not fit the result's dtype.
fn check_factor(py: Python<'_>, dtype: Dtype, alpha: Scalar) -> PyResult<()> {
    let text = match alpha {
        Scalar::Bool(_) if dtype != Dtype::Bool => {
            "Boolean alpha only supported for Boolean results."
        }
        Scalar::Float(_) if !dtype.is_differentiable() => WHOLE,
        Scalar::Bool(_) => return Ok(()),
        Scalar::Int(_) | Scalar::Float(_) if dtype == Dtype::Bool || alpha.fits(dtype) => {
            return Ok(());
        }
        Scalar::Int(_) | Scalar::Float(_) => {
            let name = gt_protocol::rules::stored_name(dtype);
            let text = format!("value cannot be converted to type {name} without overflow");
            return Err(errors::mistake(py, ErrorClass::Runtime, text));
        }
    };
    Err(errors::mistake(py, ErrorClass::Runtime, text))
}

/// [`scaled`] by a complex number, which only a complex result accepts.
fn scaled_by_complex<'py>(
    py: Python<'py>,
    operand: OperandArg<'py>,
    dtype: Dtype,
    [real, imag]: [f64; 2],
) -> PyResult<OperandArg<'py>> {
    if !dtype.is_complex() {
        let text = if dtype.is_differentiable() {
            "For non-complex input tensors, argument alpha must not be a complex number."
        } else {
            WHOLE
        };
        return Err(errors::mistake(py, ErrorClass::Runtime, text));
    }
    let parts = match &operand {
        OperandArg::Scalar(number) => [number.as_f64(), 0.0],
        OperandArg::Complex(parts) => *parts,
        OperandArg::Large(number) => [rounded(*number), 0.0],
        OperandArg::Absent => return Ok(operand),
        OperandArg::Tensor(_) => {
            let operand = cast(py, operand, dtype)?;
            let args = [as_arg(&operand), Arg::Complex([real, imag])];
            return emit::tensor(py, Op::Mul, &args, SmallVec::new()).map(OperandArg::Tensor);
        }
    };
    let product = [parts[0] * real - parts[1] * imag, parts[0] * imag + parts[1] * real];
    Ok(OperandArg::Complex(product))
}

fn cast<'py>(py: Python<'py>, operand: OperandArg<'py>, dtype: Dtype) -> PyResult<OperandArg<'py>> {
    let OperandArg::Tensor(tensor) = &operand else { return Ok(operand) };
    if tensor.get().var.meta(py).dtype == dtype {
        return Ok(operand);
    }
    let arg = Arg::Var(&tensor.get().var);
    let wide = emit::tensor(py, Op::Cast, &[arg], smallvec![Attr::Dtype(dtype)])?;
    Ok(OperandArg::Tensor(wide))
}

/// The product in `dtype`: integers wrap, floats do not.
fn times(number: Scalar, alpha: Scalar, dtype: Dtype) -> Scalar {
    let whole = |scalar| match scalar {
        Scalar::Bool(value) => Some(i64::from(value)),
        Scalar::Int(value) => Some(value),
        Scalar::Float(_) => None,
    };
    match (whole(number), whole(alpha)) {
        (Some(number), Some(alpha)) if !dtype.is_differentiable() => {
            Scalar::Int(number.wrapping_mul(alpha))
        }
        (_, _) => Scalar::Float(number.as_f64() * alpha.as_f64()),
    }
}

/// The dtype that `x.view(dtype)` or `x.view(dtype=...)` names, if it is that form.
fn dtype_of_view(
    size: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<Option<Dtype>> {
    let keyword = named.map(|named| named.get_item("dtype")).transpose()?.flatten();
    if let Some(keyword) = keyword.filter(|_| size.is_empty()) {
        return keyword.extract().map(|DtypeArg(dtype)| Some(dtype));
    }
    let only = if size.len() == 1 { Some(size.get_item(0)?) } else { None };
    Ok(only.and_then(|only| Some(only.cast::<PyDtype>().ok()?.get().0)))
}

#[allow(clippy::doc_markdown, reason = "help() shows plain text")]
#[pymethods]
impl Tensor {
    /// A tensor with the same elements in another shape, which shares storage; an error where that
    /// is impossible. Given a dtype: the bits as elements of that dtype, as a value of its own
    /// (storage is shared only with a tensor of the same dtype).
    #[doc = help!(view)]
    #[pyo3(signature = (*size, **named))]
    fn view<'py>(
        slf: &Bound<'py, Self>,
        size: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Self>> {
        let (py, var) = (slf.py(), &slf.get().var);
        if let Some(dtype) = dtype_of_view(size, named)? {
            return Self::wrap(py, views::bitcast(py, var, dtype)?);
        }
        let dims = DimsArg::of_arguments(size, named, &["size"])?.0;
        Self::wrap(py, views::view(py, var, dims)?)
    }

    /// A view with two dimensions swapped.
    #[doc = help!(transpose)]
    fn transpose<'py>(
        slf: &Bound<'py, Self>,
        #[pyo3(from_py_with = integer)] dim0: i64,
        #[pyo3(from_py_with = integer)] dim1: i64,
    ) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        Self::wrap(py, views::transpose(py, &slf.get().var, dim0, dim1)?)
    }

    /// A matrix with rows and columns swapped; vectors and 0-d tensors are unchanged.
    #[doc = help!(t)]
    fn t<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let rank = slf.get().var.meta(py).dims.len();
        match rank {
            2 => Self::transpose(slf, 0, 1),
            0 | 1 => Self::wrap(py, views::permute(py, &slf.get().var, identity(rank))?),
            _ => Err(crate::client::session::errors::mistake(
                py,
                gt_protocol::rules::ErrorClass::Shape,
                format!("t() expects a tensor with <= 2 dimensions, but self is {rank}D"),
            )),
        }
    }

    /// A view with the dimensions in reverse order.
    #[doc = help!(T)]
    #[getter(T)]
    fn reversed<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let rank = slf.get().var.meta(py).dims.len();
        let order: SmallVec<[i64; 8]> = identity(rank).iter().rev().copied().collect();
        Self::wrap(
            py,
            views::permute(
                py,
                &slf.get().var,
                Dims::new(&order).expect("as many dimensions as before"),
            )?,
        )
    }

    /// A view with the last two dimensions swapped; a 0-d tensor is its own transpose.
    #[doc = help!(mT)]
    #[getter(mT)]
    fn matrix_transposed<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        match slf.get().var.meta(slf.py()).dims.len() {
            0 => Self::reversed(slf),
            1 => Err(errors::mistake(
                slf.py(),
                ErrorClass::Shape,
                "tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor.",
            )),
            _ => Self::transpose(slf, -2, -1),
        }
    }

    /// A view with a dimension of size 1 inserted at `dim`.
    #[doc = help!(unsqueeze)]
    #[pyo3(signature = (dim=None, *, axis=None), text_signature = "($self, dim, *, axis=None)")]
    fn unsqueeze<'py>(
        slf: &Bound<'py, Self>,
        #[pyo3(from_py_with = optional_integer)] dim: Option<i64>,
        #[pyo3(from_py_with = optional_integer)] axis: Option<i64>,
    ) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let dim = required(dim.or(axis), "unsqueeze", "dim")?;
        Self::wrap(py, views::unsqueeze(py, &slf.get().var, dim)?)
    }

    /// A view without dimensions of size 1: all of them, or those of `dim`, a number, a sequence or
    /// several numbers.
    #[doc = help!(squeeze)]
    #[pyo3(signature = (*dims, dim=None, axis=None))]
    fn squeeze<'py>(
        slf: &Bound<'py, Self>,
        dims: &Bound<'py, PyTuple>,
        dim: Option<DimsArg>,
        axis: Option<DimsArg>,
    ) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let var = &slf.get().var;
        let rank = var.meta(py).dims.len();
        let dim = match dims.len() {
            0 => dim.or(axis),
            _ if dim.or(axis).is_some() => {
                return Err(PyTypeError::new_err(
                    "squeeze() got multiple values for argument 'dim'",
                ));
            }
            1 => dims.get_item(0)?.extract()?,
            _ => Some(dims.extract()?),
        };
        let Some(dim) = dim else {
            return Self::wrap(py, views::squeeze(py, var, |_| true)?);
        };
        let mut chosen: SmallVec<[usize; 8]> = SmallVec::new();
        for &dim in dim.0.iter() {
            let place = views::dim_of(py, dim, rank)?;
            if chosen.contains(&place) {
                let text = format!("dim {place} appears multiple times in the list of dims");
                return Err(errors::mistake(py, ErrorClass::Shape, text));
            }
            chosen.push(place);
        }
        Self::wrap(py, views::squeeze(py, var, |place| chosen.contains(&place))?)
    }
}

fn identity(rank: usize) -> Dims {
    let order: SmallVec<[i64; 8]> =
        (0..rank).map(|dim| i64::try_from(dim).expect("a rank is small")).collect();
    Dims::new(&order).expect("as many dimensions as before")
}
