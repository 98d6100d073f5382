//! Operators that fold a cut dimension in several steps, each of which has a strategy.

use super::program::{Program, Source};
use super::{Question, SpreadArg, edges, entropy, reduce, scan};
use crate::{Attr, Dims, Dtype, Meta, Op, Scalar};
use smallvec::SmallVec;

/// The steps of an operator whose folded dimension is cut along this dimension of the mesh; `None` where one
/// instruction will do, or nothing better than gathering is known.
pub fn rewrite(question: &Question<'_>) -> Option<Program> {
    match question.op {
        Op::Mean => mean(question),
        Op::Sum => half_sum(question),
        Op::Var => var(question),
        Op::Logsumexp => logsumexp(question),
        Op::Argmax | Op::Argmin | Op::MaxDim | Op::MinDim => position(question),
        Op::Softmax | Op::LogSoftmax => softmax(question),
        Op::SoftmaxBackward | Op::LogSoftmaxBackward => softmax_backward(question),
        Op::LayerNorm => layer_norm(question),
        Op::LayerNormBackward => layer_norm_backward(question),
        Op::NllLoss => nll_loss(question),
        Op::CrossEntropy => entropy::cross_entropy(question),
        Op::Cumsum => scan::cumsum(question),
        Op::Topk => scan::topk(question),
        Op::MseLoss => mse_loss(question),
        Op::MseLossBackward => mse_loss_backward(question),
        Op::Select => select(question),
        Op::SelectScatter => edges::select_scattered(question),
        Op::Pad => edges::pad_off(question),
        _ => None,
    }
}

/// Whether one of `dims` of the operand at `position` is cut. Where they hold nothing there is no extreme to begin with:
/// one instruction on the gathered value knows what becomes of nothing.
pub(super) fn is_cut(question: &Question<'_>, position: usize, dims: &[usize]) -> bool {
    let Some(SpreadArg { meta: Some(meta), placement }) = question.args.get(position) else {
        return false;
    };
    let empty = dims.iter().any(|&dim| meta.dims.get(dim) == Some(&0));
    !empty && placement.cut().is_some_and(|cut| dims.contains(&cut))
}

/// What a fold of `dims` of the operand at `position` makes that keeps them, in the dtype that it is computed in.
fn kept(question: &Question<'_>, position: usize, dims: &[usize]) -> Option<Meta> {
    let mut meta = *question.meta(position)?;
    for &dim in dims {
        *meta.dims.as_mut_slice().get_mut(dim)? = 1;
    }
    if is_half(meta.dtype) {
        meta.dtype = Dtype::F32;
    }
    Some(meta)
}

pub(super) fn list(dims: &[usize]) -> Attr {
    let dims: SmallVec<[i64; 8]> = dims.iter().filter_map(|&dim| i64::try_from(dim).ok()).collect();
    Attr::Ints(Dims::new(&dims).unwrap_or(Dims::EMPTY))
}

pub(super) fn number(value: f64) -> Source {
    Source::Scalar(Scalar::Float(value))
}

#[allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "torch divides by the count as a double too"
)]
pub(super) fn count_of(question: &Question<'_>, position: usize, dims: &[usize]) -> Option<f64> {
    let shape = question.meta(position)?.dims;
    Some(dims.iter().filter_map(|&dim| shape.get(dim)).product::<i64>() as f64)
}

/// The sum of all members' pieces over the count of the whole.
fn mean(question: &Question<'_>) -> Option<Program> {
    let dims = reduce::folded(question)?;
    if !is_cut(question, 0, &dims) {
        return None;
    }
    let mut program = Program::default();
    let mut attrs: SmallVec<[Attr; 2]> = question.attrs.iter().cloned().collect();
    if is_half(question.outputs.first()?.dtype) {
        *attrs.get_mut(question.op.info().attr_index("dtype")?)? = Attr::Dtype(Dtype::F32);
    }
    let sum = program.push(Op::Sum, [Source::Operand(0)], attrs);
    let mean = program.pair(Op::Div, sum, number(count_of(question, 0, &dims)?));
    Some(program.yields([mean]))
}

/// Pieces in half precision are summed and folded in single precision: it is rounded once.
fn half_sum(question: &Question<'_>) -> Option<Program> {
    let dims = reduce::folded(question)?;
    let dtype = question.outputs.first()?.dtype;
    if !is_cut(question, 0, &dims) || !is_half(dtype) {
        return None;
    }
    let mut program = Program::default();
    let keepdim = Attr::Bool(question.flag("keepdim"));
    let attrs = [list(&dims), keepdim, Attr::Dtype(Dtype::F32)];
    let sum = program.push(Op::Sum, [Source::Operand(0)], attrs);
    Some(program.yields([sum]))
}

