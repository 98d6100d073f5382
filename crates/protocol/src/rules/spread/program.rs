//! Programs: instructions that together yield what one would.

use super::rewrite::is_half;
use super::{Local, Question, Strategy};
use crate::placement::Placement;
use crate::{Attr, Dtype, Meta, Op, Scalar};
use smallvec::SmallVec;

/// What a step works on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    Absent,
    Scalar(Scalar),
    /// An operand of the instruction that is rewritten.
    Operand(usize),
    /// A result of an earlier step.
    Step(usize, usize),
}

/// One instruction of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub op: Op,
    pub operands: SmallVec<[Source; 3]>,
    pub attrs: SmallVec<[Attr; 2]>,
    pub forced: Option<Forced>,
}

/// How a step runs along the mesh dimension that the program is for, where that is not for prices to say: its results
/// may then be such as no rule infers, one total a member for example.
#[derive(Clone, Debug, PartialEq)]
pub struct Forced {
    pub strategy: Strategy,
    pub outputs: SmallVec<[Meta; 2]>,
}

/// Instructions that together yield what one would.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    pub steps: Vec<Step>,
    pub results: SmallVec<[Source; 2]>,
}

impl Program {
    pub(super) fn push(
        &mut self,
        op: Op,
        operands: impl IntoIterator<Item = Source>,
        attrs: impl IntoIterator<Item = Attr>,
    ) -> Source {
        self.steps.push(Step {
            op,
            operands: operands.into_iter().collect(),
            attrs: attrs.into_iter().collect(),
            forced: None,
        });
        Source::Step(self.steps.len() - 1, 0)
    }

    /// The last step runs so, and has these results.
    pub(super) fn force(
        &mut self,
        needs: impl IntoIterator<Item = Placement>,
        gives: impl IntoIterator<Item = (Meta, Placement)>,
    ) {
        let (outputs, gives) = gives.into_iter().unzip();
        let needs = needs.into_iter().collect();
        let strategy = Strategy { needs, gives, locals: SmallVec::new() };
        if let Some(step) = self.steps.last_mut() {
            step.forced = Some(Forced { strategy, outputs });
        }
    }

    /// The forced last step has this on each member beside its operands.
    pub(super) fn localize(&mut self, local: Local) {
        if let Some(forced) = self.steps.last_mut().and_then(|step| step.forced.as_mut()) {
            forced.strategy.locals.push(local);
        }
    }

    pub(super) fn pair(&mut self, op: Op, left: Source, right: Source) -> Source {
        self.push(op, [left, right], [])
    }

    pub(super) fn unary(&mut self, op: Op, operand: Source) -> Source {
        self.push(op, [operand], [])
    }

    pub(super) fn sum(&mut self, operand: Source, dims: &Attr, keepdim: bool) -> Source {
        self.push(Op::Sum, [operand], [dims.clone(), Attr::Bool(keepdim), Attr::Absent])
    }

    pub(super) fn most(&mut self, op: Op, operand: Source, dims: &Attr, keepdim: bool) -> Source {
        self.push(op, [operand], [dims.clone(), Attr::Bool(keepdim)])
    }

    /// Half precision is computed in single precision, as the kernels do.
    pub(super) fn widened(
        &mut self,
        question: &Question<'_>,
        operand: Source,
        position: usize,
    ) -> Source {
        match question.meta(position) {
            Some(meta) if is_half(meta.dtype) => {
                self.push(Op::Cast, [operand], [Attr::Dtype(Dtype::F32)])
            }
            Some(_) | None => operand,
        }
    }

    /// A contribution that several steps read is folded once, for all of them.
    pub(super) fn whole(&mut self, source: Source, meta: Meta) -> Source {
        let whole = self.push(Op::Reshape, [source], [Attr::Ints(meta.dims)]);
        self.force([Placement::Replicate], [(meta, Placement::Replicate)]);
        whole
    }

    pub(super) fn yields(mut self, results: impl IntoIterator<Item = Source>) -> Self {
        self.results = results.into_iter().collect();
        self
    }
}
