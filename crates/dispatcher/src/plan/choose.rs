//! Which strategy an operator takes along each dimension of a mesh: the cheapest of those that its rules offer.

use crate::prices::{Link, Prices};
use gt_protocol::placement::{Layout, Mesh, Placement, Placements};
use gt_protocol::rules::spread::{Local, Question, SpreadArg, Strategy, strategies};
use gt_protocol::{Attr, Meta, Op};
use smallvec::SmallVec;

/// An operand as the choice sees it.
#[derive(Clone, Debug)]
pub(crate) struct Lies {
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
    /// The layout of each operand; scalars' are not read.
    pub needs: SmallVec<[Layout; 4]>,
    pub gives: SmallVec<[Layout; 2]>,
    /// Mesh dimension, and what it changes.
    pub locals: SmallVec<[(usize, Local); 2]>,
}

/// An operator with its attributes, operands' metadata and results' metadata.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub op: Op,
    pub attrs: &'a [Attr],
    pub outputs: &'a [Meta],
    pub prices: &'a Prices,
}

/// The cheapest way, mesh dimension by mesh dimension; along one of them it may be `forced`.
pub(crate) fn choose(
    asked: &Asked<'_>,
    mesh: &Mesh,
    operands: &[Lies],
    forced: Option<(usize, &Strategy)>,
) -> Choice {
    let metas: SmallVec<[Option<Meta>; 4]> = operands.iter().map(|lies| lies.meta).collect();
    let mut needs: SmallVec<[Placements; 4]> = operands.iter().map(|_| Placements::new()).collect();
    let mut gives: SmallVec<[Placements; 2]> =
        asked.outputs.iter().map(|_| Placements::new()).collect();
    let mut locals: SmallVec<[(usize, Local); 2]> = SmallVec::new();
    let work = asked.prices.work(asked.op, &metas, asked.outputs);
    for axis in 0..mesh.rank() {
        let members = mesh.size(axis);
        let strategy = if let Some((_, forced)) = forced.filter(|(at, _)| *at == axis) {
            forced.clone()
        } else {
            let args: SmallVec<[SpreadArg<'_>; 4]> = operands
                .iter()
                .map(|lies| SpreadArg {
                    meta: lies.meta.as_ref(),
                    placement: lies.placements.get(axis).unwrap_or(&Placement::Replicate),
                })
                .collect();
            let question = Question {
                op: asked.op,
                args: &args,
                attrs: asked.attrs,
                outputs: asked.outputs,
                members,
            };
            let along = Along { mesh, axis, link: asked.prices.along(mesh, axis) };
            let price = |strategy: &Strategy| price(asked, &along, operands, strategy, work);
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
    let laid = |placements: Placements| Layout::new(mesh.clone(), placements);
    Choice {
        needs: needs.into_iter().map(laid).collect(),
        gives: gives.into_iter().map(laid).collect(),
        locals,
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

/// No dimension of a tensor is cut by two dimensions of a mesh, and no layout has two folds.
fn fits(placements: &[Placement], earlier: &[Placements]) -> bool {
    let apart = |one: &Placement, other: &Placement| match (one, other) {
        (Placement::Shard { dim, .. }, Placement::Shard { dim: cut, .. }) => dim != cut,
        (Placement::Partial(fold), Placement::Partial(other)) => fold == other,
        _ => true,
    };
    let pairs = placements.iter().zip(earlier);
    pairs.into_iter().all(|(one, earlier)| earlier.iter().all(|other| apart(one, other)))
}

/// An instruction has room for a piece of one dimension only.
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
    asked: &Asked<'_>,
    &Along { mesh, axis, link }: &Along<'_>,
    operands: &[Lies],
    strategy: &Strategy,
    work: f64,
) -> f64 {
    let members = mesh.size(axis);
    let mut cost = 0.0;
    for (lies, need) in operands.iter().zip(&strategy.needs) {
        let Some(meta) = lies.meta else { continue };
        if lies.twin.is_some_and(|twin| strategy.needs.get(twin) == Some(need)) {
            continue;
        }
        let bytes = share(&meta, &lies.placements, mesh, axis);
        if let Some(from) = &lies.elsewhere {
            cost += asked.prices.fetch(need, bytes, members, asked.prices.between(from, mesh));
        }
        let have = lies.placements.get(axis).unwrap_or(&Placement::Replicate);
        cost += asked.prices.change((have, need), bytes, members, link);
    }
    for (meta, give) in asked.outputs.iter().zip(&strategy.gives) {
        // A partial result will be folded once, and what one member has alone will be shared out.
        if give.is_partial() || give.is_alone() {
            cost += asked.prices.change((give, &Placement::Replicate), meta.bytes(), members, link);
        }
    }
    let all = || strategy.needs.iter().chain(&strategy.gives);
    let spread = all().any(|placement| placement.cut().is_some() || placement.is_partial())
        && !all().any(Placement::is_alone);
    let parts = u32::try_from(if spread { members } else { 1 }).unwrap_or(1);
    cost + work / f64::from(parts.max(1))
}

/// Bytes of an operand over the pieces of the other mesh dimensions.
fn share(meta: &Meta, placements: &[Placement], mesh: &Mesh, axis: usize) -> u64 {
    let others = placements
        .iter()
        .enumerate()
        .filter(|(other, placement)| *other != axis && placement.cut().is_some());
    let pieces: usize = others.map(|(other, _)| mesh.size(other)).product();
    meta.bytes() / u64::try_from(pieces.max(1)).unwrap_or(1)
}
