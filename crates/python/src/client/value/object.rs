//! Making the Python object of a variable.

use super::variable::{Tensor, Var};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

impl Tensor {
    /// Makes a tensor without attributes: it refers to no object, so Python's garbage collector
    /// need not visit it.
    pub(crate) fn wrap(py: Python<'_>, var: Var) -> PyResult<Bound<'_, Self>> {
        let tensor = Bound::new(py, Self::of(var))?;
        let offset = dictionary_offset(py)?;
        // SAFETY: the object is of a type with garbage collection, nothing else refers to it, and
        // the GIL is held. Its type gives the offset of the pointer to its dictionary, which may be
        // null: Python then makes one for the first attribute.
        unsafe {
            pyo3::ffi::PyObject_GC_UnTrack(tensor.as_ptr().cast());
            let place = tensor.as_ptr().byte_add(offset).cast::<*mut pyo3::ffi::PyObject>();
            let empty = std::ptr::replace(place, std::ptr::null_mut());
            pyo3::ffi::Py_XDECREF(empty);
        }
        Ok(tensor)
    }
}

/// Offset of the pointer to a tensor's dictionary. Python 3.11 and 3.12 make an empty one, of 64
/// bytes, for each new object.
fn dictionary_offset(py: Python<'_>) -> PyResult<usize> {
    static OFFSET: PyOnceLock<usize> = PyOnceLock::new();
    OFFSET
        .get_or_try_init(py, || py.get_type::<Tensor>().getattr("__dictoffset__")?.extract())
        .copied()
}
