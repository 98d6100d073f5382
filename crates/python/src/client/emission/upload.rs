//! Uploads: bytes of the client become a tensor, in chunks that fit a frame.

use super::array_memory::ArrayMemory;
use super::shown;
use crate::client::session::{caller, errors, runtime, signal};
use crate::client::value::Tensor;
use crate::client::value::ValueHandle;
use crate::client::value::dtype::DtypeArg;
use crate::client::value::metadata::SharedMeta;
use crate::client::value::variable::Var;
use gt_protocol::integer::to_u64;
use gt_protocol::rules::ErrorClass;
use gt_protocol::wire::PAYLOAD_BYTES_MAX;
use gt_protocol::{Attr, Dims, Dtype, Id, Instruction, Meta, Op, Operand};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use smallvec::smallvec;

/// A tensor with these bytes, which are contiguous and row-major.
pub(crate) fn from_bytes<'py>(
    py: Python<'py>,
    bytes: &[u8],
    dims: Dims,
    dtype: Dtype,
) -> PyResult<Bound<'py, Tensor>> {
    let meta = Meta::new(dtype, dims);
    if meta.dims.elements().is_none() || meta.bytes() != to_u64(bytes.len()) {
        return Err(PyValueError::new_err(format!(
            "{meta} takes {} bytes, got {}",
            meta.bytes(),
            bytes.len()
        )));
    }
    let caller = caller::ready(py)?;
    let epoch = runtime::epoch();
    // An upload in several chunks starts with an empty one: a chunk may go through the slab, the
    // first one may not.
    let first = if bytes.len() > PAYLOAD_BYTES_MAX { 0 } else { bytes.len() };
    let (first, rest) = bytes.split_at(first);
    let mut word = Instruction::new(Op::Upload);
    let slot = runtime::with(py, |runtime| {
        let slot = runtime.take_slot();
        word.tag = caller.site;
        word.signal = signal::of_upload(py, caller.signal, dims);
        runtime.announce_signal(py, word.signal);
        word.outputs.push(Id::slot(slot));
        word.attrs = smallvec![Attr::Ints(dims), Attr::Dtype(dtype)];
        word.payload = first;
        runtime.send(&word).map(|()| slot)
    })?;
    shown::show(py, &word, &[meta]);
    let var = Var::of(py, ValueHandle { slot, epoch, meta: SharedMeta::of(py, &meta) });
    let mut offset = first.len();
    for chunk in rest.chunks(runtime::chunk_bytes_max(py)) {
        runtime::prepare_payload(py)?;
        let mut word = Instruction::new(Op::Chunk);
        word.operands.push(Operand::Value(Id::slot(slot)));
        word.attrs.push(Attr::Int(i64::try_from(offset).expect("no buffer has 2^63 bytes")));
        word.payload = chunk;
        runtime::with(py, |runtime| runtime.send(&word))?;
        offset += chunk.len();
    }
    Tensor::wrap(py, var)
}

/// A tensor from an object with a contiguous buffer.
pub(crate) fn from_buffer<'py>(
    object: &Bound<'py, PyAny>,
    dims: Dims,
    dtype: Dtype,
) -> PyResult<Bound<'py, Tensor>> {
    let py = object.py();
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return from_bytes(py, bytes.as_bytes(), dims, dtype);
    }
    // The buffer protocol is not in the stable ABI of Python 3.10; numpy gives a buffer's address.
    let numpy = py.import("numpy")?;
    let array = if object.hasattr("__array_interface__")? {
        numpy.call_method1("ascontiguousarray", (object,))?
    } else {
        numpy.call_method1("frombuffer", (object, "uint8"))?
    };
    let length: usize = array.getattr("nbytes")?.extract()?;
    let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
    let address: usize = match interface.get_item("data")? {
        Some(data) => data.get_item(0)?.extract()?,
        None => {
            return Err(PyTypeError::new_err("from_buffer: the object has no memory of its own"));
        }
    };
    if length == 0 {
        return from_bytes(py, &[], dims, dtype);
    }
    // SAFETY: numpy reports `length` bytes at this address for `array`, which this function keeps
    // alive and which is contiguous.
    let bytes = unsafe {
        std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(address), length)
    };
    from_bytes(py, bytes, dims, dtype)
}

/// A tensor with the values of a numpy array, of the same dtype.
pub(crate) fn from_array<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Tensor>> {
    let py = array.py();
    if let Some(memory) = ArrayMemory::of(array) {
        return from_bytes(py, memory.bytes(), memory.dims, memory.dtype);
    }
    // `order` keeps a 0-d array 0-d; `ascontiguousarray` would not.
    let order = PyDict::new(py);
    order.set_item("order", "C")?;
    let array = py.import("numpy")?.call_method("asarray", (array,), Some(&order))?;
    let dtype = array.getattr("dtype")?;
    let order = dtype.getattr("byteorder")?.to_string();
    if order == ">" {
        return Err(PyValueError::new_err(
            "given numpy array has byte order different from the native byte order. Conversion between byte \
             orders is currently not supported.",
        ));
    }
    let dtype = dtype.extract::<DtypeArg>().map_err(|_| {
        let name = dtype.str().map(|name| name.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!(
            "can't convert np.ndarray of type {name}. The only supported types are: float64, float32, float16, \
             int64, int32, int16, int8, uint8, and bool."
        ))
    })?;
    let shape: Vec<i64> = array.getattr("shape")?.extract()?;
    let dims = Dims::new(&shape).ok_or_else(|| {
        errors::mistake(
            py,
            ErrorClass::Shape,
            format!(
                "gt's tensors have at most {} dimensions, got {}",
                gt_protocol::meta::DIMS_MAX,
                shape.len()
            ),
        )
    })?;
    from_buffer(&array, dims, dtype.0)
}
