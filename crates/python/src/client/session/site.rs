//! Source positions: the line of the user's program that an instruction comes from.
//!
//! A position is a code object and an instruction offset, interned to a small id; the line is
//! computed on demand. Frames of GT's own Python are skipped. The function that gives the offset is
//! outside the stable ABI, so it is looked up at run time; without it the line number is used.

use super::interpreter;
use crate::client::gil_cell::GilCell;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of interned positions; beyond it instructions carry none, so that a program that
/// keeps making code does not use ever more memory.
const SITES_MAX: usize = 1 << 16;
/// Entries of the cache, which is direct-mapped: a loop's instructions hit it every time.
const CACHE_SLOTS: usize = 256;

type FrameBack = unsafe extern "C" fn(*mut ffi::PyFrameObject) -> *mut ffi::PyFrameObject;
type Lasti = unsafe extern "C" fn(*mut ffi::PyFrameObject) -> c_int;
type Addr2Line = unsafe extern "C" fn(*mut ffi::PyObject, c_int) -> c_int;

/// A position; it keeps the code object alive, so that the object's address identifies it.
struct Site {
    code: Py<PyAny>,
    offset: c_int,
}

#[derive(Clone, Copy, Default)]
struct Cached {
    code: usize,
    offset: c_int,
    site: u32,
}

/// Everything known about positions. Nothing calls into Python while it is borrowed: a garbage
/// collection there runs the user's destructors, which may emit.
struct Sites {
    known: Vec<Site>,
    ids: BTreeMap<(usize, c_int), u32>,
    /// True, by a code object's address, if the code is GT's own; the object is kept alive.
    internal: BTreeMap<usize, (Py<PyAny>, bool)>,
    cache: [Cached; CACHE_SLOTS],
    package: String,
}

static SITES: GilCell<Sites> = GilCell::new(Sites {
    known: Vec::new(),
    ids: BTreeMap::new(),
    internal: BTreeMap::new(),
    cache: [Cached { code: 0, offset: 0, site: 0 }; CACHE_SLOTS],
    package: String::new(),
});

