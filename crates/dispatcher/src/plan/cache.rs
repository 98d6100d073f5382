//! Plans that were made before: the same operator on operands of the same metadata, lying alike, is planned once.

use super::choose::Choice;
use super::run::{Given, Run};
use gt_protocol::placement::{Layout, Mesh};
use gt_protocol::rules::spread::Program;
use gt_protocol::{Attr, Family, Meta, Op};
use smallvec::SmallVec;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Plans kept; a program that makes more kinds of instructions than these starts over.
const PLANS_MAX: usize = 1 << 14;

/// How an operator runs.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// One instruction on each member.
    One(Arc<Choice>),
    /// Several steps, each planned for itself, for what this dimension of the mesh cuts.
    Steps(usize, Arc<Program>),
}

/// Plans by what they were made for. Looked up only, never walked, so that no order of hashes is seen.
#[derive(Default)]
pub(crate) struct Plans {
    #[allow(clippy::disallowed_types, reason = "looked up only: its order is never seen")]
    known: std::collections::HashMap<Key, Plan, BuildHasherDefault<DefaultHasher>>,
}

/// An operand: nothing for scalars and absent ones, whose values no strategy depends on.
type Lying = Option<(Meta, Layout)>;

#[derive(Debug, PartialEq)]
pub(super) struct Key {
    op: Op,
    mesh: Mesh,
    operands: SmallVec<[Lying; 4]>,
    /// A cast's dtype, and what a scalar promotes to, are seen here only.
    results: SmallVec<[Meta; 2]>,
    /// Bit k: operand k is the same value as an earlier one.
    twins: u16,
    attrs: SmallVec<[Attr; 2]>,
}

// A float that is not a number equals nothing: its plan is made again.
impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.op.info().code.hash(state);
        self.mesh.len().hash(state);
        self.operands.hash(state);
        self.results.first().map(|meta| meta.dtype).hash(state);
        for attr in &self.attrs {
            hash_attr(attr, state);
        }
    }
}

/// Attributes that tell most instructions of one operator apart; equality looks at all.
fn hash_attr<H: Hasher>(attr: &Attr, state: &mut H) {
    match attr {
        Attr::Int(value) => value.hash(state),
        Attr::Ints(value) => value.hash(state),
        Attr::Bool(value) => value.hash(state),
        Attr::Choice(value) => value.hash(state),
        // A slope that falls from step to step would fill one place of the table. Both zeros are equal, so they go alike.
        Attr::Float(value) => (value + 0.0).to_bits().hash(state),
        Attr::Scalar(value) => (value.as_f64() + 0.0).to_bits().hash(state),
        Attr::Absent | Attr::Dtype(_) | Attr::Text(_) | Attr::List(_) => {}
    }
}

impl Key {
    pub fn new(run: &Run<'_>, operands: &[Given], mesh: &Mesh) -> Self {
        let lying = |given: &Given| match given {
            Given::Value(held) => Some((held.meta, held.shards.layout.clone())),
            Given::Absent | Given::Scalar(_) => None,
        };
        // What a draw or a learning rate is changes no layout, and it is another one each time. A slope's sign does: a
        // maximum passes a function that rises.
        let attrs = match run.op.info().family {
            Family::Random | Family::Update => SmallVec::new(),
            Family::Elementwise
            | Family::Create
            | Family::Contract
            | Family::Reduce
            | Family::Normalize
            | Family::View
            | Family::Index
            | Family::Loss
            | Family::Control
            | Family::Collective => run.attrs.iter().cloned().collect(),
        };
        let mut twins = 0;
        for (place, given) in operands.iter().enumerate().take(16).skip(1) {
            let slot = given.slot();
            let same = |earlier: &Given| slot.is_some() && earlier.slot() == slot;
            twins |= u16::from(operands.iter().take(place).any(same)) << place;
        }
        let operands = operands.iter().map(lying).collect();
        let results = run.outputs.iter().copied().collect();
        Self { op: run.op, mesh: mesh.clone(), operands, results, twins, attrs }
    }
}

impl Plans {
    pub(super) fn get(&self, key: &Key) -> Option<Plan> {
        self.known.get(key).cloned()
    }

    pub(super) fn keep(&mut self, key: Key, plan: Plan) {
        if self.known.len() >= PLANS_MAX {
            self.known.clear();
        }
        self.known.insert(key, plan);
    }

    /// Forgets all: prices have changed.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_protocol::Scalar;

    fn hashed(attr: &Attr) -> u64 {
        let mut state = DefaultHasher::new();
        hash_attr(attr, &mut state);
        state.finish()
    }

    #[test]
    fn numbers_that_differ_go_to_different_places_and_both_zeros_to_one() {
        let scalar = |value| Attr::Scalar(Scalar::Float(value));
        assert_ne!(hashed(&Attr::Float(0.1)), hashed(&Attr::Float(0.2)));
        assert_ne!(hashed(&scalar(0.1)), hashed(&scalar(0.2)));
        for (zero, negative) in [(Attr::Float(0.0), Attr::Float(-0.0)), (scalar(0.0), scalar(-0.0))]
        {
            assert_eq!(zero, negative);
            assert_eq!(hashed(&zero), hashed(&negative));
        }
    }
}
