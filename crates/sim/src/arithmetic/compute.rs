//! The subset of operators that simulated programs and the planner's plans use, each with its toy
//! kernel.
//!
//! A client writes an operator with its attributes, a worker reads them from the instruction;
//! nothing else is sent.

use crate::exact::exact;
mod call;
mod shard;

use crate::arithmetic::kernels::elementwise::{self, BinaryKernel, UnaryKernel};
use crate::arithmetic::kernels::index::{self, LossReduction};
use crate::arithmetic::kernels::reduce::{self, Reducer};
use crate::arithmetic::kernels::scatter::{self, Write};
use crate::arithmetic::kernels::{KernelArg, KernelError, draw, normalize, product, view};
use crate::arithmetic::tensor::{ToyTensor, element_of, narrow, wide};
use call::KernelCall;
use gt_protocol::{Attr, Dtype, Instruction, Op, Scalar};

/// An operator and its attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct Compute {
    pub op: Op,
    pub attrs: Vec<Attr>,
}

impl Compute {
    pub fn new(op: Op, attrs: impl IntoIterator<Item = Attr>) -> Self {
        let mut attrs: Vec<Attr> = attrs.into_iter().collect();
        attrs.resize(op.info().attrs.len(), Attr::Absent);
        Self { op, attrs }
    }

    pub fn of(instruction: &Instruction<'_>) -> Self {
        Self { op: instruction.op, attrs: instruction.attrs.to_vec() }
    }

