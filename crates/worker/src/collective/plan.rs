//! Plans of collectives: the parts that one member sends, receives and reduces.

use crate::attributes::{first_value, unsigned};
use crate::exchange::{Exchange, Group, MessageBytes};
use crate::failure::Fault;
use crate::peers::PeerId;
use crate::reuse::with_size;
use crate::strided_range::{StridedRange, bytes_of, element_bytes, overlaps};
use crate::table::{NoValue, SlotTable};
use gt_protocol::placement::ReduceOp;
use gt_protocol::{Attr, Id, Instruction, Meta, Op};
use smallvec::SmallVec;

/// Plan of one collective: its exchange, its operand, and the metadata of its result.
pub struct CollectivePlan {
    pub exchange: Exchange,
    pub operand: Option<Id>,
    pub result: Option<Meta>,
}

pub fn plan<V>(
    table: &SlotTable<V>,
    instruction: &Instruction<'_>,
    tag: u64,
    group: &Group,
) -> Result<CollectivePlan, NoValue> {
    let op = instruction.op;
    if op == Op::Receive {
        return Ok(receive(announced(instruction)?, 1, tag, group));
    }
    let root = root(instruction, group)?;
    if let Some(root) = root.filter(|&root| root != group.me) {
        return Ok(receive(announced(instruction)?, root, tag, group));
    }
    let id = first_value(instruction)?;
    let meta = table.held(id)?.meta;
    let planned = Planned { instruction, id, meta, tag, group };
    Ok(if op == Op::Send {
        CollectivePlan { result: None, ..planned.to_all() }
    } else if root.is_some() {
        planned.broadcast()?
    } else if op == Op::AllReduce {
        planned.all_reduce()?
    } else if op == Op::AllGather {
        planned.all_gather()?
    } else if op == Op::ReduceScatter {
        planned.reduce_scatter()?
    } else if op == Op::AllToAll {
        planned.all_to_all()?
    } else {
        return Err(
            Fault::protocol(format!("{} is no collective of one value", op.info().name)).into()
        );
    })
}

/// A collective with an operand of this member.
struct Planned<'a> {
    instruction: &'a Instruction<'a>,
    id: Id,
    meta: Meta,
    tag: u64,
    group: &'a Group,
}

impl Planned<'_> {
    /// Plans the root's part; the other members receive.
    fn broadcast(&self) -> Result<CollectivePlan, Fault> {
        let Self { instruction, meta, .. } = self;
        let announced = announced(instruction)?;
        if *meta != announced {
            return Err(Fault::protocol(format!("a {meta} where a {announced} was announced")));
        }
        let mut plan = self.to_all();
        plan.exchange.keep(StridedRange::whole(meta), StridedRange::whole(meta));
        Ok(plan)
    }

    fn all_reduce(&self) -> Result<CollectivePlan, Fault> {
        let reduce_op = reduce_op_of(self.instruction)?;
        let mut exchange = self.exchange(self.meta);
        exchange.all_reduce(reduce_op, bytes_of(&self.meta), self.group);
        Ok(self.plan(exchange, self.meta))
    }

    fn all_gather(&self) -> Result<CollectivePlan, Fault> {
        let Self { instruction, meta, group, .. } = self;
        let (dim, sizes) = (dim_of(instruction, "dim")?, group.sizes(instruction, "sizes")?);
        let own = sizes[group.me];
        if meta.dims.get(dim) != Some(&own) {
            return Err(Fault::protocol(format!("a {meta} in place of {own} along {dim}")));
        }
        let result = resized(meta, dim, sizes.iter().sum())?;
        let shards = StridedRange::shards(&result, dim, sizes)?;
        let mut plan = self.to_all();
        gather(&mut plan.exchange, StridedRange::whole(meta), &shards, group);
        Ok(CollectivePlan { result: Some(result), ..plan })
    }

    fn reduce_scatter(&self) -> Result<CollectivePlan, Fault> {
        let Self { instruction, meta, group, .. } = self;
        let reduce_op = reduce_op_of(instruction)?;
        let (dim, sizes) = (dim_of(instruction, "dim")?, group.sizes(instruction, "sizes")?);
        let shards = StridedRange::shards(meta, dim, sizes)?;
        let result = resized(meta, dim, sizes[group.me])?;
        let mut exchange = self.exchange(result);
        scatter(&mut exchange, &shards, group);
        exchange.reduce(reduce_op, shards[group.me], StridedRange::whole(&result));
        Ok(self.plan(exchange, result))
    }

    fn all_to_all(&self) -> Result<CollectivePlan, Fault> {
        let Self { instruction, meta, group, .. } = self;
        let (from, from_sizes) =
            (dim_of(instruction, "from_dim")?, group.sizes(instruction, "from_sizes")?);
        let (to, to_sizes) =
            (dim_of(instruction, "to_dim")?, group.sizes(instruction, "to_sizes")?);
        // Along one dimension two members exchange the intersection of their intervals.
        let (sent, arriving) = if from == to {
            (overlaps(from_sizes, group.me, to_sizes), overlaps(to_sizes, group.me, from_sizes))
        } else {
            (to_sizes.to_vec(), from_sizes.to_vec())
        };
        let whole = resized(meta, from, from_sizes.iter().sum())?;
        let result = resized(&whole, to, to_sizes[group.me])?;
        let shards = StridedRange::shards(meta, to, &sent)?;
        let mut exchange = self.exchange(result);
        scatter(&mut exchange, &shards, group);
        let arriving = StridedRange::shards(&result, from, &arriving)?;
        if shards[group.me].bytes() != arriving[group.me].bytes() {
            return Err(Fault::protocol(format!("{from_sizes:?} and {to_sizes:?} of a {meta}")));
        }
        gather(&mut exchange, shards[group.me], &arriving, group);
        Ok(self.plan(exchange, result))
    }

    /// Sends our whole operand to every other member.
    fn to_all(&self) -> CollectivePlan {
        let mut exchange = self.exchange(self.meta);
        for (_, peer) in self.group.others() {
            exchange.send(peer, 0, MessageBytes::Operand, StridedRange::whole(&self.meta));
        }
        self.plan(exchange, self.meta)
    }

    fn exchange(&self, result: Meta) -> Exchange {
        exchange(self.tag, result)
    }

    const fn plan(&self, exchange: Exchange, result: Meta) -> CollectivePlan {
        CollectivePlan { exchange, operand: Some(self.id), result: Some(result) }
    }
}

