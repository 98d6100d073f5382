//! Look-ups: local along the dimensions that are not indexed, and along those of the indices.

use super::rewrite::{Program, Source, is_cut};
use super::{Lead, Local, Question, Strategy, cut};
use crate::placement::{Fold, Placement};
use crate::{Attr, Dims, Dtype, Op, Scalar};
use smallvec::SmallVec;

const SUM: Placement = Placement::Partial(Fold::Sum);

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let at = |dim: usize| cut(dim, lead.pieces);
    let whole = Placement::Replicate;
    match (question.op, lead.position) {
        (Op::Embedding, 1) => Some(question.answer([whole, at(lead.dim)], [at(lead.dim)])),
        (Op::Embedding, 0) if lead.dim == 1 => {
            Some(question.answer([at(1)], [at(question.out_rank()?.checked_sub(1)?)]))
        }
        (Op::Embedding, 0) => masked(question, lead, question.answer([at(0)], [SUM])),
        (Op::EmbeddingBackward, _) if lead.dim < question.rank(1)? => {
            Some(question.answer([at(lead.dim), at(lead.dim)], [SUM]))
        }
        (Op::EmbeddingBackward, 0) => Some(question.answer([at(lead.dim)], [at(1)])),
        (Op::Gather, position) => gather(question, lead, position),
        (Op::IndexSelect, 0) => {
            let dim = question.dim("dim", question.rank(0)?)?;
            if dim == lead.dim {
                return masked(question, lead, question.answer([at(dim)], [SUM]));
            }
            Some(question.answer([at(lead.dim)], [at(lead.dim)]))
        }
        (Op::IndexSelect, _) => {
            let dim = question.dim("dim", question.rank(0)?)?;
            let dim = if lead.dim == 0 { dim } else { return None };
            Some(question.answer([whole, at(0)], [at(dim)]))
        }
        (Op::Scatter | Op::ScatterAdd | Op::Sort | Op::Topk, position) => {
            let dim = question.dim("dim", question.rank(0)?)?;
            let writes = matches!(question.op, Op::Scatter | Op::ScatterAdd);
            match (dim == lead.dim, position) {
                (false, _) => question.alike(lead, lead.dim),
                (true, 0) if writes => {
                    masked(question, lead, question.answer([at(dim)], [at(dim)]))
                }
                (true, _) => None,
            }
        }
        (Op::IndexAdd, position @ (0 | 2)) => {
            let dim = question.dim("dim", question.rank(0)?)?;
            if dim == lead.dim && position == 0 {
                return masked(question, lead, question.answer([at(dim)], [at(dim)]));
            }
            if dim == lead.dim {
                return None;
            }
            Some(question.answer([at(lead.dim), whole, at(lead.dim)], [at(lead.dim)]))
        }
        (Op::Tril | Op::Triu, _) => triangle(question, lead),
        (Op::Index | Op::IndexPut, _) => picks(question, lead),
        _ => None,
    }
}

/// Picking elements is linear and keeps them; so is leaving out a triangle, which is a zero to add.
pub(super) fn partial(question: &Question<'_>, position: usize, fold: Fold) -> Option<Strategy> {
    let picks = matches!(question.op, Op::Embedding | Op::Gather | Op::IndexSelect | Op::Index);
    let zeros = matches!(question.op, Op::Tril | Op::Triu | Op::EmbeddingBackward);
    let is_piece = *question.attr("total") != Attr::Absent;
    let passes = position == 0 && (picks && !is_piece || (picks || zeros) && fold == Fold::Sum);
    let partial = || Placement::Partial(fold);
    passes.then(|| question.answer([partial()], [partial()]))
}

fn gather(question: &Question<'_>, lead: Lead<'_>, position: usize) -> Option<Strategy> {
    let dim = question.dim("dim", question.rank(0)?)?;
    let here = cut(lead.dim, lead.pieces);
    if lead.dim != dim {
        return question.alike(lead, lead.dim);
    }
    if position == 1 {
        return Some(question.answer([Placement::Replicate, here.clone()], [here]));
    }
    masked(question, lead, question.answer([here], [SUM]))
}

/// Where the dimensions of an advanced index are among those of what it picks.
struct Picks {
    /// Which dimensions of the operand have an index, as far as there are index operands.
    picked: SmallVec<[bool; 8]>,
    /// Dimensions of the indices together, and where they begin in the result.
    shared: usize,
    at: usize,
}

