//! Memory of values that a collective works on, used by whichever thread advances it.

#![allow(unsafe_code, reason = "tensors' bytes, used while the interpreter is elsewhere")]

use gt_worker::{BorrowedBuffers, Buffers};
use pyo3::prelude::*;

/// Host memory that an object keeps alive.
#[derive(Debug)]
pub struct BorrowedBytes {
    address: usize,
    length: usize,
    /// Owner of the memory. It is made and dropped with the interpreter attached, on the machine's
    /// thread.
    #[allow(dead_code, reason = "the field only keeps its object alive")]
    keeper: Py<PyAny>,
}

impl BorrowedBytes {
    /// The `length` bytes at `address`, which live as long as `keeper`.
    ///
    /// # Safety
    /// They are valid, and until the buffer is dropped they are written only through it;
    /// if it is for writing, they are also read only through it. So any thread may use it, one at a
    /// time.
    pub unsafe fn new(address: usize, length: usize, keeper: Py<PyAny>) -> Self {
        Self { address, length, keeper }
    }

    fn bytes(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        let start = std::ptr::with_exposed_provenance(self.address);
        // SAFETY: the caller of `new` promised it.
        unsafe { std::slice::from_raw_parts(start, self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        let start = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: the caller of `new` promised it for a buffer for writing, the only kind for which
        // `BorrowedMemory` calls this; the buffer is borrowed exclusively as long as the slice is.
        unsafe { std::slice::from_raw_parts_mut(start, self.length) }
    }
}

/// Memory that the collective writes.
#[derive(Debug)]
pub enum ResultMemory {
    Place(BorrowedBytes),
    /// Copy of a value in device memory, to be written back.
    Copy(Vec<u8>),
}

impl ResultMemory {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Place(buffer) => buffer.bytes_mut(),
            Self::Copy(bytes) => bytes,
        }
    }
}

/// Memory that a collective reads and writes.
#[derive(Debug)]
pub struct BorrowedMemory {
    operand: Option<BorrowedBytes>,
    result: Option<ResultMemory>,
    /// True if the result is the operand too.
    is_one: bool,
}

impl BorrowedMemory {
    pub const fn nothing() -> Self {
        Self { operand: None, result: None, is_one: false }
    }

    pub const fn operand(operand: BorrowedBytes) -> Self {
        Self { operand: Some(operand), result: None, is_one: false }
    }

    pub const fn result(result: ResultMemory) -> Self {
        Self { operand: None, result: Some(result), is_one: false }
    }

    pub const fn both(operand: BorrowedBytes, result: ResultMemory) -> Self {
        Self { operand: Some(operand), result: Some(result), is_one: false }
    }

    pub const fn one(both: ResultMemory) -> Self {
        Self { operand: None, result: Some(both), is_one: true }
    }

    /// Bytes to be written back, if the result is a copy.
    pub fn copy(&self) -> Option<&[u8]> {
        match &self.result {
            Some(ResultMemory::Copy(bytes)) => Some(bytes),
            Some(ResultMemory::Place(_)) | None => None,
        }
    }
}

impl BorrowedBuffers for BorrowedMemory {
    fn show(&mut self, work: &mut dyn FnMut(Buffers<'_>)) {
        let result = self.result.as_mut().map_or(&mut [][..], ResultMemory::bytes_mut);
        if self.is_one {
            work(Buffers::One(result));
        } else {
            work(Buffers::Two(self.operand.as_ref().map_or(&[], BorrowedBytes::bytes), result));
        }
    }
}
