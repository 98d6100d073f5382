//! Calls of Python objects with an array of borrowed arguments: no tuple is made.
//!
//! `PyObject_Vectorcall` has been in every `CPython` since 3.9 but in the stable ABI only since
//! 3.12, so it is looked up when the module starts; without it a tuple is made.

#![allow(unsafe_code, reason = "Python's C API")]

use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_void;
use std::ptr;

type Vectorcall = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    usize,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// Calling convention of this interpreter.
#[derive(Clone, Copy, Debug)]
pub struct Vectorcaller {
    vectorcall: Option<Vectorcall>,
}

impl Vectorcaller {
    pub fn new() -> Self {
        // SAFETY: a lookup among the loaded libraries by a NUL-terminated name; it runs no code of ours.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyObject_Vectorcall".as_ptr()) };
        let vectorcall = (!symbol.is_null()).then(|| {
            // SAFETY: CPython exports the symbol with this signature (cpython/abstract.h, since 3.9).
            unsafe { std::mem::transmute::<*mut c_void, Vectorcall>(symbol) }
        });
        Self { vectorcall }
    }

    /// Calls `callable`; the caller keeps the arguments.
    #[inline]
    pub fn call(
        self,
        py: Python<'_>,
        callable: &Py<PyAny>,
        arguments: &[*mut ffi::PyObject],
    ) -> PyResult<Py<PyAny>> {
        let result = match self.vectorcall {
            // SAFETY: the interpreter is attached (`py`); callable and arguments are live objects, owned by the caller
            // for the time of the call; there are no keywords.
            Some(vectorcall) => unsafe {
                vectorcall(callable.as_ptr(), arguments.as_ptr(), arguments.len(), ptr::null_mut())
            },
            // SAFETY: as above.
            None => unsafe { call_with_tuple(callable.as_ptr(), arguments) },
        };
        // SAFETY: the call returned a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, result) }.map(Bound::unbind)
    }
}

/// # Safety
/// The interpreter is attached, and the pointers are live objects.
unsafe fn call_with_tuple(
    callable: *mut ffi::PyObject,
    arguments: &[*mut ffi::PyObject],
) -> *mut ffi::PyObject {
    // SAFETY: the caller promised it; PyTuple_SetItem takes the reference that Py_IncRef adds, and
    // null passes through.
    unsafe {
        let Ok(length) = ffi::Py_ssize_t::try_from(arguments.len()) else {
            return ptr::null_mut();
        };
        let tuple = ffi::PyTuple_New(length);
        if tuple.is_null() {
            return ptr::null_mut();
        }
        for (place, &argument) in (0..).zip(arguments) {
            ffi::Py_IncRef(argument);
            ffi::PyTuple_SetItem(tuple, place, argument);
        }
        let result = ffi::PyObject_CallObject(callable, tuple);
        ffi::Py_DecRef(tuple);
        result
    }
}
