//! Random programs: the next step of a client, drawn from what it holds.
//!
//! A step that does not suit (too large, no operand fits) is drawn again. Now and then one is drawn that must fail.

use crate::compute::Compute;
use crate::kernels::elementwise::Binary;
use crate::kernels::index::Reduction;
use crate::kernels::reduce::Fold;
use crate::kernels::{DTYPES, is_float};
use crate::oracle::{Evaluated, Oracle, Outcome, Step, Term, count};
use crate::random::Random;
use crate::tensor::{PRIME, Tensor, narrow, wide};
use gt_protocol::{Dtype, Id, Scalar};

/// Elements of a value: more would only cost time.
const ELEMENTS_MAX: usize = 10_000;
/// Values a client keeps; above, it frees.
const LIVE_MAX: usize = 24;
/// Attempts at one step before a value is made instead.
const DRAWS_MAX: usize = 12;

/// What the next step is drawn from.
pub struct Scene<'a> {
    pub random: &'a mut Random,
    pub oracle: &'a Oracle,
    pub live: &'a [Id],
    /// Sizes that dimensions are drawn from: few, so that shapes fit each other.
    pub sizes: &'a [usize],
    /// Percent of steps that must fail.
    pub mistakes: u64,
}

/// A step with what it does, where it defines something.
pub type Drawn = (Step, Option<Evaluated>);

