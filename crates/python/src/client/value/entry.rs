//! Entries: a variable and the value that it names, in one place of 64 bytes, in chunks that never move. Nothing in here
//! knows what else a variable has.
//!
//! An entry is used as long as anybody refers to its variable or to its value: each is counted for itself. A variable
//! that was written names the value of another entry from then on; a value that outlives its variable may get another.
//!
//! Counts are touched by code that holds the GIL only, as in `pool.rs`.

use super::metadata::SharedMeta;
use crate::client::gil_cell::GilCell;
use crate::client::session::runtime;
use pyo3::Python;
use std::cell::{Cell, RefMut, UnsafeCell};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr::NonNull;

/// Entries of one allocation. A chunk stays with the process.
const CHUNK: usize = 256;

/// Names a slot of a session. Immutable: an in-place operator makes a new value.
pub(crate) struct ValueHandle {
    pub slot: u32,
    /// Which connection it belongs to; slots of an earlier one mean nothing.
    pub epoch: u32,
    pub meta: SharedMeta,
}

impl ValueHandle {
    /// The dispatcher frees it.
    #[inline]
    fn end(self, py: Python<'_>) {
        runtime::release(py, self.slot, self.epoch, self.meta.bytes);
        self.meta.release(py);
    }
}

/// What a variable has beside its own value; its default where there is nothing.
pub(crate) trait Rest: Default + Send + 'static {
    fn entries() -> &'static GilCell<Entries<Self>>;

    /// Whether it is as the default.
    fn is_empty(&self) -> bool;

    /// Ends the rest of a variable that nobody refers to any more.
    fn end(self, py: Python<'_>);
}

/// The entries of all variables.
pub(crate) struct Entries<R> {
    free: Vec<NonNull<Entry<R>>>,
}

// SAFETY: it owns the entries in its list, and those that are in use are owned by the references to them.
unsafe impl<R: Send> Send for Entries<R> {}

struct Entry<R> {
    /// References to the variable.
    variables: Cell<u32>,
    /// References to the value, one of which is the variable's where it names this value.
    values: Cell<u32>,
    /// References to the variable that do not keep it.
    weak: Cell<u32>,
    /// Whether the variable names this value.
    names_own: Cell<bool>,
    /// Whether the variable is a leaf that accumulates a gradient.
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
    /// One reference to the value less.
    #[inline]
    fn release_value(&self, py: Python<'_>) {
        let count = self.values.get() - 1;
        self.values.set(count);
        if count == 0 {
            // SAFETY: it was initialised when the first reference was made, and this was the last one: with `values` at 0
            // nobody reads it again.
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

/// Gives an entry back that nobody refers to.
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

/// Does not keep the variable, but its entry.
pub(crate) struct WeakRef<R: Rest>(NonNull<Entry<R>>);

// SAFETY: counts, entries and the rest are touched under the GIL only, and what is in them may be sent.
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

    /// What dropping it does, for those who have a token.
    #[inline]
    pub(crate) fn release(self, py: Python<'_>) {
        let this = ManuallyDrop::new(self);
        this.entry().release_value(py);
        reclaim(py, this.0);
    }

    /// How many references there are.
    pub(crate) fn count(&self, _py: Python<'_>) -> u32 {
        self.entry().values.get()
    }
}

impl<R: Rest> Deref for ValueRef<R> {
    type Target = ValueHandle;

    #[inline]
    fn deref(&self) -> &ValueHandle {
        // SAFETY: initialised as long as this reference is counted, and never written in that time.
        unsafe { (*self.entry().value.get()).assume_init_ref() }
    }
}

impl<R: Rest> VarRef<R> {
    /// A variable that names a value of its own.
    #[inline]
    pub(crate) fn new(py: Python<'_>, value: ValueHandle) -> Self {
        let entry = R::entries().get_mut(py).take();
        // SAFETY: an entry that is given out is nobody else's, and chunks live for ever.
        unsafe {
            let entry = entry.as_ref();
            entry.value.get().cast::<ValueHandle>().write(value);
            entry.values.set(1);
            entry.variables.set(1);
            entry.names_own.set(true);
        }
        Self(entry)
    }

    /// A variable in the entry of a value that has none, or else in one without a value: then the value comes back.
    pub(crate) fn of(py: Python<'_>, value: ValueRef<R>) -> (Self, Option<ValueRef<R>>) {
        let entry = value.entry();
        if entry.variables.get() == 0 && entry.weak.get() == 0 {
            entry.variables.set(1);
            entry.names_own.set(true);
            // Its count is the variable's now.
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

    /// Shows `look` its own value, where it names that.
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

    /// Its own value, where it names that.
    pub(crate) fn own_value(&self, py: Python<'_>) -> Option<ValueRef<R>> {
        self.with_own(py, |value| value.clone_ref(py))
    }

    /// Takes its own value, where it names that: it names none afterwards.
    pub(crate) fn take_own(&self, _py: Python<'_>) -> Option<ValueRef<R>> {
        self.entry().names_own.replace(false).then(|| ValueRef(self.0))
    }

    /// Names the value of its entry; another one comes back. It must not name one.
    pub(crate) fn name_own(&self, _py: Python<'_>, value: ValueRef<R>) -> Option<ValueRef<R>> {
        assert!(!self.entry().names_own.get(), "a variable that names a value is given another");
        if value.0 != self.0 {
            return Some(value);
        }
        // Its count is the variable's now.
        let _ = ManuallyDrop::new(value);
        self.entry().names_own.set(true);
        None
    }

    #[inline]
    pub(crate) fn clone_ref(&self, _py: Python<'_>) -> Self {
        raise(&self.entry().variables);
        Self(self.0)
    }

    /// What dropping it does, for those who have a token.
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

    /// Ends a variable that has more than a value. Its rest may lead to Python's code, which may come by this entry.
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

    /// Whether both refer to the same variable.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// How many references there are.
    pub(crate) fn count(&self, _py: Python<'_>) -> u32 {
        self.entry().variables.get()
    }

    /// Tells it from all others that are alive.
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
        // Of a reference that is not counted a counted one is made.
        let uncounted = ManuallyDrop::new(VarRef(self.0));
        Some(uncounted.clone_ref(py))
    }

    /// Whether both refer to the same variable.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// What dropping it does, for those who have a token.
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

// A reference that is dropped on a thread that is not attached waits for the GIL; once the interpreter is gone it is leaked.
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
