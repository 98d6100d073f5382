//! Replays: instructions that were planned before and moved nothing. The words for the members
//! depend only on the client's words and the operands' metadata and layouts.

use crate::session::spec::ValueSpec;
use gt_protocol::digest::{Digest, Same};
use gt_protocol::placement::Mesh;
use gt_protocol::{Family, Meta, Op, wire};
use smallvec::SmallVec;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Maximum number of replays; a program with more kinds of instructions starts over.
const REPLAYS_MAX: usize = 1 << 14;
/// Words of a scalar, which are between operands and attributes.
const SCALAR_WORDS: usize = 3;

/// The parts of an instruction's words, borrowed. Only for operators with neither a list operand
/// nor a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'w> {
    pub op: Op,
    pub tag: u32,
    pub signal: u16,
    /// The client's slots.
    pub outputs: &'w [u32],
    /// Slots, [`wire::IMMEDIATE`] or [`wire::NONE`].
    pub operands: &'w [u32],
    pub scalars: &'w [u32],
    attrs: &'w [u32],
}

impl<'w> Parts<'w> {
    /// `None` where the words have another form.
    pub fn of(op: Op, words: &'w [u32]) -> Option<Self> {
        let info = op.info();
        if info.has_list() || info.payload || info.like.is_some() {
            return None;
        }
        let [_, tag, flags, rest @ ..] = words else { return None };
        let (outputs, rest) = rest.split_at_checked(usize::from(info.outputs))?;
        let (operands, rest) = rest.split_at_checked(info.operands.len())?;
        let scalars = operands.iter().filter(|&&word| word == wire::IMMEDIATE).count();
        let (scalars, attrs) = rest.split_at_checked(SCALAR_WORDS * scalars)?;
        // The value of a learning rate changes no layout, and it may differ each time.
        let attrs = if info.family == Family::Update { &[] } else { attrs };
        let signal = u16::try_from(flags >> 16).expect("the high half of a word has 16 bits");
        Some(Self { op, tag: *tag, signal, outputs, operands, scalars, attrs })
    }

    /// Slots of the operands that are values.
    pub fn slots(&self) -> impl Iterator<Item = u32> + Clone + 'w {
        self.operands.iter().copied().filter(|&word| word < wire::SLOT_LIMIT)
    }

    /// Returns true if the key of a replay determines the results' metadata: rules read nothing
    /// else.
    fn says_outputs(&self) -> bool {
        self.scalars.is_empty() && self.op.info().family != Family::Update
    }
}

/// Key of a replay, borrowed.
#[derive(Debug)]
pub(crate) struct ReplayQuery<'q> {
    pub parts: Parts<'q>,
    /// The mesh that a scope sets.
    pub mesh: Option<&'q Mesh>,
    /// `None` for scalars and absent operands.
    pub operands: SmallVec<[Option<&'q Arc<ValueSpec>>; 4]>,
    /// Bit k: operand k is the same value as an earlier one.
    pub twins: u16,
    /// The results' metadata, if it has been inferred.
    pub known: Option<&'q [Meta]>,
}

impl ReplayQuery<'_> {
    fn digest(&self) -> u64 {
        let mut state = Digest::default();
        state.write_u64(u64::from(self.parts.op.info().code) << 16 | u64::from(self.twins));
        for spec in self.operands.iter().flatten() {
            state.write_u64(spec.digest);
        }
        for &word in self.parts.attrs {
            state.write_u32(word);
        }
        state.finish()
    }

    fn is(&self, replay: &Replay) -> bool {
        let mut operands = self.operands.iter().copied().zip(&replay.operands);
        let are_specs = operands.all(|(one, kept)| match (one, kept) {
            (Some(one), Some(kept)) => Arc::ptr_eq(one, kept) || one == kept,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        });
        let is_known = |known: &[Meta]| {
            let outputs = known.iter().zip(&replay.outputs);
            known.len() == replay.outputs.len() && outputs.into_iter().all(|(a, b)| *a == b.meta)
        };
        self.parts.op == replay.op
            && self.twins == replay.twins
            && self.mesh == replay.mesh.as_ref()
            && self.parts.scalars.len() == replay.scalar_words
            && self.operands.len() == replay.operands.len()
            && are_specs
            && *self.parts.attrs == *replay.attrs
            && self.known.map_or_else(|| self.parts.says_outputs(), is_known)
    }
}

/// Key and plan of an instruction that ran once on each member of a mesh.
#[derive(Debug)]
pub(crate) struct Replay {
    op: Op,
    twins: u16,
    mesh: Option<Mesh>,
    operands: Box<[Option<Arc<ValueSpec>>]>,
    scalar_words: usize,
    attrs: Box<[u32]>,
    /// Metadata and layouts of its results, all on the mesh on which it runs.
    pub outputs: SmallVec<[Arc<ValueSpec>; 1]>,
}

/// Replays by the digest of their keys; of several with one digest the last one is kept.
#[derive(Default)]
pub(crate) struct Replays {
    #[allow(clippy::disallowed_types, reason = "looked up only: its order is never seen")]
    known: std::collections::HashMap<u64, Replay, BuildHasherDefault<Same>>,
}

impl Replays {
    pub fn get(&self, query: &ReplayQuery<'_>) -> Option<&Replay> {
        self.known.get(&query.digest()).filter(|replay| query.is(replay))
    }

    pub fn keep(&mut self, query: &ReplayQuery<'_>, outputs: SmallVec<[Arc<ValueSpec>; 1]>) {
        if self.known.len() >= REPLAYS_MAX {
            self.known.clear();
        }
        let replay = Replay {
            op: query.parts.op,
            twins: query.twins,
            mesh: query.mesh.cloned(),
            operands: query.operands.iter().map(|spec| spec.cloned()).collect(),
            scalar_words: query.parts.scalars.len(),
            attrs: query.parts.attrs.into(),
            outputs,
        };
        self.known.insert(query.digest(), replay);
    }

    /// Drops all replays: prices have changed.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}
