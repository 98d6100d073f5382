//! Cross-entropy over cut classes: two small all-reduces, of the maximum and of three (without label smoothing two)
//! numbers a target. Everything else is local, or about one number a target.

use super::program::{Program, Source};
use super::rewrite::{count_of, is_cut, is_half, list, mean_by_weight, number};
use super::{Local, Question, cut};
use crate::placement::{Fold, Pieces, Placement};
use crate::{Attr, Dims, Dtype, Meta, Op, Scalar};
use smallvec::{SmallVec, smallvec};

const NONE: Attr = Attr::Choice(0);
const MEAN: Attr = Attr::Choice(1);

/// A program at work.
struct Entropy<'q> {
    question: &'q Question<'q>,
    program: Program,
    /// The dimension of the classes, and how many there are.
    class: usize,
    classes: f64,
    smoothing: f64,
    ignore: i64,
    /// Computed in.
    dtype: Dtype,
    /// One interval of classes a member, none of them empty.
    pieces: &'q Pieces,
}

/// What the second all-reduce brings, one number a target each.
struct Folded {
    /// The sum of the exponentials.
    sum: Source,
    /// Minus the target's score.
    picked: Source,
    /// The (weighted) sum of all scores, for label smoothing.
    scores: Option<Source>,
}

pub(super) fn cross_entropy(question: &Question<'_>) -> Option<Program> {
    let rank = question.rank(0)?;
    let class = usize::from(rank > 1);
    let every: SmallVec<[usize; 8]> = (0..rank).collect();
    if !is_cut(question, 0, &[class]) {
        let batch = is_cut(question, 0, &every) || is_cut(question, 1, &every);
        return if batch { mean_by_weight(question) } else { None };
    }
    let pieces = match question.args.first()?.placement {
        Placement::Shard { pieces, .. } => pieces,
        Placement::Replicate | Placement::Partial(_) => return None,
    };
    if pieces.iter().any(|intervals| intervals.len() != 1) || pieces.sizes().any(|size| size == 0) {
        return None;
    }
    let Attr::Float(smoothing) = *question.attr("label_smoothing") else { return None };
    let scores = question.meta(0)?.dtype;
    let entropy = Entropy {
        question,
        program: Program::default(),
        class,
        classes: count_of(question, 0, &[class])?,
        smoothing,
        ignore: question.int("ignore_index")?,
        dtype: if is_half(scores) { Dtype::F32 } else { scores },
        pieces,
    };
    entropy.finished()
}

