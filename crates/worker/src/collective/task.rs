//! What each kind of collective sends, takes in and reductions at one member.

use super::exchange::{Exchange, Source};
use super::group::Group;
use super::region::{Region, overlaps};
use crate::machine::{Machine, first_value, unsigned};
use crate::reuse::with_size;
use crate::table::NoValue;
use crate::{Engine, Fault, ReduceOp};
use gt_protocol::placement::ONE_HOP_BYTES_MAX;
use gt_protocol::{Attr, Id, Instruction, Meta, Op};

/// What one collective is: what it does, to which operand, and what comes out.
pub(super) struct Task {
    pub exchange: Exchange,
    pub operand: Option<Id>,
    pub result: Option<Meta>,
}

impl<E: Engine> Machine<E> {
    pub(super) fn task(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &Group,
    ) -> Result<Task, NoValue> {
        let op = instruction.op;
        if op == Op::Send {
            self.send(instruction, tag, group)
        } else if op == Op::Receive {
            Ok(receive(announced(instruction)?, 1, tag, group))
        } else if op == Op::AllReduce {
            self.all_reduce(instruction, tag, group)
        } else if op == Op::AllGather {
            self.all_gather(instruction, tag, group)
        } else if op == Op::ReduceScatter {
            self.reduce_scatter(instruction, tag, group)
        } else if op == Op::AllToAll {
            self.all_to_all(instruction, tag, group)
        } else {
            self.broadcast(instruction, tag, group)
        }
    }

    fn operand(&self, instruction: &Instruction<'_>) -> Result<(Id, Meta), NoValue> {
        let id = first_value(instruction)?;
        Ok((id, self.table.held(id)?.meta))
    }

    fn send(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &Group,
    ) -> Result<Task, NoValue> {
        let (id, meta) = self.operand(instruction)?;
        Ok(Task { result: None, ..to_all(id, meta, tag, group) })
    }

    fn broadcast(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &Group,
    ) -> Result<Task, NoValue> {
        let meta = announced(instruction)?;
        let root = group.place(instruction, "root")?;
        if root != group.me {
            return Ok(receive(meta, root, tag, group));
        }
        let (id, held) = self.operand(instruction)?;
        if held != meta {
            let text = format!("a {held} where a {meta} was announced");
            return Err(Fault::protocol(text).into());
        }
        let mut task = to_all(id, meta, tag, group);
        task.exchange.keep(Region::whole(&meta), Region::whole(&meta));
        Ok(task)
    }

    fn all_reduce(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &Group,
    ) -> Result<Task, NoValue> {
        let reduce_op = reduce_op_of(instruction)?;
        let (id, meta) = self.operand(instruction)?;
        let whole = Region::whole(&meta);
        if meta.bytes() <= ONE_HOP_BYTES_MAX || group.len() == 2 {
            let mut task = to_all(id, meta, tag, group);
            task.exchange.reduce(reduce_op, whole, whole);
            return Ok(task);
        }
        // Each member reduces one piece of all shards and shares it: every element is still reduced once, in the group's
        // order, so that all members hold the same bits, and the same as in one hop.
        let element = usize::try_from(meta.dtype.size()).unwrap_or(1);
        let pieces = Region::even(whole.len(), element, group.len());
        let mine = group.own(&pieces, whole);
        let mut exchange = Exchange::new(tag, meta);
        exchange.reduce(reduce_op, mine, mine);
        for (place, peer) in group.others() {
            let piece = pieces.get(place).copied().unwrap_or(whole);
            exchange.send(peer, 0, Source::Operand, piece);
            exchange.send(peer, 1, Source::Folded, mine);
            exchange.receive(peer, 1, piece);
        }
        Ok(Task { exchange, operand: Some(id), result: Some(meta) })
    }

    fn all_gather(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &Group,
    ) -> Result<Task, NoValue> {
        let (dim, sizes) = (dim_of(instruction, "dim")?, group.sizes(instruction, "sizes")?);
        let (id, meta) = self.operand(instruction)?;
        let own = group.own(sizes, 0);
        if meta.dims.get(dim) != Some(&own) {
            return Err(Fault::protocol(format!("a {meta} in place of {own} along {dim}")).into());
        }
        let result = resized(&meta, dim, sizes.iter().sum())?;
        let pieces = Region::pieces(&result, dim, sizes)?;
        let mut task = Task { result: Some(result), ..to_all(id, meta, tag, group) };
        gather(&mut task.exchange, Region::whole(&meta), &pieces, group);
        Ok(task)
    }

