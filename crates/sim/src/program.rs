//! Random programs: the next step of a client, drawn from its values.
//!
//! A step that does not fit (too large, no suitable operand) is drawn again. Some steps are drawn
//! so that they must fail.

use crate::exact::exact;
mod layouts;
mod operators;
mod views;

use crate::arithmetic::compute::Compute;
use crate::arithmetic::kernels::{DTYPES, KernelArg, is_float};
use crate::arithmetic::tensor::{PRIME, ToyTensor, narrow, to_dims, wide};
use crate::oracle::{
    DistributeTarget, Evaluated, Expectation, Oracle, ProgramStep, StepOperand, count,
};
use crate::random::Random;
use gt_protocol::{Attr, Dims, Dtype, Id, Op, Scalar};

pub use layouts::Cluster;

/// Maximum number of elements of a value: more would only cost time.
const ELEMENTS_MAX: usize = 10_000;
/// Maximum number of values that a client keeps; above it, it frees.
const LIVE_MAX: usize = 24;
/// Number of signals that a client uses.
const SIGNALS: u64 = 4;
/// Number of attempts at one step before a value is created instead.
const DRAWS_MAX: usize = 12;

/// State that the next step is drawn from.
pub struct Scene<'a> {
    pub random: &'a mut Random,
    pub oracle: &'a Oracle,
    pub live: &'a [Id],
    /// Sizes that dimensions are drawn from: few, so that shapes fit each other.
    pub sizes: &'a [usize],
    /// Percent of steps that must fail.
    pub mistakes: u64,
    /// Percent of new values that are distributed at once.
    pub spread: u64,
    /// The meshes and layouts that this client uses.
    pub cluster: &'a Cluster,
    /// A value that the last step has created.
    pub fresh: Option<Id>,
    /// Value of the last step that computed elements.
    pub last: Option<Id>,
    /// Step for which the last step created an operand.
    pub retry: &'a mut Option<Retry>,
    /// The operand to start with.
    pub focus: Option<Id>,
    /// The operand that was the first.
    pub first: Option<Id>,
}

/// A step that lacked an operand: the random numbers that led to it lead there again once the
/// operand exists.
pub struct Retry {
    rolls: Random,
    first: Id,
}

/// A step, or another that creates an operand for it.
type StepOrOperand = Result<DrawnStep, DrawnStep>;

/// A step with its results, if it defines any.
pub type DrawnStep = (ProgramStep, Option<Evaluated>);

/// Sizes for one program: mostly small, sometimes with one that makes reductions larger than one
/// message.
pub fn palette(random: &mut Random) -> Vec<usize> {
    if random.percent(2) {
        return vec![64, 64, 3];
    }
    let mut sizes: Vec<usize> = (0..3).map(|_| narrow(wide(random.index(8))) + 1).collect();
    if random.percent(30) {
        sizes.push(0);
    }
    if random.percent(50) {
        sizes.push(1);
    }
    sizes
}

