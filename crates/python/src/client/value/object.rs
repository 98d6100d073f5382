//! The making of the Python object that a program holds of a variable.

use super::variable::{Tensor, Var};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

impl Tensor {
    /// A tensor without attributes: it refers to no object, and Python's collector need not visit it.
    pub(crate) fn wrap(py: Python<'_>, var: Var) -> PyResult<Bound<'_, Self>> {
        let tensor = Bound::new(py, Self::of(var))?;
        let offset = dictionary_offset(py)?;
        // SAFETY: an object of the collector's that nobody else has, under the GIL. Its type says where it has the pointer
        // to its dictionary, which may be null: then Python makes one for the first attribute.
        unsafe {
            pyo3::ffi::PyObject_GC_UnTrack(tensor.as_ptr().cast());
            let place = tensor.as_ptr().byte_add(offset).cast::<*mut pyo3::ffi::PyObject>();
            let empty = std::ptr::replace(place, std::ptr::null_mut());
            pyo3::ffi::Py_XDECREF(empty);
        }
        Ok(tensor)
    }
}

/// Where a tensor has the pointer to its dictionary. Python 3.11 and 3.12 make an empty one for each new object, of 64 bytes.
fn dictionary_offset(py: Python<'_>) -> PyResult<usize> {
    static OFFSET: PyOnceLock<usize> = PyOnceLock::new();
    OFFSET
        .get_or_try_init(py, || py.get_type::<Tensor>().getattr("__dictoffset__")?.extract())
        .copied()
}
