//! The memory of variables: shared storages, write counters, and the positions of elements.

use super::steps::{self, Path, Step};
use super::variable::{
    Alias, Counter, Origin, Shared, SharedValue, Storage, Var, View, Watched, WeakVar,
};
use crate::client::gil_cell::GilCell;
use gt_protocol::{Attr, Dims, Op};
use pyo3::Python;
use smallvec::smallvec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Length of a storage's list of views below which dead views are not removed.
const VIEWS_MIN: usize = 8;
/// Minimum alignment in bytes of an address from PyTorch's allocators: programs look at the last
/// bits.
const ADDRESS_ALIGNMENT: u64 = 64;

/// Address of the next storage that is asked for one. The address 0 is never given out.
static FREE_ADDRESS: GilCell<u64> = GilCell::new(1 << 32);

impl View {
    pub(crate) fn again(&self) -> Self {
        Self { root: self.root.clone(), path: self.path.clone(), ..*self }
    }

    /// The variable that this is a view of, which itself is no view. If that one's shape was
    /// changed in place, it became a view too, and the root is the variable that took over its
    /// memory.
    pub(crate) fn root(&self, py: Python<'_>) -> Var {
        let successor = {
            let state = self.root.look(py);
            let view = state.alias().and_then(|alias| alias.view.as_ref());
            view.map(|view| view.root.clone())
        };
        successor.unwrap_or_else(|| self.root.clone())
    }

    /// The operators from the root to the view, at the time when it was taken.
    fn steps(&self) -> Vec<Step> {
        Path::steps(self.path.as_ref()).split_off(self.skip)
    }

    /// Returns true if `root` shows its memory in another way than when this view of it was taken
    /// (`resize_`).
    fn is_of_another_shape(&self, root: &Alias) -> bool {
        let own = Path::length(self.path.as_ref()).saturating_sub(self.skip);
        !Path::are_same(Path::without(self.path.as_ref(), own), root.path.as_ref())
    }
}

impl Alias {
    /// The operators from `root` to this `view` of it. `None` where the root has changed its shape
    /// since and lacks some elements of the view.
    pub(crate) fn steps_from(&self, py: Python<'_>, root: &Var, view: &View) -> Option<Vec<Step>> {
        let state = root.look(py);
        let steps = view.steps();
        match state.alias() {
            Some(whole) if self.shares_with(whole) && view.is_of_another_shape(whole) => {
                self.strided_from(whole, &steps)
            }
            Some(_) | None => Some(steps),
        }
    }

    /// Returns true if both have the same memory, and this view's root has not moved since the view
    /// was taken.
    fn shares_with(&self, root: &Self) -> bool {
        let taken = self.view.as_ref().and_then(|view| view.path.as_ref());
        Arc::ptr_eq(&self.storage, &root.storage) && Path::are_same(taken, self.path.as_ref())
    }

    /// One operator that replaces `steps`, computed from the positions of the elements in memory.
    fn strided_from(&self, root: &Self, steps: &[Step]) -> Option<Vec<Step>> {
        let (dims, offset) = (self.meta.dims, self.offset - root.offset);
        let last: i64 = dims.iter().zip(self.strides.iter()).map(|(n, step)| (n - 1) * step).sum();
        let elements = root.meta.dims.elements().expect("checked where the shape was made");
        let is_inside = offset >= 0 && offset + last < elements;
        if root.strides != contiguous(&root.meta.dims) || !(is_inside || dims.contains(&0)) {
            return None;
        }
        let attrs = smallvec![Attr::Ints(dims), Attr::Ints(self.strides), Attr::Int(offset)];
        let place = Step { op: Op::AsStrided, attrs };
        let conjugations = steps.iter().filter(|step| steps::conjugates(step)).cloned();
        Some(std::iter::once(place).chain(conjugations).collect())
    }
}

impl Storage {
    pub(crate) fn new(value: SharedValue) -> Arc<Self> {
        let shared = Shared {
            value,
            views: Vec::new(),
            views_max: VIEWS_MIN,
            read_only: None,
            address: None,
        };
        Arc::new(Self(GilCell::new(shared)))
    }

    /// Stand-in for the address of the first element: it is constant, and the addresses of this
    /// storage's elements overlap no other storage's.
    pub(crate) fn address(&self, py: Python<'_>) -> u64 {
        let mut shared = self.0.get_mut(py);
        if let Some(address) = shared.address {
            return address;
        }
        let mut free = FREE_ADDRESS.get_mut(py);
        let address = *free;
        *free += shared.value.meta.bytes.max(1).next_multiple_of(ADDRESS_ALIGNMENT);
        shared.address = Some(address);
        address
    }

    /// Reason why the memory must not be written, if there is one.
    pub(crate) fn read_only(&self, py: Python<'_>) -> Option<Arc<str>> {
        self.0.get(py).read_only.clone()
    }

    pub(crate) fn set_read_only(&self, py: Python<'_>, text: &str) {
        self.0.get_mut(py).read_only = Some(text.into());
    }

    pub(crate) fn value(&self, py: Python<'_>) -> SharedValue {
        self.0.get(py).value.clone_ref(py)
    }

    /// Returns true if nothing else holds the value: no saved operand, no copy that was never
    /// written.
    pub(crate) fn is_alone(&self, py: Python<'_>) -> bool {
        self.0.get(py).value.count(py) == 1
    }

