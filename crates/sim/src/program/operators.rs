//! Steps that compute, one function for each family: operands that fit, or a step that creates the
//! missing one.

use super::{DrawnStep, Scene, StepOrOperand, either, list, sizes};
use crate::arithmetic::kernels::is_float;
use crate::arithmetic::tensor::{ToyTensor, wide};
use crate::exact::exact;
use crate::oracle::StepOperand;
use gt_protocol::{Attr, Dtype, Id, Op, Scalar};

/// Attributes of the choice `none|mean|sum`.
const REDUCTIONS: [Attr; 3] = [Attr::Choice(0), Attr::Choice(1), Attr::Choice(2)];
/// The word `none` of that choice.
const NONE: Attr = Attr::Choice(0);
/// The class that a loss would leave out; no program contains it.
const IGNORED: Attr = Attr::Int(-100);

impl Scene<'_> {
    pub(super) fn elementwise(&mut self) -> Option<DrawnStep> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let op = match self.random.below(17) {
            0 => return Some(self.call(Op::Neg, [], [a])),
            1 => {
                let dtype = self.dtype();
                return Some(self.call(Op::Cast, [Attr::Dtype(dtype)], [a]));
            }
            2 => return self.choose(a),
            3 => return self.update(a),
            4..7 => return self.function(a),
            7..9 => Op::Sub,
            9..11 => Op::Mul,
            11 => Op::Lt,
            12 => Op::Eq,
            13 => *self.random.pick(&[Op::Maximum, Op::Minimum])?,
            _ => Op::Add,
        };
        if shape.dtype == Dtype::Bool {
            return None;
        }
        if self.random.percent(20) {
            let number = wide(self.random.index(7)) + 1;
            let float = self.random.percent(50).then(|| f64::from(exact::<_, u8>(number)));
            let scalar = float.map_or(Scalar::Int(number), Scalar::Float);
            let pair = !matches!(op, Op::Maximum | Op::Minimum);
            let op = if pair && !self.random.percent(30) { op } else { Op::Div };
            return Some(self.computed(
                op,
                [],
                vec![StepOperand::Value(a), StepOperand::Scalar(scalar)],
            ));
        }
        let b = if self.random.percent(15) { Some(a) } else { self.any() }?;
        let other = self.oracle.shape(b)?;
        if other.dtype == Dtype::Bool {
            return None;
        }
        let swapped = self.random.percent(50);
        Some(self.call(op, [], if swapped { [b, a] } else { [a, b] }))
    }

    fn function(&mut self, a: Id) -> Option<DrawnStep> {
        let ops = [Op::Exp, Op::Log, Op::Sqrt, Op::Rsqrt, Op::Square, Op::Isnan, Op::Isinf];
        let op = *self.random.pick(&ops)?;
        Some(self.call(op, [], [a]))
    }

    fn choose(&mut self, a: Id) -> Option<DrawnStep> {
        let shape = self.oracle.shape(a)?.clone();
        let b = self.like(&shape.dims, shape.dtype);
        let condition = self.like(&shape.dims, Dtype::Bool);
        match (condition, b) {
            (Ok(condition), Ok(_)) if self.random.percent(30) => {
                let [a, condition] = [a, condition].map(StepOperand::Value);
                let zero = StepOperand::Scalar(Scalar::Int(0));
                Some(self.computed(Op::MaskedFill, [], vec![a, condition, zero]))
            }
            (Ok(condition), Ok(b)) => Some(self.call(Op::Where, [], [condition, a, b])),
            (Err(drawn), _) | (_, Err(drawn)) => Some(drawn),
        }
    }

    fn update(&mut self, param: Id) -> Option<DrawnStep> {
        let shape = self.oracle.shape(param)?.clone();
        Some(either(if self.random.percent(50) {
            self.descent(param, &shape)
        } else {
            self.moments(param, &shape)
        }))
    }

    fn descent(&mut self, param: Id, shape: &ToyTensor) -> StepOrOperand {
        let grad = self.like(&shape.dims, shape.dtype)?;
        let buffer = self.like(&shape.dims, shape.dtype).ok().filter(|_| self.random.percent(50));
        let buffer = buffer.map_or(StepOperand::Absent, StepOperand::Value);
        // The toy update has its numbers built in; these are only transmitted.
        let numbers = [3.0, 2.0, 0.0, 0.0].map(Attr::Float);
        let attrs = numbers.into_iter().chain([false; 3].map(Attr::Bool));
        Ok(self.computed(
            Op::Sgd,
            attrs,
            vec![StepOperand::Value(param), StepOperand::Value(grad), buffer],
        ))
    }

    fn moments(&mut self, param: Id, shape: &ToyTensor) -> StepOrOperand {
        let grad = self.like(&shape.dims, shape.dtype)?;
        let first = self.like(&shape.dims, shape.dtype)?;
        let second = self.like(&shape.dims, shape.dtype)?;
        let most = if self.random.percent(40) {
            StepOperand::Value(self.like(&shape.dims, shape.dtype)?)
        } else {
            StepOperand::Absent
        };
        let mut terms = [param, grad, first, second].map(StepOperand::Value).to_vec();
        terms.push(most);
        let numbers = [3.0, 2.0, 5.0, 0.0, 0.0].map(Attr::Float);
        let rest = [Attr::Int(1), Attr::Bool(true), Attr::Bool(false)];
        Ok(self.computed(Op::Adamw, numbers.into_iter().chain(rest), terms))
    }

    pub(super) fn product(&mut self) -> Option<DrawnStep> {
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
            let bias =
                self.like(&[n], shape.dtype).ok().map_or(StepOperand::Absent, StepOperand::Value);
            let terms = vec![StepOperand::Value(a), StepOperand::Value(weight), bias];
            return Some(self.computed(Op::Linear, [], terms));
        }
        let dims = match self.random.below(4) {
            0 => vec![k],
            1 if shape.rank() == 3 => vec![shape.dims[0], k, n],
            _ => vec![k, n],
        };
        let b = self.like(&dims, shape.dtype);
        Some(either(b.map(|b| self.call(Op::Matmul, [], [a, b]))))
    }

    pub(super) fn reduction(&mut self) -> Option<DrawnStep> {
        let a = self.any()?;
        let rank = self.oracle.shape(a)?.rank();
        let keepdim = Attr::Bool(self.random.percent(40));
        let dim = self.dim(rank);
        let dims = match self.random.below(4) {
            0 => None,
            1 if rank > 1 => Some(vec![0, wide(rank) - 1]),
            _ => Some(vec![dim]),
        };
        let some = dims.as_ref().map_or(Attr::Absent, |dims| list(dims));
        let op = match self.random.below(14) {
            0 => *self.random.pick(&[Op::MaxDim, Op::MinDim])?,
            1 => return Some(self.call(Op::Cumsum, [Attr::Int(dim), Attr::Absent], [a])),
            2 => {
                let op = *self.random.pick(&[Op::Argmax, Op::Argmin])?;
                let dim = if dims.is_none() { Attr::Absent } else { Attr::Int(dim) };
                return Some(self.call(op, [dim, keepdim], [a]));
            }
            3 => {
                let dim = if dims.is_none() { Attr::Absent } else { Attr::Int(dim) };
                return Some(self.call(Op::Prod, [dim, keepdim, Attr::Absent], [a]));
            }
            4 => {
                let correction = Attr::Float(if self.random.percent(50) { 1.0 } else { 0.0 });
                return Some(self.call(Op::Var, [some, correction, keepdim], [a]));
            }
            5 => {
                let dims = list(dims.as_deref().unwrap_or(&[dim]));
                return Some(self.call(Op::Logsumexp, [dims, keepdim], [a]));
            }
            6 => return Some(self.call(Op::Amax, [some, keepdim], [a])),
            7 => return Some(self.call(Op::Amin, [some, keepdim], [a])),
            8 => return Some(self.call(Op::Any, [some, keepdim], [a])),
            9 => return Some(self.call(Op::All, [some, keepdim], [a])),
            10 | 11 => return Some(self.call(Op::Mean, [some, keepdim, Attr::Absent], [a])),
            _ => return Some(self.call(Op::Sum, [some, keepdim, Attr::Absent], [a])),
        };
        Some(self.call(op, [Attr::Int(dim), keepdim], [a]))
    }

    pub(super) fn normalization(&mut self) -> Option<DrawnStep> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let rank = shape.rank();
        if self.random.percent(40) {
            return Some(self.soft_maximum(a, &shape));
        }
        if self.random.percent(20) {
            let numbers = [Attr::Float(0.5), Attr::Int(0), Attr::Int(self.number())];
            let attrs = numbers.into_iter().chain([Attr::Absent, Attr::Absent]);
            return Some(self.call(Op::Dropout, attrs, [a]));
        }
        let from = rank.checked_sub(1 + usize::from(rank > 2 && self.random.percent(30)))?;
        if self.random.percent(40) {
            return Some(either(self.root_mean_square(a, &shape, from)));
        }
        let normalized = shape.dims[from..].to_vec();
        let mut parameter = || {
            let weight = self.like(&normalized, shape.dtype).ok();
            weight.map_or(StepOperand::Absent, StepOperand::Value)
        };
        let (weight, bias) = (parameter(), parameter());
        let attr = sizes(&normalized);
        if self.random.percent(50) {
            // It is 0 as an integer, on whole values and on shards alike.
            let eps = Attr::Float(1e-5);
            return Some(self.computed(
                Op::LayerNorm,
                [attr, eps],
                vec![StepOperand::Value(a), weight, bias],
            ));
        }
        let mut dims = shape.dims.clone();
        dims[from..].fill(1);
        let grad = self.like(&shape.dims, shape.dtype).ok()?;
        let [mean, rstd] = [self.like(&dims, shape.dtype), self.like(&dims, shape.dtype)];
        match (mean, rstd) {
            (Ok(mean), Ok(rstd)) => {
                let mut terms = [grad, a, mean, rstd].map(StepOperand::Value).to_vec();
                terms.push(weight);
                Some(self.computed(Op::LayerNormBackward, [attr], terms))
            }
            (Err(drawn), _) | (_, Err(drawn)) => Some(drawn),
        }
    }

    fn root_mean_square(
        &mut self,
        a: Id,
        shape: &ToyTensor,
        from: usize,
    ) -> Result<DrawnStep, DrawnStep> {
        let normalized = shape.dims[from..].to_vec();
        let weight = self.like(&normalized, shape.dtype).ok().filter(|_| self.random.percent(70));
        let weight = weight.map_or(StepOperand::Absent, StepOperand::Value);
        let attr = sizes(&normalized);
        if self.random.percent(50) {
            let attrs = [attr, Attr::Float(1e-5)];
            return Ok(self.computed(Op::RmsNorm, attrs, vec![StepOperand::Value(a), weight]));
        }
        let mut dims = shape.dims.clone();
        dims[from..].fill(1);
        let grad = self.like(&shape.dims, shape.dtype)?;
        let rstd = self.like(&dims, shape.dtype)?;
        let mut terms = [grad, a, rstd].map(StepOperand::Value).to_vec();
        terms.push(weight);
        Ok(self.computed(Op::RmsNormBackward, [attr], terms))
    }

    fn soft_maximum(&mut self, a: Id, shape: &ToyTensor) -> DrawnStep {
        let (dim, log) = (Attr::Int(self.dim(shape.rank())), self.random.percent(40));
        if self.random.percent(50) {
            let op = if log { Op::LogSoftmax } else { Op::Softmax };
            return self.call(op, [dim, Attr::Absent], [a]);
        }
        let op = if log { Op::LogSoftmaxBackward } else { Op::SoftmaxBackward };
        let grad = self.like(&shape.dims, shape.dtype);
        either(grad.map(|grad| self.call(op, [dim], [grad, a])))
    }

    pub(super) fn loss(&mut self) -> Option<DrawnStep> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let reduction = REDUCTIONS[self.random.index(3)].clone();
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
        let weight = weight.map_or(StepOperand::Absent, StepOperand::Value);
        let [a, target] = [a, target].map(StepOperand::Value);
        if self.random.percent(60) {
            return Some(self.computed(Op::NllLoss, [reduction, IGNORED], vec![a, target, weight]));
        }
        let dims = if reduction == NONE { vec![batch] } else { vec![] };
        let grad = self.like(&dims, shape.dtype);
        match (grad, self.like(&[], shape.dtype)) {
            (Ok(grad), Ok(total)) => {
                let terms =
                    vec![StepOperand::Value(grad), a, target, weight, StepOperand::Value(total)];
                Some(self.computed(Op::NllLossBackward, [reduction, IGNORED], terms))
            }
            (Err(drawn), _) | (_, Err(drawn)) => Some(drawn),
        }
    }

    fn square_loss(&mut self, a: Id, shape: &ToyTensor, reduction: Attr) -> StepOrOperand {
        let b = self.like(&shape.dims, shape.dtype)?;
        if self.random.percent(60) || !is_float(shape.dtype) {
            return Ok(self.call(Op::MseLoss, [reduction], [a, b]));
        }
        let each = reduction == NONE;
        let grad = self.like(if each { &shape.dims } else { &[] }, shape.dtype)?;
        Ok(self.call(Op::MseLossBackward, [reduction], [grad, a, b]))
    }
}
