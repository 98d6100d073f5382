//! What a client's slot stands for.

use crate::failure::Failure;
use crate::note::{Laid, Note};
use gt_protocol::placement::Layout;
use gt_protocol::{Attr, Meta, Op};
use smallvec::SmallVec;
use std::sync::Arc;

/// Slots of a value: one on each member of its layout's mesh, in the mesh's order.
pub(crate) type Slots = SmallVec<[u32; 2]>;

/// A value's pieces: how they lie, and the slot on each member.
#[derive(Clone, Debug)]
pub(crate) struct Shards {
    pub layout: Layout,
    pub slots: Slots,
}

impl Shards {
    /// Each member with its slot.
    pub fn held(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.layout.mesh().members().iter().copied().zip(self.slots.iter().copied())
    }

    /// The slot on `worker`, if it is a member.
    pub fn on(&self, worker: u32) -> Option<u32> {
        self.slots.get(self.layout.mesh().place(worker)?).copied()
    }
}

/// What makes a value that nobody has needed yet.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub op: Op,
    pub attrs: SmallVec<[Attr; 2]>,
}

/// A value that exists (or will, once the workers get there).
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub meta: Meta,
    pub number: u64,
    pub output: u8,
    /// Source position of what made it, kept with it: it may be read long after the session has forgotten its number's.
    pub site: u32,
    pub shards: Shards,
    /// The same value once more, elsewhere or otherwise: what a neighbouring mesh has fetched already.
    pub copies: Vec<Shards>,
    /// How it is to lie from its first use on: a value that a client is still sending is on one worker.
    pub wish: Option<Layout>,
    /// It will be folded with others (see `plan/together.rs`): before anything else reads it.
    pub waits: bool,
    /// It is made at its first use (see `plan/late.rs`); `shards` has no slots until then.
    pub recipe: Option<Box<Recipe>>,
    /// How a plan over several workers made it; nothing for what was made where its operands are.
    pub note: Option<Arc<Note>>,
    /// Why it lies otherwise than it was made.
    pub laid: Laid,
}

impl Value {
    #[inline]
    pub fn new(meta: Meta, number: u64, output: u8, shards: Shards) -> Self {
        let (copies, wish, recipe) = (Vec::new(), None, None);
        let (note, laid, waits) = (None, Laid::AsMade, false);
        Self { meta, number, output, site: 0, shards, copies, wish, waits, recipe, note, laid }
    }

    /// The only worker that holds it, where it is whole there and stays there.
    #[inline]
    pub fn single(&self) -> Option<u32> {
        let settled = self.wish.is_none() && self.recipe.is_none();
        if settled { self.shards.layout.single() } else { None }
    }

    /// Every worker that holds a piece, with its slot.
    pub fn held(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.shards.held().chain(self.copies.iter().flat_map(Shards::held))
    }
}

/// A client's slot.
#[derive(Clone, Debug, Default)]
pub(crate) enum Handle {
    #[default]
    Free,
    Live(Value),
    Failed(Failure),
}
