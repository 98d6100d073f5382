//! Choice of an operator's strategy along each dimension of a mesh: the cheapest of those that its
//! rules offer.

use crate::cost::{CostModel, LinkCost};
use crate::number::wide;
use gt_protocol::placement::{Layout, Mesh, Placement, Placements};
use gt_protocol::rules::spread::{InputSpec, LocalAttr, OpSpec, Strategy, strategies};
use gt_protocol::{Attr, Meta, Op};
use smallvec::SmallVec;

/// An operand in the form that the choice takes.
#[derive(Clone, Debug)]
pub(crate) struct OperandSpec {
    /// `None` for a scalar or an absent operand.
    pub meta: Option<Meta>,
    /// Its layout, if that is on this mesh.
    pub layout: Option<Layout>,
    /// One placement for each mesh dimension.
    pub placements: Placements,
    /// The mesh from which it is fetched, point to point, if it is not on this one.
    pub elsewhere: Option<Mesh>,
    /// An earlier operand that is the same value: what that one fetches is available here too.
    pub twin: Option<usize>,
}

impl OperandSpec {
    /// Placement along a dimension of the mesh; an operand that is no value is replicated.
    pub fn placement(&self, axis: usize) -> &Placement {
        match self.meta {
            Some(_) => self.placements.get(axis).expect("one placement for each mesh dimension"),
            None => &Placement::Replicate,
        }
    }
}

/// Chosen strategy of an instruction on a mesh.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// The layout that each operand needs; those of scalars are not read.
    pub inputs: SmallVec<[Layout; 4]>,
    /// The layout of each result.
    pub outputs: SmallVec<[Layout; 2]>,
    /// Attributes that differ between members: the mesh dimension, and the change.
    pub local: SmallVec<[(usize, LocalAttr); 2]>,
}

/// An operator with its attributes and its results' metadata.
#[derive(Clone, Copy)]
pub(crate) struct Operation<'a> {
    pub op: Op,
    pub attrs: &'a [Attr],
    pub outputs: &'a [Meta],
    pub cost_model: &'a CostModel,
}

/// The cheapest strategies, mesh dimension by mesh dimension; along one of them it may be `forced`.
pub(crate) fn choose(
    operation: &Operation<'_>,
    mesh: &Mesh,
    operands: &[OperandSpec],
    forced: Option<(usize, &Strategy)>,
) -> Choice {
    let metas: SmallVec<[Option<Meta>; 4]> = operands.iter().map(|operand| operand.meta).collect();
    let mut input_specs: SmallVec<[Placements; 4]> =
        operands.iter().map(|_| Placements::new()).collect();
    let mut output_specs: SmallVec<[Placements; 2]> =
        operation.outputs.iter().map(|_| Placements::new()).collect();
    let mut local_attrs: SmallVec<[(usize, LocalAttr); 2]> = SmallVec::new();
    let work = operation.cost_model.work(operation.op, &metas, operation.outputs);
    for axis in 0..mesh.rank() {
        let members = mesh.size(axis);
        let strategy = if let Some((_, forced)) = forced.filter(|(at, _)| *at == axis) {
            forced.clone()
        } else {
            let args: SmallVec<[InputSpec<'_>; 4]> = operands
                .iter()
                .map(|operand| InputSpec {
                    meta: operand.meta.as_ref(),
                    placement: operand.placement(axis),
                })
                .collect();
            let spec = OpSpec {
                op: operation.op,
                args: &args,
                attrs: operation.attrs,
                outputs: operation.outputs,
                members,
            };
            let along = Along { mesh, axis, link: operation.cost_model.along(mesh, axis) };
            let price = |strategy: &Strategy| price(operation, &along, operands, strategy, work);
            let mut candidates = strategies(&spec);
            candidates.retain(|candidate| are_apart(&candidate.local_attrs, &local_attrs));
            cheapest(candidates, &input_specs, &output_specs, price)
        };
        for (list, need) in input_specs.iter_mut().zip(strategy.input_specs) {
            list.push(need);
        }
        for (list, give) in output_specs.iter_mut().zip(strategy.output_specs) {
            list.push(give);
        }
        local_attrs.extend(strategy.local_attrs.into_iter().map(|local| (axis, local)));
    }
    let known = operands.iter().filter_map(|operand| operand.layout.as_ref());
    let inputs = input_specs.into_iter();
    let inputs: SmallVec<[Layout; 4]> =
        inputs.map(|placements| layout_on(mesh, placements, known.clone())).collect();
    let outputs = output_specs.into_iter();
    let outputs = outputs.map(|placements| layout_on(mesh, placements, inputs.iter())).collect();
    Choice { inputs, outputs, local: local_attrs }
}

/// The layout of these placements on the mesh: one of the known ones if equal, so that it compares
/// by pointer.
fn layout_on<'l>(
    mesh: &Mesh,
    placements: Placements,
    mut known: impl Iterator<Item = &'l Layout>,
) -> Layout {
    match known.find(|known| *known.placements() == *placements && known.mesh() == mesh) {
        Some(layout) => layout.clone(),
        None => Layout::new(mesh.clone(), placements),
    }
}

