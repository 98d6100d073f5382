//! The object of Python's that a program holds of a variable.

use super::variable::Var;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// A tensor on a cluster: operators emit instructions, values come back when they are read.
#[pyclass(frozen, subclass, weakref, dict, module = "gt", name = "Tensor")]
pub(crate) struct Tensor {
    pub var: ObjectVar,
}

impl Tensor {
    pub(crate) fn of(var: Var) -> Self {
        Self { var: ObjectVar(ManuallyDrop::new(var)) }
    }

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

/// The variable of a Python object: dropped without asking whether the GIL is held.
pub(crate) struct ObjectVar(ManuallyDrop<Var>);

impl Deref for ObjectVar {
    type Target = Var;

    #[inline]
    fn deref(&self) -> &Var {
        &self.0
    }
}

impl Drop for ObjectVar {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nobody looks at it again. The GIL is held: Python frees its objects under it, and before a tensor is an
        // object it is in the hands of `wrap` or of a method, which have a token.
        let (var, py) = unsafe { (ManuallyDrop::take(&mut self.0), Python::assume_attached()) };
        var.release(py);
    }
}
