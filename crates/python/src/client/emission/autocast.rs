//! Autocast: the dtype to which the floating-point operands of an operator are cast before it, and
//! the casts of parameters that are kept. This file decides and remembers; [`super::emit`] casts.
//!
//! **Architecture invariant:** the treatment of each operator is data (`gt/amp/policies.txt`); no
//! operator is named here.

use super::operands::Arg;
use crate::client::gil_cell::GilCell;
use crate::client::session::errors;
use crate::client::tape::grad_enabled;
use crate::client::value::variable::{Var, WeakVar};
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Dtype, Op};
use pyo3::prelude::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of device types that have autocast lists of their own.
pub(crate) const DEVICES: usize = 2;

/// Treatment of an operator's operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Nothing,
    /// Floating-point operands are cast to the lower dtype.
    Lower,
    /// Floating-point operands are cast to float32.
    Float32,
    /// Floating-point operands are cast to the widest dtype among them, at least the lower dtype.
    Promote,
}

/// The autocast region that a thread runs in.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    /// Index of the device type whose list applies.
    pub device: usize,
    pub lower: Dtype,
    pub keeps: bool,
}

thread_local! {
    static REGION: Cell<Option<Region>> = const { Cell::new(None) };
}

/// Policies by [`Op::place`]; empty until an autocast region was opened.
static POLICIES: GilCell<Vec<[Policy; DEVICES]>> = GilCell::new(Vec::new());

/// A kept cast, with its variable and the version of the variable that was cast.
struct KeptCast {
    var: WeakVar,
    version: u32,
    made: Var,
}

/// Kept casts by the variable's address, the dtype, and whether the cast was recorded.
type KeptCasts = HashMap<(usize, Dtype, bool), KeptCast>;

/// Kept casts; bounded by the number of parameters used in a region.
static KEPT: GilCell<Option<KeptCasts>> = GilCell::new(None);

/// Number of threads that run in an autocast region: while it is 0, an instruction reads no
/// thread-local.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Returns true if this thread runs in an autocast region.
#[inline]
pub(crate) fn is_open() -> bool {
    OPEN.load(Ordering::Relaxed) != 0 && REGION.get().is_some()
}

pub(crate) fn region() -> Option<Region> {
    REGION.get()
}

/// Sets this thread's region; returns the one before.
pub(crate) fn set_region(region: Option<Region>) -> Option<Region> {
    let before = REGION.replace(region);
    match (before.is_some(), region.is_some()) {
        (false, true) => OPEN.fetch_add(1, Ordering::Relaxed),
        (true, false) => OPEN.fetch_sub(1, Ordering::Relaxed),
        (false, false) | (true, true) => 0,
    };
    before
}

/// Suspends this thread's autocast while it lives.
pub(crate) struct Suspended(Option<Region>);

impl Suspended {
    pub(crate) fn new() -> Self {
        Self(REGION.take())
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        REGION.set(self.0);
    }
}

/// Sets the policy of each operator.
pub(crate) fn set_policies(py: Python<'_>, of: impl Fn(Op) -> [Policy; DEVICES]) {
    *POLICIES.get_mut(py) = Op::table().iter().map(|info| of(info.op)).collect();
}

/// The dtype to which an operator's operands are cast; `None` where they stay.
pub(crate) fn dtype_of(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
) -> PyResult<Option<Dtype>> {
    let Some(region) = region() else { return Ok(None) };
    let policy = POLICIES.get(py).get(op.place()).map_or(Policy::Nothing, |by| by[region.device]);
    match policy {
        Policy::Nothing => Ok(None),
        Policy::Lower => Ok(Some(region.lower)),
        // Operands stay as they are where the caller asks for a dtype.
        Policy::Float32 => {
            let asked = attrs.iter().any(|attr| matches!(attr, Attr::Dtype(_)));
            Ok((!asked).then_some(Dtype::F32))
        }
        Policy::Promote => widest(py, region.lower, args).map(Some),
    }
}

/// Returns true if an operand's dtype changes: float64 and dtypes that are not floats stay.
pub(crate) fn changes(from: Dtype, to: Dtype) -> bool {
    from.is_float() && from != Dtype::F64 && from != to
}

/// The widest dtype of the operands.
fn widest(py: Python<'_>, lower: Dtype, args: &[Arg<'_>]) -> PyResult<Dtype> {
    let mut found = lower;
    for arg in args {
        let Arg::Var(var) = arg else { continue };
        let dtype = var.meta(py).dtype;
        if dtype == Dtype::F32 {
            found = Dtype::F32;
        } else if dtype.is_float() && dtype != Dtype::F64 && dtype != lower && found != Dtype::F32 {
            let text = "Unexpected floating ScalarType in at::autocast::prioritize";
            return Err(errors::mistake(py, ErrorClass::Runtime, text));
        }
    }
    Ok(found)
}

/// The kept cast of a parameter that was not written since.
pub(crate) fn kept(py: Python<'_>, var: &Var, dtype: Dtype) -> Option<Var> {
    let kept = KEPT.get(py);
    let found = kept.as_ref()?.get(&(var.address(), dtype, grad_enabled()))?;
    let is_same = found.var.upgrade(py).is_some_and(|kept| kept.is(var));
    (is_same && found.version == var.version(py)).then(|| found.made.clone_ref(py))
}

/// Keeps the cast of a parameter: of a float32 leaf that requires a gradient.
pub(crate) fn keep(py: Python<'_>, var: &Var, dtype: Dtype, made: &Var) {
    let is_kept = region().is_some_and(|region| region.keeps && region.lower == dtype)
        && var.accumulates(py)
        && var.meta(py).dtype == Dtype::F32;
    if is_kept {
        let kept =
            KeptCast { var: var.downgrade(py), version: var.version(py), made: made.clone_ref(py) };
        let key = (var.address(), dtype, grad_enabled());
        let before = KEPT.get_mut(py).get_or_insert_default().insert(key, kept);
        drop(before);
    }
}

/// Drops all kept casts.
pub(crate) fn forget(py: Python<'_>) {
    let kept = KEPT.get_mut(py).take();
    drop(kept);
}
