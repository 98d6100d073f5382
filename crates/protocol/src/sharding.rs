//! How operators run on pieces: which operands must be cut or whole, and what the results then are.
//!
//! One dimension of one operand is cut over a mesh. A rule either says how the operator runs on the pieces, or has no
//! answer; then the planner gathers, runs whole and is right. Rules only save bytes.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "an operator without a rule here is gathered, which is slow and right"
)]

use crate::{Attr, Dims, Family, Meta, Op};
use smallvec::{SmallVec, smallvec};

/// What a rule knows of an operand: its metadata and the dimension it is cut on now.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardArg<'a> {
    pub meta: Option<&'a Meta>,
    pub cut: Option<usize>,
}

/// What the operator needs of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Whole,
    Cut(usize),
}

/// How partial results become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    Sum,
    Max,
    Min,
}

/// What the operator yields on each worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Give {
    Whole,
    Cut(usize),
    Partial(Fold),
}

/// What is left to do after partial results are folded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finish {
    Nothing,
    /// Every result is divided by this number: a mean from a sum.
    DivideBy(f64),
    /// Result 0 is divided by result 1: a mean over a weight that only the data know.
    DivideByOutput1,
}

/// How an operator runs on pieces of a dimension of `size`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    pub size: i64,
    pub needs: SmallVec<[Need; 4]>,
    pub gives: SmallVec<[Give; 2]>,
    /// The operator to run on the pieces, where it is another one.
    pub op: Op,
    /// Attributes for the pieces; a size attribute in them holds the global size at `local_dim`.
    pub attrs: SmallVec<[Attr; 2]>,
    /// Position of a size attribute whose entry at this dimension becomes the piece's size.
    pub local_size: Option<(usize, usize)>,
    pub finish: Finish,
}

/// What [`spread`] is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub op: Op,
    pub args: &'a [ShardArg<'a>],
    pub attrs: &'a [Attr],
    pub outputs: &'a [Meta],
    /// Workers in the mesh.
    pub members: usize,
}

/// The rule's answer; `None` where it has none.
pub fn spread(question: &Question<'_>) -> Option<Spread> {
    match question.op.info().family {
        Family::Elementwise | Family::Update => elementwise(question),
        Family::Contract => contract(question),
        Family::Reduce => reduce(question),
        Family::Normalize => normalize(question),
        Family::View => view(question),
        Family::Index => index(question),
        Family::Loss => loss(question),
        Family::Create | Family::Random | Family::Control | Family::Collective => None,
    }
}

impl<'a> Question<'a> {
    /// The first operand that is cut: position, dimension and size there.
    fn lead(&self) -> Option<(usize, usize, i64)> {
        self.args.iter().enumerate().find_map(|(position, arg)| {
            let cut = arg.cut?;
            Some((position, cut, *arg.meta?.dims.get(cut)?))
        })
    }

    fn rank(&self, position: usize) -> Option<usize> {
        Some(self.args.get(position)?.meta?.dims.len())
    }

    fn attr(&self, name: &str) -> &'a Attr {
        self.op
            .info()
            .attr_index(name)
            .and_then(|index| self.attrs.get(index))
            .unwrap_or(&Attr::Absent)
    }

    fn dim(&self, name: &str, rank: usize) -> Option<usize> {
        match self.attr(name) {
            Attr::Int(dim) => normal(*dim, rank),
            Attr::Absent
            | Attr::Bool(_)
            | Attr::Float(_)
            | Attr::Scalar(_)
            | Attr::Dtype(_)
            | Attr::Ints(_)
            | Attr::List(_)
            | Attr::Choice(_)
            | Attr::Text(_) => None,
        }
    }

    fn ints(&self, name: &str) -> Option<Dims> {
        match self.attr(name) {
            Attr::Ints(dims) => Some(*dims),
            Attr::Absent
            | Attr::Bool(_)
            | Attr::Int(_)
            | Attr::Float(_)
            | Attr::Scalar(_)
            | Attr::Dtype(_)
            | Attr::List(_)
            | Attr::Choice(_)
            | Attr::Text(_) => None,
        }
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.attr(name), Attr::Bool(true))
    }

    fn answer(&self, size: i64, needs: SmallVec<[Need; 4]>, gives: SmallVec<[Give; 2]>) -> Spread {
        Spread {
            size,
            needs,
            gives,
            op: self.op,
            attrs: self.attrs.iter().cloned().collect(),
            local_size: None,
            finish: Finish::Nothing,
        }
    }

    /// Every value operand that has a dimension `from_end` places before its end of size `size` is cut there.
    fn aligned_needs(&self, from_end: usize, size: i64) -> SmallVec<[Need; 4]> {
        let need = |arg: &ShardArg<'_>| {
            let Some(meta) = arg.meta else { return Need::Whole };
            let Some(dim) = meta.dims.len().checked_sub(from_end) else { return Need::Whole };
            if meta.dims.get(dim) == Some(&size) { Need::Cut(dim) } else { Need::Whole }
        };
        self.args.iter().map(need).collect()
    }
}

