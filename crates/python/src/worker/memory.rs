//! Access to values' memory, through the functions of a `gt.worker.backend.Backend`: bytes in and
//! out, and layouts.

#![allow(unsafe_code, reason = "tensors' bytes")]

use super::aten::{TensorValue, described};
use super::borrowed::{BorrowedBytes, BorrowedMemory, ResultMemory};
use super::vectorcall::Vectorcaller;
use gt_protocol::Meta;
use gt_transport::memory::{HUGE_BYTES_MIN, prefer_huge_pages};
use gt_worker::Places;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use smallvec::SmallVec;

/// Alignment in bytes of each allocation, as of the backends' own. Matrix products of operands with
/// a smaller one use another loop, which rounds differently.
const ALIGNMENT: usize = 64;

/// Functions of a backend other than kernels.
#[derive(Debug)]
pub struct ValueMemory {
    caller: Vectorcaller,
    /// (size, dtype) -> a value with uninitialised elements.
    allocate: Py<PyAny>,
    /// (value) -> the same elements, contiguous in host memory.
    contiguous: Py<PyAny>,
    /// () -> None, after elements have come to the host; `None` where nothing can be wrong with
    /// them.
    check: Option<Py<PyAny>>,
    /// (value) -> the same elements, contiguous on the value's device: the same object if they
    /// already are.
    row_major: Py<PyAny>,
    /// (value) -> its strides in elements.
    strides: Py<PyAny>,
    /// (value) -> a contiguous copy on the value's device.
    copy: Py<PyAny>,
    /// (contiguous value) -> its address.
    address: Py<PyAny>,
    /// (contiguous value) -> its length in bytes.
    length: Py<PyAny>,
    /// (value, byte offset, bytes) -> None; `None` where values are in host memory.
    write: Option<Py<PyAny>>,
    /// (value) -> (the dtype's number, size).
    meta: Py<PyAny>,
    /// (value) -> bytes of its allocation.
    allocated_bytes: Py<PyAny>,
}

impl ValueMemory {
    pub fn new(backend: &Bound<'_, PyAny>, caller: Vectorcaller) -> PyResult<Self> {
        let function = |name: &str| backend.getattr(name).map(Bound::unbind);
        Ok(Self {
            caller,
            allocate: function("allocate")?,
            contiguous: function("contiguous")?,
            check: backend.getattr("check")?.extract()?,
            row_major: function("row_major")?,
            strides: function("strides")?,
            copy: function("copy")?,
            address: function("address")?,
            length: function("length")?,
            write: backend.getattr("write")?.extract()?,
            meta: function("meta")?,
            allocated_bytes: function("memory_bytes")?,
        })
    }

    /// The number of the dtype, and the size.
    pub fn meta(&self, py: Python<'_>, value: &TensorValue) -> PyResult<(u32, Vec<i64>)> {
        let value = value.object(py);
        self.caller.call(py, &self.meta, &[value.as_ptr()])?.extract(py)
    }

    pub fn memory_bytes(&self, py: Python<'_>, value: &TensorValue) -> PyResult<u64> {
        if let Some((_, description)) = described(value) {
            return Ok(description.storage_bytes);
        }
        let value = value.object(py);
        self.caller.call(py, &self.allocated_bytes, &[value.as_ptr()])?.extract(py)
    }

    /// Address of a value's first element.
    pub fn address(&self, py: Python<'_>, value: &TensorValue) -> PyResult<usize> {
        match described(value) {
            Some((_, description)) => Ok(description.data),
            None => self.object_address(py, value.object(py)),
        }
    }

    fn object_address(&self, py: Python<'_>, value: &Py<PyAny>) -> PyResult<usize> {
        self.caller.call(py, &self.address, &[value.as_ptr()])?.extract(py)
    }

    /// Allocates a value like this one; `dtype` is the backend's object.
    pub fn allocate(
        &self,
        py: Python<'_>,
        meta: &Meta,
        dtype: &Py<PyAny>,
    ) -> PyResult<TensorValue> {
        let size = PyTuple::new(py, meta.dims.as_slice())?;
        let value = self.allocate.call1(py, (size, dtype))?;
        let on_host = self.write.is_none();
        if on_host && meta.bytes() >= HUGE_BYTES_MIN {
            let (address, length) = self.place(py, &value)?;
            prefer_huge_pages(address, length);
        }
        Ok(TensorValue::from(value))
    }