pub(super) fn is_half(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F16 | Dtype::Bf16)
}

/// Squares about the mean of the whole: variances of pieces do not average.
fn var(question: &Question<'_>) -> Option<Program> {
    let dims = reduce::folded(question)?;
    let Attr::Float(correction) = *question.attr("correction") else { return None };
    if !is_cut(question, 0, &dims) {
        return None;
    }
    let count = count_of(question, 0, &dims)?;
    let all = list(&dims);
    let mut program = Program::default();
    let input = program.widened(question, Source::Operand(0), 0);
    let total = program.sum(input, &all, true);
    let mean = program.pair(Op::Div, total, number(count));
    let away = program.pair(Op::Sub, input, mean);
    let squares = program.unary(Op::Square, away);
    let sum = program.sum(squares, &all, question.flag("keepdim"));
    let var = program.pair(Op::Div, sum, number((count - correction).max(0.0)));
    Some(program.yields([var]))
}

fn logsumexp(question: &Question<'_>) -> Option<Program> {
    let dims = reduce::folded(question)?;
    if !is_cut(question, 0, &dims) || !question.meta(0)?.dtype.is_float() {
        return None;
    }
    let all = list(&dims);
    let keepdim = question.flag("keepdim");
    let mut program = Program::default();
    let input = program.widened(question, Source::Operand(0), 0);
    let most = program.most(Op::Amax, input, &all, true);
    let most = program.whole(most, kept(question, 0, &dims)?);
    // Nothing is subtracted from infinities.
    let infinite = program.unary(Op::Isinf, most);
    let most = program.push(Op::MaskedFill, [most, infinite, number(0.0)], []);
    let away = program.pair(Op::Sub, input, most);
    let powers = program.unary(Op::Exp, away);
    let sum = program.sum(powers, &all, keepdim);
    let log = program.unary(Op::Log, sum);
    // A sum of one element drops the dimensions that the maximum keeps.
    let most = if keepdim { most } else { program.sum(most, &all, false) };
    let result = program.pair(Op::Add, log, most);
    Some(program.yields([result]))
}

/// The extreme value of the whole, then the first place that holds it (or is not a number).
fn position(question: &Question<'_>) -> Option<Program> {
    let rank = question.rank(0)?;
    if *question.attr("dim") == Attr::Absent {
        return flat_position(question, rank);
    }
    let dim = question.dim("dim", rank)?;
    if !is_cut(question, 0, &[dim]) {
        return None;
    }
    let shape = question.meta(0)?.dims;
    let size = *shape.get(dim)?;
    let most = matches!(question.op, Op::Argmax | Op::MaxDim);
    let keepdim = question.flag("keepdim");
    let along = list(&[dim]);
    let mut program = Program::default();
    let input = Source::Operand(0);
    let fold = if most { Op::Amax } else { Op::Amin };
    let extreme = program.most(fold, input, &along, true);
    let extreme_meta = Meta { dtype: question.meta(0)?.dtype, ..kept(question, 0, &[dim])? };
    let extreme = program.whole(extreme, extreme_meta);
    let mut here = program.pair(Op::Eq, input, extreme);
    if question.meta(0)?.dtype.is_float() {
        let odd = program.unary(Op::Isnan, input);
        here = program.pair(Op::LogicalOr, here, odd);
    }
    let integer = |value| Attr::Scalar(Scalar::Int(value));
    let places = program.push(
        Op::Arange,
        [],
        [integer(0), integer(size), integer(1), Attr::Dtype(Dtype::I64)],
    );
    let mut seen = Dims::EMPTY;
    for axis in 0..rank {
        if !seen.push(if axis == dim { size } else { 1 }) {
            return None;
        }
    }
    let places = program.push(Op::Reshape, [places], [Attr::Ints(seen)]);
    let candidates = program.push(Op::Where, [here, places, Source::Scalar(Scalar::Int(size))], []);
    let first = program.most(Op::Amin, candidates, &along, keepdim);
    if matches!(question.op, Op::Argmax | Op::Argmin) {
        return Some(program.yields([first]));
    }
    let value = if keepdim { extreme } else { program.most(fold, extreme, &along, false) };
    Some(program.yields([value, first]))
}

/// Elements of the whole are numbered in order.
fn flat_position(question: &Question<'_>, rank: usize) -> Option<Program> {
    let every: SmallVec<[usize; 8]> = (0..rank).collect();
    if !is_cut(question, 0, &every) {
        return None;
    }
    let mut program = Program::default();
    let shape = list(&[usize::try_from(question.meta(0)?.elements()).ok()?]);
    let flat = program.push(Op::Reshape, [Source::Operand(0)], [shape]);
    let found = program.push(question.op, [flat], [Attr::Int(0), Attr::Bool(false)]);
    Some(program.yields([found]))
}

