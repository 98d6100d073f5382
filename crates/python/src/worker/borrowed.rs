//! Bytes of values that a collective works on, from whichever thread moves it on.

#![allow(unsafe_code, reason = "tensors' bytes, used while the interpreter is elsewhere")]

use gt_worker::{BorrowedBuffers, Buffers};
use pyo3::prelude::*;

/// Memory of the host that an object keeps.
#[derive(Debug)]
pub struct BorrowedBytes {
    address: usize,
    length: usize,
    /// What the memory belongs to. It is made and dropped with the interpreter, in the thread of the machine.
    #[allow(dead_code, reason = "it is there to live")]
    keeper: Py<PyAny>,
}

impl BorrowedBytes {
    /// The `length` bytes at `address`, which live as long as `keeper`.
    ///
    /// # Safety
    /// They do, and until the buffer is dropped nobody writes to them but through it; if it is for writing, nobody reads
    /// them either. So it may be used in any thread, by one at a time.
    pub unsafe fn new(address: usize, length: usize, keeper: Py<PyAny>) -> Self {
        Self { address, length, keeper }
    }

    fn bytes(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        let start = std::ptr::with_exposed_provenance(self.address);
        // SAFETY: what `new` was promised.
        unsafe { std::slice::from_raw_parts(start, self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        let start = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: what `new` was promised for a buffer for writing, which is the only kind that `BorrowedMemory` asks this of; and the
        // buffer is borrowed for writing as long as the slice is.
        unsafe { std::slice::from_raw_parts_mut(start, self.length) }
    }
}

/// Memory that is written to.
#[derive(Debug)]
pub enum ResultMemory {
    Place(BorrowedBytes),
    /// Of a value in a device's memory, to be written back.
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

/// What a collective reads and writes.
#[derive(Debug)]
pub struct BorrowedMemory {
    operand: Option<BorrowedBytes>,
    result: Option<ResultMemory>,
    /// The result is the operand too.
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

    /// What is to be written back.
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
