//! `gt.Tensor`: its operators, conversions to numbers, and its shape. Gradients are in
//! `history.rs`.

use super::generated_help::help;
use crate::client::emission::autocast;
pub(crate) use crate::client::emission::convert::as_arg;
use crate::client::emission::convert::{self, OperandArg, optional_integer};
use crate::client::emission::emit::{self, Arg};
use crate::client::emission::read;
use crate::client::gil_cell::GilCell;
use crate::client::session::errors;
pub(crate) use crate::client::value::Tensor;
use crate::client::value::dtype::{self, PyDtype};
use crate::client::views::dim_of;
use crate::client::views::in_place::write_result;
use crate::client::views::indexing;
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Dims, Op};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use smallvec::SmallVec;

/// `gt.Size`, the class of shapes.
static SIZE: GilCell<Option<Py<PyAny>>> = GilCell::new(None);

pub(crate) fn set_size_class(py: Python<'_>, class: Py<PyAny>) {
    *SIZE.get_mut(py) = Some(class);
}

/// A `gt.Size` of these sizes.
pub(crate) fn size_object<'py>(py: Python<'py>, dims: &Dims) -> PyResult<Bound<'py, PyAny>> {
    let tuple = PyTuple::new(py, dims.as_slice())?;
    match SIZE.get(py).as_ref() {
        Some(class) => class.bind(py).call1((tuple,)),
        None => Ok(tuple.into_any()),
    }
}

/// Reads the operand of a Python operator; `None`, which becomes `NotImplemented`, for anything
/// else.
fn operand<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<OperandArg<'py>>> {
    Ok(OperandArg::of(object)?.filter(|operand| !matches!(operand, OperandArg::Absent)))
}

pub(crate) fn binary(
    slf: &Bound<'_, Tensor>,
    other: &Bound<'_, PyAny>,
    op: Op,
    reflected: bool,
) -> PyResult<Py<PyAny>> {
    let py = slf.py();
    let mine = Arg::Var(&slf.get().var);
    let given;
    let its = if let Ok(tensor) = other.cast::<Tensor>() {
        Arg::Var(&tensor.get().var)
    } else {
        let Some(operand) = operand(other)? else {
            // Python's own text would name two classes of the same name.
            if convert::is_torch_tensor(other) {
                return Err(convert::refusal(other, op.info().name));
            }
            return Ok(py.NotImplemented());
        };
        given = operand;
        as_arg(&given)
    };
    if reflected && op == Op::Div && (autocast::is_open() || !matches!(its, Arg::Var(_))) {
        // PyTorch computes the product with the reciprocal. For an array numpy computes the quotient.
        let inverse = emit::one(py, Op::Reciprocal, &[mine])?;
        let product = emit::one(py, Op::Mul, &[Arg::Var(&inverse), its])?;
        return Ok(Tensor::wrap(py, product)?.into_any().unbind());
    }
    let args = if reflected { [its, mine] } else { [mine, its] };
    Ok(Tensor::wrap(py, emit::one(py, op, &args)?)?.into_any().unbind())
}

/// `x op= y`: the result must fit x.
pub(crate) fn in_place(slf: &Bound<'_, Tensor>, other: &Bound<'_, PyAny>, op: Op) -> PyResult<()> {
    let py = slf.py();
    let other = OperandArg::required(other, op.info().name)?;
    write_result(slf.get(), py, op, &[as_arg(&other)], SmallVec::new())
}

#[allow(clippy::doc_markdown, reason = "help() shows plain text")]
#[pymethods]
impl Tensor {
    /// `Tensor(data)`: shares the value of another tensor; subclasses such as Parameter are made
    /// so. Given sizes or data it is PyTorch's legacy constructor, which is in `gt.tensor_types`.
    #[new]
    #[pyo3(signature = (*data, requires_grad=false, **named))]
    fn new(
        data: &Bound<'_, PyTuple>,
        requires_grad: bool,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = data.py();
        let shared = match (data.len(), named) {
            (1, None) => data.get_item(0)?.cast_into::<Self>().ok(),
            _ => None,
        };
        let tensor = match shared {
            Some(tensor) => tensor,
            None => py
                .import("gt.tensor_types")?
                .call_method("construct", data, named)?
                .cast_into::<Self>()?,
        };
        let var = tensor.get().var.detached(py, true)?;
        var.set_requires_grad(py, requires_grad)?;
        Ok(Self::of(var))
    }

