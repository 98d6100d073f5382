//! Metadata of a tensor for C++ in the client's process: the fast path of the torch front end.

use super::tensor::Tensor;
use gt_protocol::meta::DIMS_MAX;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;

/// Adds this file's function.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(metadata_address, module)?)
}

/// A tensor's metadata, with the layout of `gt::TensorMetadata` in `gt/torch/fast/objects.h`.
#[repr(C)]
pub struct TensorMetadata {
    dtype: u32,
    dimensions: u32,
    offset: i64,
    sizes: [i64; DIMS_MAX],
    strides: [i64; DIMS_MAX],
}

type WriteMetadata = unsafe extern "C" fn(*mut PyObject, *mut TensorMetadata);

/// The address of a C function that writes a tensor's metadata.
///
/// Its arguments are a `gt.Tensor` and the place for the metadata; the caller holds the
/// interpreter's lock.
#[pyfunction]
#[allow(clippy::as_conversions, reason = "no other conversion from a function to its address")]
fn metadata_address() -> usize {
    let function: WriteMetadata = write_metadata;
    function as usize
}

/// Writes the metadata of a tensor.
///
/// # Safety
///
/// The interpreter's lock is held, `object` is a `gt.Tensor`, and `metadata` can be written.
unsafe extern "C" fn write_metadata(object: *mut PyObject, metadata: *mut TensorMetadata) {
    // SAFETY: the caller's promise.
    let (py, metadata) = unsafe { (Python::assume_attached(), &mut *metadata) };
    // SAFETY: a borrowed reference to a living tensor, by the caller's promise.
    let object = unsafe { Bound::from_borrowed_ptr(py, object) };
    // SAFETY: the class is that of all GT tensors, by the caller's promise.
    let var = unsafe { &object.cast_unchecked::<Tensor>().get().var };
    let (meta, strides) = (var.meta(py), var.strides(py));
    let rank = meta.dims.len();
    metadata.dtype = u32::from(meta.dtype.code());
    metadata.dimensions = u32::try_from(rank).expect("at most DIMS_MAX dimensions");
    metadata.offset = var.offset(py);
    metadata.sizes[..rank].copy_from_slice(meta.dims.as_slice());
    metadata.strides[..rank].copy_from_slice(strides.as_slice());
}
