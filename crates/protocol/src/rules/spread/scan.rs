//! Operators that go through a cut dimension in order: each member through its piece, then all through what is left.

use super::program::{Program, Source};
use super::rewrite::{is_half, list};
use super::{Question, cut};
use crate::placement::{Pieces, Placement};
use crate::{Attr, Dims, Dtype, Meta, Op, Scalar};
use smallvec::SmallVec;

/// The pieces of dimension `dim` of the first operand: one interval a member.
fn pieces<'q>(question: &Question<'q>, dim: usize) -> Option<&'q Pieces> {
    match question.args.first()?.placement {
        Placement::Shard { dim: cut, pieces } if *cut == dim => {
            pieces.iter().all(|intervals| intervals.len() <= 1).then_some(pieces)
        }
        _ => None,
    }
}

/// As many for each member.
fn equal(count: i64, members: usize) -> Option<Pieces> {
    let total = count.checked_mul(i64::try_from(members).ok()?)?;
    Some(Pieces::even(total, members))
}

fn with_size(dims: &Dims, dim: usize, size: i64) -> Option<Dims> {
    let mut dims = *dims;
    *dims.as_mut_slice().get_mut(dim)? = size;
    Some(dims)
}

/// Sums through each piece, plus the totals of the pieces before: one total a member travels.
pub(super) fn cumsum(question: &Question<'_>) -> Option<Program> {
    let rank = question.rank(0)?;
    let dim = question.dim("dim", rank)?;
    let pieces = pieces(question, dim)?;
    if !pieces.in_order() {
        return None;
    }
    let members = i64::try_from(question.members).ok()?;
    let ones = equal(1, question.members)?;
    let mut sums = *question.outputs.first()?;
    if is_half(sums.dtype) {
        sums.dtype = Dtype::F32;
    }
    let totals = Meta::new(sums.dtype, with_size(&sums.dims, dim, members)?);
    let along = Attr::Int(i64::try_from(dim).ok()?);
    let (here, one) = (cut(dim, pieces), cut(dim, &ones));
    let whole = Placement::Replicate;
    let (input, dtype) = (Source::Operand(0), Attr::Dtype(sums.dtype));
    let mut program = Program::default();
    let local = program.push(Op::Cumsum, [input], [along.clone(), dtype.clone()]);
    program.force([here.clone()], [(sums, here.clone())]);
    let total = program.push(Op::Sum, [input], [list(&[dim]), Attr::Bool(true), dtype]);
    program.force([here.clone()], [(totals, one.clone())]);
    let running = program.push(Op::Cumsum, [total], [along, Attr::Absent]);
    program.force([whole.clone()], [(totals, whole)]);
    // Without the last, after a zero: a difference would turn infinities into no numbers.
    let mut pad = Dims::EMPTY;
    for _ in dim + 1..rank {
        let _short = pad.push(0) && pad.push(0);
    }
    if !(pad.push(1) && pad.push(-1)) {
        return None;
    }
    let before = program.push(Op::Pad, [running], [Attr::Ints(pad), Attr::Float(0.0)]);
    let result = program.pair(Op::Add, local, before);
    program.force([here.clone(), one], [(sums, here)]);
    Some(program.yields([result]))
}

/// The best of the members' best.
pub(super) fn topk(question: &Question<'_>) -> Option<Program> {
    let rank = question.rank(0)?;
    let dim = question.dim("dim", rank)?;
    let count = question.int("k")?;
    let pieces = pieces(question, dim)?;
    let input = *question.meta(0)?;
    let size = *input.dims.get(dim)?;
    let candidates = equal(count, question.members)?;
    if count == 0 || candidates.total() >= size || pieces.sizes().any(|size| size < count) {
        return None;
    }
    let few = with_size(&input.dims, dim, candidates.total())?;
    let (values, places) = (Meta::new(input.dtype, few), Meta::new(Dtype::I64, few));
    let (here, there) = (cut(dim, pieces), cut(dim, &candidates));
    let whole = || Placement::Replicate;
    let mut attrs: SmallVec<[Attr; 4]> = question.attrs.iter().cloned().collect();
    *attrs.get_mut(question.op.info().attr_index("dim")?)? = Attr::Int(i64::try_from(dim).ok()?);
    let mut program = Program::default();
    let local = program.push(Op::Topk, [Source::Operand(0)], attrs.clone());
    program.force([here.clone()], [(values, there.clone()), (places, there.clone())]);
    let global = program.numbers(dim, &input.dims)?;
    let of_whole = program.push(Op::Gather, [global, output(local, 1)], gather(dim)?);
    program.force([here, there.clone()], [(places, there)]);
    let best = program.push(Op::Topk, [local], attrs);
    program.force([whole()], question.outputs.iter().map(|output| (*output, Placement::Replicate)));
    let found = program.push(Op::Gather, [of_whole, output(best, 1)], gather(dim)?);
    Some(program.yields([best, found]))
}

fn gather(dim: usize) -> Option<[Attr; 3]> {
    Some([Attr::Int(i64::try_from(dim).ok()?), Attr::Absent, Attr::Absent])
}

/// Another result of the same step.
fn output(source: Source, output: usize) -> Source {
    match source {
        Source::Step(step, _) => Source::Step(step, output),
        other => other,
    }
}

impl Program {
    /// Each element's index along `dim`, in this shape.
    fn numbers(&mut self, dim: usize, dims: &Dims) -> Option<Source> {
        let integer = |value| Attr::Scalar(Scalar::Int(value));
        let size = *dims.get(dim)?;
        let attrs = [integer(0), integer(size), integer(1), Attr::Dtype(Dtype::I64)];
        let numbers = self.push(Op::Arange, [], attrs);
        let mut shape = Dims::EMPTY;
        for other in 0..dims.len() {
            if !shape.push(if other == dim { size } else { 1 }) {
                return None;
            }
        }
        let numbers = self.push(Op::Reshape, [numbers], [Attr::Ints(shape)]);
        Some(self.push(Op::Expand, [numbers], [Attr::Ints(*dims)]))
    }
}