    fn __pos__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }
    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        // Hash by identity, as in PyTorch.
        slf.as_ptr().addr().cast_signed() >> 4
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        indexing::get_item(slf, index)
    }

    fn __setitem__(
        slf: &Bound<'_, Self>,
        index: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        indexing::set_item(slf, index, value)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        match self.var.meta(py).dims.first() {
            Some(size) => Ok(usize::try_from(*size).expect("a size is not negative")),
            None => Err(PyTypeError::new_err("len() of a 0-d tensor")),
        }
    }

    fn __bool__(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let py = slf.py();
        match slf.get().var.meta(py).elements() {
            0 => Err(errors::mistake(
                py,
                ErrorClass::Shape,
                "Boolean value of Tensor with no values is ambiguous",
            )),
            1 => read::item(py, &slf.get().var)?.bind(py).is_truthy(),
            _ => Err(errors::mistake(
                py,
                ErrorClass::Shape,
                "Boolean value of Tensor with more than one value is ambiguous",
            )),
        }
    }

    fn __float__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let item = real_number(py, read::single(py, &slf.get().var)?, "double")?;
        py.get_type::<pyo3::types::PyFloat>().call1((item,))
    }

    fn __complex__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let item = read::single(py, &slf.get().var)?;
        py.get_type::<pyo3::types::PyComplex>().call1((item,))
    }

    fn __int__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let item = real_number(py, read::single(py, &slf.get().var)?, "int64_t")?;
        py.get_type::<pyo3::types::PyInt>().call1((item,))
    }

    fn __index__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let meta = slf.get().var.meta(py);
        if meta.dtype.is_differentiable() || meta.elements() != 1 {
            return Err(PyTypeError::new_err(
                "only integer tensors of a single element can be converted to an index",
            ));
        }
        let item = read::item(py, &slf.get().var)?;
        py.get_type::<pyo3::types::PyInt>().call1((item,))
    }

    /// The value of a tensor of one element, as a Python number.
    #[doc = help!(item)]
    fn item(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let meta = slf.get().var.meta(py);
        if meta.elements() != 1 {
            return Err(errors::mistake(
                py,
                ErrorClass::Shape,
                format!("a Tensor with {} elements cannot be converted to Scalar", meta.elements()),
            ));
        }
        read::item(py, &slf.get().var)
    }

    /// The sizes of the dimensions.
    #[doc = help!(shape)]
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        size_object(py, &self.var.meta(py).dims)
    }

    /// The type of the elements, such as `gt.float32`.
    #[doc = help!(dtype)]
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<PyDtype>> {
        dtype::object(py, self.var.meta(py).dtype)
    }

    /// Number of dimensions.
    #[doc = help!(ndim)]
    #[getter]
    fn ndim(&self, py: Python<'_>) -> usize {
        self.var.meta(py).dims.len()
    }

    /// Number of dimensions.
    #[doc = help!(dim)]
    fn dim(&self, py: Python<'_>) -> usize {
        self.var.meta(py).dims.len()
    }

    /// Number of elements.
    #[doc = help!(numel)]
    fn numel(&self, py: Python<'_>) -> i64 {
        self.var.meta(py).elements()
    }

    /// Distance between neighbouring elements along each dimension, or along `dim`, in elements.
    #[doc = help!(stride)]
    #[pyo3(signature = (dim=None, *, axis=None))]
    fn stride<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = optional_integer)] dim: Option<i64>,
        #[pyo3(from_py_with = optional_integer)] axis: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let strides = self.var.strides(py);
        match dim.or(axis) {
            None => Ok(PyTuple::new(py, strides.as_slice())?.into_any()),
            Some(dim) => {
                if strides.is_empty() {
                    let text = format!("Dimension specified as {dim} but tensor has no dimensions");
                    return Err(errors::mistake(py, ErrorClass::Index, text));
                }
                let stride = strides[dim_of(py, dim, strides.len())?];
                Ok(stride.into_pyobject(py)?.into_any())
            }
        }
    }

    /// True if the elements have no gaps in a memory format's order; the default order is
    /// row-major.
    #[doc = help!(is_contiguous)]
    #[pyo3(signature = (*, memory_format=None))]
    fn is_contiguous(
        &self,
        py: Python<'_>,
        memory_format: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let (dims, strides) = (self.var.meta(py).dims, self.var.strides(py));
        let format = memory_format.map(PyAnyMethods::repr).transpose()?;
        let last_first: &[usize] = match format.as_ref().map(|name| name.to_str()).transpose()? {
            Some("gt.channels_last") => &[1, 3, 2, 0],
            Some("gt.channels_last_3d") => &[1, 4, 3, 2, 0],
            Some(_) | None => {
                let order: SmallVec<[usize; 8]> = (0..dims.len()).rev().collect();
                return Ok(stands_in_order(&dims, &strides, &order));
            }
        };
        Ok(last_first.len() == dims.len() && stands_in_order(&dims, &strides, last_first))
    }

    /// A copy with a value of its own; differentiable.
    #[doc = help!(clone)]
    #[pyo3(signature = (*, memory_format=None))]
    fn clone<'py>(
        &self,
        py: Python<'py>,
        memory_format: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        let _ = memory_format;
        // The value is immutable, so a copy is another variable that names it.
        Self::wrap(py, self.var.copied(py)?)
    }

    #[classmethod]
    fn __class_getitem__(cls: &Bound<'_, PyType>, _item: &Bound<'_, PyAny>) -> Py<PyType> {
        cls.clone().unbind()
    }
}

/// The real part of a complex number whose imaginary part is zero; real numbers are unchanged.
fn real_number(py: Python<'_>, item: Py<PyAny>, name: &str) -> PyResult<Py<PyAny>> {
    match item.bind(py).cast::<pyo3::types::PyComplex>() {
        Err(_) => Ok(item),
        Ok(number) if number.imag() == 0.0 => {
            Ok(pyo3::types::PyFloat::new(py, number.real()).into_any().unbind())
        }
        Ok(_) => Err(errors::mistake(
            py,
            ErrorClass::Runtime,
            format!("value cannot be converted to type {name} without overflow"),
        )),
    }
}

/// Returns true if the dimensions, fastest first, have no gaps.
fn stands_in_order(dims: &Dims, strides: &Dims, order: &[usize]) -> bool {
    let mut expected = 1;
    dims.contains(&0)
        || order.iter().all(|&dim| {
            let (size, stride) = (dims.get(dim).copied(), strides.get(dim).copied());
            let stands = size == Some(1) || stride == Some(expected);
            expected *= size.unwrap_or(1);
            stands
        })
}