thread_local! {
    /// Position that this thread's instructions carry: a gradient formula emits for its forward's
    /// line.
    static OVERRIDE: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Number of threads with an override: while it is 0, no thread-local is read.
static OVERRIDES: AtomicUsize = AtomicUsize::new(0);

/// Sets the position that this thread's instructions carry; returns the one before.
pub(crate) fn set_override(site: Option<u32>) -> Option<u32> {
    let before = OVERRIDE.replace(site);
    match (before, site) {
        (None, Some(_)) => OVERRIDES.fetch_add(1, Ordering::Relaxed),
        (Some(_), None) => OVERRIDES.fetch_sub(1, Ordering::Relaxed),
        (None, None) | (Some(_), Some(_)) => 0,
    };
    before
}

/// Sets the folder whose files' frames are skipped.
pub(crate) fn set_package(py: Python<'_>, package: String) {
    SITES.get_mut(py).package = package;
}

/// Id of the innermost position outside GT; 0 if there is none. This calls into Python.
pub(crate) fn current(py: Python<'_>) -> u32 {
    if OVERRIDES.load(Ordering::Relaxed) != 0
        && let Some(site) = OVERRIDE.get()
    {
        return site;
    }
    // SAFETY: the GIL is held (`py`); the frame is borrowed from the thread state, where it stays while its code calls.
    unsafe {
        let frame = ffi::PyEval_GetFrame();
        if frame.is_null() {
            return 0;
        }
        let (code, offset) = position_of(py, frame);
        match cached(py, &code, offset) {
            Some(site) => site,
            None => search(py, frame),
        }
    }
}

/// `train.py:42`, with the full path, for a known id.
pub(crate) fn name(py: Python<'_>, site: u32) -> Option<String> {
    let (file, line) = place(py, site)?;
    Some(format!("{file}:{line}"))
}

/// File and line of a known id.
pub(crate) fn place(py: Python<'_>, site: u32) -> Option<(String, c_int)> {
    let (code, offset) = {
        let sites = SITES.get(py);
        let known = sites.known.get(usize::try_from(site).ok()?.checked_sub(1)?)?;
        (known.code.clone_ref(py), known.offset)
    };
    let file = code.bind(py).getattr("co_filename").ok()?.to_string();
    Some((file, line_of(&code, offset)?))
}

/// Searches outwards, beginning with `from`.
#[cold]
unsafe fn search(py: Python<'_>, frame: *mut ffi::PyFrameObject) -> u32 {
    // SAFETY: the caller holds the GIL and a reference to the frame. Frames from `frame_back` are
    // new references, which are released below.
    unsafe {
        let mut frame = frame;
        ffi::Py_INCREF(frame.cast());
        loop {
            let (code, offset) = position_of(py, frame);
            // Only positions outside GT are in the cache, so a hit needs no look at the file.
            if let Some(site) = cached(py, &code, offset) {
                ffi::Py_DECREF(frame.cast());
                return site;
            }
            if !is_internal(&code) {
                ffi::Py_DECREF(frame.cast());
                return SITES.get_mut(py).intern(code.unbind(), offset);
            }
            let back = frame_back(frame);
            ffi::Py_DECREF(frame.cast());
            if back.is_null() {
                return 0;
            }
            frame = back;
        }
    }
}

fn cached(py: Python<'_>, code: &Bound<'_, PyAny>, offset: c_int) -> Option<u32> {
    let address = code.as_ptr().addr();
    let sites = SITES.get(py);
    let cached = sites.cache.get(place_of(address, offset))?;
    (cached.code == address && cached.offset == offset && cached.site != 0).then_some(cached.site)
}

fn is_internal(code: &Bound<'_, PyAny>) -> bool {
    let py = code.py();
    let address = code.as_ptr().addr();
    if let Some((_, internal)) = SITES.get(py).internal.get(&address) {
        return *internal;
    }
    let name = code.getattr("co_filename").map(|name| name.to_string()).unwrap_or_default();
    let mut sites = SITES.get_mut(py);
    let internal = !sites.package.is_empty() && name.starts_with(&sites.package);
    if sites.internal.len() < SITES_MAX {
        sites.internal.entry(address).or_insert_with(|| (code.clone().unbind(), internal));
    }
    internal
}

impl Sites {
    fn intern(&mut self, code: Py<PyAny>, offset: c_int) -> u32 {
        let address = code.as_ptr().addr();
        let Some(cached) = self.cache.get_mut(place_of(address, offset)) else { return 0 };
        let site = match self.ids.get(&(address, offset)) {
            Some(site) => *site,
            None if self.known.len() >= SITES_MAX => return 0,
            None => {
                self.known.push(Site { code, offset });
                let site = u32::try_from(self.known.len()).expect("at most SITES_MAX");
                self.ids.insert((address, offset), site);
                site
            }
        };
        *cached = Cached { code: address, offset, site };
        site
    }
}

/// Cache index of a position.
fn place_of(address: usize, offset: c_int) -> usize {
    ((address >> 4) ^ usize::try_from(offset).unwrap_or(0)) % CACHE_SLOTS
}

/// The frame that called this one, as a new reference; null at the outermost.
unsafe fn frame_back(frame: *mut ffi::PyFrameObject) -> *mut ffi::PyFrameObject {
    // SAFETY: the caller holds a reference to `frame` and the GIL. `f_back` is an attribute of every frame.
    unsafe {
        if let Some(back) = back() {
            return back(frame);
        }
        let name = c"f_back".as_ptr();
        let back = ffi::PyObject_GetAttrString(frame.cast(), name);
        if back.is_null() {
            ffi::PyErr_Clear();
            return std::ptr::null_mut();
        }
        if back == ffi::Py_None() {
            ffi::Py_DECREF(back);
            return std::ptr::null_mut();
        }
        back.cast()
    }
}

/// `f_back` without its look-up by name, which takes four times as long.
fn back() -> Option<FrameBack> {
    static FOUND: OnceLock<Option<usize>> = OnceLock::new();
    let address = (*FOUND.get_or_init(|| interpreter::private_symbol(c"PyFrame_GetBack")))?;
    // SAFETY: CPython 3.9 and later export PyFrame_GetBack with this signature.
    Some(unsafe { std::mem::transmute::<usize, FrameBack>(address) })
}

fn lasti() -> Option<Lasti> {
    static FOUND: OnceLock<Option<usize>> = OnceLock::new();
    let address = (*FOUND.get_or_init(|| interpreter::private_symbol(c"PyFrame_GetLasti")))?;
    // SAFETY: CPython 3.11 and later export PyFrame_GetLasti with this signature.
    Some(unsafe { std::mem::transmute::<usize, Lasti>(address) })
}

fn addr2line() -> Option<Addr2Line> {
    static FOUND: OnceLock<Option<usize>> = OnceLock::new();
    let address = (*FOUND.get_or_init(|| interpreter::symbol(c"PyCode_Addr2Line")))?;
    // SAFETY: CPython exports PyCode_Addr2Line with this signature in all versions we support.
    Some(unsafe { std::mem::transmute::<usize, Addr2Line>(address) })
}

/// The frame's code object, and its position in the code.
unsafe fn position_of(py: Python<'_>, frame: *mut ffi::PyFrameObject) -> (Bound<'_, PyAny>, c_int) {
    // SAFETY: the caller holds the GIL and a reference to the frame; the code is a new reference.
    unsafe {
        let code = Bound::from_owned_ptr(py, ffi::PyFrame_GetCode(frame).cast::<ffi::PyObject>());
        (code, offset_of(frame))
    }
}

/// The position of the frame: the instruction's offset, or the negated line number where the offset
/// is not available.
unsafe fn offset_of(frame: *mut ffi::PyFrameObject) -> c_int {
    // SAFETY: the caller holds a reference to `frame` and the GIL.
    unsafe {
        match lasti() {
            Some(lasti) => lasti(frame),
            None => -ffi::PyFrame_GetLineNumber(frame),
        }
    }
}

fn line_of(code: &Py<PyAny>, offset: c_int) -> Option<c_int> {
    if offset < 0 {
        return Some(-offset);
    }
    let addr2line = addr2line()?;
    // SAFETY: `code` is a code object (it came from PyFrame_GetCode) that we hold a reference to.
    Some(unsafe { addr2line(code.as_ptr(), offset) })
}
