//! The memory of an array, as `DLPack` describes it
//! (<https://dmlc.github.io/dlpack/latest/c_api.html>): unlike numpy's own description it needs no
//! strings and dictionaries.

use gt_protocol::meta::DIMS_MAX;
use gt_protocol::{Dims, Dtype};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use std::ffi::c_void;

const ON_HOST: i32 = 1; // kDLCPU

#[repr(C)]
struct DlDevice {
    kind: i32,
    index: i32,
}

#[repr(C)]
struct DlDtype {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`, the first member of a `DLManagedTensor`.
#[repr(C)]
struct DlTensor {
    data: *const c_void,
    device: DlDevice,
    dim_count: i32,
    dtype: DlDtype,
    sizes: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// A contiguous, row-major array; its capsule keeps the memory.
pub(crate) struct ArrayMemory<'py> {
    _capsule: Bound<'py, PyCapsule>,
    address: *const u8,
    length: usize,
    pub(crate) dims: Dims,
    pub(crate) dtype: Dtype,
}

impl<'py> ArrayMemory<'py> {
    /// `None` where the array is not contiguous, has another dtype or device, is read-only, or is
    /// no array.
    pub(crate) fn of(array: &Bound<'py, PyAny>) -> Option<Self> {
        let py = array.py();
        let exported = array.call_method0(intern!(py, "__dlpack__")).ok()?;
        let capsule = exported.cast_into::<PyCapsule>().ok()?;
        let pointer = capsule.pointer_checked(Some(c"dltensor")).ok()?;
        // SAFETY: a capsule of this name holds a `DLManagedTensor`, by DLPack's protocol, as long as it is not renamed.
        let tensor = unsafe { pointer.cast::<DlTensor>().as_ref() };
        let count = usize::try_from(tensor.dim_count).ok().filter(|count| *count <= DIMS_MAX)?;
        let (sizes, strides): (&[i64], &[i64]) = match count {
            0 => (&[], &[]),
            // SAFETY: both arrays have `dim_count` numbers; strides may be null where the array is
            // contiguous.
            _ if !tensor.strides.is_null() => unsafe {
                (
                    std::slice::from_raw_parts(tensor.sizes, count),
                    std::slice::from_raw_parts(tensor.strides, count),
                )
            },
            // SAFETY: as above.
            _ => (unsafe { std::slice::from_raw_parts(tensor.sizes, count) }, &[]),
        };
        if tensor.device.kind != ON_HOST || !is_contiguous(sizes, strides) {
            return None;
        }
        let dtype = dtype(&tensor.dtype)?;
        let dims = Dims::new(sizes)?;
        let elements = usize::try_from(dims.elements()?).ok()?;
        let length = elements.checked_mul(usize::try_from(dtype.size()).ok()?)?;
        let offset = usize::try_from(tensor.byte_offset).ok()?;
        let address = tensor.data.cast::<u8>().wrapping_add(offset);
        Some(Self { address, length, dims, dtype, _capsule: capsule })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the exporter promises that many contiguous bytes at the address, and the capsule
        // keeps them alive.
        unsafe { std::slice::from_raw_parts(self.address, self.length) }
    }
}

fn is_contiguous(sizes: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1_i64;
    let is_empty = sizes.contains(&0);
    is_empty
        || strides.is_empty()
        || sizes.iter().zip(strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected = expected.saturating_mul(size);
            fits
        })
}

fn dtype(dtype: &DlDtype) -> Option<Dtype> {
    let DlDtype { code, bits, lanes: 1 } = dtype else { return None };
    match (code, bits) {
        (0, 8) => Some(Dtype::I8),
        (0, 16) => Some(Dtype::I16),
        (0, 32) => Some(Dtype::I32),
        (0, 64) => Some(Dtype::I64),
        (1, 8) => Some(Dtype::U8),
        (2, 16) => Some(Dtype::F16),
        (2, 32) => Some(Dtype::F32),
        (2, 64) => Some(Dtype::F64),
        (5, 64) => Some(Dtype::C64),
        (5, 128) => Some(Dtype::C128),
        (6, 8) => Some(Dtype::Bool),
        _ => None,
    }
}