fn cheapest(
    mut candidates: SmallVec<[Strategy; 4]>,
    input_specs: &[Placements],
    output_specs: &[Placements],
    price: impl Fn(&Strategy) -> f64,
) -> Strategy {
    let fallback = candidates.pop().expect("gathering is always a candidate");
    candidates.retain(|candidate| {
        fits(&candidate.input_specs, input_specs) && fits(&candidate.output_specs, output_specs)
    });
    if candidates.is_empty() {
        return fallback;
    }
    let mut best = (price(&fallback), fallback);
    // The first among equals wins: strategies are in the operands' order.
    for candidate in candidates.into_iter().rev() {
        let cost = price(&candidate);
        if cost <= best.0 {
            best = (cost, candidate);
        }
    }
    best.1
}

/// Checks that no two mesh dimensions shard one tensor dimension, and that no layout has two
/// reductions.
fn fits(placements: &[Placement], earlier: &[Placements]) -> bool {
    let apart = |one: &Placement, other: &Placement| match (one, other) {
        (Placement::Shard { dim, .. }, Placement::Shard { dim: cut, .. }) => dim != cut,
        (Placement::Partial(op), Placement::Partial(other)) => op == other,
        _ => true,
    };
    let pairs = placements.iter().zip(earlier);
    pairs.into_iter().all(|(one, earlier)| earlier.iter().all(|other| apart(one, other)))
}

/// Checks that at most one dimension has a range: an instruction has room for one only.
fn are_apart(local_attrs: &[LocalAttr], earlier: &[(usize, LocalAttr)]) -> bool {
    let range = |local: &LocalAttr| matches!(local, LocalAttr::Range { .. });
    !local_attrs.iter().any(range) || !earlier.iter().any(|(_, local)| range(local))
}

/// The mesh dimension that is chosen for, and the price of traffic along it.
struct Along<'m> {
    mesh: &'m Mesh,
    axis: usize,
    link: LinkCost,
}

fn price(
    operation: &Operation<'_>,
    &Along { mesh, axis, link }: &Along<'_>,
    operands: &[OperandSpec],
    strategy: &Strategy,
    work: f64,
) -> f64 {
    let members = mesh.size(axis);
    let mut cost = 0.0;
    for (operand, need) in operands.iter().zip(&strategy.input_specs) {
        let Some(meta) = operand.meta else { continue };
        if operand.twin.is_some_and(|twin| strategy.input_specs.get(twin) == Some(need)) {
            continue;
        }
        let bytes = share(&meta, &operand.placements, mesh, axis);
        if let Some(from) = &operand.elsewhere {
            cost += operation.cost_model.fetch(
                need,
                bytes,
                members,
                operation.cost_model.between(from, mesh),
            );
        }
        let have = operand.placement(axis);
        cost += operation.cost_model.change((have, need), bytes, members, link);
    }
    for (meta, give) in operation.outputs.iter().zip(&strategy.output_specs) {
        // A partial result will be reduced once, and a value that one member holds alone will be
        // redistributed.
        if give.is_partial() || give.is_alone() {
            cost += operation.cost_model.change(
                (give, &Placement::Replicate),
                meta.bytes(),
                members,
                link,
            );
        }
    }
    let all = || strategy.input_specs.iter().chain(&strategy.output_specs);
    let spread = all().any(|placement| placement.cut().is_some() || placement.is_partial())
        && !all().any(Placement::is_alone);
    let parts = u32::try_from(if spread { members } else { 1 });
    cost + work / f64::from(parts.expect("members of a mesh").max(1))
}

/// Bytes of an operand after sharding by the other mesh dimensions.
fn share(meta: &Meta, placements: &[Placement], mesh: &Mesh, axis: usize) -> u64 {
    let others = placements
        .iter()
        .enumerate()
        .filter(|(other, placement)| *other != axis && placement.cut().is_some());
    let ranges: usize = others.map(|(other, _)| mesh.size(other)).product();
    meta.bytes() / wide(ranges.max(1))
}
