//! Attributes that a program gives a tensor, `t.name = value`: a dictionary that a tensor has once it has one.
//!
//! A cycle through it is for Python's collector, which visits each object that it tracks, again and again. Of tensors that
//! are 70 ns for each that is kept, a sixth of an addition, so one is tracked from its first attribute on (`Tensor::wrap`
//! takes it out).

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
        // SAFETY: three objects that are alive, under the GIL.
        let done =
            unsafe { ffi::PyObject_GenericSetAttr(slf.as_ptr(), name.as_ptr(), value.as_ptr()) };
        outcome(slf, name, done)
    }

    fn __delattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyAny>) -> PyResult<()> {
        // SAFETY: two objects that are alive, under the GIL; no value asks to delete.
        let done =
            unsafe { ffi::PyObject_GenericSetAttr(slf.as_ptr(), name.as_ptr(), ptr::null_mut()) };
        outcome(slf, name, done)
    }

    /// The attributes, by name.
    #[getter(__dict__)]
    fn attributes<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.track();
        // SAFETY: an object with a dictionary, under the GIL; the reference is new.
        unsafe {
            let attributes = ffi::PyObject_GenericGetDict(slf.as_ptr(), ptr::null_mut());
            Bound::from_owned_ptr_or_err(slf.py(), attributes)
        }
    }

    #[setter(__dict__)]
    fn set_attributes(slf: &Bound<'_, Self>, attributes: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.track();
        let (tensor, attributes) = (slf.as_ptr(), attributes.as_ptr());
        // SAFETY: two objects that are alive, under the GIL.
        let done = unsafe { ffi::PyObject_GenericSetDict(tensor, attributes, ptr::null_mut()) };
        if done == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

trait Tracked {
    fn track(&self);
}

impl Tracked for Bound<'_, Tensor> {
    /// Lets Python's collector visit it.
    fn track(&self) {
        // SAFETY: an object of the collector's, under the GIL, which is not tracked twice.
        unsafe {
            if ffi::PyObject_GC_IsTracked(self.as_ptr()) == 0 {
                ffi::PyObject_GC_Track(self.as_ptr().cast());
            }
        }
    }
}

/// What came of setting an attribute. A property of the class has the text of one of `PyTorch`'s, which is none of Python's.
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
