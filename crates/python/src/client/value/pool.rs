//! Reference counting under the GIL, for values in chunks that never move: like `Arc`, but without
//! its atomics and without an allocation for each value. Nothing in here knows the values' types.
//!
//! Only code that holds the GIL touches a count: with a token, or after asking for the GIL. A
//! reference dropped on a thread that is not attached to the interpreter waits for the GIL; once
//! the interpreter is gone the value is leaked.

use crate::client::gil_cell::GilCell;
use pyo3::Python;
use std::cell::{Cell, UnsafeCell};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr::NonNull;

/// Values of one allocation. A chunk is never freed.
const CHUNK: usize = 256;

/// A type whose values live in a pool.
pub(crate) trait Resident: Send + Sized + 'static {
    /// The pool of all values of this type.
    fn pool() -> &'static GilCell<Pool<Self>>;

    /// Prepares for the drop of a value that is no longer referred to. The pool is not borrowed:
    /// other values may be made and dropped in here.
    fn end(&mut self, py: Python<'_>);
}

/// Values of one type.
pub(crate) struct Pool<T> {
    free: Vec<NonNull<Slot<T>>>,
}

// SAFETY: it owns the slots in its list; slots in use are owned by the references to them.
unsafe impl<T: Send> Send for Pool<T> {}

struct Slot<T> {
    strong: Cell<u32>,
    weak: Cell<u32>,
    /// Initialised while `strong` is not 0.
    value: UnsafeCell<MaybeUninit<T>>,
}

impl<T> Pool<T> {
    pub(crate) const fn new() -> Self {
        Self { free: Vec::new() }
    }

    #[inline]
    fn take(&mut self) -> NonNull<Slot<T>> {
        loop {
            if let Some(slot) = self.free.pop() {
                return slot;
            }
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let slot = || Slot {
            strong: Cell::new(0),
            weak: Cell::new(0),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        };
        let chunk: Vec<Slot<T>> = std::iter::repeat_with(slot).take(CHUNK).collect();
        self.free.extend(chunk.leak().iter_mut().rev().map(NonNull::from));
    }
}

/// A counted reference to a value in its pool.
pub(crate) struct Pooled<T: Resident>(NonNull<Slot<T>>);

// SAFETY: counts and pool are touched under the GIL only, the value as its own type allows.
unsafe impl<T: Resident + Sync> Send for Pooled<T> {}
// SAFETY: as above.
unsafe impl<T: Resident + Sync> Sync for Pooled<T> {}

impl<T: Resident> Pooled<T> {
    #[inline]
    pub(crate) fn new(py: Python<'_>, value: T) -> Self {
        let slot = T::pool().get_mut(py).take();
        // SAFETY: a slot from the pool is used by nothing else, and chunks live for ever.
        unsafe {
            let slot = slot.as_ref();
            slot.value.get().cast::<T>().write(value);
            slot.strong.set(1);
        }
        Self(slot)
    }

    fn slot(&self) -> &Slot<T> {
        // SAFETY: chunks live for ever.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn clone_ref(&self, _py: Python<'_>) -> Self {
        let strong = &self.slot().strong;
        let count = strong.get();
        assert!(count != u32::MAX, "{count} references to one value");
        strong.set(count + 1);
        Self(self.0)
    }

    /// Drops the reference, for callers that have a token.
    #[inline]
    pub(crate) fn release(self, py: Python<'_>) {
        let this = ManuallyDrop::new(self);
        let slot = this.slot();
        let count = slot.strong.get() - 1;
        slot.strong.set(count);
        if count != 0 {
            return;
        }
        // A weak reference of its own: its end may drop the others, and must not free the slot.
        slot.weak.set(slot.weak.get() + 1);
        // SAFETY: the value was initialised when the reference was made, and this was the last one
        // to it: with `strong` at 0 it is not read again. It ends where it is, because a node is
        // large to move.
        unsafe {
            let value = (*slot.value.get()).assume_init_mut();
            value.end(py);
            std::ptr::drop_in_place(value);
        }
        PooledWeak(this.0).release(py);
    }

    /// The value, where nothing else refers to it, not even weakly.
    pub(crate) fn alone_mut(&mut self, _py: Python<'_>) -> Option<&mut T> {
        let slot = self.slot();
        let is_alone = slot.strong.get() == 1 && slot.weak.get() == 0;
        // SAFETY: this is the only reference to the value, and it is borrowed exclusively.
        is_alone.then(|| unsafe { (*self.0.as_ref().value.get()).assume_init_mut() })
    }

    /// Returns true if both refer to the same value.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Identifies the value among all that are alive.
    pub(crate) fn address(&self) -> usize {
        self.0.addr().get()
    }

    pub(crate) fn downgrade(&self, _py: Python<'_>) -> PooledWeak<T> {
        let weak = &self.slot().weak;
        let count = weak.get();
        assert!(count != u32::MAX, "{count} weak references to one value");
        weak.set(count + 1);
        PooledWeak(self.0)
    }
}

impl<T: Resident> Deref for Pooled<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is initialised while this reference is counted; there is no mutable
        // reference to it.
        unsafe { (*self.slot().value.get()).assume_init_ref() }
    }
}

impl<T: Resident> Clone for Pooled<T> {
    fn clone(&self) -> Self {
        let clone = Python::try_attach(|py| self.clone_ref(py));
        clone.expect("nothing is cloned once the interpreter is gone")
    }
}

impl<T: Resident> Drop for Pooled<T> {
    #[inline]
    fn drop(&mut self) {
        let this = ManuallyDrop::new(Self(self.0));
        Python::try_attach(|py| ManuallyDrop::into_inner(this).release(py));
    }
}

/// A weak reference: keeps the slot, but not the value.
pub(crate) struct PooledWeak<T: Resident>(NonNull<Slot<T>>);

// SAFETY: as of `Pooled`.
unsafe impl<T: Resident + Sync> Send for PooledWeak<T> {}
// SAFETY: as of `Pooled`.
unsafe impl<T: Resident + Sync> Sync for PooledWeak<T> {}

impl<T: Resident> PooledWeak<T> {
    fn slot(&self) -> &Slot<T> {
        // SAFETY: chunks live for ever.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn is_alive(&self, _py: Python<'_>) -> bool {
        self.slot().strong.get() != 0
    }

    pub(crate) fn upgrade(&self, py: Python<'_>) -> Option<Pooled<T>> {
        if !self.is_alive(py) {
            return None;
        }
        // A counted reference is cloned from one that is not counted.
        let uncounted = ManuallyDrop::new(Pooled(self.0));
        Some(uncounted.clone_ref(py))
    }

    /// Drops the reference, for callers that have a token.
    #[inline]
    pub(crate) fn release(self, py: Python<'_>) {
        let this = ManuallyDrop::new(self);
        let slot = this.slot();
        slot.weak.set(slot.weak.get() - 1);
        if slot.weak.get() == 0 && slot.strong.get() == 0 {
            T::pool().get_mut(py).free.push(this.0);
        }
    }
}

impl<T: Resident> Drop for PooledWeak<T> {
    fn drop(&mut self) {
        let this = ManuallyDrop::new(Self(self.0));
        Python::try_attach(|py| ManuallyDrop::into_inner(this).release(py));
    }
}
