//! Entries: a variable and the value that it names, together in 64 bytes, in chunks that never
//! move. Nothing in here knows what else a variable has.
//!
//! An entry is in use while its variable or its value is referred to; the references to each are
//! counted separately. A variable that was written names the value of another entry from then on; a
//! value that outlives its variable may get another variable.
//!
//! Only code that holds the GIL touches the counts, as in `pool.rs`.

use super::metadata::SharedMeta;
use crate::client::gil_cell::GilCell;
use crate::client::session::runtime;
use pyo3::Python;
use std::cell::{Cell, RefMut, UnsafeCell};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr::NonNull;

/// Entries of one allocation. A chunk is never freed.
const CHUNK: usize = 256;

/// Names a slot of a session. Immutable: an in-place operator makes a new value.
pub(crate) struct ValueHandle {
    pub slot: u32,
    /// Connection that the slot belongs to; slots of an earlier connection are void.
    pub epoch: u32,
    pub meta: SharedMeta,
}

impl ValueHandle {
    /// Frees the value at the dispatcher.
    #[inline]
    fn end(self, py: Python<'_>) {
        runtime::release(py, self.slot, self.epoch, self.meta.bytes);
        self.meta.release(py);
    }
}

/// State of a variable besides its own value; the default where there is none.
pub(crate) trait Rest: Default + Send + 'static {
    fn entries() -> &'static GilCell<Entries<Self>>;

    /// Returns true if it equals the default.
    fn is_empty(&self) -> bool;

    /// Drops the rest of a variable that is no longer referred to.
    fn end(self, py: Python<'_>);
}

/// The entries of all variables.
pub(crate) struct Entries<R> {
    free: Vec<NonNull<Entry<R>>>,
}

// SAFETY: it owns the entries in its list; entries in use are owned by the references to them.
unsafe impl<R: Send> Send for Entries<R> {}

struct Entry<R> {
    /// References to the variable.
    variables: Cell<u32>,
    /// References to the value; one of them is the variable's where it names this value.
    values: Cell<u32>,
    /// Weak references to the variable.
    weak: Cell<u32>,
    /// True if the variable names this value.
    names_own: Cell<bool>,
    /// True if the variable is a leaf that accumulates a gradient.
    leaf: Cell<bool>,
    /// Initialised while `values` is not 0.
    value: UnsafeCell<MaybeUninit<ValueHandle>>,
    rest: GilCell<R>,
}

impl<R: Rest> Entries<R> {
    pub(crate) const ENTRY_BYTES: usize = size_of::<Entry<R>>();

    pub(crate) const fn new() -> Self {
        Self { free: Vec::new() }
    }

    #[inline]
    fn take(&mut self) -> NonNull<Entry<R>> {
        loop {
            if let Some(entry) = self.free.pop() {
                return entry;
            }
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let entry = || Entry {
            variables: Cell::new(0),
            values: Cell::new(0),
            weak: Cell::new(0),
            names_own: Cell::new(false),
            leaf: Cell::new(false),
            value: UnsafeCell::new(MaybeUninit::uninit()),
            rest: GilCell::new(R::default()),
        };
        let chunk: Vec<Entry<R>> = std::iter::repeat_with(entry).take(CHUNK).collect();
        self.free.extend(chunk.leak().iter_mut().rev().map(NonNull::from));
    }
}

impl<R: Rest> Entry<R> {
    /// Drops one reference to the value.
    #[inline]
    fn release_value(&self, py: Python<'_>) {
        let count = self.values.get() - 1;
        self.values.set(count);
        if count == 0 {
            // SAFETY: the value was initialised when the first reference was made, and this was the
            // last one: with `values` at 0 it is not read again.
            let value = unsafe { (*self.value.get()).assume_init_read() };
            value.end(py);
        }
    }

