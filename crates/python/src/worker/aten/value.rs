//! The value in a slot: a tensor as Python's object, as the helper's handle, or as both, each made
//! when it is first needed.

#![allow(unsafe_code, reason = "handles of a library that is loaded at run time")]

use super::abi::{Description, Helper};
use pyo3::prelude::*;
use std::cell::OnceCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A handle of the helper's that we own; dropping it releases the tensor.
#[derive(Debug)]
pub struct NativeTensor(NonNull<c_void>);

// SAFETY: the tensor's reference count is atomic, and the engine uses it in one thread.
unsafe impl Send for NativeTensor {}

impl NativeTensor {
    /// # Safety
    /// The handle is one of the helper's, and the caller's to give away.
    pub unsafe fn new(handle: NonNull<c_void>) -> Self {
        Self(handle)
    }

    pub fn handle(&self) -> NonNull<c_void> {
        self.0
    }

    /// A contiguous copy; `None` where there is no memory for it.
    pub fn copied(&self) -> Option<Self> {
        let helper = Helper::of_process()?;
        // SAFETY: the tensor is live; we own the result.
        let copy = unsafe { (helper.copy)(self.0.as_ptr()) };
        NonNull::new(copy).map(Self)
    }

    /// The elements contiguous in host memory, and that memory; `None` where the copy failed.
    pub fn on_host(&self) -> Option<(Self, Description)> {
        let helper = Helper::of_process()?;
        // SAFETY: the tensor is live; we own the result.
        let copy = Self(NonNull::new(unsafe { (helper.to_host)(self.0.as_ptr()) })?);
        let description = copy.description(helper);
        Some((copy, description))
    }

    /// Writes bytes into a contiguous tensor of a device; `None` where that failed.
    pub fn write(&self, byte_offset: u64, bytes: &[u8]) -> Option<()> {
        let helper = Helper::of_process()?;
        let length = u64::try_from(bytes.len()).ok()?;
        // SAFETY: the tensor is live; `bytes` is read during the call alone.
        let status =
            unsafe { (helper.write)(self.0.as_ptr(), byte_offset, bytes.as_ptr(), length) };
        (status == 0).then_some(())
    }

    /// Memory of the tensor.
    pub fn description(&self, helper: &Helper) -> Description {
        let mut description = MaybeUninit::uninit();
        // SAFETY: the tensor is live, and the function fills all of the description.
        unsafe {
            (helper.describe)(self.0.as_ptr(), description.as_mut_ptr());
            description.assume_init()
        }
    }
}

impl Drop for NativeTensor {
    fn drop(&mut self) {
        if let Some(helper) = Helper::of_process() {
            // SAFETY: we own the handle, and it is not used after this.
            unsafe { (helper.release)(self.0.as_ptr()) }
        }
    }
}

/// A tensor; at least one of the two fields is set.
#[derive(Debug)]
pub struct TensorValue {
    // Dropped first, so that the object goes while nothing else refers to its tensor.
    tensor: OnceCell<NativeTensor>,
    object: OnceCell<Py<PyAny>>,
}

impl From<Py<PyAny>> for TensorValue {
    fn from(object: Py<PyAny>) -> Self {
        Self { tensor: OnceCell::new(), object: OnceCell::from(object) }
    }
}

impl From<NativeTensor> for TensorValue {
    fn from(tensor: NativeTensor) -> Self {
        Self { tensor: OnceCell::from(tensor), object: OnceCell::new() }
    }
}

impl TensorValue {
    /// Python's tensor.
    ///
    /// # Panics
    /// torch makes no Python object of a tensor, for which it has no reason but a lack of memory for a few words.
    pub fn object(&self, py: Python<'_>) -> &Py<PyAny> {
        self.object.get_or_init(|| {
            let (Some(tensor), Some(helper)) = (self.tensor.get(), Helper::of_process()) else {
                panic!("a value that is neither Python's nor the helper's")
            };
            // SAFETY: the handle is live, and the interpreter is attached (`py`).
            let object = unsafe { (helper.to_python)(tensor.handle().as_ptr()) };
            // SAFETY: a new reference, or null.
            let object = unsafe { Bound::from_owned_ptr_or_opt(py, object) };
            object.expect("the helper makes a Python object of a tensor").unbind()
        })
    }

    /// The helper's handle, which this value keeps; `None` where the object is no tensor.
    #[inline]
    pub fn tensor(&self, helper: &Helper) -> Option<&NativeTensor> {
        match self.tensor.get() {
            Some(tensor) => Some(tensor),
            None => self.unpacked(helper),
        }
    }

    fn unpacked(&self, helper: &Helper) -> Option<&NativeTensor> {
        let object = self.object.get()?;
        // SAFETY: the object is live; values are used only with the interpreter attached (see
        // `engine::attached`).
        let handle = NonNull::new(unsafe { (helper.from_python)(object.as_ptr()) })?;
        // SAFETY: the reference is new and ours.
        Some(self.tensor.get_or_init(|| unsafe { NativeTensor::new(handle) }))
    }
}

/// A value as the helper's tensor, and its memory; `None` where there is no helper.
#[inline]
pub fn described(value: &TensorValue) -> Option<(&NativeTensor, Description)> {
    let helper = Helper::of_process()?;
    let tensor = value.tensor(helper)?;
    Some((tensor, tensor.description(helper)))
}