/// Two numbers a row travel: the maximum and the sum of exponentials.
fn softmax(question: &Question<'_>) -> Option<Program> {
    let dim = question.dim("dim", question.rank(0)?)?;
    if !is_cut(question, 0, &[dim]) {
        return None;
    }
    let along = list(&[dim]);
    let mut program = Program::default();
    let mut input = Source::Operand(0);
    if let Attr::Dtype(dtype) = *question.attr("dtype") {
        input = program.push(Op::Cast, [input], [Attr::Dtype(dtype)]);
    } else {
        input = program.widened(question, input, 0);
    }
    let most = program.most(Op::Amax, input, &along, true);
    let away = program.pair(Op::Sub, input, most);
    let powers = program.unary(Op::Exp, away);
    let sum = program.sum(powers, &along, true);
    let result = if question.op == Op::Softmax {
        program.pair(Op::Div, powers, sum)
    } else {
        let log = program.unary(Op::Log, sum);
        program.pair(Op::Sub, away, log)
    };
    Some(program.yields([result]))
}

/// One number a row travels.
fn softmax_backward(question: &Question<'_>) -> Option<Program> {
    let dim = question.dim("dim", question.rank(1)?)?;
    if !is_cut(question, 0, &[dim]) && !is_cut(question, 1, &[dim]) {
        return None;
    }
    let along = list(&[dim]);
    let mut program = Program::default();
    let grad = program.widened(question, Source::Operand(0), 0);
    let out = program.widened(question, Source::Operand(1), 1);
    let result = if question.op == Op::SoftmaxBackward {
        let product = program.pair(Op::Mul, grad, out);
        let sum = program.sum(product, &along, true);
        let away = program.pair(Op::Sub, grad, sum);
        program.pair(Op::Mul, out, away)
    } else {
        let sum = program.sum(grad, &along, true);
        let powers = program.unary(Op::Exp, out);
        let share = program.pair(Op::Mul, powers, sum);
        program.pair(Op::Sub, grad, share)
    };
    Some(program.yields([result]))
}

/// The dimensions that are normalised, counted from the operand at `position`.
fn normalized(question: &Question<'_>, position: usize) -> Option<SmallVec<[usize; 8]>> {
    let rank = question.rank(position)?;
    let first = rank.checked_sub(question.ints("normalized_shape")?.len())?;
    Some((first..rank).collect())
}

/// Mean and variance of the whole rows from sums over the pieces.
fn layer_norm(question: &Question<'_>) -> Option<Program> {
    let dims = normalized(question, 0)?;
    let Attr::Float(eps) = *question.attr("eps") else { return None };
    if !is_cut(question, 0, &dims) {
        return None;
    }
    let all = list(&dims);
    let count = number(count_of(question, 0, &dims)?);
    let mut program = Program::default();
    let input = program.widened(question, Source::Operand(0), 0);
    let total = program.sum(input, &all, true);
    let total = program.whole(total, kept(question, 0, &dims)?);
    let mean = program.pair(Op::Div, total, count);
    let away = program.pair(Op::Sub, input, mean);
    let squares = program.unary(Op::Square, away);
    let sum = program.sum(squares, &all, true);
    let var = program.pair(Op::Div, sum, count);
    let shifted = program.pair(Op::Add, var, number(eps));
    let rstd = program.unary(Op::Rsqrt, shifted);
    let mut result = program.pair(Op::Mul, away, rstd);
    if question.meta(1).is_some() {
        result = program.pair(Op::Mul, result, Source::Operand(1));
    }
    if question.meta(2).is_some() {
        result = program.pair(Op::Add, result, Source::Operand(2));
    }
    Some(program.yields([result, mean, rstd]))
}

/// Operands: gradient, input, mean, 1/deviation, weight.
fn layer_norm_backward(question: &Question<'_>) -> Option<Program> {
    let dims = normalized(question, 1)?;
    if !is_cut(question, 0, &dims) && !is_cut(question, 1, &dims) {
        return None;
    }
    let (all, count) = (list(&dims), number(count_of(question, 1, &dims)?));
    let rows = list(&(0..*dims.first()?).collect::<SmallVec<[usize; 8]>>());
    let mut program = Program::default();
    let grad = program.widened(question, Source::Operand(0), 0);
    let input = program.widened(question, Source::Operand(1), 1);
    let away = program.pair(Op::Sub, input, Source::Operand(2));
    let normal = program.pair(Op::Mul, away, Source::Operand(3));
    let weighted = if question.meta(4).is_some() {
        program.pair(Op::Mul, grad, Source::Operand(4))
    } else {
        grad
    };
    let sum = program.sum(weighted, &all, true);
    let mean = program.pair(Op::Div, sum, count);
    let product = program.pair(Op::Mul, weighted, normal);
    let sum = program.sum(product, &all, true);
    let slope = program.pair(Op::Div, sum, count);
    let tilt = program.pair(Op::Mul, normal, slope);
    let level = program.pair(Op::Sub, weighted, mean);
    let level = program.pair(Op::Sub, level, tilt);
    let result = program.pair(Op::Mul, level, Source::Operand(3));
    let product = program.pair(Op::Mul, grad, normal);
    let by_rows = |program: &mut Program, operand| match &rows {
        // Without rows before the normalised dimensions there is nothing to fold.
        Attr::Ints(dims) if dims.is_empty() => operand,
        rows => program.sum(operand, rows, false),
    };
    let weight = by_rows(&mut program, product);
    let bias = by_rows(&mut program, grad);
    Some(program.yields([result, weight, bias]))
}