impl Scene<'_> {
    pub fn step(&mut self) -> DrawnStep {
        if let Some(drawn) = self.distribute_fresh() {
            return drawn;
        }
        let over = self.live.len() > LIVE_MAX;
        for _ in 0..DRAWS_MAX {
            let choice = if over { 99 } else { self.random.below(100) };
            let drawn = match choice {
                _ if self.live.len() < 3 => Some(self.create()),
                0..12 => Some(self.create()),
                12..26 => self.distribute(),
                26..34 => self.read(),
                34..36 => Some((ProgramStep::Synchronize, None)),
                36..37 => Some((ProgramStep::Stats, None)),
                37..38 => Some((ProgramStep::Rebalance, None)),
                38..41 => self.scope(),
                41..90 => self.compute(),
                _ => self.free(),
            };
            if let Some(drawn) = drawn
                && fits(&drawn)
            {
                return drawn;
            }
        }
        self.create()
    }

    fn free(&mut self) -> Option<DrawnStep> {
        let count = 1 + self.random.index(4);
        let mut ids: Vec<Id> = (0..count).filter_map(|_| self.any()).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() { None } else { Some((ProgramStep::Free(ids), None)) }
    }

    fn read(&mut self) -> Option<DrawnStep> {
        let value = self.any()?;
        let elements = self.oracle.shape(value).map_or(0, |tensor| count(tensor));
        let start = if self.random.percent(70) { 0 } else { self.random.between(0, elements) };
        let rest = elements - start;
        let count = if self.random.percent(70) { rest } else { self.random.between(0, rest) };
        Some((ProgramStep::Read { value, start, count }, None))
    }

    /// Distributes a new value: by the client's layouts, or along the first dimension, like a
    /// batch.
    fn distribute_fresh(&mut self) -> Option<DrawnStep> {
        let source = self.fresh.filter(|_| self.random.percent(self.spread))?;
        let shape = self.oracle.shape(source)?.clone();
        let target = if self.random.percent(self.cluster.layouts) {
            DistributeTarget::Layout(self.cluster.layout(self.random, &shape.dims))
        } else {
            DistributeTarget::Dim(if shape.rank() == 0 { None } else { Some(0) })
        };
        Some(self.distributed(source, target))
    }

    fn distribute(&mut self) -> Option<DrawnStep> {
        let source = self.any()?;
        let shape = self.oracle.shape(source)?.clone();
        let rank = shape.rank();
        let target = if self.random.percent(self.cluster.layouts) {
            DistributeTarget::Layout(self.cluster.layout(self.random, &shape.dims))
        } else {
            let whole = rank == 0 || self.random.percent(20);
            DistributeTarget::Dim(if whole { None } else { Some(self.dim(rank)) })
        };
        Some(self.distributed(source, target))
    }

    fn distributed(&self, source: Id, target: DistributeTarget) -> DrawnStep {
        (ProgramStep::Distribute { source, target }, Some(self.oracle.copy_of(source)))
    }

    /// Gives a signal a meaning, or makes the following instructions carry another signal.
    fn scope(&mut self) -> Option<DrawnStep> {
        if !self.random.percent(self.cluster.layouts) {
            return None;
        }
        let signal = exact::<_, u16>(self.random.below(SIGNALS));
        if self.random.percent(70) {
            return Some((ProgramStep::Enter(signal), None));
        }
        let text = self.cluster.scope(self.random);
        Some((ProgramStep::Configure { signal, text }, None))
    }

    fn create(&mut self) -> DrawnStep {
        let rank = self.random.index(4);
        let dims: Vec<usize> = (0..rank).map(|_| self.size()).collect();
        let dtype = self.dtype();
        self.make(&dims, dtype)
    }

    /// Creates a value of this shape.
    fn make(&mut self, dims: &[usize], dtype: Dtype) -> DrawnStep {
        match self.random.below(4) {
            0 if is_float(dtype) && self.random.percent(50) => {
                let bounds = [Attr::Float(0.0), Attr::Float(1.0)];
                let numbers = [Attr::Int(0), Attr::Int(self.number()), Attr::Absent, Attr::Absent];
                let attrs = [sizes(dims), Attr::Dtype(dtype)];
                self.call(Op::Uniform, attrs.into_iter().chain(bounds).chain(numbers), [])
            }
            0 => {
                let limit = if dtype == Dtype::Bool { 2 } else { 1000 };
                let value = Attr::Scalar(Scalar::Int(wide(self.random.index(limit))));
                self.call(Op::Full, [sizes(dims), value, Attr::Dtype(dtype)], [])
            }
            1 if dims.len() == 1 && dtype != Dtype::Bool => {
                let start = wide(self.random.index(3));
                let step = wide(self.random.index(3)) + 1;
                let end = start + wide(dims[0]) * step;
                let bounds = [start, end, step].map(|bound| Attr::Scalar(Scalar::Int(bound)));
                self.call(Op::Arange, bounds.into_iter().chain([Attr::Dtype(dtype)]), [])
            }
            _ => {
                let small = self.random.percent(50);
                let limit = if small { 6 } else { PRIME };
                let limit = if dtype == Dtype::Bool { 2 } else { limit };
                let tensor = ToyTensor::from_fn(dims, dtype, |_| self.random.below(limit));
                upload(tensor, 1 + self.random.index(3))
            }
        }
    }

    /// Applies an operator to values.
    fn call(
        &self,
        op: Op,
        attrs: impl IntoIterator<Item = Attr>,
        values: impl IntoIterator<Item = Id>,
    ) -> DrawnStep {
        self.computed(op, attrs, values.into_iter().map(StepOperand::Value).collect())
    }

    /// The shape of an operator's result.
    fn shape_of(&self, op: Op, attrs: &[Attr], value: Id) -> Option<Vec<usize>> {
        let compute = Compute::new(op, attrs.iter().cloned());
        let results = compute.run(&[KernelArg::ToyTensor(self.oracle.shape(value)?)]).ok()?;
        results.into_iter().next().map(|tensor| tensor.dims)
    }

    /// The next draw number.
    fn number(&mut self) -> i64 {
        wide(self.random.index(1 << 16))
    }

    fn computed(
        &self,
        op: Op,
        attrs: impl IntoIterator<Item = Attr>,
        terms: Vec<StepOperand>,
    ) -> DrawnStep {
        let compute = Compute::new(op, attrs);
        let evaluated = self.oracle.evaluate(&compute, &terms);
        (ProgramStep::Compute { compute, terms, consumes: 0 }, Some(evaluated))
    }

    fn compute(&mut self) -> Option<DrawnStep> {
        let (mut rolls, focus) = match self.retry.take() {
            Some(Retry { rolls, first }) if self.live.contains(&first) => (rolls, Some(first)),
            // An expression continues with the result of its last operator.
            Some(_) | None => (self.random.fork(), self.last.filter(|_| self.random.percent(40))),
        };
        let before = rolls.clone();
        (self.focus, self.first) = (focus, None);
        std::mem::swap(self.random, &mut rolls);
        let drawn = self.compute_by_rolls();
        std::mem::swap(self.random, &mut rolls);
        let (step, _) = drawn.as_ref()?;
        let first = self.first.filter(|_| makes(step));
        *self.retry = first.map(|first| Retry { rolls: before, first });
        drawn
    }

    fn compute_by_rolls(&mut self) -> Option<DrawnStep> {
        if self.random.percent(self.mistakes) {
            return self.mistake();
        }
        if self.random.percent(15)
            && let Some(drawn) = self.inherit()
        {
            return Some(drawn);
        }
        let is_expression = self.focus.is_some() && self.focus == self.last;
        let (step, evaluated) = match self.random.below(100) {
            _ if is_expression && self.random.percent(70) => self.elementwise(),
            0..32 => self.elementwise(),
            32..46 => self.product(),
            46..58 => self.reduction(),
            58..66 => self.normalization(),
            66..81 => self.view(),
            81..89 => self.look_up(),
            _ => self.loss(),
        }?;
        let refused = evaluated.as_ref().is_some_and(|evaluated| evaluated.root.is_some());
        // A step that was meant to work and fails is no useful mistake.
        if refused { None } else { Some((step, evaluated)) }
    }

    /// A step on a value that the dispatcher knows to have failed.
    fn inherit(&mut self) -> Option<DrawnStep> {
        let failed: Vec<Id> =
            self.live.iter().copied().filter(|&id| self.oracle.shape(id).is_none()).collect();
        let a = *self.random.pick(&failed)?;
        let b = self.any()?;
        let pair = if self.random.percent(50) { [a, b] } else { [b, a] };
        Some(match self.random.below(4) {
            0 => self.distributed(a, DistributeTarget::Dim(None)),
            1 => self.call(Op::Neg, [], [a]),
            2 => self.call(Op::Matmul, [], pair),
            _ => self.call(Op::MaxDim, [Attr::Int(0), Attr::Bool(false)], [a]),
        })
    }

    /// A step that fails: at the dispatcher by its shapes, or on a worker by an index.
    fn mistake(&mut self) -> Option<DrawnStep> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        if self.random.percent(40) {
            let count = wide(shape.data.len());
            return Some(self.call(Op::Reshape, [list(&[count + 1])], [a]));
        }
        let bad: Vec<Id> = self.live.iter().copied().filter(|&id| self.is_bad_index(id)).collect();
        let Some(&indices) = self.random.pick(&bad) else {
            let rows = 1 + self.random.index(6);
            let mut tensor = ToyTensor::from_fn(&[rows], Dtype::I64, |_| 0);
            let place = self.random.index(rows);
            tensor.data[place] = self.random.between(1000, 2000);
            return Some(upload(tensor, 1));
        };
        if shape.rank() == 0 || shape.dims[0] == 0 {
            return None;
        }
        let (op, attr) = if shape.rank() == 2 {
            (Op::Embedding, Attr::Absent)
        } else {
            (Op::IndexSelect, Attr::Int(0))
        };
        Some(self.call(op, [attr], [a, indices]))
    }

    fn is_bad_index(&self, id: Id) -> bool {
        matches!(self.oracle.outcome(id), Some(Expectation::Value(tensor))
            if tensor.dtype == Dtype::I64 && tensor.rank() == 1 && tensor.data.iter().any(|&element| element >= 1000))
    }

    fn any(&mut self) -> Option<Id> {
        // The newest values are drawn more often, which makes longer chains.
        let skip = if self.random.percent(50) { self.live.len().saturating_sub(6) } else { 0 };
        let drawn = self.random.pick(&self.live[skip..]).copied();
        let chosen = self.focus.take().or(drawn);
        self.first = self.first.or(chosen);
        chosen
    }

    /// A value of this shape and dtype, or a step that creates one.
    fn like(&mut self, dims: &[usize], dtype: Dtype) -> Result<Id, DrawnStep> {
        let fits = |id: &&Id| {
            self.oracle
                .shape(**id)
                .is_some_and(|tensor| tensor.dims == dims && tensor.dtype == dtype)
        };
        let candidates: Vec<Id> = self.live.iter().filter(fits).copied().collect();
        match self.random.pick(&candidates) {
            Some(&id) => Ok(id),
            None => Err(self.make(dims, dtype)),
        }
    }

    fn size(&mut self) -> usize {
        *self.random.pick(self.sizes).expect("a program has sizes")
    }

    /// A dimension, counted from the front or from the end.
    fn dim(&mut self, rank: usize) -> i64 {
        let dim = wide(self.random.index(rank.max(1)));
        if self.random.percent(25) { dim - wide(rank.max(1)) } else { dim }
    }

    fn dtype(&mut self) -> Dtype {
        // Mostly one dtype, so that values fit each other.
        let usual = self.random.percent(70);
        if usual {
            Dtype::F32
        } else {
            *self.random.pick(&DTYPES).expect("the list of dtypes is not empty")
        }
    }
}