    pub(crate) fn replace(&self, py: Python<'_>, value: SharedValue) {
        let old = std::mem::replace(&mut self.0.get_mut(py).value, value);
        drop(old);
    }

    pub(crate) fn register(&self, py: Python<'_>, view: &Var) {
        let mut shared = self.0.get_mut(py);
        if shared.views.len() >= shared.views_max {
            shared.views.retain(|view| view.is_alive(py));
            shared.views_max = VIEWS_MIN.max(2 * shared.views.len());
        }
        shared.views.push(view.downgrade(py));
    }

    /// Returns true if there is a live view of `root` through which gradients flow.
    pub(crate) fn has_recorded_view(&self, py: Python<'_>, root: &Var) -> bool {
        let views: Vec<Var> =
            self.0.get(py).views.iter().filter_map(|view| view.upgrade(py)).collect();
        views.iter().any(|view| {
            let state = view.look(py);
            let view = state.alias().and_then(|alias| alias.view.as_ref());
            view.is_some_and(|view| view.origin != Origin::NoGrad && view.root.is(root))
        })
    }

    /// Makes every view drop its value: a view takes itself again at its next use, and holds no
    /// memory until then.
    pub(crate) fn forget_views(&self, py: Python<'_>) {
        let views = std::mem::take(&mut self.0.get_mut(py).views);
        let mut kept: Vec<WeakVar> = Vec::with_capacity(views.len());
        for view in views {
            if let Some(var) = view.upgrade(py) {
                var.forget(py, self);
                kept.push(view);
            }
        }
        self.0.get_mut(py).views.append(&mut kept);
    }
}

impl Counter {
    pub(crate) fn starting(count: u32) -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(count)))
    }

    pub(crate) fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Watched {
    /// The count at that time and the current one, where they differ.
    pub(crate) fn modified(&self, py: Python<'_>) -> Option<(u32, u32)> {
        let (then, now) = match self {
            Self::Never | Self::Unsaved => return None,
            Self::Var(var, then) => (*then, var.upgrade(py)?.version(py)),
            Self::Shared(counter, then) => (*then, counter.now()),
        };
        (then != now).then_some((then, now))
    }

    /// Another watch of the same count; the memory of a variable that is gone is never written.
    pub(crate) fn again(&self, py: Python<'_>) -> Self {
        match self {
            Self::Never | Self::Unsaved => Self::Never,
            Self::Var(var, then) => {
                var.upgrade(py).map_or(Self::Never, |var| Self::Var(var.downgrade(py), *then))
            }
            Self::Shared(counter, then) => Self::Shared(Arc::clone(counter), *then),
        }
    }

    /// Returns true if both count the same memory.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Var(mine, _), Self::Var(its, _)) => mine.is(its),
            (Self::Shared(mine, _), Self::Shared(its, _)) => Arc::ptr_eq(mine, its),
            (_, _) => false,
        }
    }
}

impl Var {
    /// Drops the values of views of `storage`, which a write has changed.
    pub(crate) fn forget(&self, py: Python<'_>, storage: &Storage) {
        let mine = self
            .look(py)
            .alias()
            .is_some_and(|alias| std::ptr::eq(alias.storage.as_ref(), storage));
        if mine {
            drop(self.take_named(py));
        }
    }

    pub(crate) fn is_view(&self, py: Python<'_>) -> bool {
        self.look(py).alias().is_some_and(|alias| alias.view.is_some())
    }

    /// Strides in elements, as `PyTorch`'s `stride()`.
    pub(crate) fn strides(&self, py: Python<'_>) -> Dims {
        if let Some(alias) = self.look(py).alias() {
            return alias.strides;
        }
        contiguous(&self.meta(py).dims)
    }

    pub(crate) fn offset(&self, py: Python<'_>) -> i64 {
        self.look(py).alias().map_or(0, |alias| alias.offset)
    }

    /// The storage, where it is shared.
    pub(crate) fn storage(&self, py: Python<'_>) -> Option<Arc<Storage>> {
        self.look(py).alias().map(|alias| Arc::clone(&alias.storage))
    }

    /// Number of writes to the memory, as autograd counts them.
    pub(crate) fn version(&self, py: Python<'_>) -> u32 {
        let state = self.look(py);
        let Some(cold) = state.cold() else { return 0 };
        cold.alias.as_ref().map_or(cold.version, |alias| alias.counter.now())
    }

    /// Watches the current value, for nodes that save it.
    pub(crate) fn watched(&self, py: Python<'_>) -> Watched {
        let state = self.look(py);
        match state.alias() {
            None => {
                let cold = state.cold();
                if let Some(source) = cold.and_then(|cold| cold.read_from.as_ref()) {
                    return source.again(py);
                }
                Watched::Var(self.downgrade(py), cold.map_or(0, |cold| cold.version))
            }
            Some(alias) => Watched::Shared(Arc::clone(&alias.counter), alias.counter.now()),
        }
    }
}

/// Row-major strides.
pub(crate) fn contiguous(dims: &Dims) -> Dims {
    let mut strides = *dims;
    let mut stride = 1;
    for (place, size) in strides.as_mut_slice().iter_mut().rev().zip(dims.iter().rev()) {
        *place = stride;
        stride *= (*size).max(1);
    }
    strides
}
