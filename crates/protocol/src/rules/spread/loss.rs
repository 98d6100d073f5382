//! Losses over a sharded batch: element by element, or a partial sum. A mean is decomposed into a
//! sum and a quotient. Over sharded classes each member handles the targets in its shard.

use super::index::masked;
use super::spec::{Driving, OpSpec, Strategy, cut};
use crate::Attr;
use crate::placement::{Placement, ReduceOp};

const NONE: u8 = 0;
const MEAN: u8 = 1;

pub(super) fn follow(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let Attr::Choice(reduction) = *spec.attr("reduction") else { return None };
    let info = spec.op.info();
    // The scores of a loss's gradient come after the gradient of the loss.
    let first = info.operands.iter().position(|operand| operand.name != "grad")?;
    if info.attr_index("ignore_index").is_some() {
        return likelihood(spec, driving, first, reduction);
    }
    let dims = spec.meta(first)?.dims;
    let fits = spec.meta(first + 1)?.dims == dims && dims.get(driving.dim) == Some(&driving.size);
    // The gradient of a mean divides by the count of the whole batch.
    if reduction == MEAN || !fits {
        return None;
    }
    let here = || cut(driving.dim, driving.ranges);
    let (whole, partial) = (Placement::Replicate, Placement::Partial(ReduceOp::Sum));
    Some(match (first, reduction) {
        (0, NONE) => spec.strategy([here(), here()], [here()]),
        (0, _) => spec.strategy([here(), here()], [partial]),
        (_, NONE) => spec.strategy([here(), here(), here()], [here()]),
        (_, _) => spec.strategy([whole, here(), here()], [here()]),
    })
}

/// Losses of classes: the scores are operand `first`, followed by the targets and the weight of
/// each class.
fn likelihood(
    spec: &OpSpec<'_>,
    driving: Driving<'_>,
    first: usize,
    reduction: u8,
) -> Option<Strategy> {
    let rank = spec.rank(first)?;
    let class = usize::from(rank > 1);
    let target = first + 1;
    let each = first == 1 && driving.position == 0 && reduction == NONE;
    if driving.position == target || each {
        // Targets have every dimension of the scores except the classes'.
        let dim = driving.dim + usize::from(driving.dim >= class);
        return if rank > 1 { batch(spec, driving, first, dim, reduction) } else { None };
    }
    if driving.position == first && driving.dim != class {
        return batch(spec, driving, first, driving.dim, reduction);
    }
    let of_classes = driving.position == first || driving.position == target + 1;
    if of_classes { classes(spec, driving, (first, class), reduction) } else { None }
}

/// Dimension `dim` of the scores is sharded, and so is that of the targets.
fn batch(
    spec: &OpSpec<'_>,
    driving: Driving<'_>,
    first: usize,
    dim: usize,
    reduction: u8,
) -> Option<Strategy> {
    let scores = || cut(dim, driving.ranges);
    let targets = || cut(dim - usize::from(dim > 1), driving.ranges);
    let whole = Placement::Replicate;
    let partial = || Placement::Partial(ReduceOp::Sum);
    if first == 1 {
        let grad = if reduction == NONE { targets() } else { whole };
        return Some(spec.strategy([grad, scores(), targets()], [scores()]));
    }
    let (loss, weight) = match reduction {
        NONE => (targets(), whole),
        MEAN => return None,
        _ => (partial(), partial()),
    };
    let input_specs = [scores(), targets()];
    Some(if spec.outputs.len() == 3 {
        spec.strategy(input_specs, [loss, scores(), weight])
    } else {
        spec.strategy(input_specs, [loss, weight])
    })
}

/// The classes are sharded: a target outside of a member's shard counts as zero there.
fn classes(
    spec: &OpSpec<'_>,
    driving: Driving<'_>,
    (first, class): (usize, usize),
    reduction: u8,
) -> Option<Strategy> {
    let scores = || cut(class, driving.ranges);
    let each = || cut(0, driving.ranges);
    let whole = || Placement::Replicate;
    let partial = || Placement::Partial(ReduceOp::Sum);
    let smooths = spec.op.info().attr_index("label_smoothing").is_some();
    let strategy = match (first, reduction) {
        (0, _) if smooths => return None,
        (0, NONE) => spec.strategy([scores(), whole(), each()], [partial(), whole()]),
        (0, MEAN) => return None,
        (0, _) => spec.strategy([scores(), whole(), each()], [partial(), partial()]),
        // The gradient of a row's scores depends on the weights of all classes.
        (_, _) if smooths => spec.strategy([whole(), scores()], [scores()]),
        (_, _) => spec.strategy([whole(), scores(), whole(), each()], [scores()]),
    };
    masked(spec, driving, strategy)
}
