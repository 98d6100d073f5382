//! Reductions that are launched early and together. A training loop reduces each parameter's
//! gradient when its update reads it, and waits there. After one such step, gradients are reduced
//! as soon as enough of them fill a bucket: workers exchange them while the backward pass goes on.
//!
//! The history records what happened to partial values; a bucket holds values with the same
//! expected reduction. Only earlier instructions decide, and every element is reduced as it would
//! be alone: no result depends on the buckets.

use super::value::Value;
use gt_protocol::placement::{Layout, Mesh, Placement, ReduceOp};
use gt_protocol::{Family, Meta, Op};
use smallvec::SmallVec;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Maximum number of kinds of values in the history, and of values in a bucket; a program that
/// exceeds it starts over.
const KINDS_MAX: usize = 1 << 12;

/// Common properties of partial values that can be reduced together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub mesh: Mesh,
    pub axis: usize,
    pub op: ReduceOp,
}

impl Reduction {
    /// The reduction from `from` to `to`, if nothing else is needed.
    pub fn between(from: &Layout, to: &Layout) -> Option<Self> {
        if from.mesh() != to.mesh() {
            return None;
        }
        let pairs = from.placements().iter().zip(to.placements()).enumerate();
        let mut changes = pairs.filter(|(_, (have, want))| have != want);
        let (axis, (have, want)) = changes.next()?;
        match (have, want) {
            (Placement::Partial(op), Placement::Replicate) if changes.next().is_none() => {
                Some(Self { mesh: from.mesh().clone(), axis, op: *op })
            }
            _ => None,
        }
    }

    /// Returns true if a value of this layout can be reduced so.
    pub fn fits(&self, layout: &Layout) -> bool {
        let placement = layout.placements().get(self.axis);
        *layout.mesh() == self.mesh && placement == Some(&Placement::Partial(self.op))
    }

    /// The workers of each line.
    pub fn lines(&self) -> impl Iterator<Item = SmallVec<[u32; 8]>> + '_ {
        self.mesh.lines(self.axis).map(|places| self.mesh.workers(&places))
    }

    pub fn reduced(&self, layout: &Layout) -> Layout {
        layout.with(self.axis, Placement::Replicate)
    }

    /// Bytes of the value's shard on the first member of the first line.
    pub fn bytes(&self, meta: Meta, layout: &Layout) -> u64 {
        Meta::new(meta.dtype, self.reduced(layout).local_dims(&meta.dims, 0)).bytes()
    }
}

/// Values that a program computes repeatedly: by the same operator at the same line, with the same
/// shape and layout.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ValueKind {
    op: u16,
    signal: u16,
    site: u32,
    output: u8,
    meta: Meta,
    layout: Layout,
}

impl ValueKind {
    /// `None` for a value that no plan over several workers has computed.
    pub fn of(value: &Value) -> Option<Self> {
        let provenance = value.provenance()?;
        Some(Self {
            op: provenance.op.info().code,
            signal: provenance.signal,
            site: value.site,
            output: value.output,
            meta: *value.meta(),
            layout: value.layout().clone(),
        })
    }
}

/// Reader of partial values. All updates count as one reader: each parameter has its own update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueReader {
    Update,
    Operator(Op),
}

impl From<Op> for ValueReader {
    fn from(op: Op) -> Self {
        if op.info().family == Family::Update { Self::Update } else { Self::Operator(op) }
    }
}

/// History of the values of a kind.
#[derive(Debug)]
struct Readers {
    /// The layout that updates needed; `None` if any other operator has read a value of this kind.
    only_updates: Option<Layout>,
    /// Reader that reduces the values, and the target layout: an update, whatever reads them before
    /// (gradients that are accumulated), or else their only reader. `None` if there is no such
    /// reader.
    reducer: Option<(ValueReader, Layout)>,
}

/// Time at which the reductions of a bucket are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launch {
    /// When the bucket is full, or one of its values is read.
    Full,
    /// Together with the first one that an instruction of this reader needs.
    With(ValueReader),
}

/// The expected reduction of a value.
#[derive(Debug, PartialEq)]
pub(crate) struct Expected {
    pub launch: Launch,
    pub to: Layout,
}

/// Values with the same expected reduction.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub reduction: Reduction,
    launch: Launch,
    /// The session's slots, in the order of their arrival.
    pub slots: Vec<u32>,
    bytes: u64,
}