    #[inline]
    fn is_unused(&self) -> bool {
        self.variables.get() == 0 && self.values.get() == 0 && self.weak.get() == 0
    }
}

#[inline]
fn raise(count: &Cell<u32>) {
    let now = count.get();
    assert!(now != u32::MAX, "{now} references to one entry");
    count.set(now + 1);
}

/// Returns an unused entry to the list.
#[inline]
fn reclaim<R: Rest>(py: Python<'_>, entry: NonNull<Entry<R>>) {
    // SAFETY: chunks live for ever.
    if unsafe { entry.as_ref() }.is_unused() {
        R::entries().get_mut(py).free.push(entry);
    }
}

/// A counted reference to a value.
pub(crate) struct ValueRef<R: Rest>(NonNull<Entry<R>>);

/// A counted reference to a variable.
pub(crate) struct VarRef<R: Rest>(NonNull<Entry<R>>);

/// A weak reference: keeps the entry, but not the variable.
pub(crate) struct WeakRef<R: Rest>(NonNull<Entry<R>>);

// SAFETY: counts, entries and the rest are touched under the GIL only, and their content is `Send`.
unsafe impl<R: Rest> Send for ValueRef<R> {}
// SAFETY: as above.
unsafe impl<R: Rest> Sync for ValueRef<R> {}
// SAFETY: as above.
unsafe impl<R: Rest> Send for VarRef<R> {}
// SAFETY: as above.
unsafe impl<R: Rest> Sync for VarRef<R> {}
// SAFETY: as above.
unsafe impl<R: Rest> Send for WeakRef<R> {}
// SAFETY: as above.
unsafe impl<R: Rest> Sync for WeakRef<R> {}

impl<R: Rest> ValueRef<R> {
    #[inline]
    fn entry(&self) -> &Entry<R> {
        // SAFETY: chunks live for ever.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn clone_ref(&self, _py: Python<'_>) -> Self {
        raise(&self.entry().values);
        Self(self.0)
    }

    /// Drops the reference, for callers that have a token.
    #[inline]
    pub(crate) fn release(self, py: Python<'_>) {
        let this = ManuallyDrop::new(self);
        this.entry().release_value(py);
        reclaim(py, this.0);
    }

    /// Number of references to the value.
    pub(crate) fn count(&self, _py: Python<'_>) -> u32 {
        self.entry().values.get()
    }
}

impl<R: Rest> Deref for ValueRef<R> {
    type Target = ValueHandle;

    #[inline]
    fn deref(&self) -> &ValueHandle {
        // SAFETY: the value is initialised while this reference is counted, and it is never written
        // in that time.
        unsafe { (*self.entry().value.get()).assume_init_ref() }
    }
}

impl<R: Rest> VarRef<R> {
    /// A variable that names a value of its own.
    #[inline]
    pub(crate) fn new(py: Python<'_>, value: ValueHandle) -> Self {
        let entry = R::entries().get_mut(py).take();
        // SAFETY: an entry from the pool is used by nothing else, and chunks live for ever.
        unsafe {
            let entry = entry.as_ref();
            entry.value.get().cast::<ValueHandle>().write(value);
            entry.values.set(1);
            entry.variables.set(1);
            entry.names_own.set(true);
        }
        Self(entry)
    }

    /// Makes a variable of a value: in the value's entry if that has no variable, else in an entry
    /// without a value; then the value is returned.
    pub(crate) fn of(py: Python<'_>, value: ValueRef<R>) -> (Self, Option<ValueRef<R>>) {
        let entry = value.entry();
        if entry.variables.get() == 0 && entry.weak.get() == 0 {
            entry.variables.set(1);
            entry.names_own.set(true);
            // The value's count becomes the variable's.
            return (Self(ManuallyDrop::new(value).0), None);
        }
        let entry = R::entries().get_mut(py).take();
        // SAFETY: as in `new`.
        unsafe { entry.as_ref() }.variables.set(1);
        (Self(entry), Some(value))
    }

    #[inline]
    fn entry(&self) -> &Entry<R> {
        // SAFETY: chunks live for ever.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn rest(&self) -> &GilCell<R> {
        &self.entry().rest
    }

    #[inline]
    pub(crate) fn rest_mut<'a>(&'a self, py: Python<'_>) -> RefMut<'a, R> {
        self.entry().rest.get_mut(py)
    }

    #[inline]
    pub(crate) fn is_leaf(&self, _py: Python<'_>) -> bool {
        self.entry().leaf.get()
    }

    pub(crate) fn set_leaf(&self, _py: Python<'_>, leaf: bool) {
        self.entry().leaf.set(leaf);
    }

    /// Passes its own value to `look`, where the variable names that.
    #[inline]
    pub(crate) fn with_own<T>(
        &self,
        _py: Python<'_>,
        look: impl FnOnce(&ValueRef<R>) -> T,
    ) -> Option<T> {
        // The variable's own reference, which stays counted.
        let value = ManuallyDrop::new(ValueRef(self.0));
        self.entry().names_own.get().then(|| look(&value))
    }

    #[inline]
    pub(crate) fn names_own(&self, _py: Python<'_>) -> bool {
        self.entry().names_own.get()
    }

    /// The variable's own value, where it names that.
    pub(crate) fn own_value(&self, py: Python<'_>) -> Option<ValueRef<R>> {
        self.with_own(py, |value| value.clone_ref(py))
    }