/// Sizes for one program: mostly small, sometimes with one that makes reductions larger than one message.
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
    pub fn step(&mut self) -> Drawn {
        let over = self.live.len() > LIVE_MAX;
        for _ in 0..DRAWS_MAX {
            let choice = if over { 99 } else { self.random.below(100) };
            let drawn = match choice {
                _ if self.live.len() < 3 => Some(self.create()),
                0..12 => Some(self.create()),
                12..26 => self.distribute(),
                26..34 => self.read(),
                34..36 => Some((Step::Synchronize, None)),
                36..37 => Some((Step::Stats, None)),
                37..90 => self.compute(),
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

    fn free(&mut self) -> Option<Drawn> {
        let count = 1 + self.random.index(4);
        let mut ids: Vec<Id> = (0..count).filter_map(|_| self.any()).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() { None } else { Some((Step::Free(ids), None)) }
    }

    fn read(&mut self) -> Option<Drawn> {
        let value = self.any()?;
        let elements = self.oracle.shape(value).map_or(0, |tensor| count(tensor));
        let start = if self.random.percent(70) { 0 } else { self.random.between(0, elements) };
        let rest = elements - start;
        let count = if self.random.percent(70) { rest } else { self.random.between(0, rest) };
        Some((Step::Read { value, start, count }, None))
    }

    fn distribute(&mut self) -> Option<Drawn> {
        let source = self.any()?;
        let rank = self.oracle.shape(source)?.rank();
        let whole = rank == 0 || self.random.percent(20);
        let dim = if whole { None } else { Some(self.dim(rank)) };
        Some((Step::Distribute { source, dim }, Some(self.oracle.copy_of(source))))
    }

    fn create(&mut self) -> Drawn {
        let rank = self.random.index(4);
        let dims: Vec<usize> = (0..rank).map(|_| self.size()).collect();
        let dtype = self.dtype();
        self.make(&dims, dtype)
    }

    /// A new value of this shape.
    fn make(&mut self, dims: &[usize], dtype: Dtype) -> Drawn {
        match self.random.below(4) {
            0 => {
                let value = wide(self.random.index(1000));
                self.computed(Compute::Full { dims: dims.to_vec(), value, dtype }, vec![])
            }
            1 if dims.len() == 1 && dtype != Dtype::Bool => {
                let start = wide(self.random.index(3));
                let step = wide(self.random.index(3)) + 1;
                let end = start + wide(dims[0]) * step;
                self.computed(Compute::Arange { start, end, step, dtype }, vec![])
            }
            _ => {
                let small = self.random.percent(50);
                let limit = if small { 6 } else { PRIME };
                let limit = if dtype == Dtype::Bool { 2 } else { limit };
                let tensor = Tensor::from_fn(dims, dtype, |_| self.random.below(limit));
                upload(tensor, 1 + self.random.index(3))
            }
        }
    }

    fn computed(&self, compute: Compute, terms: Vec<Term>) -> Drawn {
        let evaluated = self.oracle.evaluate(&compute, &terms);
        (Step::Compute { compute, terms, consumes: 0 }, Some(evaluated))
    }

    fn compute(&mut self) -> Option<Drawn> {
        if self.random.percent(self.mistakes) {
            return self.mistake();
        }
        let (step, evaluated) = match self.random.below(100) {
            0..32 => self.elementwise(),
            32..46 => self.product(),
            46..58 => self.reduction(),
            58..66 => self.normalization(),
            66..84 => self.view(),
            84..93 => self.look_up(),
            _ => self.loss(),
        }?;
        let refused = evaluated.as_ref().is_some_and(|evaluated| evaluated.root.is_some());
        // What was meant to work and does not is no interesting mistake.
        if refused { None } else { Some((step, evaluated)) }
    }

    fn elementwise(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let compute = match self.random.below(12) {
            0 => return Some(self.computed(Compute::Neg, vec![Term::Value(a)])),
            1 => {
                let dtype = self.dtype();
                return Some(self.computed(Compute::Cast(dtype), vec![Term::Value(a)]));
            }
            2 => return self.choose(a),
            3 => return self.update(a),
            4..6 => Compute::Binary(Binary::Sub),
            6..8 => Compute::Binary(Binary::Mul),
            8 => Compute::Binary(Binary::Lt),
            9 => Compute::Binary(Binary::Eq),
            _ => Compute::Binary(Binary::Add),
        };
        if shape.dtype == Dtype::Bool {
            return None;
        }
        if self.random.percent(20) {
            let number = wide(self.random.index(7)) + 1;
            let float = self.random.percent(50).then(|| f64::from(u8::try_from(number).unwrap_or(1)));
            let scalar = float.map_or(Scalar::Int(number), Scalar::Float);
            let division = self.random.percent(30);
            let compute = if division { Compute::Binary(Binary::Div) } else { compute };
            return Some(self.computed(compute, vec![Term::Value(a), Term::Scalar(scalar)]));
        }
        let b = if self.random.percent(15) { Some(a) } else { self.any() }?;
        let other = self.oracle.shape(b)?;
        if other.dtype == Dtype::Bool {
            return None;
        }
        let swapped = self.random.percent(50);
        let terms = if swapped { [b, a] } else { [a, b] }.map(Term::Value);
        Some(self.computed(compute, terms.to_vec()))
    }

    fn choose(&mut self, a: Id) -> Option<Drawn> {
        let shape = self.oracle.shape(a)?.clone();
        let b = self.like(&shape.dims, shape.dtype);
        let condition = self.like(&shape.dims, Dtype::Bool);
        match (condition, b) {
            (Ok(condition), Ok(b)) => {
                Some(self.computed(Compute::Where, [condition, a, b].map(Term::Value).to_vec()))
            }
            (Err(drawn), _) | (_, Err(drawn)) => Some(drawn),
        }
    }

    fn update(&mut self, param: Id) -> Option<Drawn> {
        let shape = self.oracle.shape(param)?.clone();
        let grad = match self.like(&shape.dims, shape.dtype) {
            Ok(grad) => grad,
            Err(drawn) => return Some(drawn),
        };
        let buffer = self.like(&shape.dims, shape.dtype).ok().filter(|_| self.random.percent(50));
        let buffer = buffer.map_or(Term::Absent, Term::Value);
        Some(self.computed(Compute::Sgd, vec![Term::Value(param), Term::Value(grad), buffer]))
    }

    fn product(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let &k = shape.dims.last()?;
        if shape.dtype == Dtype::Bool {
            return None;
        }
        let n = self.size();
        if self.random.percent(30) {
            let weight = match self.like(&[n, k], shape.dtype) {
                Ok(weight) => weight,
                Err(drawn) => return Some(drawn),
            };
            let bias = self.like(&[n], shape.dtype).ok().map_or(Term::Absent, Term::Value);
            return Some(self.computed(Compute::Linear, vec![Term::Value(a), Term::Value(weight), bias]));
        }
        let dims = match self.random.below(4) {
            0 => vec![k],
            1 if shape.rank() == 3 => vec![shape.dims[0], k, n],
            _ => vec![k, n],
        };
        let b = match self.like(&dims, shape.dtype) {
            Ok(b) => b,
            Err(drawn) => return Some(drawn),
        };
        Some(self.computed(Compute::Matmul, vec![Term::Value(a), Term::Value(b)]))
    }

    fn reduction(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let rank = self.oracle.shape(a)?.rank();
        let keepdim = self.random.percent(40);
        let dim = self.dim(rank);
        let fold = match self.random.below(7) {
            0 => return Some(self.computed(Compute::MaxDim { dim, keepdim }, vec![Term::Value(a)])),
            1 => return Some(self.computed(Compute::Cumsum { dim }, vec![Term::Value(a)])),
            2 => Fold::Mean,
            3 => Fold::Amax,
            4 => Fold::Amin,
            _ => Fold::Sum,
        };
        let dims = match self.random.below(4) {
            0 => None,
            1 if rank > 1 => Some(vec![0, wide(rank) - 1]),
            _ => Some(vec![dim]),
        };
        Some(self.computed(Compute::Reduce { fold, dims, keepdim }, vec![Term::Value(a)]))
    }

    fn normalization(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let rank = shape.rank();
        if self.random.percent(30) {
            return Some(self.computed(Compute::Softmax { dim: self.dim(rank) }, vec![Term::Value(a)]));
        }
        let from = rank.checked_sub(1 + usize::from(rank > 2 && self.random.percent(30)))?;
        let normalized = shape.dims[from..].to_vec();
        let mut parameter = || {
            let found = self.like(&normalized, shape.dtype).ok();
            found.map_or(Term::Absent, Term::Value)
        };
        let (weight, bias) = (parameter(), parameter());
        if self.random.percent(50) {
            return Some(self.computed(Compute::LayerNorm { normalized }, vec![Term::Value(a), weight, bias]));
        }
        let mut dims = shape.dims.clone();
        dims[from..].fill(1);
        let grad = self.like(&shape.dims, shape.dtype).ok()?;
        let [mean, rstd] = [self.like(&dims, shape.dtype), self.like(&dims, shape.dtype)];
        match (mean, rstd) {
            (Ok(mean), Ok(rstd)) => {
                let mut terms = [grad, a, mean, rstd].map(Term::Value).to_vec();
                terms.push(weight);
                Some(self.computed(Compute::LayerNormBackward { normalized }, terms))
            }
            (Err(drawn), _) | (_, Err(drawn)) => Some(drawn),
        }
    }

    fn view(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let (rank, dim) = (shape.rank(), self.dim(shape.rank()));
        let sizes: Vec<i64> = shape.dims.iter().map(|&size| wide(size)).collect();
        let compute = match self.random.below(9) {
            0 => Compute::Reshape(self.other_shape(&sizes)),
            1 => {
                let mut dims: Vec<i64> = (0..wide(rank)).collect();
                let turn = self.random.index(rank);
                dims.rotate_left(turn);
                Compute::Permute(dims)
            }
            2 => Compute::Expand(self.stretched(&sizes)),
            3 | 4 => {
                let size = wide(self.random.index(8));
                let start = wide(self.random.index(4)) - 1;
                Compute::Slice([dim, start, start.max(0) + size, 1 + wide(self.random.index(2))])
            }
            5 => Compute::Select { dim, index: wide(self.random.index(3)) - 1 },
            6 => Compute::Flip(vec![dim]),
            7 => return self.joined(a, &shape.dims, shape.dtype, true),
            _ => return self.joined(a, &shape.dims, shape.dtype, false),
        };
        Some(self.computed(compute, vec![Term::Value(a)]))
    }

    fn joined(&mut self, a: Id, dims: &[usize], dtype: Dtype, cat: bool) -> Option<Drawn> {
        let count = 1 + self.random.index(2);
        let mut ids = vec![a];
        for _ in 0..count {
            match self.like(dims, dtype) {
                Ok(id) => ids.push(id),
                Err(drawn) => return Some(drawn),
            }
        }
        let dim = self.dim(dims.len() + usize::from(!cat));
        let compute = if cat { Compute::Cat { dim } } else { Compute::Stack { dim } };
        Some(self.computed(compute, ids.into_iter().map(Term::Value).collect()))
    }

    fn other_shape(&mut self, sizes: &[i64]) -> Vec<i64> {
        let count: i64 = sizes.iter().product();
        match self.random.below(4) {
            0 => vec![count],
            1 if !sizes.is_empty() && count > 0 => {
                let mut target = sizes.to_vec();
                target[self.random.index(sizes.len())] = -1;
                target
            }
            2 if sizes.len() > 2 => {
                let mut target = sizes.to_vec();
                let last = target.pop().unwrap_or(1);
                if let Some(place) = target.last_mut() {
                    *place *= last;
                }
                target
            }
            _ => {
                let mut target = sizes.to_vec();
                target.insert(self.random.index(sizes.len() + 1), 1);
                target
            }
        }
    }

    fn stretched(&mut self, sizes: &[i64]) -> Vec<i64> {
        let mut target: Vec<i64> = sizes.to_vec();
        for size in &mut target {
            if *size == 1 {
                *size = wide(self.size());
            } else if self.random.percent(20) {
                *size = -1;
            }
        }
        if self.random.percent(50) {
            target.insert(0, wide(self.size()));
        }
        target
    }

    fn look_up(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let rank = shape.rank();
        if rank == 0 {
            return None;
        }
        match self.random.below(3) {
            0 if rank == 2 => self.indexed(Compute::Embedding, a, shape.dims[0], 1 + self.random.clone().index(2)),
            1 if rank == 2 => {
                let rows = self.size();
                let indices = match self.indices(rows, &shape.dims[..1]) {
                    Ok(indices) => indices,
                    Err(drawn) => return Some(drawn),
                };
                Some(self.computed(Compute::EmbeddingBackward { rows }, [a, indices].map(Term::Value).to_vec()))
            }
            _ => {
                let place = self.random.index(rank);
                self.indexed(Compute::IndexSelect { dim: wide(place) }, a, shape.dims[place], 1)
            }
        }
    }

    fn indexed(&mut self, compute: Compute, table: Id, rows: usize, rank: usize) -> Option<Drawn> {
        let dims: Vec<usize> = (0..rank).map(|_| self.size()).collect();
        match self.indices(rows, &dims) {
            Ok(indices) => Some(self.computed(compute, [table, indices].map(Term::Value).to_vec())),
            Err(drawn) => Some(drawn),
        }
    }

    /// A value of whole numbers below `limit`.
    fn indices(&mut self, limit: usize, dims: &[usize]) -> Result<Id, Drawn> {
        let good = |tensor: &Tensor| {
            tensor.data.iter().all(|&element| usize::try_from(element).is_ok_and(|element| element < limit))
        };
        let found: Vec<Id> = self
            .live
            .iter()
            .copied()
            .filter(|&id| {
                self.oracle.shape(id).is_some_and(|tensor| {
                    tensor.dtype == Dtype::I64 && tensor.dims == dims && good(tensor)
                })
            })
            .collect();
        if let Some(&id) = self.random.pick(&found) {
            return Ok(id);
        }
        let limit = u64::try_from(limit).unwrap_or(0);
        let tensor = Tensor::from_fn(dims, Dtype::I64, |_| self.random.below(limit));
        Err(upload(tensor, 1))
    }

    fn loss(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let reduction = [Reduction::None, Reduction::Mean, Reduction::Sum][self.random.index(3)];
        if shape.rank() != 2 || self.random.percent(40) {
            return self.square_loss(a, &shape, reduction);
        }
        if !is_float(shape.dtype) {
            return None;
        }
        let [batch, classes] = [shape.dims[0], shape.dims[1]];
        let target = match self.indices(classes, &[batch]) {
            Ok(target) => target,
            Err(drawn) => return Some(drawn),
        };
        let weight = self.like(&[classes], shape.dtype).ok().filter(|_| self.random.percent(60));
        let weight = weight.map_or(Term::Absent, Term::Value);
        let [a, target] = [a, target].map(Term::Value);
        if self.random.percent(60) {
            return Some(self.computed(Compute::NllLoss(reduction), vec![a, target, weight]));
        }
        let each = reduction == Reduction::None;
        let grad = self.like(if each { &[batch][..] } else { &[] }, shape.dtype);
        match (grad, self.like(&[], shape.dtype)) {
            (Ok(grad), Ok(total)) => {
                let terms = vec![Term::Value(grad), a, target, weight, Term::Value(total)];
                Some(self.computed(Compute::NllLossBackward(reduction), terms))
            }
            (Err(drawn), _) | (_, Err(drawn)) => Some(drawn),
        }
    }

    fn square_loss(&mut self, a: Id, shape: &Tensor, reduction: Reduction) -> Option<Drawn> {
        let b = match self.like(&shape.dims, shape.dtype) {
            Ok(b) => b,
            Err(drawn) => return Some(drawn),
        };
        let [x, y] = [a, b].map(Term::Value);
        if self.random.percent(60) || !is_float(shape.dtype) {
            return Some(self.computed(Compute::MseLoss(reduction), vec![x, y]));
        }
        let each = reduction == Reduction::None;
        match self.like(if each { &shape.dims } else { &[] }, shape.dtype) {
            Ok(grad) => {
                let terms = vec![Term::Value(grad), x, y];
                Some(self.computed(Compute::MseLossBackward(reduction), terms))
            }
            Err(drawn) => Some(drawn),
        }
    }

    /// A step that fails: at the dispatcher by its shapes, or on a worker by an index.
    fn mistake(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        if self.random.percent(40) {
            let count = wide(shape.data.len());
            return Some(self.computed(Compute::Reshape(vec![count + 1]), vec![Term::Value(a)]));
        }
        let bad: Vec<Id> = self.live.iter().copied().filter(|&id| self.is_bad_index(id)).collect();
        let Some(&indices) = self.random.pick(&bad) else {
            let rows = 1 + self.random.index(6);
            let mut tensor = Tensor::from_fn(&[rows], Dtype::I64, |_| 0);
            let place = self.random.index(rows);
            tensor.data[place] = self.random.between(1000, 2000);
            return Some(upload(tensor, 1));
        };
        if shape.rank() == 0 || shape.dims[0] == 0 {
            return None;
        }
        let compute =
            if shape.rank() == 2 { Compute::Embedding } else { Compute::IndexSelect { dim: 0 } };
        Some(self.computed(compute, [a, indices].map(Term::Value).to_vec()))
    }

    fn is_bad_index(&self, id: Id) -> bool {
        matches!(self.oracle.outcome(id), Some(Outcome::Value(tensor))
            if tensor.dtype == Dtype::I64 && tensor.rank() == 1 && tensor.data.iter().any(|&element| element >= 1000))
    }

    fn any(&mut self) -> Option<Id> {
        // The newest are drawn more often: chains are longer then.
        let skip = if self.random.percent(50) { self.live.len().saturating_sub(6) } else { 0 };
        self.random.pick(&self.live[skip..]).copied()
    }

    /// A value of this shape and dtype, or a step that makes one.
    fn like(&mut self, dims: &[usize], dtype: Dtype) -> Result<Id, Drawn> {
        let fits = |id: &&Id| {
            self.oracle.shape(**id).is_some_and(|tensor| tensor.dims == dims && tensor.dtype == dtype)
        };
        let found: Vec<Id> = self.live.iter().filter(fits).copied().collect();
        match self.random.pick(&found) {
            Some(&id) => Ok(id),
            None => Err(self.make(dims, dtype)),
        }
    }

    fn size(&mut self) -> usize {
        self.random.pick(self.sizes).copied().unwrap_or(1)
    }

    /// A dimension, counted from the front or from the end.
    fn dim(&mut self, rank: usize) -> i64 {
        let dim = wide(self.random.index(rank.max(1)));
        if self.random.percent(25) { dim - wide(rank.max(1)) } else { dim }
    }

    fn dtype(&mut self) -> Dtype {
        // Mostly one dtype, so that values fit each other.
        let usual = self.random.percent(70);
        if usual { Dtype::F32 } else { *self.random.pick(&DTYPES).unwrap_or(&Dtype::F64) }
    }
}

fn upload(tensor: Tensor, pieces: usize) -> Drawn {
    let evaluated = Oracle::value(tensor.clone());
    (Step::Upload { tensor, pieces }, Some(evaluated))
}

/// Whether results are small enough, and of a rank that leaves room for another dimension.
fn fits((_, evaluated): &Drawn) -> bool {
    let Some(evaluated) = evaluated else { return true };
    evaluated.outcomes.iter().all(|outcome| {
        let (Outcome::Value(tensor) | Outcome::Failed { shape: Some(tensor), .. }) = outcome else {
            return true;
        };
        tensor.data.len() <= ELEMENTS_MAX && tensor.rank() <= 5
    })
}