impl Picks {
    fn new(question: &Question<'_>, first: usize) -> Option<Self> {
        let indices = question.args.get(first..)?;
        let picked: SmallVec<[bool; 8]> = indices.iter().map(|arg| arg.meta.is_some()).collect();
        let shared = indices.iter().filter_map(|arg| Some(arg.meta?.dims.len())).max()?;
        let before = picked.iter().position(|&picked| picked)?;
        let run = picked.iter().skip(before).take_while(|&&picked| picked).count();
        let adjacent = run == picked.iter().filter(|&&picked| picked).count();
        Some(Self { picked, shared, at: if adjacent { before } else { 0 } })
    }

    /// Where a dimension of the operand that has no index is in the result.
    fn kept(&self, dim: usize) -> Option<usize> {
        if self.picked.get(dim) == Some(&true) {
            return None;
        }
        let before = dim - self.picked.iter().take(dim).filter(|&&picked| picked).count();
        Some(if before < self.at { before } else { before + self.shared })
    }
}

/// Advanced indexing: local along dimensions without an index, and (reading) along those of the indices.
fn picks(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let reads = question.op == Op::Index;
    let first = if reads { 1 } else { 2 };
    let picks = Picks::new(question, first)?;
    let here = cut(lead.dim, lead.pieces);
    if lead.position == 0 {
        let to = picks.kept(lead.dim)?;
        if reads {
            return Some(question.answer([here], [cut(to, lead.pieces)]));
        }
        let kept = question.rank(0)? - picks.picked.iter().filter(|&&picked| picked).count();
        let values = question.aligned(kept + picks.shared - to, lead).get(1)?.clone();
        return Some(question.answer([here.clone(), values], [here]));
    }
    if !reads {
        return None;
    }
    let from_end = question.rank(lead.position)? - lead.dim;
    let to = picks.at + picks.shared - from_end;
    // A cut dimension of size 1 may be what is stretched.
    if question.outputs.first()?.dims.get(to) != Some(&lead.size) {
        return None;
    }
    let mut needs = question.aligned(from_end, lead);
    *needs.first_mut()? = Placement::Replicate;
    Some(question.answer(needs, [cut(to, lead.pieces)]))
}

/// One index along the cut dimension: what each member holds of it is looked up there.
pub(super) fn index(question: &Question<'_>) -> Option<Program> {
    let picks = Picks::new(question, 1)?;
    let dim = picks.picked.iter().position(|&picked| picked)?;
    let single = picks.picked.iter().filter(|&&picked| picked).count() == 1;
    if !single || !is_cut(question, 0, &[dim]) {
        return None;
    }
    let size = *question.meta(0)?.dims.get(dim)?;
    let places = question.meta(dim + 1)?;
    let mut program = Program::default();
    let given = Source::Operand(dim + 1);
    // An index counts from the back where it is negative.
    let number = |value| Source::Scalar(Scalar::Int(value));
    let given = program.push(Op::Cast, [given], [Attr::Dtype(Dtype::I64)]);
    let later = program.pair(Op::Add, given, number(size));
    let negative = program.pair(Op::Lt, given, number(0));
    let place = program.push(Op::Where, [negative, later, given], []);
    let line = Attr::Ints(Dims::new(&[places.elements()])?);
    let place = program.push(Op::Reshape, [place], [line]);
    let along = [Attr::Int(i64::try_from(dim).ok()?), Attr::Absent, Attr::Absent];
    let found = program.push(Op::IndexSelect, [Source::Operand(0), place], along);
    let shape = Attr::Ints(question.outputs.first()?.dims);
    let result = program.push(Op::Reshape, [found], [shape]);
    Some(program.yields([result]))
}

/// Each member looks up what it holds; what it does not hold counts as zero there, so that the sum is the whole.
pub(super) fn masked(
    question: &Question<'_>,
    lead: Lead<'_>,
    mut strategy: Strategy,
) -> Option<Strategy> {
    let info = question.op.info();
    let (start, total) = (info.attr_index("start")?, info.attr_index("total")?);
    // What is a piece of something larger already keeps its own range.
    let is_piece = *question.attr("total") != Attr::Absent;
    if is_piece || lead.pieces.iter().any(|intervals| intervals.len() > 1) {
        return None;
    }
    let pieces = lead.pieces.clone();
    strategy.locals.push(Local::Range { start, total, size: lead.size, pieces });
    Some(strategy)
}

/// The diagonal moves with the piece's first row or column.
fn triangle(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let rank = question.rank(0)?;
    let mut strategy = question.alike(lead, lead.dim)?;
    if lead.dim + 2 >= rank {
        if lead.pieces.iter().any(|intervals| intervals.len() > 1) {
            return None;
        }
        let attr = question.op.info().attr_index("diagonal")?;
        let factor = if lead.dim + 2 == rank { 1 } else { -1 };
        strategy.locals.push(Local::Shift { attr, factor, pieces: lead.pieces.clone() });
    }
    Some(strategy)
}