    fn reduce_scatter(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &Group,
    ) -> Result<Task, NoValue> {
        let reduce_op = reduce_op_of(instruction)?;
        let (dim, sizes) = (dim_of(instruction, "dim")?, group.sizes(instruction, "sizes")?);
        let (id, meta) = self.operand(instruction)?;
        let pieces = Region::pieces(&meta, dim, sizes)?;
        let result = resized(&meta, dim, group.own(sizes, 0))?;
        let mut exchange = Exchange::new(tag, result);
        scatter(&mut exchange, &pieces, group);
        exchange.reduce(
            reduce_op,
            group.own(&pieces, Region::whole(&meta)),
            Region::whole(&result),
        );
        Ok(Task { exchange, operand: Some(id), result: Some(result) })
    }

    fn all_to_all(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &Group,
    ) -> Result<Task, NoValue> {
        let (from, from_sizes) =
            (dim_of(instruction, "from_dim")?, group.sizes(instruction, "from_sizes")?);
        let (to, to_sizes) =
            (dim_of(instruction, "to_dim")?, group.sizes(instruction, "to_sizes")?);
        let (id, meta) = self.operand(instruction)?;
        // Along one and the same dimension two members exchange what lies in both their intervals.
        let (sent, arriving) = if from == to {
            (overlaps(from_sizes, group.me, to_sizes), overlaps(to_sizes, group.me, from_sizes))
        } else {
            (to_sizes.to_vec(), from_sizes.to_vec())
        };
        let whole = resized(&meta, from, from_sizes.iter().sum())?;
        let result = resized(&whole, to, group.own(to_sizes, 0))?;
        let pieces = Region::pieces(&meta, to, &sent)?;
        let mut exchange = Exchange::new(tag, result);
        scatter(&mut exchange, &pieces, group);
        let own = group.own(&pieces, Region::whole(&meta));
        gather(&mut exchange, own, &Region::pieces(&result, from, &arriving)?, group);
        Ok(Task { exchange, operand: Some(id), result: Some(result) })
    }
}

/// Our whole operand to every other member.
fn to_all(id: Id, meta: Meta, tag: u64, group: &Group) -> Task {
    let mut exchange = Exchange::new(tag, meta);
    for (_, peer) in group.others() {
        exchange.send(peer, 0, Source::Operand, Region::whole(&meta));
    }
    Task { exchange, operand: Some(id), result: Some(meta) }
}

/// A whole value from one member.
fn receive(meta: Meta, place: usize, tag: u64, group: &Group) -> Task {
    let mut exchange = Exchange::new(tag, meta);
    if let Some(&peer) = group.members.get(place) {
        exchange.receive(peer, 0, Region::whole(&meta));
    }
    Task { exchange, operand: None, result: Some(meta) }
}

/// Piece k of our operand to member k.
fn scatter(exchange: &mut Exchange, pieces: &[Region], group: &Group) {
    for (place, peer) in group.others() {
        if let Some(&piece) = pieces.get(place) {
            exchange.send(peer, 0, Source::Operand, piece);
        }
    }
}

/// Piece k of the result from member k, and `own` as ours.
fn gather(exchange: &mut Exchange, own: Region, pieces: &[Region], group: &Group) {
    for (place, peer) in group.others() {
        if let Some(&piece) = pieces.get(place) {
            exchange.receive(peer, 0, piece);
        }
    }
    exchange.keep(own, group.own(pieces, own));
}

/// What `receive` and `broadcast` say that will arrive.
fn announced(instruction: &Instruction<'_>) -> Result<Meta, Fault> {
    let (Attr::Ints(dims), Attr::Dtype(dtype)) =
        (instruction.attr("size"), instruction.attr("dtype"))
    else {
        let name = instruction.op.info().name;
        return Err(Fault::protocol(format!("{name} without size and dtype")));
    };
    Ok(Meta::new(*dtype, *dims))
}

pub(super) fn reduce_op_of(instruction: &Instruction<'_>) -> Result<ReduceOp, Fault> {
    let Attr::Choice(choice) = instruction.attr("fold") else {
        return Err(Fault::protocol("fold is missing"));
    };
    ReduceOp::from_choice(*choice).ok_or_else(|| Fault::protocol("fold is unknown"))
}

fn dim_of(instruction: &Instruction<'_>, name: &str) -> Result<usize, Fault> {
    Ok(usize::try_from(unsigned(instruction, name)?).unwrap_or(usize::MAX))
}

fn resized(meta: &Meta, dim: usize, size: i64) -> Result<Meta, Fault> {
    match with_size(&meta.dims, dim, size) {
        Some(dims) => Ok(Meta::new(meta.dtype, dims)),
        None => Err(Fault::protocol(format!("dim {dim} of a {meta}"))),
    }
}