fn exchange(tag: u64, result: Meta) -> Exchange {
    Exchange::new(tag, element_bytes(&result), Some(result))
}

/// Receives a whole value from one member.
fn receive(meta: Meta, place: usize, tag: u64, group: &Group) -> CollectivePlan {
    let mut exchange = exchange(tag, meta);
    exchange.receive(group.members[place], 0, StridedRange::whole(&meta));
    CollectivePlan { exchange, operand: None, result: Some(meta) }
}

/// Sends shard k of our operand to member k.
fn scatter(exchange: &mut Exchange, shards: &[StridedRange], group: &Group) {
    for (place, peer) in group.others() {
        exchange.send(peer, 0, MessageBytes::Operand, shards[place]);
    }
}

/// Receives shard k of the result from member k; `own` becomes ours.
fn gather(exchange: &mut Exchange, own: StridedRange, shards: &[StridedRange], group: &Group) {
    for (place, peer) in group.others() {
        exchange.receive(peer, 0, shards[place]);
    }
    exchange.keep(own, shards[group.me]);
}

/// Metadata of the value that `receive` or `broadcast` announces.
fn announced(instruction: &Instruction<'_>) -> Result<Meta, Fault> {
    let (Attr::Ints(dims), Attr::Dtype(dtype)) =
        (instruction.attr("size"), instruction.attr("dtype"))
    else {
        let name = instruction.op.info().name;
        return Err(Fault::protocol(format!("{name} without size and dtype")));
    };
    Ok(Meta::new(*dtype, *dims))
}

pub fn reduce_op_of(instruction: &Instruction<'_>) -> Result<ReduceOp, Fault> {
    let Attr::Choice(choice) = instruction.attr("reduce") else {
        return Err(Fault::protocol("reduce is missing"));
    };
    ReduceOp::from_choice(*choice).ok_or_else(|| Fault::protocol("reduce is unknown"))
}

fn dim_of(instruction: &Instruction<'_>, name: &str) -> Result<usize, Fault> {
    let dim = unsigned(instruction, name)?;
    usize::try_from(dim).map_err(|_| Fault::protocol(format!("{name} is {dim}")))
}

fn resized(meta: &Meta, dim: usize, size: i64) -> Result<Meta, Fault> {
    match with_size(&meta.dims, dim, size) {
        Some(dims) => Ok(Meta::new(meta.dtype, dims)),
        None => Err(Fault::protocol(format!("dim {dim} of a {meta}"))),
    }
}

/// The index of the member whose value a broadcast sends.
fn root(instruction: &Instruction<'_>, group: &Group) -> Result<Option<usize>, Fault> {
    (instruction.op == Op::Broadcast).then(|| group.place(instruction, "root")).transpose()
}

/// Members that receive something from us.
pub fn receivers(instruction: &Instruction<'_>, group: &Group) -> SmallVec<[PeerId; 8]> {
    let root = root(instruction, group);
    let is_sender = root.is_ok_and(|root| root.is_none_or(|root| root == group.me));
    if instruction.op == Op::Receive || !is_sender {
        return SmallVec::new();
    }
    group.others().map(|(_, member)| member).collect()
}

/// Members that send us something.
pub fn senders(instruction: &Instruction<'_>, group: &Group) -> SmallVec<[PeerId; 8]> {
    if instruction.op == Op::Send {
        return SmallVec::new();
    }
    let root = root(instruction, group).ok().flatten();
    let others = group.others().filter(|&(place, _)| root.is_none_or(|root| root == place));
    others.map(|(_, member)| member).collect()
}
