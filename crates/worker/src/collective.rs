//! What the workers of a group do together: every member meets the same instruction, and a failed operand travels to
//! the others in the place of its bytes, so that nobody waits for it.

mod exchange;
mod group;
mod region;

use crate::machine::{Machine, first_value, unsigned};
use crate::peers::{Peers, Stream};
use crate::reuse::{self, with_size};
use crate::table::NoValue;
use crate::{Cause, Engine, Fault, Fold, Places};
use exchange::{Broken, Exchange, Source, tell};
use group::Group;
use gt_protocol::{Attr, Id, Instruction, Meta, Op};
use region::{Region, overlaps};
use std::rc::Rc;

/// Up to here a reduction among three and more goes in one hop, every shard to everyone: below it the second hop's wait
/// costs more than the bytes it saves. Between two it saves none.
const ONE_HOP_BYTES_MAX: usize = 16 * 1024;

/// What one collective is: what it does, to which operand, and what comes out.
struct Task<'g> {
    exchange: Exchange<'g>,
    operand: Option<Id>,
    result: Option<Meta>,
}

impl<E: Engine> Machine<E> {
    pub(crate) fn collective(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        peers: &mut impl Peers,
    ) -> Result<(), NoValue> {
        self.table.check_vacant(&instruction.outputs)?;
        let tag = unsigned(instruction, "tag")?;
        let group = if matches!(instruction.op, Op::Send | Op::Receive) {
            Group::pair(self.index, self.peer(instruction)?)
        } else {
            Group::new(instruction, self.index)?
        };
        peers.begin(tag);
        let done = self.execute_together(instruction, next, tag, &group, peers);
        peers.end(tag, done.is_ok());
        done
    }

    fn execute_together(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        tag: u64,
        group: &Group,
        peers: &mut impl Peers,
    ) -> Result<(), NoValue> {
        let reused = self.reused(instruction, next);
        let prepared = self.task(instruction, tag, group).and_then(|task| {
            let value = match task.result.filter(|_| reused.is_none()) {
                Some(meta) => Some(self.allocate(&meta)?),
                None => None,
            };
            Ok((task, value))
        });
        let (mut task, mut value) = match prepared {
            Ok(prepared) => prepared,
            Err(why) => {
                let cause = self.cause(instruction, &why);
                peers.end(tag, false);
                for peer in listeners(instruction, group) {
                    tell(peer, Stream { tag, hop: 0 }, &cause, peers);
                }
                return Err(why);
            }
        };
        let exchange = &mut task.exchange;
        let mut outcome = Ok(());
        let mut body = |buffers: crate::Buffers<'_>| outcome = exchange.run::<E>(buffers, peers);
        let shown = match (reused, task.operand, &mut value) {
            (Some(id), _, _) => {
                let held = self.table.held_mut(id)?;
                self.engine.with_buffers(Places::One(&mut held.value), &mut body)
            }
            (None, Some(id), Some(value)) => {
                let held = self.table.held(id)?;
                self.engine.with_buffers(Places::Both(&held.value, value), &mut body)
            }
            (None, Some(id), None) => {
                let held = self.table.held(id)?;
                self.engine.with_buffers(Places::Operand(&held.value), &mut body)
            }
            (None, None, Some(value)) => self.engine.with_buffers(Places::Result(value), &mut body),
            (None, None, None) => Ok(()),
        };
        let outcome = shown.map_err(Broken::Fault).and(outcome);
        if let Err(broken) = outcome {
            if let Some(id) = reused {
                // It is half overwritten, and nobody asks for it any more.
                self.table.consume(id);
            }
            return Err(self.break_off(instruction, &task.exchange, broken, tag, peers));
        }
        match (instruction.outputs.first(), reused, value, task.result) {
            (Some(&id), Some(from), _, _) => self.table.hand_over(from, id),
            (Some(&id), None, Some(value), Some(meta)) => self.table.put(id, value, meta),
            (_, _, _, _) => {}
        }
        Ok(())
    }

    /// Tells the others why our part ends here, unless they have told us.
    fn break_off(
        &self,
        instruction: &Instruction<'_>,
        exchange: &Exchange<'_>,
        broken: Broken,
        tag: u64,
        peers: &mut impl Peers,
    ) -> NoValue {
        // Before the end, after which nothing is seen of what came under the tag.
        let failed = exchange.failed(peers);
        peers.end(tag, false);
        let why = match broken {
            Broken::Off => return Fault::protocol("broken off").into(),
            Broken::Failed(cause) => NoValue::Failed(Rc::new(cause)),
            Broken::Fault(fault) => fault.into(),
        };
        exchange.tell(&self.cause(instruction, &why), &failed, peers);
        why
    }

    /// The operand of a reduction, if its buffer can be the result's.
    fn reused(&self, instruction: &Instruction<'_>, next: &[u32]) -> Option<Id> {
        if instruction.op != Op::AllReduce {
            return None;
        }
        let id = instruction.values().next()?;
        let meta = self.table.held(id).ok()?.meta;
        let in_place = self.engine.in_place(instruction.op);
        let reusable = reuse::reusable(&self.table, instruction, in_place, next, &[meta]);
        (reusable & 1 != 0).then_some(id)
    }

