//! Which strategy an operator takes along each dimension of a mesh: the cheapest of those that its rules offer.

use crate::cost::{Link, Prices};
use gt_protocol::placement::{Layout, Mesh, Placement, Placements};
use gt_protocol::rules::spread::{Local, Question, SpreadArg, Strategy, strategies};
use gt_protocol::{Attr, Meta, Op};
use smallvec::SmallVec;

/// An operand as the choice sees it.
#[derive(Clone, Debug)]
pub(crate) struct OperandSpec {
    /// Nothing for a scalar or an absent operand.
    pub meta: Option<Meta>,
    /// One placement a mesh dimension.
    pub placements: Placements,
    /// The mesh that it comes from, point to point, where it is not here.
    pub elsewhere: Option<Mesh>,
    /// An earlier operand that is the same value: what that needs is here too.
    pub twin: Option<usize>,
}

/// How an instruction runs on a mesh.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// The layout that each operand is needed in; scalars' are not read.
    pub inputs: SmallVec<[Layout; 4]>,
    /// The layout of each result.
    pub outputs: SmallVec<[Layout; 2]>,
    /// Attributes that differ per member: the mesh dimension, and what it changes.
    pub local: SmallVec<[(usize, Local); 2]>,
}

/// An operator with its attributes and its results' metadata.
#[derive(Clone, Copy)]
pub(crate) struct OpSpec<'a> {
    pub op: Op,
    pub attrs: &'a [Attr],
    pub outputs: &'a [Meta],
    pub prices: &'a Prices,
}

/// The cheapest strategies, mesh dimension by mesh dimension; along one of them it may be `forced`.
pub(crate) fn choose(
    spec: &OpSpec<'_>,
    mesh: &Mesh,
    operands: &[OperandSpec],
    forced: Option<(usize, &Strategy)>,
) -> Choice {
    let metas: SmallVec<[Option<Meta>; 4]> = operands.iter().map(|operand| operand.meta).collect();
    let mut needs: SmallVec<[Placements; 4]> = operands.iter().map(|_| Placements::new()).collect();
    let mut gives: SmallVec<[Placements; 2]> =
        spec.outputs.iter().map(|_| Placements::new()).collect();
    let mut locals: SmallVec<[(usize, Local); 2]> = SmallVec::new();
    let work = spec.prices.work(spec.op, &metas, spec.outputs);
    for axis in 0..mesh.rank() {
        let members = mesh.size(axis);
        let strategy = if let Some((_, forced)) = forced.filter(|(at, _)| *at == axis) {
            forced.clone()
        } else {
            let args: SmallVec<[SpreadArg<'_>; 4]> = operands
                .iter()
                .map(|operand| SpreadArg {
                    meta: operand.meta.as_ref(),
                    placement: operand.placements.get(axis).unwrap_or(&Placement::Replicate),
                })
                .collect();
            let question = Question {
                op: spec.op,
                args: &args,
                attrs: spec.attrs,
                outputs: spec.outputs,
                members,
            };
            let along = Along { mesh, axis, link: spec.prices.along(mesh, axis) };
            let price = |strategy: &Strategy| price(spec, &along, operands, strategy, work);
            let mut offers = strategies(&question);
            offers.retain(|offer| are_apart(&offer.locals, &locals));
            cheapest(offers, &needs, &gives, price)
        };
        for (list, need) in needs.iter_mut().zip(strategy.needs) {
            list.push(need);
        }
        for (list, give) in gives.iter_mut().zip(strategy.gives) {
            list.push(give);
        }
        locals.extend(strategy.locals.into_iter().map(|local| (axis, local)));
    }
    let on_mesh = |placements: Placements| Layout::new(mesh.clone(), placements);
    Choice {
        inputs: needs.into_iter().map(on_mesh).collect(),
        outputs: gives.into_iter().map(on_mesh).collect(),
        local: locals,
    }
}

fn cheapest(
    mut offers: SmallVec<[Strategy; 4]>,
    needs: &[Placements],
    gives: &[Placements],
    price: impl Fn(&Strategy) -> f64,
) -> Strategy {
    let fallback = offers.pop().unwrap_or_default();
    offers.retain(|offer| fits(&offer.needs, needs) && fits(&offer.gives, gives));
    if offers.is_empty() {
        return fallback;
    }
    let mut best = (price(&fallback), fallback);
    // The first of equals: strategies stand in the operands' order.
    for offer in offers.into_iter().rev() {
        let cost = price(&offer);
        if cost <= best.0 {
            best = (cost, offer);
        }
    }
    best.1
}

/// No dimension of a tensor is cut by two dimensions of a mesh, and no layout has two reductions.
fn fits(placements: &[Placement], earlier: &[Placements]) -> bool {
    let apart = |one: &Placement, other: &Placement| match (one, other) {
        (Placement::Shard { dim, .. }, Placement::Shard { dim: cut, .. }) => dim != cut,
        (Placement::Partial(op), Placement::Partial(other)) => op == other,
        _ => true,
    };
    let pairs = placements.iter().zip(earlier);
    pairs.into_iter().all(|(one, earlier)| earlier.iter().all(|other| apart(one, other)))
}

/// An instruction has room for a range of one dimension only.
fn are_apart(locals: &[Local], earlier: &[(usize, Local)]) -> bool {
    let range = |local: &Local| matches!(local, Local::Range { .. });
    !locals.iter().any(range) || !earlier.iter().any(|(_, local)| range(local))
}

/// The dimension of a mesh that is chosen for, and what traffic along it costs.
struct Along<'m> {
    mesh: &'m Mesh,
    axis: usize,
    link: Link,
}

fn price(
    spec: &OpSpec<'_>,
    &Along { mesh, axis, link }: &Along<'_>,
    operands: &[OperandSpec],
    strategy: &Strategy,
    work: f64,
) -> f64 {
    let members = mesh.size(axis);
    let mut cost = 0.0;
    for (operand, need) in operands.iter().zip(&strategy.needs) {
        let Some(meta) = operand.meta else { continue };
        if operand.twin.is_some_and(|twin| strategy.needs.get(twin) == Some(need)) {
            continue;
        }
        let bytes = share(&meta, &operand.placements, mesh, axis);
        if let Some(from) = &operand.elsewhere {
            cost += spec.prices.fetch(need, bytes, members, spec.prices.between(from, mesh));
        }
        let have = operand.placements.get(axis).unwrap_or(&Placement::Replicate);
        cost += spec.prices.change((have, need), bytes, members, link);
    }
    for (meta, give) in spec.outputs.iter().zip(&strategy.gives) {
        // A partial result will be reduced once, and what one member has alone will be shared out.
        if give.is_partial() || give.is_alone() {
            cost += spec.prices.change((give, &Placement::Replicate), meta.bytes(), members, link);
        }
    }
    let all = || strategy.needs.iter().chain(&strategy.gives);
    let spread = all().any(|placement| placement.cut().is_some() || placement.is_partial())
        && !all().any(Placement::is_alone);
    let parts = u32::try_from(if spread { members } else { 1 }).unwrap_or(1);
    cost + work / f64::from(parts.max(1))
}

/// Bytes of an operand over the shards of the other mesh dimensions.
fn share(meta: &Meta, placements: &[Placement], mesh: &Mesh, axis: usize) -> u64 {
    let others = placements
        .iter()
        .enumerate()
        .filter(|(other, placement)| *other != axis && placement.cut().is_some());
    let ranges: usize = others.map(|(other, _)| mesh.size(other)).product();
    meta.bytes() / u64::try_from(ranges.max(1)).unwrap_or(1)
}
