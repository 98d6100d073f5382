//! What the workers of a group do together: every member meets the same instruction, and a failed operand travels to
//! the others in the place of its bytes, so that nobody waits for it.

mod group;
mod pieces;

use crate::machine::{Machine, first_value, unsigned};
use crate::reuse::with_size;
use crate::table::NoValue;
use crate::{Cause, Engine, Fault, Fold};
use group::{Group, all_bytes};
use gt_protocol::message::FailureClass;
use gt_protocol::{Attr, Instruction, Meta, Op};
use pieces::{Pieces, overlaps};
use std::rc::Rc;

/// Up to here a reduction goes in one hop, every shard to everyone: below it the second hop's wait costs more than the
/// bytes it saves.
const ONE_HOP_BYTES_MAX: usize = 16 * 1024;

/// What one worker sends another: a value's bytes, or why there are none.
#[derive(Clone, Copy, Debug)]
pub enum Parcel<'a> {
    Bytes(&'a [u8]),
    Failure(&'a Cause),
}

/// What arrives.
pub type Received = Result<Vec<u8>, Cause>;

/// A worker that nobody can reach any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {0} is gone")]
pub struct PeerLost(pub u32);

/// The other workers.
pub trait Peers {
    /// Sends the parcels and returns one from each of `from`, in this order, all under `tag`. It takes in what arrives
    /// while it sends, whoever it is from: two workers that send each other more than the way between them holds must
    /// not wait for each other.
    fn exchange(
        &mut self,
        tag: u64,
        parcels: &[(u32, Parcel<'_>)],
        from: &[u32],
    ) -> Result<Vec<Received>, PeerLost>;
}

impl From<PeerLost> for Fault {
    fn from(lost: PeerLost) -> Self {
        Self::new(FailureClass::WorkerLost, lost.to_string())
    }
}

/// Bytes of a value, row-major, and what it is.
type Whole = (Vec<u8>, Meta);

impl<E: Engine> Machine<E> {
    pub(crate) fn collective(
        &mut self,
        instruction: &Instruction<'_>,
        peers: &mut impl Peers,
    ) -> Result<(), NoValue> {
        self.table.check_vacant(&instruction.outputs)?;
        let op = instruction.op;
        if op == Op::Send {
            return self.send(instruction, peers);
        }
        let (bytes, meta) = if op == Op::Receive {
            self.receive(instruction, peers)?
        } else {
            let group = Group::new(instruction, self.index)?;
            if op == Op::AllReduce {
                self.all_reduce(instruction, &group, peers)?
            } else if op == Op::AllGather {
                self.all_gather(instruction, &group, peers)?
            } else if op == Op::ReduceScatter {
                self.reduce_scatter(instruction, &group, peers)?
            } else if op == Op::AllToAll {
                self.all_to_all(instruction, &group, peers)?
            } else {
                self.broadcast(instruction, &group, peers)?
            }
        };
        let expected = meta.bytes();
        if u64::try_from(bytes.len()).ok() != Some(expected) {
            let text = format!("{} bytes arrived for a {meta}", bytes.len());
            return Err(Fault::protocol(text).into());
        }
        let mut value = self.allocate(&meta)?;
        self.engine.write(&mut value, 0, &bytes)?;
        if let Some(&id) = instruction.outputs.first() {
            self.table.put(id, value, meta);
        }
        Ok(())
    }

    /// Bytes and metadata of the operand, and a copy of why there are none.
    fn shard(&mut self, instruction: &Instruction<'_>) -> Result<Whole, NoValue> {
        let held = self.table.held(first_value(instruction)?)?;
        let mut shard = Vec::new();
        self.engine.with_bytes(&held.value, &mut |bytes| shard.extend_from_slice(bytes))?;
        Ok((shard, held.meta))
    }

    /// Why our part of a collective fails, as the others are to hear it.
    fn cause(&self, instruction: &Instruction<'_>, why: &NoValue) -> Rc<Cause> {
        match why {
            NoValue::Failed(cause) => Rc::clone(cause),
            NoValue::Fault(fault) => Rc::new(self.cause_of(instruction, fault.clone())),
        }
    }

    fn send(
        &mut self,
        instruction: &Instruction<'_>,
        peers: &mut impl Peers,
    ) -> Result<(), NoValue> {
        let peer = self.peer(instruction)?;
        let tag = unsigned(instruction, "tag")?;
        let shard = self.shard(instruction);
        let cause = shard.as_ref().err().map(|why| self.cause(instruction, why));
        let parcel = match (&shard, &cause) {
            (Err(_), Some(cause)) => Parcel::Failure(cause),
            (Ok((bytes, _)), _) => Parcel::Bytes(bytes),
            (Err(_), None) => Parcel::Bytes(&[]),
        };
        peers.exchange(tag, &[(peer, parcel)], &[]).map_err(Fault::from)?;
        shard.map(|_| ())
    }

    fn receive(
        &mut self,
        instruction: &Instruction<'_>,
        peers: &mut impl Peers,
    ) -> Result<Whole, NoValue> {
        let meta = announced(instruction)?;
        let peer = self.peer(instruction)?;
        let tag = unsigned(instruction, "tag")?;
        let mut received = all_bytes(peers.exchange(tag, &[], &[peer]).map_err(Fault::from)?)?;
        Ok((received.pop().unwrap_or_default(), meta))
    }

    fn peer(&self, instruction: &Instruction<'_>) -> Result<u32, Fault> {
        let peer = unsigned(instruction, "peer")?;
        match u32::try_from(peer) {
            Ok(peer) if peer != self.index => Ok(peer),
            Ok(_) | Err(_) => Err(Fault::protocol(format!("peer {peer} of worker {}", self.index))),
        }
    }

    fn all_reduce(
        &mut self,
        instruction: &Instruction<'_>,
        group: &Group,
        peers: &mut impl Peers,
    ) -> Result<Whole, NoValue> {
        let fold = fold_of(instruction)?;
        let (own, meta) = self.prepare(instruction, group, peers, Ok)?;
        if own.len() <= ONE_HOP_BYTES_MAX {
            let received = group.share(Parcel::Bytes(&own), peers)?;
            let folded = self.fold(&meta, fold, &group.in_order(&received, &own))?;
            return Ok((folded, meta));
        }
        // Each member folds one piece of all shards and shares it: every element is still folded once, in the group's
        // order, so that all members hold the same bits, and the same as in one hop.
        let cuts = even_cuts(&own, &meta, group.len());
        let mine = cuts.get(group.me).copied().unwrap_or_default();
        // A member that failed has told all, and all stop here. A lost one may have told some only, and a fold that
        // fails is nobody else's knowledge: then the second hop carries the failure.
        let folded = match group.scatter(&cuts, peers) {
            Ok(received) => self.fold(&meta, fold, &group.in_order(&received, mine)),
            Err(NoValue::Failed(cause)) => return Err(NoValue::Failed(cause)),
            Err(NoValue::Fault(lost)) => Err(lost),
        };
        let folded = match folded {
            Ok(folded) => folded,
            Err(fault) => {
                let cause = self.cause_of(instruction, fault.clone());
                group.share(Parcel::Failure(&cause), peers)?;
                return Err(fault.into());
            }
        };
        let received = group.share(Parcel::Bytes(&folded), peers)?;
        Ok((group.in_order(&received, &folded).concat(), meta))
    }

    fn all_gather(
        &mut self,
        instruction: &Instruction<'_>,
        group: &Group,
        peers: &mut impl Peers,
    ) -> Result<Whole, NoValue> {
        let sizes = group.sizes(instruction, "sizes")?;
        let dim = dim_of(instruction, "dim")?;
        let prepare = |(own, meta): Whole| {
            let result = resized(&meta, dim, sizes.iter().sum())?;
            Ok((own, result, Pieces::new(&result, dim, sizes)?))
        };
        let (own, result, pieces) = self.prepare(instruction, group, peers, prepare)?;
        let received = group.share(Parcel::Bytes(&own), peers)?;
        Ok((pieces.joined(&group.in_order(&received, &own))?, result))
    }

    fn reduce_scatter(
        &mut self,
        instruction: &Instruction<'_>,
        group: &Group,
        peers: &mut impl Peers,
    ) -> Result<Whole, NoValue> {
        let fold = fold_of(instruction)?;
        let sizes = group.sizes(instruction, "sizes")?;
        let dim = dim_of(instruction, "dim")?;
        let prepare = |(own, meta): Whole| {
            let result = resized(&meta, dim, sizes.get(group.me).copied().unwrap_or(0))?;
            Ok((Pieces::new(&meta, dim, sizes)?.cut(&own), result))
        };
        let (cut, result) = self.prepare(instruction, group, peers, prepare)?;
        let received = group.scatter(&cut, peers)?;
        let mine = cut.get(group.me).map_or(&[][..], Vec::as_slice);
        let folded = self.fold(&result, fold, &group.in_order(&received, mine))?;
        Ok((folded, result))
    }

    fn all_to_all(
        &mut self,
        instruction: &Instruction<'_>,
        group: &Group,
        peers: &mut impl Peers,
    ) -> Result<Whole, NoValue> {
        let (from, from_sizes) =
            (dim_of(instruction, "from_dim")?, group.sizes(instruction, "from_sizes")?);
        let (to, to_sizes) =
            (dim_of(instruction, "to_dim")?, group.sizes(instruction, "to_sizes")?);
        // Along one and the same dimension two members exchange what lies in both their intervals.
        let (sent, arriving) = if from == to {
            (overlaps(from_sizes, group.me, to_sizes), overlaps(to_sizes, group.me, from_sizes))
        } else {
            (to_sizes.to_vec(), from_sizes.to_vec())
        };
        let prepare = |(own, meta): Whole| {
            let whole = resized(&meta, from, from_sizes.iter().sum())?;
            let result = resized(&whole, to, to_sizes.get(group.me).copied().unwrap_or(0))?;
            let pieces = Pieces::new(&result, from, &arriving)?;
            Ok((Pieces::new(&meta, to, &sent)?.cut(&own), result, pieces))
        };
        let (cut, result, pieces) = self.prepare(instruction, group, peers, prepare)?;
        let received = group.scatter(&cut, peers)?;
        let mine = cut.get(group.me).map_or(&[][..], Vec::as_slice);
        Ok((pieces.joined(&group.in_order(&received, mine))?, result))
    }

    fn broadcast(
        &mut self,
        instruction: &Instruction<'_>,
        group: &Group,
        peers: &mut impl Peers,
    ) -> Result<Whole, NoValue> {
        let meta = announced(instruction)?;
        let root = unsigned(instruction, "root")?;
        let Some(root) = group.place(root) else {
            return Err(Fault::protocol(format!("the root {root} is not in its group")).into());
        };
        if root != group.me {
            return Ok((group.hear(root, peers)?, meta));
        }
        let shard = self.shard(instruction).and_then(|(bytes, held)| {
            if held == meta {
                return Ok(bytes);
            }
            Err(Fault::protocol(format!("a {held} where a {meta} was announced")).into())
        });
        match shard {
            Ok(bytes) => {
                group.tell(Parcel::Bytes(&bytes), peers)?;
                Ok((bytes, meta))
            }
            Err(why) => {
                group.tell(Parcel::Failure(&self.cause(instruction, &why)), peers)?;
                Err(why)
            }
        }
    }

    /// What `prepare` makes of our shard; where there is none, the others hear why, in the place where they wait for it.
    fn prepare<T>(
        &mut self,
        instruction: &Instruction<'_>,
        group: &Group,
        peers: &mut impl Peers,
        prepare: impl FnOnce(Whole) -> Result<T, Fault>,
    ) -> Result<T, NoValue> {
        let prepared = self.shard(instruction).and_then(|shard| Ok(prepare(shard)?));
        match prepared {
            Ok(prepared) => Ok(prepared),
            Err(why) => {
                let cause = self.cause(instruction, &why);
                group.share(Parcel::Failure(&cause), peers)?;
                Err(why)
            }
        }
    }

    fn fold(&mut self, meta: &Meta, fold: Fold, shards: &[&[u8]]) -> Result<Vec<u8>, Fault> {
        let lengths: Vec<usize> = shards.iter().map(|shard| shard.len()).collect();
        if lengths.iter().any(|length| Some(length) != lengths.first()) {
            return Err(Fault::protocol(format!("shards of {lengths:?} bytes to fold")));
        }
        self.engine.fold(meta.dtype, fold, shards)
    }
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

/// One piece a member, cut between elements.
fn even_cuts<'a>(bytes: &'a [u8], meta: &Meta, members: usize) -> Vec<&'a [u8]> {
    let size = usize::try_from(meta.dtype.size()).unwrap_or(1);
    let elements = bytes.len() / size;
    let end = |member: usize| elements * member / members * size;
    (0..members).map(|member| bytes.get(end(member)..end(member + 1)).unwrap_or_default()).collect()
}