    /// Computes the results, from whole tensors or from shards.
    pub fn run(&self, args: &[KernelArg<'_>]) -> Result<Vec<ToyTensor>, KernelError> {
        let (Some(dtype), [KernelArg::ToyTensor(_), rest @ ..]) = (self.computed_in(), args) else {
            return self.run_as_given(args);
        };
        let operand = elementwise::cast(&args[..1], dtype)?;
        let args: Vec<_> =
            [KernelArg::ToyTensor(&operand)].into_iter().chain(rest.iter().copied()).collect();
        let results = self.run_as_given(&args)?;
        Ok(results.into_iter().map(|result| ToyTensor { dtype, ..result }).collect())
    }

    /// The dtype to which an operator casts its operand first, if an attribute requests that.
    fn computed_in(&self) -> Option<Dtype> {
        let place = self.op.info().attr_index("dtype")?;
        let Attr::Dtype(dtype) = self.attrs.get(place)? else { return None };
        self.op.info().attrs[place].optional.then_some(*dtype)
    }

    fn run_as_given(&self, args: &[KernelArg<'_>]) -> Result<Vec<ToyTensor>, KernelError> {
        if let Some(results) = self.run_on_shard(args) {
            return results;
        }
        let call = KernelCall { op: self.op, attrs: &self.attrs, args };
        let toy = TOYS.iter().find(|(op, _)| *op == self.op);
        toy.map_or(Err(KernelError::Unknown), |(_, toy)| toy(&call))
    }
}

type KernelResults = Result<Vec<ToyTensor>, KernelError>;

type KernelFn = fn(&KernelCall<'_>) -> KernelResults;

static TOYS: &[(Op, KernelFn)] = &[
    (Op::Full, |call| {
        let element = element_of(call.scalar(1)?);
        one(Ok(ToyTensor::from_fn(&call.sizes(0)?, call.dtype(2)?, |_| element)))
    }),
    (Op::Arange, |call| one(arange(call))),
    (Op::Uniform, |call| {
        one(draw::drawn(&call.drawn_box()?, call.dtype(1)?, call.named_int("draw")?))
    }),
    (Op::Dropout, |call| {
        draw::dropout(call.tensor(0)?, &call.drawn_box()?, call.named_int("draw")?)
    }),
    (Op::Neg, |call| unary(call, UnaryKernel::Neg)),
    (Op::Exp, |call| unary(call, UnaryKernel::Exp)),
    (Op::Log, |call| unary(call, UnaryKernel::Log)),
    (Op::Sqrt, |call| unary(call, UnaryKernel::Sqrt)),
    (Op::Rsqrt, |call| unary(call, UnaryKernel::Rsqrt)),
    (Op::Square, |call| unary(call, UnaryKernel::Square)),
    (Op::Isnan, |call| unary(call, UnaryKernel::Isnan)),
    (Op::Isinf, |call| unary(call, UnaryKernel::Isinf)),
    (Op::Cast, |call| one(elementwise::cast(call.args, call.dtype(0)?))),
    (Op::Add, |call| binary(call, BinaryKernel::Add)),
    (Op::Sub, |call| binary(call, BinaryKernel::Sub)),
    (Op::Mul, |call| binary(call, BinaryKernel::Mul)),
    (Op::Div, |call| binary(call, BinaryKernel::Div)),
    (Op::Lt, |call| binary(call, BinaryKernel::Lt)),
    (Op::Eq, |call| binary(call, BinaryKernel::Eq)),
    (Op::Maximum, |call| binary(call, BinaryKernel::Maximum)),
    (Op::Minimum, |call| binary(call, BinaryKernel::Minimum)),
    (Op::LogicalOr, |call| binary(call, BinaryKernel::LogicalOr)),
    (Op::Where, |call| one(elementwise::select(call.args))),
    (Op::MaskedFill, |call| one(elementwise::masked_fill(call.args))),
    (Op::Sgd, |call| elementwise::sgd(call.args)),
    (Op::Adamw, |call| elementwise::adamw(call.args)),
    (Op::Matmul, |call| one(product::matmul(call.tensor(0)?, call.tensor(1)?))),
    (Op::Linear, |call| one(product::linear(call.args))),
    (Op::Sum, |call| reduce(call, Reducer::Sum)),
    (Op::Mean, |call| reduce(call, Reducer::Mean)),
    (Op::Amax, |call| reduce(call, Reducer::Amax)),
    (Op::Amin, |call| reduce(call, Reducer::Amin)),
    (Op::Any, |call| reduce(call, Reducer::Any)),
    (Op::All, |call| reduce(call, Reducer::All)),
    (Op::Prod, |call| {
        let dim = call.optional_int(0)?.map(|dim| vec![dim]);
        one(reduce::reduce(call.tensor(0)?, Reducer::Prod, dim.as_deref(), call.flag(1)?))
    }),
    (Op::Var, |call| {
        let (dims, correction) = (call.optional_ints(0)?, call.whole(1)?);
        one(reduce::variance(call.tensor(0)?, dims.as_deref(), correction, call.flag(2)?))
    }),
    (Op::Logsumexp, |call| {
        one(reduce::log_sum_exp(call.tensor(0)?, &call.ints(0)?, call.flag(1)?))
    }),
    (Op::MaxDim, |call| reduce::extremum(call.tensor(0)?, call.int(0)?, call.flag(1)?, true)),
    (Op::MinDim, |call| reduce::extremum(call.tensor(0)?, call.int(0)?, call.flag(1)?, false)),
    (Op::Argmax, |call| {
        one(reduce::place(call.tensor(0)?, call.optional_int(0)?, call.flag(1)?, true))
    }),
    (Op::Argmin, |call| {
        one(reduce::place(call.tensor(0)?, call.optional_int(0)?, call.flag(1)?, false))
    }),
    (Op::Cumsum, |call| one(reduce::cumsum(call.tensor(0)?, call.int(0)?))),
    (Op::Softmax, |call| one(normalize::softmax(call.tensor(0)?, call.int(0)?, false))),
    (Op::LogSoftmax, |call| one(normalize::softmax(call.tensor(0)?, call.int(0)?, true))),
    (Op::SoftmaxBackward, |call| softmax_backward(call, false)),
    (Op::LogSoftmaxBackward, |call| softmax_backward(call, true)),
    (Op::LayerNorm, |call| normalize::layer_norm(call.args, &call.sizes(0)?, call.float(1)?)),
    (Op::LayerNormBackward, |call| normalize::layer_norm_backward(call.args, &call.sizes(0)?)),
    (Op::RmsNorm, |call| normalize::rms_norm(call.args, &call.sizes(0)?, call.float(1)?)),
    (Op::RmsNormBackward, |call| normalize::rms_norm_backward(call.args, &call.sizes(0)?)),
    (Op::Reshape, |call| one(view::reshape(call.tensor(0)?, &call.ints(0)?))),
    (Op::Permute, |call| one(view::permute(call.tensor(0)?, &call.ints(0)?))),
    (Op::Expand, |call| one(view::expand(call.tensor(0)?, &call.ints(0)?))),
    (Op::Repeat, |call| one(view::repeat(call.tensor(0)?, &call.sizes(0)?))),
    (Op::Slice, |call| one(view::slice(call.tensor(0)?, call.four()?))),
    (Op::SliceScatter, |call| {
        one(view::slice_scatter(call.tensor(0)?, call.tensor(1)?, call.four()?))
    }),
    (Op::Select, |call| one(view::select(call.tensor(0)?, call.int(0)?, call.int(1)?))),
    (Op::SelectScatter, |call| {
        one(view::select_scatter(call.tensor(0)?, call.tensor(1)?, call.int(0)?, call.int(1)?))
    }),
    (Op::Diagonal, |call| {
        one(view::diagonal(call.tensor(0)?, call.int(0)?, [call.int(1)?, call.int(2)?]))
    }),
    (Op::Flip, |call| one(view::flip(call.tensor(0)?, &call.ints(0)?))),
    (Op::Pad, |call| one(view::pad(call.tensor(0)?, &call.ints(0)?, call.whole(1)?))),
    (Op::Cat, |call| one(view::cat(call.args, call.int(0)?))),
    (Op::Stack, |call| one(view::stack(call.args, call.int(0)?))),
    (Op::Embedding, |call| one(index::embedding(call.tensor(0)?, call.tensor(1)?))),
    (Op::EmbeddingBackward, |call| {
        one(index::embedding_backward(call.tensor(0)?, call.tensor(1)?, narrow(call.int(0)?)))
    }),
    (Op::IndexSelect, |call| {
        one(index::index_select(call.tensor(0)?, call.tensor(1)?, call.int(0)?))
    }),
    (Op::Gather, |call| one(scatter::gather(call.tensor(0)?, call.tensor(1)?, call.int(0)?))),
    (Op::Scatter, |call| one(scatter::scatter(call.args, call.int(0)?, Write::Last))),
    (Op::ScatterAdd, |call| one(scatter::scatter(call.args, call.int(0)?, Write::Sum))),
    (Op::IndexAdd, |call| one(scatter::index_add(call.args, call.int(0)?))),
    (Op::Tril, |call| one(scatter::triangle(call.tensor(0)?, call.int(0)?, true))),
    (Op::Triu, |call| one(scatter::triangle(call.tensor(0)?, call.int(0)?, false))),
    (Op::NllLoss, |call| index::nll_loss(call.args, call.reduction()?)),
    (Op::NllLossBackward, |call| one(index::nll_loss_backward(call.args, call.reduction()?))),
    (Op::MseLoss, |call| one(mse_loss(call.args, call.reduction()?))),
    (Op::MseLossBackward, |call| {
        let count = exact::<_, u64>(call.tensor(1)?.data.len());
        let mean = call.reduction()? == LossReduction::Mean;
        one(elementwise::mse_backward(call.args, if mean { count } else { 1 }))
    }),
];

fn one(tensor: Result<ToyTensor, KernelError>) -> KernelResults {
    Ok(vec![tensor?])
}

fn unary(call: &KernelCall<'_>, kind: UnaryKernel) -> KernelResults {
    one(elementwise::unary(kind, call.args))
}

fn binary(call: &KernelCall<'_>, kind: BinaryKernel) -> KernelResults {
    one(elementwise::binary(kind, call.args))
}

fn reduce(call: &KernelCall<'_>, kind: Reducer) -> KernelResults {
    let dims = call.optional_ints(0)?;
    one(reduce::reduce(call.tensor(0)?, kind, dims.as_deref(), call.flag(1)?))
}

fn softmax_backward(call: &KernelCall<'_>, log: bool) -> KernelResults {
    one(normalize::softmax_backward(call.tensor(0)?, call.tensor(1)?, call.int(0)?, log))
}

fn arange(call: &KernelCall<'_>) -> Result<ToyTensor, KernelError> {
    let whole = |place: usize| match call.scalar(place)? {
        Scalar::Int(value) => Ok(value),
        Scalar::Bool(_) | Scalar::Float(_) => Err(KernelError::Unknown),
    };
    let [start, end, step] = [whole(0)?, whole(1)?, whole(2)?];
    let dtype: Dtype = call.dtype(3)?;
    if step < 1 || end < start {
        return Err(KernelError::Form("a range that does not end"));
    }
    let count = narrow((end - start + step - 1) / step);
    let element = |index: &[usize]| element_of(Scalar::Int(start + wide(index[0]) * step));
    Ok(ToyTensor::from_fn(&[count], dtype, element))
}

fn mse_loss(args: &[KernelArg<'_>], reduction: LossReduction) -> Result<ToyTensor, KernelError> {
    let each = elementwise::mse(args)?;
    match reduction {
        LossReduction::None => Ok(each),
        LossReduction::Mean => reduce::reduce(&each, Reducer::Mean, None, false),
        LossReduction::Sum => reduce::reduce(&each, Reducer::Sum, None, false),
    }
}