/// The intended step, or one that creates its missing operand.
fn either(choice: StepOrOperand) -> DrawnStep {
    choice.unwrap_or_else(|makes| makes)
}

fn list(values: &[i64]) -> Attr {
    Attr::Ints(Dims::new(values).unwrap_or_else(|| panic!("too many: {values:?}")))
}

fn sizes(values: &[usize]) -> Attr {
    Attr::Ints(to_dims(values))
}

fn upload(tensor: ToyTensor, ranges: usize) -> DrawnStep {
    let evaluated = Oracle::value(tensor.clone());
    (ProgramStep::Upload { tensor, ranges }, Some(evaluated))
}

/// Returns true if the step only creates a value for others.
pub fn makes(step: &ProgramStep) -> bool {
    let creates = |op| matches!(op, Op::Full | Op::Arange | Op::Uniform);
    matches!(step, ProgramStep::Upload { .. })
        || matches!(step, ProgramStep::Compute { compute, .. } if creates(compute.op))
}

/// Returns true if results are small enough, and leave room for another dimension.
fn fits((_, evaluated): &DrawnStep) -> bool {
    let Some(evaluated) = evaluated else { return true };
    evaluated.outcomes.iter().all(|outcome| {
        let (Expectation::Value(tensor) | Expectation::Failed { shape: Some(tensor), .. }) =
            outcome
        else {
            return true;
        };
        tensor.data.len() <= ELEMENTS_MAX && tensor.rank() <= 5
    })
}