fn normal(dim: i64, rank: usize) -> Option<usize> {
    let rank_signed = i64::try_from(rank).ok()?;
    let dim = if dim < 0 { dim + rank_signed } else { dim };
    usize::try_from(dim).ok().filter(|&dim| dim < rank)
}

/// All operands are cut where they are aligned with the result's cut dimension; broadcast ones stay whole.
fn elementwise(question: &Question<'_>) -> Option<Spread> {
    let (position, cut, size) = question.lead()?;
    let from_end = question.rank(position)? - cut;
    let out_dim = question.outputs.first()?.dims.len().checked_sub(from_end)?;
    for output in question.outputs {
        if output.dims.len().checked_sub(from_end) != Some(out_dim)
            || output.dims.get(out_dim) != Some(&size)
        {
            return None;
        }
    }
    let needs = question.aligned_needs(from_end, size);
    Some(question.answer(
        size,
        needs,
        question.outputs.iter().map(|_| Give::Cut(out_dim)).collect(),
    ))
}

/// By the letter that is cut: in both operands and not in the result, the result is a partial sum.
fn contract(question: &Question<'_>) -> Option<Spread> {
    let (position, cut, size) = question.lead()?;
    let out_rank = question.outputs.first()?.dims.len();
    if question.op == Op::Linear {
        return linear(question, position, cut, size, out_rank);
    }
    let (lhs, rhs) = (question.rank(0)?, question.rank(1)?);
    if lhs < 2 || rhs < 2 {
        return None;
    }
    let from_end = if position == 0 { lhs - cut } else { rhs - cut };
    let (needs, give): (SmallVec<[Need; 4]>, Give) = match (position, from_end) {
        (0, 1) | (1, 2) => {
            (smallvec![Need::Cut(lhs - 1), Need::Cut(rhs - 2)], Give::Partial(Fold::Sum))
        }
        (0, 2) => (smallvec![Need::Cut(lhs - 2), Need::Whole], Give::Cut(out_rank - 2)),
        (1, 1) => (smallvec![Need::Whole, Need::Cut(rhs - 1)], Give::Cut(out_rank - 1)),
        (_, _) => {
            (question.aligned_needs(from_end, size), Give::Cut(out_rank.checked_sub(from_end)?))
        }
    };
    Some(question.answer(size, needs, smallvec![give]))
}

fn linear(
    question: &Question<'_>,
    position: usize,
    cut: usize,
    size: i64,
    out_rank: usize,
) -> Option<Spread> {
    let last = question.rank(0)?.checked_sub(1)?;
    let bias = question.args.get(2).is_some_and(|arg| arg.meta.is_some());
    let (needs, give): (SmallVec<[Need; 4]>, Give) = match (position, cut) {
        (0, dim) if dim < last => {
            (smallvec![Need::Cut(dim), Need::Whole, Need::Whole], Give::Cut(dim))
        }
        // The bias would be added once a worker.
        (0 | 1, _) if (position == 0 || cut == 1) && bias => return None,
        (0, _) | (1, 1) => {
            (smallvec![Need::Cut(last), Need::Cut(1), Need::Whole], Give::Partial(Fold::Sum))
        }
        _ => (
            smallvec![Need::Whole, Need::Cut(0), Need::Cut(0)],
            Give::Cut(out_rank.checked_sub(1)?),
        ),
    };
    Some(question.answer(
        size,
        needs.into_iter().take(question.args.len()).collect(),
        smallvec![give],
    ))
}

