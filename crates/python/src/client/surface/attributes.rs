//! Attributes that a program sets on a tensor, `t.name = value`: a dictionary that is made for the
//! first one.
//!
//! A cycle through the dictionary needs Python's garbage collector, which visits each object that
//! it tracks again and again. Tracking costs 70 ns for each tensor kept, a sixth of an addition, so
//! a tensor is tracked only from its first attribute on (`Tensor::wrap` untracks it).

use crate::client::value::Tensor;
use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::ptr;

#[pymethods]
impl Tensor {
    fn __setattr__(
        slf: &Bound<'_, Self>,
        name: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        slf.track();
        // SAFETY: the three objects are alive, and the GIL is held.
        let done =
            unsafe { ffi::PyObject_GenericSetAttr(slf.as_ptr(), name.as_ptr(), value.as_ptr()) };
        outcome(slf, name, done)
    }

    fn __delattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyAny>) -> PyResult<()> {
        // SAFETY: the two objects are alive, and the GIL is held; a null value means deletion.
        let done =
            unsafe { ffi::PyObject_GenericSetAttr(slf.as_ptr(), name.as_ptr(), ptr::null_mut()) };
        outcome(slf, name, done)
    }

    /// The attributes, by name.
    #[getter(__dict__)]
    fn attributes<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.track();
        // SAFETY: the object has a dictionary, and the GIL is held; the returned reference is new.
        unsafe {
            let attributes = ffi::PyObject_GenericGetDict(slf.as_ptr(), ptr::null_mut());
            Bound::from_owned_ptr_or_err(slf.py(), attributes)
        }
    }

    #[setter(__dict__)]
    fn set_attributes(slf: &Bound<'_, Self>, attributes: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.track();
        let (tensor, attributes) = (slf.as_ptr(), attributes.as_ptr());
        // SAFETY: the two objects are alive, and the GIL is held.
        let done = unsafe { ffi::PyObject_GenericSetDict(tensor, attributes, ptr::null_mut()) };
        if done == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

trait Tracked {
    fn track(&self);
}

impl Tracked for Bound<'_, Tensor> {
    /// Lets Python's garbage collector visit the tensor.
    fn track(&self) {
        // SAFETY: the object is of a type with garbage collection, the GIL is held, and it is not
        // tracked yet.
        unsafe {
            if ffi::PyObject_GC_IsTracked(self.as_ptr()) == 0 {
                ffi::PyObject_GC_Track(self.as_ptr().cast());
            }
        }
    }
}

/// Converts the result of setting an attribute. A property of the class without a setter raises
/// `PyTorch`'s text, which differs from Python's.
fn outcome(slf: &Bound<'_, Tensor>, name: &Bound<'_, PyAny>, done: i32) -> PyResult<()> {
    if done == 0 {
        return Ok(());
    }
    let py = slf.py();
    let error = PyErr::fetch(py);
    if !error.is_instance_of::<PyAttributeError>(py) {
        return Err(error);
    }
    let name = name.cast::<PyString>()?;
    let is_fixed = py
        .get_type::<Tensor>()
        .getattr(name)
        .and_then(|found| found.getattr("fset"))
        .is_ok_and(|setter| setter.is_none());
    if !is_fixed {
        return Err(error);
    }
    let text = format!("attribute '{name}' of 'gt.Tensor' objects is not writable");
    Err(PyAttributeError::new_err(text))
}
