//! Cache of inferred results, by operator, operands' metadata, numbers and attributes: repeated
//! instructions, as in a program's loop, infer nothing.

use super::operands::Arg;
use crate::client::value::metadata::SharedMeta;
use gt_protocol::Op;
use gt_protocol::rules::Outputs;
use pyo3::Python;
use smallvec::SmallVec;

/// Number of entries; keys that hash to the same entry replace each other. Loops of larger programs
/// have some hundred different instructions.
const PLACES: usize = 1024;
/// Maximum number of operands of a cached instruction; longer ones are inferred each time.
const OPERANDS_MAX: usize = 4;
/// Maximum number of words of numbers and attributes of a cached instruction.
const WORDS_MAX: usize = 32;

/// Properties of an operand that a rule may look at; a number itself stands among the words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct OperandKey(usize);

impl OperandKey {
    pub(crate) const ABSENT: Self = Self(0);
    pub(crate) const SCALAR: Self = Self(1);

    /// Key of metadata: its address, which differs from both constants above.
    #[inline]
    pub(crate) fn of(meta: &SharedMeta) -> Self {
        Self(meta.address())
    }
}

/// Everything that determines an instruction's results.
#[derive(Clone, Copy)]
pub(crate) struct InferenceKey<'a> {
    pub op: Op,
    pub operands: &'a [OperandKey],
    /// Numbers and attributes in their wire form.
    pub words: &'a [u32],
}

impl InferenceKey<'_> {
    #[inline]
    fn hash(&self) -> u64 {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(FACTOR);
        let mut hash = mix(0, u64::from(self.op.info().code));
        for operand in self.operands {
            hash = mix(hash, u64::try_from(operand.0).expect("an address has 64 bits"));
        }
        for word in self.words {
            hash = mix(hash, u64::from(*word));
        }
        hash
    }
}

/// Results that were inferred for an instruction.
pub(crate) struct InferredResults {
    pub outputs: Outputs,
    /// Shared references to the results' metadata, which values hold.
    pub shared: SmallVec<[SharedMeta; 1]>,
}

impl InferredResults {
    pub(crate) fn new(py: Python<'_>, outputs: Outputs) -> Self {
        let shared = outputs.iter().map(|meta| SharedMeta::of(py, meta)).collect();
        Self { outputs, shared }
    }

    fn again(&self, py: Python<'_>) -> Self {
        let shared = self.shared.iter().map(|meta| meta.clone_ref(py)).collect();
        Self { outputs: self.outputs.clone(), shared }
    }
}

struct CachedInference {
    op: Op,
    operands: SmallVec<[OperandKey; OPERANDS_MAX]>,
    words: SmallVec<[u32; 8]>,
    /// Keeps the operands' metadata alive, so that its address cannot be reused.
    _metas: SmallVec<[SharedMeta; 2]>,
    results: InferredResults,
}

#[derive(Default)]
struct CacheSlot {
    /// Hash of the last miss at this entry.
    missed: u64,
    known: Option<Box<CachedInference>>,
}

/// The cache of inferred results.
pub(crate) struct Inferences {
    /// Entries: [`PLACES`] of them once anything was missed.
    places: Vec<CacheSlot>,
}

impl Inferences {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new() }
    }

    #[inline]
    pub(crate) fn find(&self, key: InferenceKey<'_>) -> Option<&InferredResults> {
        let known = self.places.get(place_of(key.hash()))?.known.as_deref()?;
        let is_it = known.op == key.op
            && known.operands.as_slice() == key.operands
            && known.words.as_slice() == key.words;
        is_it.then_some(&known.results)
    }

    /// Enters inferred results if the entry's last miss had the same hash: an instruction that
    /// occurs once takes no entry.
    #[cold]
    pub(crate) fn missed(
        &mut self,
        py: Python<'_>,
        key: InferenceKey<'_>,
        results: &InferredResults,
        args: &[Arg<'_>],
    ) {
        if key.operands.len() > OPERANDS_MAX || key.words.len() > WORDS_MAX {
            return;
        }
        if self.places.is_empty() {
            self.places.resize_with(PLACES, CacheSlot::default);
        }
        let hash = key.hash();
        let place = &mut self.places[place_of(hash)];
        if std::mem::replace(&mut place.missed, hash) != hash {
            return;
        }
        let metas = args.iter().filter_map(|arg| match arg {
            Arg::Absent | Arg::Scalar(_) | Arg::Complex(_) | Arg::Large(_) => None,
            Arg::Var(var) => var.with_value(py, |value| value.meta.clone_ref(py)),
        });
        place.known = Some(Box::new(CachedInference {
            op: key.op,
            operands: key.operands.into(),
            words: key.words.into(),
            _metas: metas.collect(),
            results: results.again(py),
        }));
    }
}

fn place_of(hash: u64) -> usize {
    usize::try_from(hash >> (u64::BITS - PLACES.ilog2())).expect("a place is below PLACES")
}
