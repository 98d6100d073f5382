//! Steps that compute, one function a family: operands that fit, or a step that makes the one that is missing.

use super::{Drawn, Scene, upload};
use crate::compute::Compute;
use crate::kernels::elementwise::{Binary, Unary};
use crate::kernels::index::Reduction;
use crate::kernels::is_float;
use crate::kernels::reduce::Fold;
use crate::oracle::Term;
use crate::tensor::{Tensor, wide};
use gt_protocol::{Dtype, Id, Scalar};

/// A step, or another that makes an operand for it.
type Sought = Result<Drawn, Drawn>;

impl Scene<'_> {
    pub(super) fn elementwise(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let compute = match self.random.below(12) {
            0 => return Some(self.computed(Compute::Unary(Unary::Neg), vec![Term::Value(a)])),
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
            let float =
                self.random.percent(50).then(|| f64::from(u8::try_from(number).unwrap_or(1)));
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

    pub(super) fn product(&mut self) -> Option<Drawn> {
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
            return Some(
                self.computed(Compute::Linear, vec![Term::Value(a), Term::Value(weight), bias]),
            );
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

    pub(super) fn reduction(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let rank = self.oracle.shape(a)?.rank();
        let keepdim = self.random.percent(40);
        let dim = self.dim(rank);
        let fold = match self.random.below(7) {
            0 => {
                return Some(self.computed(Compute::MaxDim { dim, keepdim }, vec![Term::Value(a)]));
            }
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

    pub(super) fn normalization(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let rank = shape.rank();
        if self.random.percent(30) {
            return Some(self.soft_maximum(a, &shape));
        }
        let from = rank.checked_sub(1 + usize::from(rank > 2 && self.random.percent(30)))?;
        let normalized = shape.dims[from..].to_vec();
        let mut parameter = || {
            let found = self.like(&normalized, shape.dtype).ok();
            found.map_or(Term::Absent, Term::Value)
        };
        let (weight, bias) = (parameter(), parameter());
        if self.random.percent(50) {
            return Some(
                self.computed(
                    Compute::LayerNorm { normalized },
                    vec![Term::Value(a), weight, bias],
                ),
            );
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

    fn soft_maximum(&mut self, a: Id, shape: &Tensor) -> Drawn {
        let (dim, log) = (self.dim(shape.rank()), self.random.percent(40));
        if self.random.percent(50) {
            return self.computed(Compute::Softmax { dim, log }, vec![Term::Value(a)]);
        }
        let terms = self.like(&shape.dims, shape.dtype).map(|grad| [grad, a].map(Term::Value));
        either(
            terms.map(|terms| self.computed(Compute::SoftmaxBackward { dim, log }, terms.to_vec())),
        )
    }

    pub(super) fn view(&mut self) -> Option<Drawn> {
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
            7 => return Some(either(self.joined(a, &shape.dims, shape.dtype, true))),
            _ => return Some(either(self.joined(a, &shape.dims, shape.dtype, false))),
        };
        Some(self.computed(compute, vec![Term::Value(a)]))
    }

    fn joined(&mut self, a: Id, dims: &[usize], dtype: Dtype, cat: bool) -> Sought {
        let count = 1 + self.random.index(2);
        let mut ids = vec![a];
        for _ in 0..count {
            ids.push(self.like(dims, dtype)?);
        }
        let dim = self.dim(dims.len() + usize::from(!cat));
        let compute = if cat { Compute::Cat { dim } } else { Compute::Stack { dim } };
        Ok(self.computed(compute, ids.into_iter().map(Term::Value).collect()))
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

    pub(super) fn look_up(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let rank = shape.rank();
        if rank == 0 {
            return None;
        }
        match self.random.below(3) {
            0 if rank == 2 => {
                let depth = 1 + self.random.index(2);
                Some(either(self.indexed(Compute::Embedding, a, shape.dims[0], depth)))
            }
            1 if rank == 2 => {
                let rows = self.size();
                let indices = match self.indices(rows, &shape.dims[..1]) {
                    Ok(indices) => indices,
                    Err(drawn) => return Some(drawn),
                };
                Some(self.computed(
                    Compute::EmbeddingBackward { rows },
                    [a, indices].map(Term::Value).to_vec(),
                ))
            }
            _ => {
                let place = self.random.index(rank);
                let compute = Compute::IndexSelect { dim: wide(place) };
                Some(either(self.indexed(compute, a, shape.dims[place], 1)))
            }
        }
    }

    fn indexed(&mut self, compute: Compute, table: Id, rows: usize, rank: usize) -> Sought {
        let dims: Vec<usize> = (0..rank).map(|_| self.size()).collect();
        let indices = self.indices(rows, &dims)?;
        Ok(self.computed(compute, [table, indices].map(Term::Value).to_vec()))
    }

    /// A value of whole numbers below `limit`.
    fn indices(&mut self, limit: usize, dims: &[usize]) -> Result<Id, Drawn> {
        let good = |tensor: &Tensor| {
            tensor
                .data
                .iter()
                .all(|&element| usize::try_from(element).is_ok_and(|element| element < limit))
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

    pub(super) fn loss(&mut self) -> Option<Drawn> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let reduction = [Reduction::None, Reduction::Mean, Reduction::Sum][self.random.index(3)];
        if shape.rank() != 2 || self.random.percent(20) {
            return Some(either(self.square_loss(a, &shape, reduction)));
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
        let dims = if reduction == Reduction::None { vec![batch] } else { vec![] };
        let grad = self.like(&dims, shape.dtype);
        match (grad, self.like(&[], shape.dtype)) {
            (Ok(grad), Ok(total)) => {
                let terms = vec![Term::Value(grad), a, target, weight, Term::Value(total)];
                Some(self.computed(Compute::NllLossBackward(reduction), terms))
            }
            (Err(drawn), _) | (_, Err(drawn)) => Some(drawn),
        }
    }

    fn square_loss(&mut self, a: Id, shape: &Tensor, reduction: Reduction) -> Sought {
        let b = self.like(&shape.dims, shape.dtype)?;
        let [x, y] = [a, b].map(Term::Value);
        if self.random.percent(60) || !is_float(shape.dtype) {
            return Ok(self.computed(Compute::MseLoss(reduction), vec![x, y]));
        }
        let each = reduction == Reduction::None;
        let grad = self.like(if each { &shape.dims } else { &[] }, shape.dtype)?;
        let terms = vec![Term::Value(grad), x, y];
        Ok(self.computed(Compute::MseLossBackward(reduction), terms))
    }
}

/// The step that was wanted, or one that makes what it lacks.
fn either(sought: Sought) -> Drawn {
    sought.unwrap_or_else(|makes| makes)
}