    /// Sets the bytes of a value that [`allocate`](Self::allocate) made to zero.
    pub fn clear(&self, py: Python<'_>, value: &TensorValue) -> PyResult<()> {
        if self.write.is_some() {
            return value.object(py).call_method0(py, "zero_").map(drop);
        }
        let (address, length) = self.place(py, value.object(py))?;
        if length > 0 {
            // SAFETY: the backend allocated the value contiguous, with `length` bytes at `address`;
            // `value` keeps it alive; no other thread touches a value of this engine while the
            // interpreter is attached here.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(address).write_bytes(0, length) };
        }
        Ok(())
    }

    /// Writes bytes into a value that [`allocate`](Self::allocate) made.
    ///
    /// # Panics
    /// They reach beyond its end.
    pub fn write(
        &self,
        py: Python<'_>,
        value: &TensorValue,
        byte_offset: u64,
        bytes: &[u8],
    ) -> PyResult<()> {
        if let Some(write) = &self.write {
            if let Some((tensor, _)) = described(value)
                && tensor.write(byte_offset, bytes).is_some()
            {
                return Ok(());
            }
            let value = value.object(py);
            return write.call1(py, (value, byte_offset, bytes)).map(drop);
        }
        let (address, length) = self.place(py, value.object(py))?;
        let start = usize::try_from(byte_offset).expect("an offset in memory fits usize");
        assert!(
            start.checked_add(bytes.len()).is_some_and(|end| end <= length),
            "{} bytes at {start} into {length}",
            bytes.len()
        );
        if !bytes.is_empty() {
            // SAFETY: the backend allocated the value contiguous, with `length` bytes at `address`;
            // `value` keeps it alive; the range is checked above; `bytes` is ours, so the two do
            // not overlap; no other thread touches a value of this engine while the interpreter is
            // attached here.
            unsafe {
                let target = std::ptr::with_exposed_provenance_mut::<u8>(address + start);
                target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        }
        Ok(())
    }

    /// Passes a value's bytes, row-major, to `show`.
    pub fn with_bytes(
        &self,
        py: Python<'_>,
        value: &TensorValue,
        show: &mut dyn FnMut(&[u8]),
    ) -> PyResult<()> {
        if let Some((tensor, description)) = described(value) {
            if description.is_on_host != 0 && description.is_contiguous != 0 {
                // SAFETY: as below; the value itself has its bytes at this address.
                show(unsafe { memory(description.data, description.length()) });
                return Ok(());
            }
            if let Some((_copy, description)) = tensor.on_host() {
                if let Some(check) = &self.check {
                    check.call0(py)?;
                }
                // SAFETY: the copy is ours, and lives until after the call.
                show(unsafe { memory(description.data, description.length()) });
                return Ok(());
            }
        }
        let (address, length, contiguous) = self.buffer(py, value.object(py))?;
        // SAFETY: `contiguous` has `length` bytes at `address` in host memory and lives until after
        // the call; only the engine writes values, and it is borrowed during the call.
        show(unsafe { memory(address, length) });
        drop(contiguous);
        Ok(())
    }

    /// A contiguous copy of a value that is not contiguous.
    pub fn contiguous_copy(
        &self,
        py: Python<'_>,
        value: &TensorValue,
        meta: &Meta,
    ) -> PyResult<Option<TensorValue>> {
        if let Some((tensor, description)) = described(value) {
            if description.is_row_major() {
                return Ok(None);
            }
            if let Some(copy) = tensor.copied() {
                return Ok(Some(TensorValue::from(copy)));
            }
        }
        let value = value.object(py);
        let arguments = [value.as_ptr()];
        // Backends accept any stride of a dimension of size 1 as contiguous. Their matrix products
        // do not: they use another loop, with other rounding.
        if meta.dims.contains(&1) {
            let strides = self.caller.call(py, &self.strides, &arguments)?;
            let strides: SmallVec<[i64; 8]> =
                strides.bind(py).try_iter()?.map(|one| one?.extract()).collect::<PyResult<_>>()?;
            let is_contiguous = meta.dims.contains(&0) || is_row_major(&meta.dims, &strides);
            return if is_contiguous {
                Ok(None)
            } else {
                self.caller.call(py, &self.copy, &arguments).map(TensorValue::from).map(Some)
            };
        }
        let contiguous = self.caller.call(py, &self.row_major, &arguments)?;
        Ok((!contiguous.is(value)).then(|| TensorValue::from(contiguous)))
    }

    /// A copy of a value unless its layout is that of a value from another worker: contiguous and
    /// aligned.
    pub fn aligned_copy(
        &self,
        py: Python<'_>,
        value: &TensorValue,
        meta: &Meta,
    ) -> PyResult<Option<TensorValue>> {
        if let Some(copy) = self.contiguous_copy(py, value, meta)? {
            return Ok(Some(copy));
        }
        if self.address(py, value)?.is_multiple_of(ALIGNMENT) {
            return Ok(None);
        }
        let copy = self.caller.call(py, &self.copy, &[value.object(py).as_ptr()])?;
        Ok(Some(TensorValue::from(copy)))
    }

    pub fn borrow(
        &self,
        py: Python<'_>,
        places: Places<'_, TensorValue>,
    ) -> PyResult<BorrowedMemory> {
        Ok(match places {
            Places::Operand(operand) => BorrowedMemory::operand(self.borrow_operand(py, operand)?),
            Places::Result(result) => {
                BorrowedMemory::result(self.borrow_result(py, result, false)?)
            }
            Places::Both(operand, result) => {
                let operand = self.borrow_operand(py, operand)?;
                BorrowedMemory::both(operand, self.borrow_result(py, result, false)?)
            }
            Places::One(both) => BorrowedMemory::one(self.borrow_result(py, both, true)?),
        })
    }

    /// Writes the bytes of a copy back to the value.
    pub fn give_back(
        &self,
        py: Python<'_>,
        borrowed: &BorrowedMemory,
        result: &TensorValue,
    ) -> PyResult<()> {
        let (Some(copy), Some(write)) = (borrowed.copy(), &self.write) else { return Ok(()) };
        write.call1(py, (result.object(py), 0, PyBytes::new(py, copy))).map(drop)
    }

    fn borrow_operand(&self, py: Python<'_>, value: &TensorValue) -> PyResult<BorrowedBytes> {
        let (address, length, contiguous) = self.buffer(py, value.object(py))?;
        // SAFETY: `contiguous` has `length` bytes at `address` in host memory. While they are
        // borrowed the machine lets nothing write the value's memory, or `contiguous` is a copy
        // that only we have.
        Ok(unsafe { BorrowedBytes::new(address, length, contiguous) })
    }

    /// Memory of a value that will be written: its own, made contiguous, where that is host memory,
    /// else a copy (with its bytes, if they will be `read` too) that [`give_back`](Self::give_back)
    /// writes back.
    fn borrow_result(
        &self,
        py: Python<'_>,
        value: &mut TensorValue,
        read: bool,
    ) -> PyResult<ResultMemory> {
        if self.write.is_some() {
            return self.bytes_to_write(py, value, read).map(ResultMemory::Copy);
        }
        let (address, length, contiguous) = self.buffer(py, value.object(py))?;
        if !contiguous.is(value.object(py)) {
            *value = TensorValue::from(contiguous.clone_ref(py));
        }
        // SAFETY: `contiguous` has `length` bytes at `address` in host memory. The machine lends
        // for writing only values that share memory with nothing else, and uses them again only
        // when they are returned, or `contiguous` is a copy made just now.
        Ok(ResultMemory::Place(unsafe { BorrowedBytes::new(address, length, contiguous) }))
    }

    /// A copy of a value's bytes, or zeros of the same length if they are not `read`.
    fn bytes_to_write(&self, py: Python<'_>, value: &TensorValue, read: bool) -> PyResult<Vec<u8>> {
        if !read {
            let value = value.object(py);
            let length = self.caller.call(py, &self.length, &[value.as_ptr()])?;
            return Ok(vec![0; length.extract(py)?]);
        }
        let mut copy = Vec::new();
        self.with_bytes(py, value, &mut |bytes| copy.extend_from_slice(bytes))?;
        Ok(copy)
    }

    /// Address and length of a value's bytes, valid while the returned object lives.
    fn buffer(&self, py: Python<'_>, value: &Py<PyAny>) -> PyResult<(usize, usize, Py<PyAny>)> {
        let contiguous = self.caller.call(py, &self.contiguous, &[value.as_ptr()])?;
        let (address, length) = self.place(py, &contiguous)?;
        Ok((address, length, contiguous))
    }

    fn place(&self, py: Python<'_>, contiguous: &Py<PyAny>) -> PyResult<(usize, usize)> {
        let length = self.caller.call(py, &self.length, &[contiguous.as_ptr()])?;
        Ok((self.object_address(py, contiguous)?, length.extract(py)?))
    }
}

/// The bytes at an address; the address is not used if the length is 0.
///
/// # Safety
/// They are valid, and they are not written, as long as the result is in use.
unsafe fn memory<'a>(address: usize, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller promised it.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), length) }
}

/// Returns true if the strides are row-major without gaps.
fn is_row_major(dims: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1;
    strides.len() == dims.len()
        && dims.iter().zip(strides).rev().all(|(size, &stride)| {
            let is_expected = stride == expected;
            expected *= size;
            is_expected
        })
}