/// One session's reductions: the history of partial values, and the buckets of present ones.
#[derive(Default)]
pub(crate) struct Reductions {
    #[allow(clippy::disallowed_types, reason = "looked up only: its order is never seen")]
    history: std::collections::HashMap<ValueKind, Readers, BuildHasherDefault<DefaultHasher>>,
    buckets: Vec<Bucket>,
}

impl Reductions {
    /// Records that a value of this kind is read, in the layout `to` that it is reduced to, or as
    /// it is.
    pub fn record(&mut self, kind: ValueKind, reader: ValueReader, to: Option<&Layout>) {
        if self.history.len() >= KINDS_MAX {
            self.history.clear();
        }
        let by_update = to.filter(|_| reader == ValueReader::Update);
        let reducer = to.map(|to| (reader, to.clone()));
        match self.history.entry(kind) {
            Entry::Vacant(entry) => {
                entry.insert(Readers { only_updates: by_update.cloned(), reducer });
            }
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                if known.only_updates.as_ref() != by_update {
                    known.only_updates = None;
                }
                let was_update = matches!(known.reducer, Some((ValueReader::Update, _)));
                if by_update.is_some() {
                    known.reducer = reducer;
                } else if !was_update && known.reducer != reducer {
                    known.reducer = None;
                }
            }
        }
    }

    /// Expected reduction of a value of this kind.
    pub fn expected(&self, kind: &ValueKind) -> Option<Expected> {
        let Readers { only_updates, reducer } = self.history.get(kind)?;
        if let Some(to) = only_updates {
            return Some(Expected { launch: Launch::Full, to: to.clone() });
        }
        let (reader, to) = reducer.as_ref()?;
        Some(Expected { launch: Launch::With(*reader), to: to.clone() })
    }

    /// Returns true if no reduction is expected.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Adds a value to its bucket; returns the bucket if it is full now.
    pub fn add(
        &mut self,
        reduction: Reduction,
        launch: Launch,
        (slot, bytes): (u32, u64),
        bytes_max: u64,
    ) -> Option<Bucket> {
        let is_it = |bucket: &Bucket| bucket.launch == launch && bucket.reduction == reduction;
        let known = self.buckets.iter().position(is_it);
        let place = known.unwrap_or_else(|| {
            self.buckets.push(Bucket { reduction, launch, slots: Vec::new(), bytes: 0 });
            self.buckets.len() - 1
        });
        let bucket = self.buckets.get_mut(place)?;
        if bucket.slots.len() >= KINDS_MAX {
            bucket.slots.clear();
        }
        bucket.slots.push(slot);
        bucket.bytes = bucket.bytes.saturating_add(bytes);
        let is_full = launch == Launch::Full && bucket.bytes >= bytes_max;
        is_full.then(|| self.buckets.remove(place))
    }

    /// Removes a value from its bucket.
    pub fn forget(&mut self, slot: u32) {
        for bucket in &mut self.buckets {
            bucket.slots.retain(|other| *other != slot);
        }
        self.buckets.retain(|bucket| !bucket.slots.is_empty());
    }

    /// Returns true if reading this value launches a bucket.
    pub fn waits(&self, slot: u32) -> bool {
        let holds = |bucket: &Bucket| bucket.launch == Launch::Full && bucket.slots.contains(&slot);
        self.buckets.iter().any(holds)
    }

    /// Takes the bucket that reading this value launches.
    pub fn take_of(&mut self, slot: u32) -> Option<Bucket> {
        let holds = |bucket: &Bucket| bucket.launch == Launch::Full && bucket.slots.contains(&slot);
        let place = self.buckets.iter().position(holds)?;
        Some(self.buckets.remove(place))
    }

    /// Takes the values that are reduced together with the reduction that `reader` needs.
    pub fn take_with(&mut self, reader: ValueReader, reduction: &Reduction) -> Vec<u32> {
        let is_it = |bucket: &Bucket| {
            bucket.launch == Launch::With(reader) && bucket.reduction == *reduction
        };
        let place = self.buckets.iter().position(is_it);
        place.map(|place| self.buckets.remove(place).slots).unwrap_or_default()
    }

    /// Takes the buckets that are launched before the session waits for its workers.
    pub fn take_all(&mut self) -> Vec<Bucket> {
        let is_early = |bucket: &mut Bucket| bucket.launch == Launch::Full;
        self.buckets.extract_if(.., is_early).collect()
    }
}