    /// Takes the variable's own value, where it names that; it names none afterwards.
    pub(crate) fn take_own(&self, _py: Python<'_>) -> Option<ValueRef<R>> {
        self.entry().names_own.replace(false).then(|| ValueRef(self.0))
    }

    /// Names the value of the variable's own entry; any other value is returned. The variable must
    /// not name one before.
    pub(crate) fn name_own(&self, _py: Python<'_>, value: ValueRef<R>) -> Option<ValueRef<R>> {
        assert!(!self.entry().names_own.get(), "the variable already names a value");
        if value.0 != self.0 {
            return Some(value);
        }
        // The value's count becomes the variable's.
        let _ = ManuallyDrop::new(value);
        self.entry().names_own.set(true);
        None
    }

    #[inline]
    pub(crate) fn clone_ref(&self, _py: Python<'_>) -> Self {
        raise(&self.entry().variables);
        Self(self.0)
    }

    /// Drops the reference, for callers that have a token.
    #[inline]
    pub(crate) fn release(self, py: Python<'_>) {
        let this = ManuallyDrop::new(self);
        let entry = this.entry();
        let count = entry.variables.get() - 1;
        entry.variables.set(count);
        if count != 0 {
            return;
        }
        entry.leaf.set(false);
        let is_empty = entry.rest.get(py).is_empty();
        if !is_empty {
            return this.end(py);
        }
        if entry.names_own.replace(false) {
            entry.release_value(py);
        }
        reclaim(py, this.0);
    }

    /// Ends a variable that has more than a value. Dropping its rest may run Python code, which may
    /// use this entry.
    #[inline(never)]
    fn end(&self, py: Python<'_>) {
        let entry = self.entry();
        raise(&entry.weak);
        let rest = std::mem::take(&mut *entry.rest.get_mut(py));
        if entry.names_own.replace(false) {
            entry.release_value(py);
        }
        rest.end(py);
        WeakRef(self.0).release(py);
    }

    /// Returns true if both refer to the same variable.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Number of references to the variable.
    pub(crate) fn count(&self, _py: Python<'_>) -> u32 {
        self.entry().variables.get()
    }

    /// Identifies the variable among all that are alive.
    pub(crate) fn address(&self) -> usize {
        self.0.addr().get()
    }

    pub(crate) fn downgrade(&self, _py: Python<'_>) -> WeakRef<R> {
        raise(&self.entry().weak);
        WeakRef(self.0)
    }
}

impl<R: Rest> WeakRef<R> {
    fn entry(&self) -> &Entry<R> {
        // SAFETY: chunks live for ever.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn is_alive(&self, _py: Python<'_>) -> bool {
        self.entry().variables.get() != 0
    }

    pub(crate) fn upgrade(&self, py: Python<'_>) -> Option<VarRef<R>> {
        if !self.is_alive(py) {
            return None;
        }
        // A counted reference is cloned from one that is not counted.
        let uncounted = ManuallyDrop::new(VarRef(self.0));
        Some(uncounted.clone_ref(py))
    }

    /// Returns true if both refer to the same variable.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Drops the reference, for callers that have a token.
    #[inline]
    pub(crate) fn release(self, py: Python<'_>) {
        let this = ManuallyDrop::new(self);
        let weak = &this.entry().weak;
        weak.set(weak.get() - 1);
        reclaim(py, this.0);
    }
}

impl<R: Rest> Clone for ValueRef<R> {
    fn clone(&self) -> Self {
        let clone = Python::try_attach(|py| self.clone_ref(py));
        clone.expect("nothing is cloned once the interpreter is gone")
    }
}

impl<R: Rest> Clone for VarRef<R> {
    fn clone(&self) -> Self {
        let clone = Python::try_attach(|py| self.clone_ref(py));
        clone.expect("nothing is cloned once the interpreter is gone")
    }
}

// A reference dropped on a thread that is not attached to the interpreter waits for the GIL; once
// the interpreter is gone it is leaked.
impl<R: Rest> Drop for ValueRef<R> {
    #[inline]
    fn drop(&mut self) {
        let this = ManuallyDrop::new(Self(self.0));
        Python::try_attach(|py| ManuallyDrop::into_inner(this).release(py));
    }
}

impl<R: Rest> Drop for VarRef<R> {
    #[inline]
    fn drop(&mut self) {
        let this = ManuallyDrop::new(Self(self.0));
        Python::try_attach(|py| ManuallyDrop::into_inner(this).release(py));
    }
}

impl<R: Rest> Drop for WeakRef<R> {
    fn drop(&mut self) {
        let this = ManuallyDrop::new(Self(self.0));
        Python::try_attach(|py| ManuallyDrop::into_inner(this).release(py));
    }
}
