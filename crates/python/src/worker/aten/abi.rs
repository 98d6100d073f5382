//! The C interface of the helper: `run.cpp` and `build.cpp` of `gt/worker/aten`.

#![allow(unsafe_code, reason = "functions of a library that is loaded at run time")]

use gt_protocol::Scalar;
use pyo3::ffi;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Number of functions of a helper: the fields of [`Helper`].
pub const FUNCTIONS: usize = 11;

/// Kind of an operand, and its bits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NativeOperand {
    pub kind: u64,
    bits: u64,
}

impl NativeOperand {
    pub const ABSENT: Self = Self { kind: 0, bits: 0 };
    /// Stands for the result of the step before.
    pub const TENSOR_TO_COME: Self = Self { kind: 1, bits: 0 };

    pub fn tensor(handle: NonNull<c_void>) -> Self {
        let address = u64::try_from(handle.as_ptr().expose_provenance());
        Self { kind: 1, bits: address.expect("an address has 64 bits") }
    }
}

impl From<Scalar> for NativeOperand {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bool(value) => Self { kind: 2, bits: u64::from(value) },
            Scalar::Int(value) => Self { kind: 3, bits: value.cast_unsigned() },
            Scalar::Float(value) => Self { kind: 4, bits: value.to_bits() },
        }
    }
}

/// One of several instructions that may run in one pass over memory.
#[repr(C)]
#[derive(Debug)]
pub struct AtenStep {
    pub program: *const c_void,
    pub operands: *const NativeOperand,
    /// Bit k: operand k is the result of the step before.
    pub from: u64,
}

/// Memory of a tensor; sizes and strides live as long as the tensor.
#[repr(C)]
#[derive(Debug)]
pub struct Description {
    pub data: usize,
    pub bytes: u64,
    pub storage_bytes: u64,
    pub dims: u64,
    pub sizes: *const i64,
    pub strides: *const i64,
    pub is_contiguous: u64,
    pub is_on_host: u64,
}

type RunProgram =
    unsafe extern "C" fn(*const c_void, *const NativeOperand, *mut *mut c_void) -> c_int;

type RunJoined = unsafe extern "C" fn(*const AtenStep, usize, *mut *mut c_void) -> c_int;

type RunGroup = unsafe extern "C" fn(
    *const c_void,
    *const NativeOperand,
    usize,
    usize,
    *mut *mut c_void,
) -> c_int;

type WriteBytes = unsafe extern "C" fn(*mut c_void, u64, *const u8, u64) -> c_int;

/// The helper's functions, in the order of `LOOP` in `library.py`.
#[derive(Clone, Copy, Debug)]
pub struct Helper {
    pub run: RunProgram,
    pub run_joined: RunJoined,
    pub run_group: RunGroup,
    pub release: unsafe extern "C" fn(*mut c_void),
    pub from_python: unsafe extern "C" fn(*mut ffi::PyObject) -> *mut c_void,
    pub to_python: unsafe extern "C" fn(*mut c_void) -> *mut ffi::PyObject,
    pub describe: unsafe extern "C" fn(*mut c_void, *mut Description),
    pub copy: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    pub to_host: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    pub write: WriteBytes,
    pub free_program: unsafe extern "C" fn(*mut c_void),
}

static HELPER: OnceLock<Helper> = OnceLock::new();

impl Helper {
    /// The helper of this process, if one was installed.
    #[inline]
    pub fn of_process() -> Option<&'static Self> {
        HELPER.get()
    }

    /// Installs the helper: from now on this process's values may be the helper's tensors.
    ///
    /// # Safety
    /// The addresses are those of the helper's functions in the order of `LOOP`, and the library is never unloaded.
    pub unsafe fn install(addresses: [usize; FUNCTIONS]) -> &'static Self {
        let [
            run,
            run_joined,
            run_group,
            release,
            from_python,
            to_python,
            describe,
            copy,
            to_host,
            write,
            free_program,
        ] = addresses.map(std::ptr::with_exposed_provenance::<c_void>);
        // SAFETY: the caller's promise; the types are those of the definitions in run.cpp and build.cpp.
        HELPER.get_or_init(|| unsafe {
            Self {
                run: std::mem::transmute::<*const c_void, RunProgram>(run),
                run_joined: std::mem::transmute::<*const c_void, RunJoined>(run_joined),
                run_group: std::mem::transmute::<*const c_void, RunGroup>(run_group),
                release: std::mem::transmute::<*const c_void, unsafe extern "C" fn(*mut c_void)>(
                    release,
                ),
                from_python: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(*mut ffi::PyObject) -> *mut c_void,
                >(from_python),
                to_python: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(*mut c_void) -> *mut ffi::PyObject,
                >(to_python),
                describe: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(*mut c_void, *mut Description),
                >(describe),
                copy: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(*mut c_void) -> *mut c_void,
                >(copy),
                to_host: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(*mut c_void) -> *mut c_void,
                >(to_host),
                write: std::mem::transmute::<*const c_void, WriteBytes>(write),
                free_program: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(*mut c_void),
                >(free_program),
            }
        })
    }
}

impl Description {
    /// Length of the elements in bytes.
    pub fn length(&self) -> usize {
        usize::try_from(self.bytes).expect("a length in memory fits usize")
    }

    /// Returns true if sizes and strides are row-major without gaps. `ATen` accepts any stride of a
    /// dimension of size 1 as contiguous; its matrix products do not: they use another loop, with
    /// other rounding.
    pub fn is_row_major(&self) -> bool {
        let count = usize::try_from(self.dims).expect("a few dimensions");
        if count == 0 || self.is_contiguous == 0 {
            return self.is_contiguous != 0;
        }
        // SAFETY: the tensor lives while its description is in use, and has that many sizes and
        // strides.
        let (sizes, strides) = unsafe {
            (
                std::slice::from_raw_parts(self.sizes, count),
                std::slice::from_raw_parts(self.strides, count),
            )
        };
        if sizes.contains(&0) {
            return true;
        }
        let mut expected = 1;
        sizes.iter().zip(strides).rev().all(|(size, &stride)| {
            let is_expected = stride == expected;
            expected *= size;
            is_expected
        })
    }
}