/// A reduction over other dimensions is local; over the cut one it is a partial result where the fold is known.
fn reduce(question: &Question<'_>) -> Option<Spread> {
    let (_, cut, size) = question.lead()?;
    let rank = question.rank(0)?;
    let cumulative = question.op == Op::Cumsum;
    let reduced: SmallVec<[usize; 8]> = match question.attr("dim") {
        Attr::Absent => (0..rank).collect(),
        Attr::Int(dim) => smallvec![normal(*dim, rank)?],
        Attr::Ints(dims) if dims.is_empty() => (0..rank).collect(),
        Attr::Ints(dims) => dims.iter().map(|&dim| normal(dim, rank)).collect::<Option<_>>()?,
        Attr::Bool(_)
        | Attr::Float(_)
        | Attr::Scalar(_)
        | Attr::Dtype(_)
        | Attr::List(_)
        | Attr::Choice(_)
        | Attr::Text(_) => return None,
    };
    if !reduced.contains(&cut) {
        let before = reduced.iter().filter(|&&dim| dim < cut).count();
        let dim = if cumulative || question.flag("keepdim") { cut } else { cut - before };
        let gives = question.outputs.iter().map(|_| Give::Cut(dim)).collect();
        return Some(question.answer(size, smallvec![Need::Cut(cut)], gives));
    }
    let fold = match question.op {
        Op::Sum | Op::Mean => Fold::Sum,
        // A worker with an empty piece has no maximum.
        Op::Amax if size >= i64::try_from(question.members).ok()? => Fold::Max,
        Op::Amin if size >= i64::try_from(question.members).ok()? => Fold::Min,
        _ => return None,
    };
    let mut answer =
        question.answer(size, smallvec![Need::Cut(cut)], smallvec![Give::Partial(fold)]);
    if question.op == Op::Mean {
        let dims = question.args.first()?.meta?.dims;
        let count = reduced.iter().filter_map(|&dim| dims.get(dim)).product::<i64>();
        answer.op = Op::Sum;
        answer.finish = Finish::DivideBy(to_float(count));
    }
    Some(answer)
}

#[allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "torch divides by the count as a double too"
)]
fn to_float(count: i64) -> f64 {
    count as f64
}

/// Local unless the normalised dimensions are cut; the weights' gradients are partial sums.
fn normalize(question: &Question<'_>) -> Option<Spread> {
    let (position, cut, size) = question.lead()?;
    let rank = question.rank(0)?;
    match question.op {
        Op::LayerNorm | Op::LayerNormBackward => {
            let normalized = question.ints("normalized_shape")?.len();
            let backward = question.op == Op::LayerNormBackward;
            let data = if backward { 4 } else { 1 };
            // A cut of a parameter says nothing of the rows.
            if position >= data || cut >= rank.checked_sub(normalized)? {
                return None;
            }
            let needs = (0..question.args.len())
                .map(|position| if position < data { Need::Cut(cut) } else { Need::Whole })
                .collect();
            let rest = if backward { Give::Partial(Fold::Sum) } else { Give::Cut(cut) };
            Some(question.answer(size, needs, smallvec![Give::Cut(cut), rest, rest]))
        }
        _ if question.dim("dim", rank)? != cut => {
            let needs = question.args.iter().map(|_| Need::Cut(cut)).collect();
            Some(question.answer(size, needs, smallvec![Give::Cut(cut)]))
        }
        _ => None,
    }
}

/// Views keep a cut dimension that stays a dimension of its own.
fn view(question: &Question<'_>) -> Option<Spread> {
    let (_, cut, size) = question.lead()?;
    let rank = question.rank(0)?;
    let from = question.args.first()?.meta?.dims;
    let to = question.outputs.first()?.dims;
    let local = |dim: usize| {
        let needs = question.args.iter().map(|_| Need::Cut(cut)).collect();
        question.answer(size, needs, smallvec![Give::Cut(dim)])
    };
    let resized = |dim: usize| {
        let mut answer = local(dim);
        answer.attrs = smallvec![Attr::Ints(to)];
        answer.local_size = Some((0, dim));
        answer
    };
    match question.op {
        Op::Reshape if from.get(..=cut)? == to.get(..=cut)? => Some(resized(cut)),
        Op::Expand => {
            let dim = cut + to.len().checked_sub(rank)?;
            // A cut dimension of size 1 may be what is stretched.
            if to.get(dim) == Some(&size) { Some(resized(dim)) } else { None }
        }
        Op::Permute => {
            let dims = question.ints("dims")?;
            let place = dims.iter().position(|&dim| normal(dim, rank) == Some(cut))?;
            Some(local(place))
        }
        Op::Slice | Op::Cat if question.dim("dim", rank)? != cut => Some(local(cut)),
        Op::Select => {
            let dim = question.dim("dim", rank)?;
            if dim == cut { None } else { Some(local(cut - usize::from(dim < cut))) }
        }
        Op::Stack => {
            let dim = question.dim("dim", rank + 1)?;
            Some(local(cut + usize::from(dim <= cut)))
        }
        Op::Flip if question.ints("dims")?.iter().all(|&dim| normal(dim, rank) != Some(cut)) => {
            Some(local(cut))
        }
        _ => None,
    }
}