const MEAN: u8 = 1;
const SUM: Attr = Attr::Choice(2);

fn nll_loss(question: &Question<'_>) -> Option<Program> {
    let every: SmallVec<[usize; 8]> = (0..question.rank(0)?).collect();
    let cut = is_cut(question, 0, &every) || is_cut(question, 1, &every);
    if cut || is_cut(question, 2, &[0]) { mean_by_weight(question) } else { None }
}

/// The mean over the weight of the whole batch, which only the data know.
pub(super) fn mean_by_weight(question: &Question<'_>) -> Option<Program> {
    if *question.attr("reduction") != Attr::Choice(MEAN) {
        return None;
    }
    let mut program = Program::default();
    let operands = (0..question.args.len()).map(|position| source(question, position));
    let mut attrs: SmallVec<[Attr; 2]> = question.attrs.iter().cloned().collect();
    *attrs.get_mut(question.op.info().attr_index("reduction")?)? = SUM;
    program.push(question.op, operands, attrs);
    let rest = (1..question.outputs.len()).map(|output| Source::Step(0, output));
    let results: SmallVec<[Source; 2]> = rest.collect();
    let mean = program.pair(Op::Div, Source::Step(0, 0), *results.last()?);
    Some(program.yields([mean].into_iter().chain(results)))
}

pub(super) fn source(question: &Question<'_>, position: usize) -> Source {
    if question.meta(position).is_some() { Source::Operand(position) } else { Source::Absent }
}

fn mse_loss(question: &Question<'_>) -> Option<Program> {
    let dims: SmallVec<[usize; 8]> = (0..question.rank(0)?).collect();
    let is_mean = *question.attr("reduction") == Attr::Choice(MEAN);
    let cut = is_cut(question, 0, &dims) || is_cut(question, 1, &dims);
    if !is_mean || !cut || question.meta(0)?.dims != question.meta(1)?.dims {
        return None;
    }
    let mut program = Program::default();
    let sum = program.push(Op::MseLoss, [Source::Operand(0), Source::Operand(1)], [SUM]);
    let mean = program.pair(Op::Div, sum, number(count_of(question, 0, &dims)?));
    Some(program.yields([mean]))
}

/// A mean's gradient is a sum's over the count of the whole.
fn mse_loss_backward(question: &Question<'_>) -> Option<Program> {
    let dims: SmallVec<[usize; 8]> = (0..question.rank(1)?).collect();
    let is_mean = *question.attr("reduction") == Attr::Choice(MEAN);
    let cut = is_cut(question, 1, &dims) || is_cut(question, 2, &dims);
    if !is_mean || !cut || question.meta(1)?.dims != question.meta(2)?.dims {
        return None;
    }
    let mut program = Program::default();
    let count = number(count_of(question, 1, &dims)?);
    let share = program.pair(Op::Div, Source::Operand(0), count);
    let operands = [share, Source::Operand(1), Source::Operand(2)];
    let result = program.push(Op::MseLossBackward, operands, [SUM]);
    Some(program.yields([result]))
}

/// One index of a cut dimension: a window that one member holds, then without the dimension.
fn select(question: &Question<'_>) -> Option<Program> {
    let dim = question.dim("dim", question.rank(0)?)?;
    if !is_cut(question, 0, &[dim]) {
        return None;
    }
    let size = *question.meta(0)?.dims.get(dim)?;
    let index = question.int("index")?;
    let index = if index < 0 { index + size } else { index };
    let mut program = Program::default();
    let attrs = [i64::try_from(dim).ok()?, index, index + 1, 1].map(Attr::Int);
    let row = program.push(Op::Slice, [Source::Operand(0)], attrs);
    let result = program.push(Op::Reshape, [row], [Attr::Ints(question.outputs.first()?.dims)]);
    Some(program.yields([result]))
}
