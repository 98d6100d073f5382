//! Tensors from elements of numpy arrays and buffers, and elements from tensors.

use super::tensor::Tensor;
use crate::client::emission::convert::DimsArg;
use crate::client::emission::emit::cast;
use crate::client::emission::{numbers, read, upload};
use crate::client::tape;
use crate::client::value::dtype::DtypeArg;
use pyo3::prelude::*;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(from_numpy_copy, module)?)?;
    module.add_function(wrap_pyfunction!(from_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(from_numbers, module)?)?;
    module.add_function(wrap_pyfunction!(read_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(read_numbers, module)?)?;
    module.add_function(wrap_pyfunction!(known_numbers, module)?)?;
    Ok(())
}

/// A tensor with a copy of a numpy array's values.
#[pyfunction]
#[pyo3(signature = (array, dtype=None, requires_grad=false))]
fn from_numpy_copy<'py>(
    array: &Bound<'py, PyAny>,
    dtype: Option<DtypeArg>,
    requires_grad: bool,
) -> PyResult<Bound<'py, Tensor>> {
    let py = array.py();
    let tensor = upload::from_array(array)?;
    let tensor = match dtype {
        Some(dtype) if tensor.get().var.meta(py).dtype != dtype.0 => {
            let before = tape::set_grad_enabled(false);
            let converted = cast(py, &tensor.get().var, dtype.0);
            tape::set_grad_enabled(before);
            Tensor::wrap(py, converted?)?
        }
        Some(_) | None => tensor,
    };
    Tensor::require_grad(&tensor, requires_grad)?;
    Ok(tensor)
}

/// A tensor of Python's numbers or nested lists of them; None for data that this fast path does not
/// take.
#[pyfunction]
#[pyo3(signature = (data, dtype, requires_grad))]
fn from_numbers<'py>(
    data: &Bound<'py, PyAny>,
    dtype: Option<DtypeArg>,
    requires_grad: bool,
) -> PyResult<Option<Bound<'py, Tensor>>> {
    numbers::from_numbers(data, dtype.map(|dtype| dtype.0), requires_grad)
}

/// A tensor from contiguous row-major bytes.
#[pyfunction]
#[pyo3(signature = (buffer, shape, dtype, requires_grad=false))]
fn from_bytes<'py>(
    buffer: &Bound<'py, PyAny>,
    shape: DimsArg,
    dtype: DtypeArg,
    requires_grad: bool,
) -> PyResult<Bound<'py, Tensor>> {
    let tensor = upload::from_buffer(buffer, shape.0, dtype.0)?;
    Tensor::require_grad(&tensor, requires_grad)?;
    Ok(tensor)
}

/// Waits for a tensor and returns its elements, contiguous and row-major, as a numpy array of bytes.
#[pyfunction]
fn read_bytes<'py>(tensor: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyAny>> {
    read::bytes(tensor.py(), &tensor.get().var)
}

/// Waits for a tensor and returns its elements as Python numbers, row-major.
#[pyfunction]
fn read_numbers(tensor: &Bound<'_, Tensor>) -> PyResult<Vec<Py<PyAny>>> {
    read::numbers(tensor.py(), &tensor.get().var)
}

/// The elements of a small tensor that the program itself sent lately, or that `read_numbers` has
/// read, without waiting; None for any other.
#[pyfunction]
fn known_numbers(tensor: &Bound<'_, Tensor>) -> PyResult<Option<Vec<Py<PyAny>>>> {
    read::known_numbers(tensor.py(), &tensor.get().var)
}
