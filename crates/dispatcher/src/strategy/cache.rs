//! Cache of plans: an operator on operands of the same metadata and layouts is planned once.
//!
//! A look-up borrows its key: nothing is cloned or allocated for a cached plan.

use super::choose::Choice;
use gt_protocol::digest::{Digest, Same};
use gt_protocol::placement::{Layout, Mesh};
use gt_protocol::rules::decomposition::Decomposition;
use gt_protocol::{Attr, Family, Meta, Op};
use smallvec::SmallVec;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

/// Maximum number of plans; a program with more kinds of instructions starts over.
const PLANS_MAX: usize = 1 << 14;
/// Maximum number of plans of one digest. Several share one only by accident, or if an attribute is
/// a NaN, which equals nothing.
const OF_ONE_DIGEST_MAX: usize = 8;

/// Maximum number of a list's entries that enter a digest.
const HASHED_MAX: usize = 32;

/// Plan of an operator.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// One instruction on each member.
    One(Arc<Choice>),
    /// Several steps, each planned by itself, for an operator that reduces a dimension sharded
    /// along this mesh dimension.
    Steps(usize, Arc<Decomposition>),
}

/// Key of a plan, borrowed.
#[derive(Debug)]
pub(crate) struct Query<'q> {
    pub op: Op,
    pub mesh: &'q Mesh,
    /// `None` for scalars and absent operands, whose values no strategy depends on.
    pub operands: SmallVec<[Option<(&'q Meta, &'q Layout)>; 4]>,
    /// Only these show the dtype of a cast, and the promotion of a scalar.
    pub outputs: &'q [Meta],
    /// Bit k: operand k is the same value as an earlier one.
    pub twins: u16,
    attrs: &'q [Attr],
}

/// Key of a plan, owned.
#[derive(Debug)]
struct StrategyKey {
    op: Op,
    mesh: Mesh,
    operands: Box<[Option<(Meta, Layout)>]>,
    outputs: Box<[Meta]>,
    twins: u16,
    attrs: Box<[Attr]>,
}

impl<'q> Query<'q> {
    pub fn new(op: Op, attrs: &'q [Attr], outputs: &'q [Meta], mesh: &'q Mesh) -> Self {
        // The values of a draw or a learning rate change no layout, and they differ each time. A
        // slope's sign matters: a maximum passes through a rising function.
        let attrs = match op.info().family {
            Family::Random | Family::Update => &[],
            // The remaining attributes affect the computation, not the sharding.
            Family::Generic => {
                let cuts = op.info().attr_index("cuts").and_then(|place| attrs.get(place..));
                cuts.unwrap_or_default()
            }
            Family::Elementwise
            | Family::Create
            | Family::Contract
            | Family::Reduce
            | Family::Normalize
            | Family::View
            | Family::Index
            | Family::Loss
            | Family::Control
            | Family::Collective => attrs,
        };
        Self { op, mesh, operands: SmallVec::new(), outputs, twins: 0, attrs }
    }

    /// Distinguishes most kinds of instructions; equality compares everything.
    pub fn digest(&self) -> u64 {
        let mut state = Digest::default();
        state.write_u64(u64::from(self.op.info().code) << 16 | u64::from(self.twins));
        state.write_usize(self.mesh.len());
        for (meta, layout) in self.operands.iter().flatten() {
            meta.dtype.code().hash(&mut state);
            state.write_sizes(&meta.dims);
            layout.hash(&mut state);
        }
        if let Some(meta) = self.outputs.first() {
            meta.dtype.code().hash(&mut state);
        }
        for attr in self.attrs {
            hash_attr(attr, &mut state);
        }
        state.finish()
    }

    fn is(&self, key: &StrategyKey) -> bool {
        self.op == key.op
            && self.twins == key.twins
            && self.operands.len() == key.operands.len()
            && self
                .operands
                .iter()
                .zip(&key.operands)
                .all(|(one, kept)| is_kept(*one, kept.as_ref()))
            && *self.mesh == key.mesh
            && *self.outputs == *key.outputs
            && *self.attrs == *key.attrs
    }

