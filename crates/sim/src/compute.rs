//! The subset of operators that simulated programs use: how each runs on toy tensors and which instruction stands for
//! it.
//!
//! `encode` is the client's side and `decode` the worker's; only the instruction travels between them.

use crate::kernels::elementwise::{self, Binary, Unary};
use crate::kernels::index::{self, Reduction};
use crate::kernels::reduce::{self, Fold};
use crate::kernels::{Arg, Refusal, normalize, product, view};
use crate::tensor::{Tensor, element_of, from_dims, narrow, to_dims, wide};
use gt_protocol::{Attr, Dims, Dtype, Instruction, Op, Scalar};
use smallvec::{SmallVec, smallvec};

#[derive(Clone, Debug, PartialEq)]
pub enum Compute {
    Full { dims: Vec<usize>, value: i64, dtype: Dtype },
    Arange { start: i64, end: i64, step: i64, dtype: Dtype },
    Unary(Unary),
    Cast(Dtype),
    Binary(Binary),
    Where,
    MaskedFill,
    Sgd,
    Matmul,
    Linear,
    Reduce { fold: Fold, dims: Option<Vec<i64>>, keepdim: bool },
    MaxDim { dim: i64, keepdim: bool },
    Cumsum { dim: i64 },
    Softmax { dim: i64, log: bool },
    SoftmaxBackward { dim: i64, log: bool },
    LayerNorm { normalized: Vec<usize> },
    LayerNormBackward { normalized: Vec<usize> },
    Reshape(Vec<i64>),
    Permute(Vec<i64>),
    Expand(Vec<i64>),
    Slice([i64; 4]),
    Select { dim: i64, index: i64 },
    Flip(Vec<i64>),
    Cat { dim: i64 },
    Stack { dim: i64 },
    Embedding,
    EmbeddingBackward { rows: usize },
    IndexSelect { dim: i64 },
    NllLoss(Reduction),
    NllLossBackward(Reduction),
    MseLoss(Reduction),
    MseLossBackward(Reduction),
}

/// Of a layer norm: none of it is left in whole numbers, on whole values and on pieces alike.
const EPS: f64 = 1e-5;

type Attrs = SmallVec<[Attr; 2]>;

