//! A number depends on its place in the whole tensor: each member draws its own box of it.

use super::{Lead, Local, Question, Strategy, cut};
use crate::Op;
use crate::placement::{Fold, Pieces, Placement};
use smallvec::smallvec;

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    if question.op == Op::RandomLike {
        return Some(like(question, lead));
    }
    let mut strategy = question.alike(lead, lead.dim)?;
    strategy.locals.push(random_box(question, lead.dim, lead.pieces)?);
    Some(strategy)
}

/// Nothing is read of the operand: where a piece is no box, each member draws all.
fn like(question: &Question<'_>, lead: Lead<'_>) -> Strategy {
    let here = || cut(lead.dim, lead.pieces);
    let local = || {
        let attr = question.op.info().attr_index("size")?;
        let size = Local::Size { attr, entry: lead.dim, pieces: lead.pieces.clone() };
        Some([size, random_box(question, lead.dim, lead.pieces)?])
    };
    let Some(locals) = local() else { return question.answer([here()], []) };
    let mut strategy = question.answer([here()], [here()]);
    strategy.locals.extend(locals);
    strategy
}

/// Contributions are not read either.
pub(super) fn partial(question: &Question<'_>, fold: Fold) -> Option<Strategy> {
    let unread = question.op == Op::RandomLike;
    unread.then(|| question.answer([Placement::Partial(fold)], []))
}

pub(super) fn made(question: &Question<'_>, dim: usize, pieces: &Pieces) -> Option<Strategy> {
    let attr = question.op.info().attr_index("size")?;
    let mut strategy = question.whole();
    strategy.gives = smallvec![cut(dim, pieces)];
    strategy.locals = smallvec![
        Local::Size { attr, entry: dim, pieces: pieces.clone() },
        random_box(question, dim, pieces)?,
    ];
    Some(strategy)
}

/// Boxes have one interval a dimension.
fn random_box(question: &Question<'_>, dim: usize, pieces: &Pieces) -> Option<Local> {
    let info = question.op.info();
    let (global, start) = (info.attr_index("global")?, info.attr_index("start")?);
    let boxes = pieces.iter().all(|intervals| intervals.len() <= 1);
    boxes.then(|| Local::Box { global, start, dim, pieces: pieces.clone() })
}