impl Entropy<'_> {
    fn finished(mut self) -> Option<Program> {
        let target = self.target()?;
        let weight = self
            .question
            .meta(2)
            .map(|_| self.program.widened(self.question, Source::Operand(2), 2));
        let away = self.away()?;
        let folded = self.folded(away, target, weight)?;
        let log = self.program.unary(Op::Log, folded.sum);
        let kept = self.kept(log)?;
        let log_probs = self.program.pair(Op::Sub, away, kept);
        let ignored = self.program.pair(Op::Eq, target, Source::Scalar(Scalar::Int(self.ignore)));
        let factor = weight.map(|weight| self.of_targets(weight, target, ignored));
        let each = self.each(log, &folded, weight, factor, ignored);
        let reduction = self.question.attr("reduction");
        if *reduction == NONE {
            let zero =
                [Attr::Ints(Dims::EMPTY), Attr::Scalar(Scalar::Int(0)), Attr::Dtype(self.dtype)];
            let zero = self.program.push(Op::Full, [], zero);
            return Some(self.program.yields([each, log_probs, zero]));
        }
        let total = self.total(factor, ignored);
        let all = [Attr::Absent, Attr::Bool(false), Attr::Absent];
        let mut loss = self.program.push(Op::Sum, [each], all);
        if *reduction == MEAN {
            loss = self.program.pair(Op::Div, loss, total);
        }
        Some(self.program.yields([loss, log_probs, total]))
    }

    /// The classes as integers that any `ignore_index` can be compared with.
    fn target(&mut self) -> Option<Source> {
        let target = Source::Operand(1);
        Some(if self.question.meta(1)?.dtype == Dtype::I64 {
            target
        } else {
            self.program.push(Op::Cast, [target], [Attr::Dtype(Dtype::I64)])
        })
    }

    /// The scores minus their maximum: the first all-reduce.
    fn away(&mut self) -> Option<Source> {
        let scores = self.program.widened(self.question, Source::Operand(0), 0);
        let most = self.program.most(Op::Amax, scores, &list(&[self.class]), true);
        let kept = self.kept_dims()?;
        self.fold(Fold::Max, kept);
        Some(self.program.pair(Op::Sub, scores, most))
    }

    /// The last step folds the classes, whatever would be cheaper for this step alone.
    fn fold(&mut self, fold: Fold, dims: Dims) {
        let meta = Meta::new(self.dtype, dims);
        let here = cut(self.class, self.pieces);
        self.program.force([here], [(meta, Placement::Partial(fold))]);
    }

    /// The second all-reduce.
    fn folded(&mut self, away: Source, target: Source, weight: Option<Source>) -> Option<Folded> {
        let along = list(&[self.class]);
        let dims = self.question.meta(0)?.dims;
        let others = || dims.iter().enumerate().filter(|(dim, _)| *dim != self.class);
        let sizes: SmallVec<[i64; 8]> = others().map(|(_, &size)| size).collect();
        let each = Dims::new(&sizes)?;
        let powers = self.program.unary(Op::Exp, away);
        let sum = self.program.sum(powers, &along, false);
        self.fold(Fold::Sum, each);
        let picked = self.picked(away, target, each)?;
        let mut parts: SmallVec<[Source; 3]> = smallvec![sum, picked];
        if self.smoothing > 0.0 {
            let mut scores = away;
            if let Some(weight) = weight {
                let weight = self.by_class(weight)?;
                scores = self.program.pair(Op::Mul, scores, weight);
            }
            parts.push(self.program.sum(scores, &along, false));
            self.fold(Fold::Sum, each);
        }
        let count = i64::try_from(parts.len()).ok()?;
        let sizes: SmallVec<[i64; 8]> = std::iter::once(count).chain(sizes).collect();
        let meta = Meta::new(self.dtype, Dims::new(&sizes)?);
        let stack = self.program.push(Op::Stack, parts.iter().copied(), [Attr::Int(0)]);
        let sums = parts.iter().map(|_| Placement::Partial(Fold::Sum));
        self.program.force(sums, [(meta, Placement::Partial(Fold::Sum))]);
        let whole = self.program.push(Op::Reshape, [stack], [Attr::Ints(meta.dims)]);
        self.program.force([Placement::Replicate], [(meta, Placement::Replicate)]);
        let mut part =
            |index| self.program.push(Op::Select, [whole], [Attr::Int(0), Attr::Int(index)]);
        Some(Folded { sum: part(0), picked: part(1), scores: (parts.len() > 2).then(|| part(2)) })
    }

    /// Minus each target's score: a member has those of its classes.
    fn picked(&mut self, away: Source, target: Source, each: Dims) -> Option<Source> {
        let attrs = [NONE, Attr::Int(self.ignore), Attr::Absent, Attr::Absent];
        let picked = self.program.push(Op::NllLoss, [away, target, Source::Absent], attrs);
        let placements = [Placement::Partial(Fold::Sum), Placement::Replicate];
        let metas = [each, Dims::EMPTY].map(|dims| Meta::new(self.dtype, dims));
        let here = cut(self.class, self.pieces);
        self.program.force(
            [here, Placement::Replicate, Placement::Replicate],
            metas.into_iter().zip(placements),
        );
        let info = Op::NllLoss.info();
        let range = Local::Range {
            start: info.attr_index("start")?,
            total: info.attr_index("total")?,
            size: self.pieces.total(),
            pieces: self.pieces.clone(),
        };
        self.program.localize(range);
        Some(picked)
    }

    /// The weight of each class where the scores have their classes.
    fn by_class(&mut self, weight: Source) -> Option<Source> {
        let dims = self.question.meta(0)?.dims;
        let shape =
            shaped(&dims, |dim| if dim == self.class { dims.get(dim).copied() } else { Some(1) })?;
        Some(self.program.push(Op::Reshape, [weight], [Attr::Ints(shape)]))
    }

    /// One number a target, with the classes' dimension of size 1.
    fn kept(&mut self, each: Source) -> Option<Source> {
        let shape = self.kept_dims()?;
        Some(self.program.push(Op::Reshape, [each], [Attr::Ints(shape)]))
    }

    fn kept_dims(&self) -> Option<Dims> {
        let dims = self.question.meta(0)?.dims;
        shaped(&dims, |dim| if dim == self.class { Some(1) } else { dims.get(dim).copied() })
    }

    /// The weight of each target's class, zero where it is ignored.
    fn of_targets(&mut self, weight: Source, target: Source, ignored: Source) -> Source {
        let zero = Source::Scalar(Scalar::Int(0));
        let known = self.program.push(Op::MaskedFill, [target, ignored, zero], []);
        let factor = self.program.push(Op::Index, [weight, known], [const { Attr::Absent }; 3]);
        self.program.push(Op::MaskedFill, [factor, ignored, number(0.0)], [])
    }

    /// The loss of each target.
    fn each(
        &mut self,
        log: Source,
        folded: &Folded,
        weight: Option<Source>,
        factor: Option<Source>,
        ignored: Source,
    ) -> Source {
        let mut each = self.program.pair(Op::Add, log, folded.picked);
        if let Some(factor) = factor {
            each = self.program.pair(Op::Mul, each, factor);
        }
        if let Some(scores) = folded.scores {
            let weights = match weight {
                Some(weight) => self.program.sum(weight, &Attr::Absent, false),
                None => number(self.classes),
            };
            let logs = self.program.pair(Op::Mul, log, weights);
            let evenly = self.program.pair(Op::Sub, logs, scores);
            let share = number(self.smoothing / self.classes);
            let evenly = self.program.pair(Op::Mul, evenly, share);
            each = self.program.pair(Op::Mul, each, number(1.0 - self.smoothing));
            each = self.program.pair(Op::Add, each, evenly);
        }
        self.program.push(Op::MaskedFill, [each, ignored, number(0.0)], [])
    }

    /// The weight of all targets together.
    fn total(&mut self, factor: Option<Source>, ignored: Source) -> Source {
        let (counted, dtype) = match factor {
            Some(factor) => (factor, Attr::Absent),
            None => (self.program.unary(Op::LogicalNot, ignored), Attr::Dtype(self.dtype)),
        };
        self.program.push(Op::Sum, [counted], [Attr::Absent, Attr::Bool(false), dtype])
    }
}

/// A shape of as many dimensions.
fn shaped(dims: &Dims, size: impl Fn(usize) -> Option<i64>) -> Option<Dims> {
    let sizes: Option<SmallVec<[i64; 8]>> = (0..dims.len()).map(size).collect();
    Dims::new(&sizes?)
}