impl Compute {
    /// The results, from tensors that are whole or pieces alike.
    pub fn run(&self, args: &[Arg<'_>]) -> Result<Vec<Tensor>, Refusal> {
        let one = |tensor: Result<Tensor, Refusal>| Ok(vec![tensor?]);
        let x = || args[0].tensor();
        match self {
            Self::Full { dims, value, dtype } => {
                let element = element_of(Scalar::Int(*value));
                Ok(vec![Tensor::from_fn(dims, *dtype, |_| element)])
            }
            Self::Arange { start, end, step, dtype } => one(arange([*start, *end, *step], *dtype)),
            Self::Unary(kind) => one(elementwise::unary(*kind, args)),
            Self::Cast(dtype) => one(elementwise::cast(args, *dtype)),
            Self::Binary(kind) => one(elementwise::binary(*kind, args)),
            Self::Where => one(elementwise::select(args)),
            Self::MaskedFill => one(elementwise::masked_fill(args)),
            Self::Sgd => elementwise::sgd(args),
            Self::Matmul => one(product::matmul(x()?, args[1].tensor()?)),
            Self::Linear => one(product::linear(args)),
            Self::Reduce { fold, dims, keepdim } => {
                one(reduce::reduce(x()?, *fold, dims.as_deref(), *keepdim))
            }
            Self::MaxDim { dim, keepdim } => reduce::max_dim(x()?, *dim, *keepdim),
            Self::Cumsum { dim } => one(reduce::cumsum(x()?, *dim)),
            Self::Softmax { dim, log } => one(normalize::softmax(x()?, *dim, *log)),
            Self::SoftmaxBackward { dim, log } => {
                one(normalize::softmax_backward(x()?, args[1].tensor()?, *dim, *log))
            }
            Self::LayerNorm { normalized } => normalize::layer_norm(args, normalized, EPS),
            Self::LayerNormBackward { normalized } => {
                normalize::layer_norm_backward(args, normalized)
            }
            Self::Reshape(sizes) => one(view::reshape(x()?, sizes)),
            Self::Permute(dims) => one(view::permute(x()?, dims)),
            Self::Expand(sizes) => one(view::expand(x()?, sizes)),
            Self::Slice(attrs) => one(view::slice(x()?, *attrs)),
            Self::Select { dim, index } => one(view::select(x()?, *dim, *index)),
            Self::Flip(dims) => one(view::flip(x()?, dims)),
            Self::Cat { dim } => one(view::cat(args, *dim)),
            Self::Stack { dim } => one(view::stack(args, *dim)),
            Self::Embedding => one(index::embedding(x()?, args[1].tensor()?)),
            Self::EmbeddingBackward { rows } => {
                one(index::embedding_backward(x()?, args[1].tensor()?, *rows))
            }
            Self::IndexSelect { dim } => one(index::index_select(x()?, args[1].tensor()?, *dim)),
            Self::NllLoss(reduction) => index::nll_loss(args, *reduction),
            Self::NllLossBackward(reduction) => one(index::nll_loss_backward(args, *reduction)),
            Self::MseLoss(reduction) => one(mse_loss(args, *reduction)),
            Self::MseLossBackward(reduction) => {
                let count = u64::try_from(args[1].tensor()?.data.len()).unwrap_or(0);
                let mean = *reduction == Reduction::Mean;
                one(elementwise::mse_backward(args, if mean { count } else { 1 }))
            }
        }
    }

    pub fn encode(&self) -> (Op, Attrs) {
        let int = |value: i64| Attr::Int(value);
        let ints = |values: &[i64]| Attr::Ints(Dims::new(values).unwrap_or(Dims::EMPTY));
        let sizes = |values: &[usize]| Attr::Ints(to_dims(values));
        let scalar = |value: i64| Attr::Scalar(Scalar::Int(value));
        match self {
            Self::Full { dims, value, dtype } => {
                (Op::Full, smallvec![sizes(dims), scalar(*value), Attr::Dtype(*dtype)])
            }
            Self::Arange { start, end, step, dtype } => (
                Op::Arange,
                smallvec![scalar(*start), scalar(*end), scalar(*step), Attr::Dtype(*dtype)],
            ),
            Self::Unary(kind) => (unary_op(*kind), smallvec![]),
            Self::Cast(dtype) => (Op::Cast, smallvec![Attr::Dtype(*dtype)]),
            Self::Binary(kind) => (binary_op(*kind), smallvec![]),
            Self::Where => (Op::Where, smallvec![]),
            Self::MaskedFill => (Op::MaskedFill, smallvec![]),
            Self::Sgd => (Op::Sgd, sgd_attrs()),
            Self::Matmul => (Op::Matmul, smallvec![]),
            Self::Linear => (Op::Linear, smallvec![]),
            Self::Reduce { fold, dims, keepdim } => {
                let mut attrs: Attrs = smallvec![
                    dims.as_ref().map_or(Attr::Absent, |dims| ints(dims)),
                    Attr::Bool(*keepdim)
                ];
                if matches!(fold, Fold::Sum | Fold::Mean) {
                    attrs.push(Attr::Absent);
                }
                (fold_op(*fold), attrs)
            }
            Self::MaxDim { dim, keepdim } => {
                (Op::MaxDim, smallvec![int(*dim), Attr::Bool(*keepdim)])
            }
            Self::Cumsum { dim } => (Op::Cumsum, smallvec![int(*dim), Attr::Absent]),
            Self::Softmax { dim, log } => {
                let op = if *log { Op::LogSoftmax } else { Op::Softmax };
                (op, smallvec![int(*dim), Attr::Absent])
            }
            Self::SoftmaxBackward { dim, log } => {
                let op = if *log { Op::LogSoftmaxBackward } else { Op::SoftmaxBackward };
                (op, smallvec![int(*dim)])
            }
            Self::LayerNorm { normalized } => {
                (Op::LayerNorm, smallvec![sizes(normalized), Attr::Float(EPS)])
            }
            Self::LayerNormBackward { normalized } => {
                (Op::LayerNormBackward, smallvec![sizes(normalized)])
            }
            Self::Reshape(target) => (Op::Reshape, smallvec![ints(target)]),
            Self::Permute(dims) => (Op::Permute, smallvec![ints(dims)]),
            Self::Expand(target) => (Op::Expand, smallvec![ints(target)]),
            Self::Slice(attrs) => (Op::Slice, attrs.iter().map(|&value| int(value)).collect()),
            Self::Select { dim, index } => (Op::Select, smallvec![int(*dim), int(*index)]),
            Self::Flip(dims) => (Op::Flip, smallvec![ints(dims)]),
            Self::Cat { dim } => (Op::Cat, smallvec![int(*dim)]),
            Self::Stack { dim } => (Op::Stack, smallvec![int(*dim)]),
            Self::Embedding => (Op::Embedding, smallvec![Attr::Absent]),
            Self::EmbeddingBackward { rows } => {
                (Op::EmbeddingBackward, smallvec![int(wide(*rows)), Attr::Absent])
            }
            Self::IndexSelect { dim } => (Op::IndexSelect, smallvec![int(*dim)]),
            Self::NllLoss(reduction) => (Op::NllLoss, smallvec![choice(*reduction), int(-100)]),
            Self::NllLossBackward(reduction) => {
                (Op::NllLossBackward, smallvec![choice(*reduction), int(-100)])
            }
            Self::MseLoss(reduction) => (Op::MseLoss, smallvec![choice(*reduction)]),
            Self::MseLossBackward(reduction) => {
                (Op::MseLossBackward, smallvec![choice(*reduction)])
            }
        }
    }

    /// What a worker is told to do; `None` for what no simulated program uses.
    pub fn decode(instruction: &Instruction<'_>) -> Option<Self> {
        let (_, decode) = DECODERS.iter().find(|(op, _)| *op == instruction.op)?;
        decode(&instruction.attrs)
    }
}

type Decoder = fn(&[Attr]) -> Option<Compute>;

static DECODERS: &[(Op, Decoder)] = &[
    (Op::Full, |attrs| {
        let value = element_of(scalar(attrs, 1)?).cast_signed();
        Some(Compute::Full { dims: sizes(attrs, 0)?, value, dtype: dtype(attrs, 2)? })
    }),
    (Op::Arange, |attrs| {
        let whole = |place: usize| match scalar(attrs, place)? {
            Scalar::Int(value) => Some(value),
            Scalar::Bool(_) | Scalar::Float(_) => None,
        };
        let [start, end, step] = [whole(0)?, whole(1)?, whole(2)?];
        Some(Compute::Arange { start, end, step, dtype: dtype(attrs, 3)? })
    }),
    (Op::Neg, |_| Some(Compute::Unary(Unary::Neg))),
    (Op::Exp, |_| Some(Compute::Unary(Unary::Exp))),
    (Op::Log, |_| Some(Compute::Unary(Unary::Log))),
    (Op::Sqrt, |_| Some(Compute::Unary(Unary::Sqrt))),
    (Op::Rsqrt, |_| Some(Compute::Unary(Unary::Rsqrt))),
    (Op::Square, |_| Some(Compute::Unary(Unary::Square))),
    (Op::Isnan, |_| Some(Compute::Unary(Unary::Isnan))),
    (Op::Isinf, |_| Some(Compute::Unary(Unary::Isinf))),
    (Op::Cast, |attrs| Some(Compute::Cast(dtype(attrs, 0)?))),
    (Op::Add, |_| Some(Compute::Binary(Binary::Add))),
    (Op::Sub, |_| Some(Compute::Binary(Binary::Sub))),
    (Op::Mul, |_| Some(Compute::Binary(Binary::Mul))),
    (Op::Div, |_| Some(Compute::Binary(Binary::Div))),
    (Op::Lt, |_| Some(Compute::Binary(Binary::Lt))),
    (Op::Eq, |_| Some(Compute::Binary(Binary::Eq))),
    (Op::Maximum, |_| Some(Compute::Binary(Binary::Maximum))),
    (Op::Minimum, |_| Some(Compute::Binary(Binary::Minimum))),
    (Op::LogicalOr, |_| Some(Compute::Binary(Binary::LogicalOr))),
    (Op::Where, |_| Some(Compute::Where)),
    (Op::MaskedFill, |_| Some(Compute::MaskedFill)),
    (Op::Sgd, |attrs| (attrs == sgd_attrs().as_slice()).then_some(Compute::Sgd)),
    (Op::Matmul, |_| Some(Compute::Matmul)),
    (Op::Linear, |_| Some(Compute::Linear)),
    (Op::Sum, |attrs| reduction_of(Fold::Sum, attrs)),
    (Op::Mean, |attrs| reduction_of(Fold::Mean, attrs)),
    (Op::Amax, |attrs| reduction_of(Fold::Amax, attrs)),
    (Op::Amin, |attrs| reduction_of(Fold::Amin, attrs)),
    (Op::MaxDim, |attrs| Some(Compute::MaxDim { dim: int(attrs, 0)?, keepdim: flag(attrs, 1)? })),
    (Op::Cumsum, |attrs| Some(Compute::Cumsum { dim: int(attrs, 0)? })),
    (Op::Softmax, |attrs| Some(Compute::Softmax { dim: int(attrs, 0)?, log: false })),
    (Op::LogSoftmax, |attrs| Some(Compute::Softmax { dim: int(attrs, 0)?, log: true })),
    (Op::SoftmaxBackward, |attrs| {
        Some(Compute::SoftmaxBackward { dim: int(attrs, 0)?, log: false })
    }),
    (Op::LogSoftmaxBackward, |attrs| {
        Some(Compute::SoftmaxBackward { dim: int(attrs, 0)?, log: true })
    }),
    (Op::LayerNorm, |attrs| Some(Compute::LayerNorm { normalized: sizes(attrs, 0)? })),
    (Op::LayerNormBackward, |attrs| {
        Some(Compute::LayerNormBackward { normalized: sizes(attrs, 0)? })
    }),
    (Op::Reshape, |attrs| Some(Compute::Reshape(ints(attrs, 0)?))),
    (Op::Permute, |attrs| Some(Compute::Permute(ints(attrs, 0)?))),
    (Op::Expand, |attrs| Some(Compute::Expand(ints(attrs, 0)?))),
    (Op::Slice, |attrs| {
        Some(Compute::Slice([int(attrs, 0)?, int(attrs, 1)?, int(attrs, 2)?, int(attrs, 3)?]))
    }),
    (Op::Select, |attrs| Some(Compute::Select { dim: int(attrs, 0)?, index: int(attrs, 1)? })),
    (Op::Flip, |attrs| Some(Compute::Flip(ints(attrs, 0)?))),
    (Op::Cat, |attrs| Some(Compute::Cat { dim: int(attrs, 0)? })),
    (Op::Stack, |attrs| Some(Compute::Stack { dim: int(attrs, 0)? })),
    (Op::Embedding, |_| Some(Compute::Embedding)),
    (Op::EmbeddingBackward, |attrs| {
        Some(Compute::EmbeddingBackward { rows: narrow(int(attrs, 0)?) })
    }),
    (Op::IndexSelect, |attrs| Some(Compute::IndexSelect { dim: int(attrs, 0)? })),
    (Op::NllLoss, |attrs| Some(Compute::NllLoss(reduction(attrs)?))),
    (Op::NllLossBackward, |attrs| Some(Compute::NllLossBackward(reduction(attrs)?))),
    (Op::MseLoss, |attrs| Some(Compute::MseLoss(reduction(attrs)?))),
    (Op::MseLossBackward, |attrs| Some(Compute::MseLossBackward(reduction(attrs)?))),
];

fn arange([start, end, step]: [i64; 3], dtype: Dtype) -> Result<Tensor, Refusal> {
    if step < 1 || end < start {
        return Err(Refusal::Form("a range that does not end"));
    }
    let count = narrow((end - start + step - 1) / step);
    let element = |index: &[usize]| element_of(Scalar::Int(start + wide(index[0]) * step));
    Ok(Tensor::from_fn(&[count], dtype, element))
}

fn mse_loss(args: &[Arg<'_>], reduction: Reduction) -> Result<Tensor, Refusal> {
    let each = elementwise::mse(args)?;
    match reduction {
        Reduction::None => Ok(each),
        Reduction::Mean => reduce::reduce(&each, Fold::Mean, None, false),
        Reduction::Sum => reduce::reduce(&each, Fold::Sum, None, false),
    }
}

fn binary_op(kind: Binary) -> Op {
    match kind {
        Binary::Add => Op::Add,
        Binary::Sub => Op::Sub,
        Binary::Mul => Op::Mul,
        Binary::Div => Op::Div,
        Binary::Lt => Op::Lt,
        Binary::Eq => Op::Eq,
        Binary::Maximum => Op::Maximum,
        Binary::Minimum => Op::Minimum,
        Binary::LogicalOr => Op::LogicalOr,
    }
}

fn unary_op(kind: Unary) -> Op {
    match kind {
        Unary::Neg => Op::Neg,
        Unary::Exp => Op::Exp,
        Unary::Log => Op::Log,
        Unary::Sqrt => Op::Sqrt,
        Unary::Rsqrt => Op::Rsqrt,
        Unary::Square => Op::Square,
        Unary::Isnan => Op::Isnan,
        Unary::Isinf => Op::Isinf,
    }
}

fn fold_op(fold: Fold) -> Op {
    match fold {
        Fold::Sum => Op::Sum,
        Fold::Mean => Op::Mean,
        Fold::Amax => Op::Amax,
        Fold::Amin => Op::Amin,
    }
}

/// The toy update has its numbers built in; these only have to arrive.
fn sgd_attrs() -> Attrs {
    let numbers = [3.0, 2.0, 0.0, 0.0].into_iter().map(Attr::Float);
    numbers.chain([Attr::Bool(false), Attr::Bool(false), Attr::Bool(false)]).collect()
}

fn choice(reduction: Reduction) -> Attr {
    Attr::Choice(match reduction {
        Reduction::None => 0,
        Reduction::Mean => 1,
        Reduction::Sum => 2,
    })
}

fn reduction(attrs: &[Attr]) -> Option<Reduction> {
    let words = [Reduction::None, Reduction::Mean, Reduction::Sum];
    if let Attr::Choice(word) = attrs.first()? {
        words.get(usize::from(*word)).copied()
    } else {
        None
    }
}

fn reduction_of(fold: Fold, attrs: &[Attr]) -> Option<Compute> {
    let dims = if attrs.first() == Some(&Attr::Absent) { None } else { Some(ints(attrs, 0)?) };
    Some(Compute::Reduce { fold, dims, keepdim: flag(attrs, 1)? })
}

fn int(attrs: &[Attr], place: usize) -> Option<i64> {
    if let Attr::Int(value) = attrs.get(place)? { Some(*value) } else { None }
}

fn flag(attrs: &[Attr], place: usize) -> Option<bool> {
    if let Attr::Bool(value) = attrs.get(place)? { Some(*value) } else { None }
}

fn ints(attrs: &[Attr], place: usize) -> Option<Vec<i64>> {
    if let Attr::Ints(dims) = attrs.get(place)? { Some(dims.to_vec()) } else { None }
}

fn sizes(attrs: &[Attr], place: usize) -> Option<Vec<usize>> {
    Some(from_dims(&ints(attrs, place)?))
}

fn dtype(attrs: &[Attr], place: usize) -> Option<Dtype> {
    if let Attr::Dtype(dtype) = attrs.get(place)? { Some(*dtype) } else { None }
}

fn scalar(attrs: &[Attr], place: usize) -> Option<Scalar> {
    if let Attr::Scalar(scalar) = attrs.get(place)? { Some(*scalar) } else { None }
}