    fn to_key(&self) -> StrategyKey {
        let operand = |operand: &Option<(&Meta, &Layout)>| {
            operand.map(|(meta, layout)| (*meta, layout.clone()))
        };
        StrategyKey {
            op: self.op,
            mesh: self.mesh.clone(),
            operands: self.operands.iter().map(operand).collect(),
            outputs: self.outputs.into(),
            twins: self.twins,
            attrs: self.attrs.into(),
        }
    }
}

/// Returns true if an operand equals the one of a kept plan.
fn is_kept(one: Option<(&Meta, &Layout)>, kept: Option<&(Meta, Layout)>) -> bool {
    match (one, kept) {
        (Some((meta, layout)), Some((kept_meta, kept))) => layout == kept && meta == kept_meta,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Hashes attributes that distinguish most instructions of one operator.
fn hash_attr(attr: &Attr, state: &mut Digest) {
    match attr {
        Attr::Int(value) => state.write_i64(*value),
        Attr::Ints(value) => state.write_sizes(value),
        Attr::Bool(value) => value.hash(state),
        Attr::Choice(value) => value.hash(state),
        // A slope that changes from step to step gets its own entries. Both zeros are equal, so
        // they must hash alike.
        Attr::Float(value) => (value + 0.0).to_bits().hash(state),
        Attr::Scalar(value) => (value.as_f64() + 0.0).to_bits().hash(state),
        Attr::List(list) => list.iter().take(HASHED_MAX).for_each(|&value| state.write_i64(value)),
        Attr::Absent | Attr::Dtype(_) | Attr::Text(_) => {}
    }
}

/// Plans by their keys. They are only looked up, never iterated, so that the order of hashes has no
/// effect.
#[derive(Default)]
pub(crate) struct PlanCache {
    #[allow(clippy::disallowed_types, reason = "looked up only: its order is never seen")]
    known: std::collections::HashMap<u64, Vec<(StrategyKey, Plan)>, BuildHasherDefault<Same>>,
}

impl PlanCache {
    /// The plan for this key, whose digest is given.
    pub fn get(&self, digest: u64, query: &Query<'_>) -> Option<&Plan> {
        let (_, plan) = self.known.get(&digest)?.iter().find(|(key, _)| query.is(key))?;
        Some(plan)
    }

    pub fn keep(&mut self, digest: u64, query: &Query<'_>, plan: Plan) {
        if self.known.len() >= PLANS_MAX {
            self.known.clear();
        }
        let of_digest = self.known.entry(digest).or_default();
        if of_digest.len() >= OF_ONE_DIGEST_MAX {
            of_digest.clear();
        }
        of_digest.push((query.to_key(), plan));
    }

    /// Drops all plans: prices have changed.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_protocol::Scalar;

    fn hashed(attr: &Attr) -> u64 {
        let mut state = Digest::default();
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

    #[test]
    fn what_equals_nothing_does_not_fill_the_table() {
        let (mut plans, mesh) = (PlanCache::default(), Mesh::line(&[0]));
        let choice =
            Choice { inputs: SmallVec::new(), outputs: SmallVec::new(), local: SmallVec::new() };
        let plan = Plan::One(Arc::new(choice));
        for (slope, known) in [(f64::NAN, false), (0.5, true)] {
            let attrs = [Attr::Float(slope)];
            for _ in 0..3 * OF_ONE_DIGEST_MAX {
                let query = Query::new(Op::LeakyRelu, &attrs, &[], &mesh);
                plans.keep(query.digest(), &query, plan.clone());
                assert_eq!(plans.get(query.digest(), &query).is_some(), known);
            }
            let kept = plans.known.values().map(Vec::len).max();
            assert!(kept <= Some(OF_ONE_DIGEST_MAX), "{kept:?}");
        }
    }
}
