//! A new numpy array of bytes, to receive into.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// numpy's allocator asks for large pages, which `Vec` does not: filling 100 MB takes a fifth of
/// the time.
#[derive(Debug)]
pub(crate) struct NewArray {
    /// Keeps the memory alive.
    _array: Py<PyAny>,
    address: usize,
    length: usize,
}

impl NewArray {
    /// An array of `length` bytes, and the Python object of it, which the reader returns once it is
    /// filled.
    pub(crate) fn new(py: Python<'_>, length: usize) -> PyResult<(Self, Bound<'_, PyAny>)> {
        let array = py.import("numpy")?.call_method1("empty", (length, "uint8"))?;
        let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
        let address = match interface.get_item("data")? {
            Some(data) if length > 0 => data.get_item(0)?.extract()?,
            Some(_) | None => 0,
        };
        let length = if address == 0 { 0 } else { length };
        Ok((Self { _array: array.clone().unbind(), address, length }, array))
    }

    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.address);
        // SAFETY: `new` made the array, which lives as long as self, with `length` bytes at this address. Nothing else
        // refers to it until its reader returns it to Python, after the last byte has arrived.
        unsafe { std::slice::from_raw_parts_mut(start, self.length) }
    }
}