    fn task<'g>(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &'g Group,
    ) -> Result<Task<'g>, NoValue> {
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

    /// Why our part of a collective fails, as the others are to hear it.
    fn cause(&self, instruction: &Instruction<'_>, why: &NoValue) -> Rc<Cause> {
        match why {
            NoValue::Failed(cause) => Rc::clone(cause),
            NoValue::Fault(fault) => Rc::new(self.cause_of(instruction, fault.clone())),
        }
    }

    fn peer(&self, instruction: &Instruction<'_>) -> Result<u32, Fault> {
        let peer = unsigned(instruction, "peer")?;
        match u32::try_from(peer) {
            Ok(peer) if peer != self.index => Ok(peer),
            Ok(_) | Err(_) => Err(Fault::protocol(format!("peer {peer} of worker {}", self.index))),
        }
    }

    fn operand(&self, instruction: &Instruction<'_>) -> Result<(Id, Meta), NoValue> {
        let id = first_value(instruction)?;
        Ok((id, self.table.held(id)?.meta))
    }

    fn send<'g>(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &'g Group,
    ) -> Result<Task<'g>, NoValue> {
        let (id, meta) = self.operand(instruction)?;
        Ok(Task { result: None, ..to_all(id, meta, tag, group) })
    }

    fn broadcast<'g>(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &'g Group,
    ) -> Result<Task<'g>, NoValue> {
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

    fn all_reduce<'g>(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &'g Group,
    ) -> Result<Task<'g>, NoValue> {
        let fold = fold_of(instruction)?;
        let (id, meta) = self.operand(instruction)?;
        let whole = Region::whole(&meta);
        if whole.len() <= ONE_HOP_BYTES_MAX || group.len() == 2 {
            let mut task = to_all(id, meta, tag, group);
            task.exchange.fold(fold, whole, whole);
            return Ok(task);
        }
        // Each member folds one piece of all shards and shares it: every element is still folded once, in the group's
        // order, so that all members hold the same bits, and the same as in one hop.
        let element = usize::try_from(meta.dtype.size()).unwrap_or(1);
        let pieces = Region::even(whole.len(), element, group.len());
        let mine = group.own(&pieces, whole);
        let mut exchange = Exchange::new(group, tag, meta);
        exchange.fold(fold, mine, mine);
        for (place, peer) in group.others() {
            let piece = pieces.get(place).copied().unwrap_or(whole);
            exchange.send(peer, 0, Source::Operand, piece);
            exchange.send(peer, 1, Source::Folded, mine);
            exchange.receive(peer, 1, piece);
        }
        Ok(Task { exchange, operand: Some(id), result: Some(meta) })
    }

    fn all_gather<'g>(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &'g Group,
    ) -> Result<Task<'g>, NoValue> {
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

    fn reduce_scatter<'g>(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &'g Group,
    ) -> Result<Task<'g>, NoValue> {
        let fold = fold_of(instruction)?;
        let (dim, sizes) = (dim_of(instruction, "dim")?, group.sizes(instruction, "sizes")?);
        let (id, meta) = self.operand(instruction)?;
        let pieces = Region::pieces(&meta, dim, sizes)?;
        let result = resized(&meta, dim, group.own(sizes, 0))?;
        let mut exchange = Exchange::new(group, tag, result);
        scatter(&mut exchange, &pieces, group);
        exchange.fold(fold, group.own(&pieces, Region::whole(&meta)), Region::whole(&result));
        Ok(Task { exchange, operand: Some(id), result: Some(result) })
    }

    fn all_to_all<'g>(
        &self,
        instruction: &Instruction<'_>,
        tag: u64,
        group: &'g Group,
    ) -> Result<Task<'g>, NoValue> {
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
        let mut exchange = Exchange::new(group, tag, result);
        scatter(&mut exchange, &pieces, group);
        let own = group.own(&pieces, Region::whole(&meta));
        gather(&mut exchange, own, &Region::pieces(&result, from, &arriving)?, group);
        Ok(Task { exchange, operand: Some(id), result: Some(result) })
    }
}

/// Who waits for something of ours.
fn listeners(instruction: &Instruction<'_>, group: &Group) -> Vec<u32> {
    let is_root = || group.place(instruction, "root").is_ok_and(|root| root == group.me);
    if instruction.op == Op::Receive || (instruction.op == Op::Broadcast && !is_root()) {
        return Vec::new();
    }
    group.others().map(|(_, member)| member).collect()
}

/// Our whole operand to every other member.
fn to_all(id: Id, meta: Meta, tag: u64, group: &Group) -> Task<'_> {
    let mut exchange = Exchange::new(group, tag, meta);
    for (_, peer) in group.others() {
        exchange.send(peer, 0, Source::Operand, Region::whole(&meta));
    }
    Task { exchange, operand: Some(id), result: Some(meta) }
}

/// A whole value from one member.
fn receive(meta: Meta, place: usize, tag: u64, group: &Group) -> Task<'_> {
    let mut exchange = Exchange::new(group, tag, meta);
    if let Some(&peer) = group.members.get(place) {
        exchange.receive(peer, 0, Region::whole(&meta));
    }
    Task { exchange, operand: None, result: Some(meta) }
}

/// Piece k of our operand to member k.
fn scatter(exchange: &mut Exchange<'_>, pieces: &[Region], group: &Group) {
    for (place, peer) in group.others() {
        if let Some(&piece) = pieces.get(place) {
            exchange.send(peer, 0, Source::Operand, piece);
        }
    }
}

/// Piece k of the result from member k, and `own` as ours.
fn gather(exchange: &mut Exchange<'_>, own: Region, pieces: &[Region], group: &Group) {
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

fn fold_of(instruction: &Instruction<'_>) -> Result<Fold, Fault> {
    let Attr::Choice(choice) = instruction.attr("fold") else {
        return Err(Fault::protocol("fold is missing"));
    };
    Fold::from_choice(*choice).ok_or_else(|| Fault::protocol("fold is unknown"))
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