/// Look-ups by cut indices are local; the gradient of the table is a partial sum.
fn index(question: &Question<'_>) -> Option<Spread> {
    let (position, cut, size) = question.lead()?;
    match (question.op, position) {
        (Op::Embedding, 1) => Some(question.answer(
            size,
            smallvec![Need::Whole, Need::Cut(cut)],
            smallvec![Give::Cut(cut)],
        )),
        (Op::EmbeddingBackward, _) if cut < question.rank(1)? => Some(question.answer(
            size,
            smallvec![Need::Cut(cut), Need::Cut(cut)],
            smallvec![Give::Partial(Fold::Sum)],
        )),
        (Op::Tril | Op::Triu, _) if cut + 2 < question.rank(0)? => {
            Some(question.answer(size, smallvec![Need::Cut(cut)], smallvec![Give::Cut(cut)]))
        }
        _ => None,
    }
}

/// A mean over a cut batch is a sum, folded, then divided by the global count.
fn loss(question: &Question<'_>) -> Option<Spread> {
    const NONE: u8 = 0;
    const MEAN: u8 = 1;
    const SUM: u8 = 2;
    let (position, cut, size) = question.lead()?;
    let Attr::Choice(reduction) = *question.attr("reduction") else { return None };
    let place = question.op.info().attr_index("reduction")?;
    let summed = |mut answer: Spread| {
        if reduction == MEAN {
            *answer.attrs.get_mut(place)? = Attr::Choice(SUM);
        }
        Some(answer)
    };
    let partial = Give::Partial(Fold::Sum);
    match question.op {
        Op::NllLoss if position < 2 && cut == 0 && question.rank(0)? > 1 => {
            let needs: SmallVec<[Need; 4]> = smallvec![Need::Cut(0), Need::Cut(0), Need::Whole];
            let give = if reduction == NONE { Give::Cut(0) } else { partial };
            let needs = needs.into_iter().take(question.args.len()).collect();
            let mut answer = question.answer(size, needs, smallvec![give, partial]);
            if reduction == MEAN {
                answer.finish = Finish::DivideByOutput1;
            }
            summed(answer)
        }
        Op::NllLossBackward if position < 3 && cut == 0 && question.rank(1)? > 1 => {
            let grad = if reduction == NONE { Need::Cut(0) } else { Need::Whole };
            let needs = smallvec![grad, Need::Cut(0), Need::Cut(0), Need::Whole, Need::Whole];
            Some(question.answer(size, needs, smallvec![Give::Cut(0)]))
        }
        Op::MseLoss | Op::MseLossBackward => {
            let first = usize::from(question.op == Op::MseLossBackward);
            let dims = question.args.get(first)?.meta?.dims;
            if question.args.get(first + 1)?.meta?.dims != dims || dims.get(cut) != Some(&size) {
                return None;
            }
            let mut needs: SmallVec<[Need; 4]> = smallvec![Need::Cut(cut); question.args.len()];
            let reduced = reduction != NONE;
            if reduced && first == 1 {
                *needs.first_mut()? = Need::Whole;
            }
            let give = if reduced && first == 0 { partial } else { Give::Cut(cut) };
            let mut answer = question.answer(size, needs, smallvec![give]);
            if reduction == MEAN {
                answer.finish = Finish::DivideBy(to_float(dims.elements()?));
            }
            summed(answer)
        }
        _ => None,
    }
}
