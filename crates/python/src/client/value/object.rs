//! Making the Python object of a variable.

use super::variable::{Tensor, Var};
use pyo3::PyTypeInfo;
use pyo3::ffi;
use pyo3::impl_::pyclass::PyClassWithFreeList;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::ptr::NonNull;

/// Offsets in a tensor's object.
struct Offsets {
    tensor: usize,
    /// Pointer to the dictionary.
    dictionary: usize,
}

static OFFSETS: PyOnceLock<Offsets> = PyOnceLock::new();

impl Tensor {
    /// Makes a tensor without attributes: it refers to no object, so Python's garbage collector
    /// need not visit it.
    pub(crate) fn wrap(py: Python<'_>, var: Var) -> PyResult<Bound<'_, Self>> {
        if let Some(offsets) = OFFSETS.get(py)
            && let Some(object) = gone(py)
        {
            return Ok(again(py, object, offsets, Self::of(var)));
        }
        let tensor = Bound::new(py, Self::of(var))?;
        let offsets = OFFSETS.get_or_try_init(py, || Offsets::of(&tensor))?;
        // SAFETY: the object is of a type with garbage collection, nothing else refers to it, and
        // the GIL is held. Its type gives the offset of the pointer to its dictionary, which may be
        // null: Python then makes one for the first attribute.
        unsafe {
            ffi::PyObject_GC_UnTrack(tensor.as_ptr().cast());
            let place = tensor.as_ptr().byte_add(offsets.dictionary).cast::<*mut ffi::PyObject>();
            // Python 3.11 and 3.12 make an empty one, of 64 bytes, for each new object.
            let empty = std::ptr::replace(place, std::ptr::null_mut());
            ffi::Py_XDECREF(empty);
        }
        Ok(tensor)
    }
}

impl Offsets {
    fn of(tensor: &Bound<'_, Tensor>) -> PyResult<Self> {
        let value = std::ptr::from_ref(tensor.get()).addr();
        let dictionary = tensor.get_type().getattr("__dictoffset__")?.extract()?;
        Ok(Self { tensor: value - tensor.as_ptr().addr(), dictionary })
    }
}

/// An object that the program does not have any more.
#[inline]
fn gone(py: Python<'_>) -> Option<NonNull<ffi::PyObject>> {
    Tensor::get_free_list(py).lock().ok()?.pop()
}

/// Makes an object that is gone a tensor again. It is what `wrap` returns of a new one: nothing
/// tracks it, and it has no dictionary and no weak references, which have ended with the tensor
/// before.
#[inline]
fn again<'py>(
    py: Python<'py>,
    object: NonNull<ffi::PyObject>,
    offsets: &Offsets,
    tensor: Tensor,
) -> Bound<'py, Tensor> {
    // SAFETY: the object was a tensor of exactly this class, it is referred to by nothing, and its
    // value has been dropped; the GIL is held.
    unsafe {
        object.byte_add(offsets.tensor).cast::<Tensor>().write(tensor);
        let object = ffi::PyObject_Init(object.as_ptr(), Tensor::type_object_raw(py));
        Bound::from_owned_ptr(py, object).cast_into_unchecked()
    }
}
